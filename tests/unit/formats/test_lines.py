"""The ownership law for lines, its bounds on memory and reads, and the traps others fell into."""

import tracemalloc
from collections.abc import Iterator

import pytest
from tests.laws.laws import decoded, extent_of

from extentflow.errors import Misconfigured, StoreUnavailable
from extentflow.formats import FormatOptions
from extentflow.formats.lines import cut_lines, owned_windows
from extentflow.formats.text.line_format import LineFormat
from extentflow.formats.text.text_format import open_text
from extentflow.model import ObjectVersion
from extentflow.testing.stores import MemorySource

BOM = b"\xef\xbb\xbf"
MIB = 1 << 20


def text(**options: int) -> LineFormat:
    return open_text(FormatOptions(**options))  # type: ignore[arg-type] # sizes only


def values(fmt: LineFormat, body: bytes, *cuts: int) -> list[str]:
    result = decoded(fmt, MemorySource(body), (0, *cuts, len(body)))
    assert not result.bad
    return [row["value"] for row in result.rows]


class SparseSource:
    """Zeros, and a few bytes at the end of an object that no memory could hold."""

    def __init__(self, tail: bytes, size: int) -> None:
        self._tail = tail
        self._version = ObjectVersion("sparse", "object", None, "etag", size)

    @property
    def version(self) -> ObjectVersion:
        return self._version

    def read(self, start: int, end: int) -> bytes:
        begin = self._version.size - len(self._tail)
        if start < begin:
            assert start == 0
            return bytes(end - start)
        return self._tail[start - begin : end - begin]

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        del window_bytes
        yield self.read(start, end)


def test_trap_t01_a_last_line_without_newline_is_delivered_once() -> None:
    """Trap: a last record without a newline was never delivered."""
    body = b"one\ntwo\nlast"

    for cut_at in range(1, len(body)):
        assert values(text(window_bytes=2), body, cut_at) == ["one", "two", "last"]


def test_trap_t02_places_are_bytes_of_the_object_not_characters() -> None:
    """Trap: offsets were counted in characters: wrong after the first one of several bytes."""
    body = BOM + "a😀\nbé\nc\n".encode()

    result = decoded(text(window_bytes=2), MemorySource(body), (0, len(body)))

    assert result.rows == [{"value": "a😀"}, {"value": "bé"}, {"value": "c"}]
    assert result.locations == [3, 9, 13]
    assert [body[location : location + 1] for location in result.locations] == [b"a", b"b", b"c"]


def test_trap_t02_a_mark_is_skipped_at_the_object_s_start_only() -> None:
    body = BOM + b"a\n" + BOM + b"b\n"

    for cut_at in range(1, len(body)):
        assert values(text(), body, cut_at) == ["a", "\ufeffb"]


@pytest.mark.parametrize("ends_with", [b"", b"\r\n"])
def test_trap_t04_a_line_end_of_two_bytes_is_found_at_every_buffer_edge(ends_with: bytes) -> None:
    """Trap: a delimiter of several bytes was missed where a buffer ended inside it."""
    body = b"a\r\n\r\nb\rc\r\n" + BOM + b"d" + ends_with

    for window_bytes in range(2, len(body) + 1):
        for cut_at in range(1, len(body)):
            lines = values(text(window_bytes=window_bytes), body, cut_at)

            assert lines == ["a", "", "b\rc", "\ufeffd"]


def test_trap_t05_ends_beyond_a_float_s_precision_are_exact() -> None:
    """Trap: the end of a file was a rounded float."""
    start = 2**53 + 1
    source = SparseSource(b"\none\ntwo\nx", size=start + 9)

    result = decoded(text(), source, (start, start + 3, start + 4, start + 9))

    assert result.rows == [{"value": "one"}, {"value": "two"}, {"value": "x"}]
    assert result.locations == [start, start + 4, start + 8]


def test_trap_t19_an_empty_object_has_no_extents() -> None:
    source = MemorySource(b"")

    ranges = list(text().plan(source, 1 << 20))

    assert ranges == []
    assert source.reads == []


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_trap_t30_the_last_line_is_delivered_at_every_batch_size(end: bytes) -> None:
    """Trap: the last line was lost when a batch ended exactly at the end of the object."""
    lines = [f"line {number}" for number in range(7)]
    body = "\n".join(lines).encode() + end

    for batch_rows in range(1, len(lines) + 2):
        for window_bytes in (2, 8, len(body), 1 << 20):
            fmt = text(batch_rows=batch_rows, window_bytes=window_bytes)

            assert values(fmt, body) == lines


def test_batches_have_at_most_the_requested_rows_and_are_even() -> None:
    source = MemorySource(b"x\n" * 10)

    chunks = list(text(batch_rows=4).decode(source, extent_of(source, 0, 20), 0))

    assert [chunk.batch.num_rows for chunk in chunks] == [3, 3, 4]
    assert [chunk.next_position for chunk in chunks] == [6, 12, 20]


def test_plans_are_arithmetic_and_read_nothing() -> None:
    source = MemorySource(b"x" * 10)

    assert list(text().plan(source, 4)) == [(0, 4), (4, 8), (8, 10)]
    assert source.reads == []


