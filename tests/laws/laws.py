"""The laws that every format keeps, whatever its units are.

A format joins with a `FormatCase` in a module `tests/laws/<name>_cases.py` that lists its `CASES`;
test_format_laws.py finds it there and runs everything below on it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

from extentflow.errors import ExtentflowError, StoreUnavailable
from extentflow.formats import Chunk, Format, FormatOptions, SchemaFormat, no_rows
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.testing.stores import MemorySource

Row = Any


@dataclass(frozen=True, eq=False)
class Sample:
    """An object and its records, computed without the format under test.

    `rows` are `pa.RecordBatch.to_pylist()`'s. `locations` are the rows' places and `bad` those of
    the bad records, where the author can tell; None leaves them to the comparison between cuts.
    """

    name: str
    body: bytes
    rows: Sequence[Row]
    locations: Sequence[int] | None = None
    bad: Sequence[int] | None = ()


@dataclass(frozen=True, eq=False)
class FormatCase:
    """A format with options and samples. `large` samples are cut at random, small ones everywhere.

    `windows` and `batches` are the sizes that are tried.
    """

    name: str
    open: Callable[[FormatOptions], Format]
    small: Sequence[Sample]
    large: Sequence[Sample] = ()
    options: FormatOptions = field(default_factory=FormatOptions)
    windows: Sequence[int] = (2, 3, 7, 64, 1 << 20)
    batches: Sequence[int] = (1, 2, 3, 65_536)

    def format(self, window_bytes: int = 1 << 20, batch_rows: int = 65_536) -> Format:
        """Return the format, fresh, with these sizes."""
        return self.open(replace(self.options, window_bytes=window_bytes, batch_rows=batch_rows))


@dataclass
class Decoded:
    """What came out of one or several extents."""

    rows: list[Row] = field(default_factory=list)
    locations: list[int] = field(default_factory=list)
    bad: list[tuple[int, bytes | None, str]] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        """Append a chunk."""
        assert len(chunk.locations) == chunk.batch.num_rows
        self.rows += chunk.batch.to_pylist()
        self.locations += [int(location) for location in chunk.locations]
        self.bad += [(bad.location, bad.raw, bad.reason) for bad in chunk.bad]


def extent_of(source: RangeSource, start: int, end: int) -> Extent:
    """Return `[start, end)` of the source's object as an extent of some job."""
    return Extent("job", 0, "connector", source.version, start, end, "format")


def chunks(
    fmt: Format, source: RangeSource, start: int, end: int, position: int = 0
) -> Iterator[Chunk]:
    """Yield an extent's chunks, and check that positions grow."""
    before = position
    for chunk in fmt.decode(source, extent_of(source, start, end), position):
        assert chunk.next_position > before, "positions strictly grow"
        before = chunk.next_position
        yield chunk


def decoded(fmt: Format, source: RangeSource, cuts: Sequence[int]) -> Decoded:
    """Decode the extents between neighbouring `cuts`, one after the other."""
    result = Decoded()
    for start, end in pairwise(cuts):
        for chunk in chunks(fmt, source, start, end):
            result.add(chunk)
    return result


@cache
def at_once(case: FormatCase, sample: Sample, start: int, end: int) -> Decoded:
    """Decode an extent in large pieces; what it holds is the same however often it is asked."""
    return decoded(case.format(), MemorySource(sample.body), (start, end))


@cache
def whole(case: FormatCase, sample: Sample) -> Decoded:
    """Decode the object as one extent, and compare it with what the sample's author says."""
    result = at_once(case, sample, 0, len(sample.body))
    assert result.rows == list(sample.rows)
    if sample.locations is not None:
        assert result.locations == list(sample.locations)
    if sample.bad is not None:
        assert [location for location, _, _ in result.bad] == list(sample.bad)
    return result


def any_partition_yields_everything_once(
    case: FormatCase, sample: Sample, cuts: Sequence[int], window_bytes: int, batch_rows: int
) -> None:
    """The ownership law."""
    fmt = case.format(window_bytes, batch_rows)

    result = decoded(fmt, MemorySource(sample.body), (0, *cuts, len(sample.body)))

    assert result == whole(case, sample)


def stated_columns_are_decoded(case: FormatCase, sample: Sample) -> None:
    """A format that states its columns before the first record decodes these."""
    fmt, source = case.format(), MemorySource(sample.body)
    if not isinstance(fmt, SchemaFormat) or not sample.body:
        return
    stated = fmt.schema(source)
    assert no_rows(stated).schema == stated
    for chunk in chunks(fmt, source, 0, len(sample.body)):
        assert chunk.batch.schema.equals(stated)


