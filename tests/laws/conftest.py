"""Finds the cases: every `CASES` of the modules `tests/laws/*_cases.py`."""

import importlib
from pathlib import Path

import pytest
from tests.laws.laws import FormatCase

CASES: list[FormatCase] = [
    case
    for path in sorted(Path(__file__).parent.glob("*_cases.py"))
    for case in importlib.import_module(f"tests.laws.{path.stem}").CASES
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a law on every case, or on every sample of every case."""
    names = metafunc.fixturenames
    for kind in ("small", "large"):
        if kind in names:
            pairs = [(case, sample) for case in CASES for sample in getattr(case, kind)]
            ids = [f"{case.name}-{sample.name}" for case, sample in pairs]
            metafunc.parametrize(("case", kind), pairs, ids=ids)
            return
    if "case" in names:
        metafunc.parametrize("case", CASES, ids=[case.name for case in CASES])