def test_an_extent_without_a_first_byte_of_a_line_owns_nothing() -> None:
    source = MemorySource(b"a\n" + b"b" * 100 + b"\nc\n")

    chunks = list(text(window_bytes=4).decode(source, extent_of(source, 10, 60), 0))

    assert chunks == []
    assert max(end for _, end in source.reads[1:]) == 60, "nothing is read beyond such an extent"


def test_a_position_at_or_behind_the_end_yields_nothing() -> None:
    source = MemorySource(b"a\nb\nc\n")
    extent = extent_of(source, 0, 3)

    assert list(text().decode(source, extent, 4)) == []
    assert list(text().decode(source, extent, 3)) == []


def test_the_last_line_is_finished_by_reads_that_double() -> None:
    line = b"b" * 40_000
    source = MemorySource(b"a\n" + line + b"\nc\n")

    windows = list(
        owned_windows(source, extent_of(source, 0, 4), 0, window_bytes=MIB, max_line_bytes=MIB)
    )

    tails = [end - start for start, end in source.reads[1:]]
    assert tails == [1024, 2048, 4096, 8192, 16384, 8257]
    assert b"".join(window for _, window in windows) == b"a\n" + line + b"\n"


def test_fetched_bytes_stay_within_two_percent_of_the_object() -> None:
    body = b"".join(b"%09d some line of an object\n" % number for number in range(120_000))
    source = MemorySource(body)
    fmt = text()

    cuts = [0, *(end for _, end in fmt.plan(source, MIB))]
    result = decoded(fmt, source, cuts)

    assert len(cuts) > 3
    assert len(result.rows) == 120_000
    assert sum(end - start for start, end in source.reads) <= 1.02 * len(body)


def test_the_start_of_an_object_is_read_once_per_version() -> None:
    source = MemorySource(b"line\n" * 1000)
    fmt = text()

    decoded(fmt, source, (0, 1000, 2000, 5000))

    assert [read for read in source.reads if read[1] - read[0] == 264] == [(0, 264)]


def test_a_line_that_is_too_long_is_bad_at_its_first_byte_at_every_cut() -> None:
    body = b"short\n" + b"x" * 41 + b"\nnext\n" + b"y" * 40 + b"\n" + b"z" * 99

    for cut_at in range(1, len(body)):
        for window in (2, 7, 30, 4096):
            fmt = text(max_record_bytes=40, window_bytes=window)
            result = decoded(fmt, MemorySource(body), (0, cut_at, len(body)))

            assert [row["value"] for row in result.rows] == ["short", "next", "y" * 40]
            assert [(location, raw) for location, raw, _ in result.bad] == [(6, None), (94, None)]


def test_positions_behind_a_too_long_line_are_starts_of_lines() -> None:
    body = b"x" * 50 + b"\nnext\n"
    source = MemorySource(body)
    fmt = text(max_record_bytes=10, window_bytes=4)

    first, *rest = fmt.decode(source, extent_of(source, 0, len(body)), 0)

    assert first.bad[0].location == 0
    assert "longer than the 10 bytes" in first.bad[0].reason
    assert first.next_position == 51
    assert [row for chunk in rest for row in chunk.batch.to_pylist()] == [{"value": "next"}]


def test_no_more_is_read_behind_an_extent_than_a_line_may_be_long() -> None:
    source = MemorySource(b"x" * 1_000_000)
    fmt = text(max_record_bytes=3000)

    result = decoded(fmt, source, (0, 1000))

    assert [location for location, _, _ in result.bad] == [0]
    assert max(end for _, end in source.reads) < 10_000


def test_a_line_without_end_takes_no_more_memory_than_one_may_have() -> None:
    windows = ((at * MIB, bytes(MIB)) for at in range(100))

    tracemalloc.start()
    blocks = list(cut_lines(windows, max_line_bytes=4 * MIB))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [block.bad[0].location for block in blocks] == [0]
    assert peak < 16 * MIB


@pytest.mark.timeout(300)
def test_a_long_line_in_tiny_windows_costs_linear_work() -> None:
    size = 1_500_000  # quadratic work would copy a terabyte
    windows = ((at, b"xx") for at in range(0, size, 2))

    (block,) = cut_lines(windows, max_line_bytes=size)

    assert len(block.raw(0)) == size


def test_a_stream_that_ends_early_is_no_end_of_data() -> None:
    class Short(MemorySource):
        def stream(
            self, start: int, end: int, *, window_bytes: int | None = None
        ) -> Iterator[bytes]:
            return super().stream(start, end - 2, window_bytes=window_bytes)

    source = Short(b"a\nb\nc\n")

    with pytest.raises(StoreUnavailable, match=r"memory/object\[0-6\).*byte 4"):
        decoded(text(), source, (0, 6))


def test_sizes_that_cannot_work_are_all_reported() -> None:
    with pytest.raises(Misconfigured) as caught:
        open_text(FormatOptions(compression="xz", window_bytes=0, max_record_bytes=1 << 31))

    assert len(caught.value.problems) == 3
