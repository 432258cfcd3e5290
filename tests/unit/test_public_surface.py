"""What pages and examples import is public, and what docs/python.md calls public is there."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import extentflow
from extentflow.consumer import TopicConsumer
from extentflow.errors import Misconfigured

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "docs" / "python.md"
TEXTS = [
    ROOT / "README.md",
    *sorted({*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "history.md"}),
    *sorted((ROOT / "examples").glob("**/*.py")),
]
# The distribution of the stack, `extentflow_cdk`, states its own surface in docs/deploy.md.
IMPORT = re.compile(r"^ *from (extentflow(?!_)[\w.]*) import (\([^)]*\)|[^\n#]+)", re.MULTILINE)
WHOLE = re.compile(r"^ *import (extentflow[\w.]*)", re.MULTILINE)
# A class or function by its full name, such as `extentflow.formats.FormatSpec`.
QUALIFIED = re.compile(r"`(extentflow(?:\.[a-z_]\w*)*)\.([A-Z]\w+)`")


def public_modules() -> list[str]:
    """The modules in the first column of the table of docs/python.md."""
    _, _, after = PYTHON.read_text().partition("\n## What is public\n")
    rows = [line for line in after.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def named(text: Path) -> Iterator[tuple[str, str]]:
    """Every module that a text imports or names, with the name that it takes of it."""
    content = text.read_text()
    for module, names in IMPORT.findall(content):
        yield from ((module, name) for name in re.findall(r"(?:^|,)\s*(\w+)", names.strip("()")))
    yield from ((module, "__name__") for module in WHOLE.findall(content))
    if text.suffix == ".md":
        yield from QUALIFIED.findall(content)


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_names_only_what_is_public_and_exists(text: Path) -> None:
    for module, name in named(text):
        assert module in {"extentflow", *public_modules()}, f"{text.name}: {module} is internal"
        assert hasattr(importlib.import_module(module), name), f"{text.name}: {module}.{name}"


@pytest.mark.parametrize("module", public_modules())
def test_a_public_module_exists(module: str) -> None:
    assert importlib.import_module(module).__doc__


def test_the_page_names_every_public_name() -> None:
    page = PYTHON.read_text()

    assert [name for name in extentflow.__all__ if name not in page] == []
    assert dir(extentflow) == sorted(extentflow.__all__)


def test_a_public_name_is_the_one_of_its_module() -> None:
    assert extentflow.TopicConsumer is TopicConsumer
    assert extentflow.Misconfigured is Misconfigured