def every_row_is_a_position(case: FormatCase, sample: Sample) -> None:
    """A chunk without bad records can be resumed before any of its rows, as `split` assumes."""
    source = MemorySource(sample.body)
    whole = list(chunks(case.format(), source, 0, len(sample.body)))
    rows = [row for chunk in whole for row in chunk.batch.to_pylist()]
    before = 0
    for chunk in whole:
        count = chunk.batch.num_rows
        for row in range(0 if chunk.bad else count):
            position = int(chunk.locations[row])
            if case.format().location_unit == "row":
                position += chunk.next_position - int(chunk.locations[-1]) - 1
            if not position:
                continue  # means: nothing done yet
            rest = Decoded()
            for one in chunks(case.format(), source, 0, len(sample.body), position):
                rest.add(one)
            assert rest.rows == rows[before + row :]
        before += count


def decoding_resumes_at_every_position(
    case: FormatCase,
    sample: Sample,
    span: tuple[int, int],
    sizes: tuple[int, int],
    other_sizes: tuple[int, int],
    *,
    most: int | None = None,
) -> None:
    """What was decoded up to a position, and what other buffers decode from it, is everything.

    Where there are more than `most` positions, about as many are tried, evenly spread.
    """
    source = MemorySource(sample.body)
    everything = at_once(case, sample, *span)
    first, second = case.format(*sizes), case.format(*other_sizes)
    found = list(chunks(first, source, *span))
    every = max(1, len(found) // (most or len(found) or 1))
    done = Decoded()
    for ordinal, chunk in enumerate(found):
        done.add(chunk)
        if ordinal % every:
            continue
        joined = Decoded([*done.rows], [*done.locations], [*done.bad])
        for rest in chunks(second, source, *span, position=chunk.next_position):
            joined.add(rest)

        assert joined == everything, f"resumed at {chunk.next_position}"


def a_plan_is_a_partition(case: FormatCase, sample: Sample, target_bytes: int) -> None:
    """Planned extents touch each other, cover the object, are never empty, and lose nothing."""
    fmt = case.format()
    source = MemorySource(sample.body)

    ranges = list(fmt.plan(source, target_bytes))

    edges = [0, *(end for _, end in ranges)]
    assert ranges == list(pairwise(edges))
    assert edges[-1] == len(sample.body)
    assert all(start < end for start, end in ranges)
    assert fmt.splittable or len(ranges) <= 1
    assert decoded(fmt, source, edges) == whole(case, sample)


class FailsOnce(MemorySource):
    """A source whose read number `number` (from 0) raises `fault`; windows of streams are reads."""

    def __init__(self, body: bytes, number: int, fault: ExtentflowError) -> None:
        super().__init__(body)
        self._number = number
        self._first_error = fault

    def read(self, start: int, end: int) -> bytes:
        """Return `[start, end)`, unless it is this read's turn."""
        if len(self.reads) == self._number:
            raise self._first_error
        return super().read(start, end)


def some(values: Sequence[int], most: int) -> Sequence[int]:
    """Return all values, or between `most` and twice as many of them, evenly spread."""
    return values[:: max(1, len(values) // most)]


def every_fault_surfaces(
    case: FormatCase,
    sample: Sample,
    span: tuple[int, int],
    sizes: tuple[int, int],
    *,
    most: int,
) -> int:
    """A read that fails raises what the source raised, and never looks like the end of data.

    Where there are more than `most` reads, about as many fail, evenly spread. Returns how many
    reads there were to fail.
    """
    healthy = MemorySource(sample.body)
    decoded(case.format(*sizes), healthy, span)

    for number in some(range(len(healthy.reads)), most):
        fault = StoreUnavailable(f"injected into read {number}")
        raised = None
        try:
            decoded(case.format(*sizes), FailsOnce(sample.body, number, fault), span)
        except StoreUnavailable as exc:
            raised = exc

        assert raised is fault
    return len(healthy.reads)


class CutShort(MemorySource):
    """A source that breaks its contract: streams end early, and nothing is raised."""

    def __init__(self, body: bytes, stop: int) -> None:
        super().__init__(body)
        self._stop = stop

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        """Yield `[start, end)`, but nothing from `stop` on."""
        yield from super().stream(
            start, max(start, min(end, self._stop)), window_bytes=window_bytes
        )


def a_silent_end_is_an_error(
    case: FormatCase, sample: Sample, span: tuple[int, int], stop: int
) -> None:
    """A stream that ends early without a word is not taken for the end of the extent."""
    source = CutShort(sample.body, stop)

    try:
        result = decoded(case.format(), source, span)
    except ExtentflowError:
        return

    assert result == at_once(case, sample, *span)
