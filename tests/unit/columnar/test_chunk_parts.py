"""Parts of chunks whose records hold many rows: whole batches, positions, filtered rows."""

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from tests.unit.delivery.test_columnvalues import IN_GROUPS, SETTINGS, chunk_of, rows_of, sent_in

from extentflow.delivery.columnvalues import ColumnValues
from extentflow.errors import BatchTooLarge
from extentflow.formats import BadRecord
from extentflow.kafka import RejectedRecord


@pytest.mark.parametrize("shift", [0, -1000])
@pytest.mark.parametrize("most_bytes", [1, 2500, 7000, 10**9])
@pytest.mark.parametrize("settings", [SETTINGS, IN_GROUPS], ids=["", "groups"])
def test_parts_of_a_chunk_are_whole_batches_with_their_positions(
    settings: ColumnValues, most_bytes: int, shift: int
) -> None:
    chunk = replace(chunk_of(rows_of(500), settings), position_shift=shift)

    parts = list(chunk.split(most_bytes))

    assert (len(parts) > 1) == (most_bytes < 10**9)
    assert [one for part in parts for one in sent_in(part)] == sent_in(chunk)
    assert [place for part in parts for place in part.locations] == list(chunk.locations)
    for part, following in pairwise(parts):
        assert part.next_position == following.locations[0] + shift
    assert parts[-1].next_position == 9_000
    for part in parts:
        count = len(part.records.values)
        assert part.cuts is not None
        assert part.cuts[-1] == (count, part.rows)
        assert part.topics is None or len(part.topics) == count
        found = {tuple(one.ids) for one in sent_in(part)}
        assert sum(map(len, found)) == part.rows


@pytest.mark.parametrize("every", [1, 2, 3, 50])
def test_filtered_rows_are_counted_once_in_the_part_before_the_next_record(every: int) -> None:
    rows = rows_of(400)
    dropped = [location + 1 for location in rows.locations[::every]] + [999, 8_999]
    decoded = sorted([*rows.locations, *dropped])

    chunk = replace(chunk_of(rows), filtered=len(dropped), decoded=decoded)
    parts = list(chunk.split(3000))

    assert len(parts) > 2
    assert sum(part.filtered for part in parts) == len(dropped)
    for part, counted in zip(parts, accumulate(part.filtered for part in parts), strict=True):
        assert counted == sum(place < part.next_position for place in dropped)


def test_a_chunk_with_bad_records_stays_whole() -> None:
    chunk = replace(chunk_of(rows_of(500)), bad=(BadRecord(b"?", 1005, "no row"),))

    assert list(chunk.split(1)) == [chunk]


def test_a_batch_that_the_producer_rejects_is_tried_again_with_the_new_limit() -> None:
    chunk = replace(chunk_of(rows_of(500)), bad=(BadRecord(b"?", 1005, "no row"),))

    assert chunk.bad_with([]) == list(chunk.bad)
    with pytest.raises(BatchTooLarge, match="topic t: too large; max"):
        chunk.bad_with([RejectedRecord(1, "too large")])
