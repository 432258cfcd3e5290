"""Rows of extents are found again by their locations, in one pass where they are in order."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.support.golden import Golden

from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.rows import RowFinder
from extentflow.errors import CorruptRecord, StoreUnavailable
from extentflow.formats import BadRecord, Chunk
from extentflow.model import Extent, ObjectVersion


@dataclass
class Counted:
    """A format of rows at 0, 10, 20, …, two in a chunk; counts decoders that begin and end."""

    bad: dict[int, BadRecord] = field(default_factory=dict)
    begun: int = 0
    ended: int = 0
    location_unit: str = "offset"

    def decode(self, *_: object) -> Iterator[Chunk]:
        self.begun += 1
        try:
            for first in range(0, 60, 20):
                kept = [at for at in (first, first + 10) if at not in self.bad]
                bad = tuple(self.bad[at] for at in (first, first + 10) if at in self.bad)
                batch = pa.record_batch({"value": [str(at) for at in kept]})
                yield Chunk(batch, first + 20, kept, bad)
            raise StoreUnavailable("the rest")
        finally:
            self.ended += 1


def found(finder: RowFinder, fmt: Counted, location: int, key: str = "a") -> Chunk:
    version = ObjectVersion("bucket", key, None, "etag", 60)
    extent = Extent("job", 0, "c", version, 0, 60, "text")
    pipeline = Pipeline(cast("Any", None), cast("Any", fmt), "t", cast("Any", None))
    return finder.find(pipeline, extent, location)


def test_rows_in_order_cost_one_pass_and_others_a_new_one() -> None:
    fmt, finder = Counted(), RowFinder()

    rows = [found(finder, fmt, at) for at in (10, 10, 20, 50, 0)]

    values = [row.batch.column(0).to_pylist() for row in rows]
    assert values == [["10"], ["10"], ["20"], ["50"], ["0"]]
    assert [list(row.locations) for row in rows] == [[10], [10], [20], [50], [0]]
    assert (fmt.begun, fmt.ended) == (2, 1)
    finder.close()
    assert fmt.ended == 2


def test_a_location_between_rows_is_none(golden: Golden) -> None:
    fmt, finder = Counted(), RowFinder()

    with golden.raises(CorruptRecord, match="offset 15"):
        found(finder, fmt, 15)

    assert found(finder, fmt, 20).locations == [20]
    assert fmt.begun == 1


class EmptyAtTheEnd(Counted):
    """Rows at 0 and 10, and a last chunk without any."""

    def decode(self, *_: object) -> Iterator[Chunk]:
        self.begun += 1
        yield Chunk(pa.record_batch({"value": ["0", "10"]}), 20, [0, 10])
        yield Chunk(pa.record_batch({"value": pa.array([], pa.string())}), 30, [])


def test_rows_before_an_empty_last_chunk_are_found_after_it_was_read(golden: Golden) -> None:
    fmt, finder = EmptyAtTheEnd(), RowFinder()
    with golden.raises(CorruptRecord, match="offset 25"):
        found(finder, fmt, 25)

    row = found(finder, fmt, 10)

    assert row.batch.column(0).to_pylist() == ["10"]
    assert fmt.begun == 2
    with golden.raises(CorruptRecord, match="offset 25"):
        found(finder, fmt, 25)
    assert fmt.begun == 2


def test_a_row_that_is_bad_now_stays_one_and_keeps_its_bytes() -> None:
    fmt = Counted({10: BadRecord(None, 10, "lost"), 20: BadRecord(b"x", 20, "bad")})
    finder = RowFinder()

    rows = [found(finder, fmt, at) for at in (10, 20)]

    assert [row.bad for row in rows] == [
        (BadRecord(None, 10, "lost", row=True),),
        (BadRecord(b"x", 20, "bad"),),
    ]
    assert [row.batch.num_rows for row in rows] == [0, 0]


def test_an_error_ends_the_decoder_and_the_next_call_begins_again() -> None:
    fmt, finder = Counted(), RowFinder()

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            found(finder, fmt, 1_000)

    assert (fmt.begun, fmt.ended) == (2, 2)


def test_a_bounded_number_of_extents_is_open() -> None:
    fmt, finder = Counted(), RowFinder(most_open=2)

    for extent in ("a", "b", "a", "c"):  # c closes b
        found(finder, fmt, 0, extent)

    assert (fmt.begun, fmt.ended) == (3, 1)
    found(finder, fmt, 10, "a")
    assert fmt.begun == 3


def test_the_chunks_of_open_extents_are_bounded_by_their_bytes() -> None:
    fmt = Counted()
    found(finder := RowFinder(), fmt, 0, "a")
    (one,) = finder._open.values()
    fmt, finder = Counted(), RowFinder(most_bytes=2 * one.size_bytes)

    for extent in ("a", "b", "c"):  # c closes a
        found(finder, fmt, 0, extent)

    assert one.size_bytes > 0
    assert (fmt.begun, fmt.ended) == (3, 1)
    found(finder, fmt, 10, "b")
    assert fmt.begun == 3


def test_an_extent_stays_open_however_large_its_chunk_is() -> None:
    fmt, finder = Counted(), RowFinder(most_bytes=0)

    for at in (0, 10, 20):
        found(finder, fmt, at)

    assert (fmt.begun, fmt.ended) == (1, 0)
