"""The rules of the house that a script can check; CONTRIBUTING.md states them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "layers/core/python/extentflow"
TESTS = ROOT / "tests"
MOST_LINES = 700
MOST_PARAMETERS = 6
# A docstring's last line where the tests of a module are not at its path.
STATED_TESTS = re.compile(r"Tests: (.+)")
MOST_STATED = 2
# Rooms whose files are named after the ports that they are doubles of.
DOUBLES = "testing"


def modules() -> list[Path]:
    return sorted(path for path in LIBRARY.rglob("*.py") if not path.name.startswith("__"))


def relative(path: Path) -> str:
    return path.relative_to(LIBRARY).as_posix()


def path_of_tests(module: Path) -> Path:
    return TESTS / "unit" / module.relative_to(LIBRARY).with_name(f"test_{module.name}")


def stated_tests(module: Path) -> list[Path]:
    """Return the tests that the last line of a module's docstring names."""
    *_, last = (ast.get_docstring(ast.parse(module.read_text())) or "").split("\n")
    stated = STATED_TESTS.fullmatch(last)
    return [TESTS / name for name in stated[1].split(", ")] if stated else []


def functions(module: Path) -> Iterator[tuple[str, int]]:
    """Yield the functions of a module, each with its number of parameters."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef):
            given = node.args
            yield node.name, len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)


def test_the_tests_of_a_module_are_at_its_path_or_named_in_its_docstring() -> None:
    without = [
        relative(module)
        for module in modules()
        if not path_of_tests(module).exists() and not stated_tests(module)
    ]

    assert without == []


def test_a_docstring_names_tests_that_exist_and_only_where_the_path_has_none() -> None:
    wrong = {
        relative(module): [path.relative_to(TESTS).as_posix() for path in named]
        for module in modules()
        if (named := stated_tests(module))
        and (
            path_of_tests(module).exists()
            or len(named) > MOST_STATED
            or not all(path.exists() for path in named)
        )
    }

    assert wrong == {}


def test_a_file_name_occurs_in_one_room() -> None:
    rooms = defaultdict(set)
    for module in modules():
        if module.relative_to(LIBRARY).parts[0] != DOUBLES:
            rooms[module.name].add(relative(module.parent))

    assert {name: found for name, found in rooms.items() if len(found) > 1} == {}


def test_no_module_is_too_long_to_read() -> None:
    lengths = {relative(module): len(module.read_text().splitlines()) for module in modules()}

    assert {name: count for name, count in lengths.items() if count > MOST_LINES} == {}


def test_no_command_has_more_parameters_than_a_reader_keeps_in_mind() -> None:
    wide = {
        f"{relative(module)}: {name}": count
        for module in modules()
        if module.parent.name == "cli"
        for name, count in functions(module)
        if count > MOST_PARAMETERS
    }

    assert wide == {}
