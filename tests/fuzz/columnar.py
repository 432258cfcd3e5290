"""How objects of rows in columns are tried: any partition yields the same, and a plan is one."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.fuzz.lines import convert_all
from tests.laws.laws import extent_of

from extentflow.formats import Format, FormatOptions
from extentflow.testing.stores import MemorySource


def decoded_places(
    fmt: Format, source: MemorySource, cuts: list[int]
) -> tuple[list[int], list[int]]:
    """Return the locations of rows and of bad records of the extents between `cuts`."""
    rows: list[int] = []
    bad: list[int] = []
    for start, end in pairwise(cuts):
        before = 0
        for chunk in fmt.decode(source, extent_of(source, start, end), 0):
            assert chunk.next_position > before, "positions increase"
            before = chunk.next_position
            assert len(chunk.locations) == chunk.batch.num_rows
            rows += [int(one) for one in chunk.locations]
            bad += [one.location for one in chunk.bad]
    return rows, bad


def require_partitions(fmt: Format, source: MemorySource, share: float) -> str:
    """Decode an object whole, at the bounds of its plan and cut at `share`; name the outcome."""
    size = source.version.size
    ranges = list(fmt.plan(source, 1))
    bounds = [start for start, _ in ranges] + [end for _, end in ranges[-1:]]
    assert not ranges or (bounds[0], bounds[-1]) == (0, size), "a plan is a partition"
    whole = decoded_places(fmt, source, [0, size])
    cut = int(share * size)
    assert decoded_places(fmt, source, [0, cut, size]) == whole, "any partition yields the same"
    if cut < size // 4:
        assert decoded_places(fmt, source, bounds) == whole
    rows, bad = whole
    assert len(set(rows)) == len(rows), "every row once"
    return f"{'rows' if rows else 'nothing'}{', lost ones' if bad else ''}"


def run_columnar(
    given: dict[str, Any], body: bytes, opened: Callable[[FormatOptions], Format]
) -> str:
    """Try an object: partitions, and every record converted."""
    source = MemorySource(body)
    fmt = opened(FormatOptions(window_bytes=given["window"], batch_rows=given["batch"]))
    outcome = require_partitions(fmt, source, given["cut"])
    convert_all(fmt, source, given["converter"])
    return outcome
