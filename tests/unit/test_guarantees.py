"""docs/guarantees.md names tests that exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "guarantees.md"
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text())


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_a_test_that_a_guarantee_names_exists(module: str, name: str) -> None:
    source = (TESTS / module).read_text()

    assert re.search(rf"^\s*def {name}\(", source, re.MULTILINE)


def test_every_guarantee_names_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith("| promise")]

    assert promises
    assert [row for row in promises if ".py::test_" not in row] == []
