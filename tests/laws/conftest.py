"""Runs laws on the cases."""

import pytest
from tests.laws.cases import CASES
from tests.laws.laws import FormatCase, Sample

# CSV in compressed blocks takes half of the time. Of each such case `make test` runs these samples,
# `make test-all` the others.
COMPRESSED_CSV = ("csv-bgzf", "csv-bzip2", "csv-zstd", "csv-gzip")
ALWAYS = ("quotes", "line-breaks", "bom-crlf")


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
    later = case.name.startswith(COMPRESSED_CSV) and not sample.name.startswith(ALWAYS)
    marks = [pytest.mark.variant] if later else []
    return pytest.param(case, sample, id=f"{case.name}-{sample.name}", marks=marks)
