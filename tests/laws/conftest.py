"""Runs laws on the cases."""

import pytest
from tests.laws.cases import CASES
from tests.laws.laws import FormatCase, Sample

# Of cases that repeat the samples of another one by a path that differs little, `make test` runs
# these samples, `make test-all` the others.
IN_TEST = {
    ("csv-bgzf", "csv-bzip2", "csv-zstd", "csv-gzip"): ("quotes", "line-breaks", "bom-crlf"),
    ("csv-cr",): ("quotes", "one-column", "empty-fields"),
    ("text-unvalidated",): ("not-utf8", "bom-crlf", "mixed-ends"),
    ("utf-16-be", "utf-32-be"): ("marked", "half-a-pair", "unicode"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a law on every case, or on every sample of every case."""
    names = metafunc.fixturenames
    for kind in ("small", "large"):
        if kind in names:
            pairs = [(case, sample) for case in CASES for sample in getattr(case, kind)]
            metafunc.parametrize(("case", kind), [_sampled(case, sample) for case, sample in pairs])
            return
    if "case" in names:
        metafunc.parametrize("case", CASES, ids=[case.name for case in CASES])


def _sampled(case: FormatCase, sample: Sample) -> object:
    """Return the parameters of a law."""
    later = any(
        case.name.startswith(cases) and not sample.name.startswith(samples)
        for cases, samples in IN_TEST.items()
    )
    marks = [pytest.mark.variant] if later else []
    return pytest.param(case, sample, id=f"{case.name}-{sample.name}", marks=marks)
