"""Every mistake known from other connectors has a number, tests, and a sentence that states it."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# The last number. A new trap takes the next one, and its first test begins with `Trap: ...`.
TRAPS = 31


@pytest.fixture(scope="module")
def stated() -> dict[int, list[str]]:
    """The docstrings of every trap's tests, by number."""
    found: dict[int, list[str]] = defaultdict(list)
    texts = (path.read_text() for path in TESTS.rglob("*.py"))
    for text in texts:
        for node in ast.walk(ast.parse(text)) if "def test_trap_" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_trap_"):
                numbers = [part for part in node.name.split("_")[2:] if re.fullmatch(r"t\d+", part)]
                assert numbers, node.name
                for number in numbers:
                    assert number == f"t{int(number[1:]):02d}", node.name
                    found[int(number[1:])].append(ast.get_docstring(node) or "")
    return found


def test_the_traps_are_numbered_without_a_gap(stated: dict[int, list[str]]) -> None:
    assert sorted(stated) == list(range(1, TRAPS + 1))


def test_one_test_of_each_trap_states_it(stated: dict[int, list[str]]) -> None:
    statements = {
        number: [text for text in texts if text.startswith("Trap: ")]
        for number, texts in stated.items()
    }

    assert {number for number, texts in statements.items() if len(texts) != 1} == set()
