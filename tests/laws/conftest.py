"""Runs laws on the cases."""

import pytest
from tests.laws.cases import CASES


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
