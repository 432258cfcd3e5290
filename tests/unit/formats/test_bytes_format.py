"""Objects as one record or in chunks, and what is refused."""

from tests.laws.laws import decoded, extent_of
from tests.support.golden import Golden

from extentflow.errors import Conflict, UnsupportedFormat
from extentflow.formats import FORMATS, FormatOptions
from extentflow.formats.bytes_format import BytesOptions, RawBytes
from extentflow.testing.stores import MemorySource

BODY = bytes(range(256)) * 4


def test_an_object_is_one_record_and_one_extent() -> None:
    source = MemorySource(BODY)
    fmt = RawBytes(FormatOptions(window_bytes=7, batch_rows=1))

    result = decoded(fmt, source, (0, len(BODY)))

    assert (result.rows, result.locations) == ([{"value": BODY}], [0])
    assert list(fmt.plan(source, 10)) == [(0, len(BODY))]
    assert list(fmt.decode(source, extent_of(source, 0, len(BODY)), len(BODY))) == []


def test_chunks_join_to_the_object() -> None:
    fmt = RawBytes(FormatOptions(), BytesOptions(chunk_bytes=100))
    source = MemorySource(BODY)

    result = decoded(fmt, source, (0, len(BODY)))

    assert result.locations == list(range(0, len(BODY), 100))
    assert b"".join(row["value"] for row in result.rows) == BODY
    assert list(fmt.plan(source, 250))[:2] == [(0, 200), (200, 400)]


def test_an_object_larger_than_a_record_is_refused_at_planning_with_the_way_out(
    golden: Golden,
) -> None:
    fmt = RawBytes(FormatOptions(max_record_bytes=1000))

    with golden.raises(UnsupportedFormat, match=r"1024.*bytes\.chunk\.bytes"):
        list(fmt.plan(MemorySource(BODY), 10))


def test_a_compressed_object_is_delivered_as_it_is_or_refused(golden: Golden) -> None:
    fmt = RawBytes(FormatOptions(compression="gzip"))

    with golden.raises(UnsupportedFormat, match=r"file\.compression\.type=none"):
        list(fmt.plan(MemorySource(BODY), 10))


def test_an_empty_object_has_no_extent() -> None:
    assert list(RawBytes(FormatOptions()).plan(MemorySource(b""), 10)) == []


def test_resuming_within_a_chunk_is_a_conflict(golden: Golden) -> None:
    source = MemorySource(BODY)
    fmt = RawBytes(FormatOptions(), BytesOptions(chunk_bytes=100))

    with golden.raises(Conflict, match=r"bytes\.chunk\.bytes"):
        list(fmt.decode(source, extent_of(source, 0, len(BODY)), 150))


def test_the_registered_format_takes_no_extension() -> None:
    assert FORMATS.get("bytes").extensions == ()
