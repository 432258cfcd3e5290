"""Joins of the topics of column groups: whatever the order, each row once, and exact positions."""

import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.support.group_reading import batch_of

from extentflow.consumer import ConsumedBatch, Position
from extentflow.consumer.joins import JOIN_SECONDS, METADATA_BYTES, GroupJoin
from extentflow.errors import CorruptRecord, Misconfigured

A, B = "a", "b"


def ids(batches: list[ConsumedBatch]) -> list[str]:
    return [one.facts.batch for one in batches if one.facts is not None]


def joined(join: GroupJoin, batches: list[ConsumedBatch], now: float = 0.0) -> list[ConsumedBatch]:
    """Add batches; return those that are complete."""
    for one in batches:
        if join.takes(one.topic, one.partition, one.offset):
            join.add(one, now)
    found = []
    while (batch := join.take(now)) is not None:
        found.append(batch)
    return found


def finished(join: GroupJoin, batches: list[ConsumedBatch]) -> list[ConsumedBatch]:
    """Hand out joined batches, as a consumer whose caller takes all rows."""
    for one in batches:
        join.yielded(one)
    return batches


def test_positions_state_what_was_handled_also_for_the_member_after_the_next_one() -> None:
    """b2 waits in topic b since before a restart, b1 and b3 behind it are done."""
    first = GroupJoin([A, B], None)
    sent = [batch_of(B, "2", 0), batch_of(B, "1", 1), batch_of(A, "1", 0)]
    finished(first, joined(first, sent))
    at = first.positions({(A, 0): Position(1)})
    assert at == {(A, 0): Position(1), (B, 0): Position(0, done=((1, 1),))}

    second = GroupJoin([A, B], None)
    for place, start in at.items():
        second.begin(*place, start)
    # Read from offset 0 on: the record at 1 is done.
    again = [batch_of(B, "2", 0), batch_of(B, "1", 1), batch_of(B, "3", 2), batch_of(A, "3", 1)]
    assert ids(finished(second, joined(second, again))) == ["3"]

    assert second.positions({(A, 0): Position(2)})[B, 0] == Position(0, done=((1, 2),))


def test_batches_before_their_turn_that_follow_each_other_are_one_range() -> None:
    join, count = GroupJoin([A, B], None), 3_000
    early = [batch_of(B, "late", 0, rows=1)]
    early += [batch_of(B, f"{one}", 2 * one, rows=1) for one in range(1, count)]
    joined(join, early)
    leading = [batch_of(A, f"{one}", one, rows=1) for one in range(1, count)]

    assert len(finished(join, joined(join, leading))) == count - 1

    at = join.positions({(A, 0): Position(count)})
    assert at[B, 0] == Position(0, done=((2, 2 * count - 2),))


def test_where_ranges_exceed_metadata_an_earlier_state_is_committed_and_resumed() -> None:
    """Every second batch of topic b waits: more ranges than the metadata of an offset takes."""
    join, count = GroupJoin([A, B], None), 6_000
    sent = [batch_of(B, f"{one}", one, rows=1) for one in range(count)]
    leading = [batch_of(A, f"{one}", one, rows=1) for one in range(1, count, 2)]
    joined(join, sent)

    found = finished(join, joined(join, leading))
    at = join.positions({(A, 0): Position(count)})

    assert ids(found) == [f"{one}" for one in range(1, count, 2)]
    assert at == {(A, 0): Position(0, done=((0, count - 1),)), (B, 0): Position(0)}
    assert all(len(one.to_metadata()) <= METADATA_BYTES for one in at.values())
    # The next member reads all again, and yields what was not.
    second = GroupJoin([A, B], None)
    for place, start in at.items():
        second.begin(*place, start)
    late = [batch_of(A, f"{one}", count + one, rows=1) for one in range(0, count, 2)]
    again = finished(second, joined(second, [*sent, *leading, *late]))
    assert ids(again) == [f"{one}" for one in range(0, count, 2)]
    assert second.positions({(A, 0): again[-1].after(1)}) == {
        (A, 0): Position(2 * count - 1),
        (B, 0): Position(count),
    }


def test_what_is_left_out_of_batches_that_are_joined_again_moves_no_position() -> None:
    join, start = GroupJoin([A, B], None), Position(0, done=((0, 49),))
    join.begin(A, 0, start)
    join.begin(B, 0, Position(0))
    joined(join, [batch_of(A, "deleted in b", 3)])

    join.settle({(B, 0): 0})  # no error: it was handled

    assert not join.is_waiting
    for leading in ({}, {(A, 0): Position(50)}):
        found = join.positions(leading)
        assert found in ({}, {(A, 0): start, (B, 0): Position(0)})


def test_of_a_batch_that_is_left_out_no_other_part_is_incomplete() -> None:
    join = GroupJoin([A, B, "c", "d"], None, skips_incomplete=True)
    joined(join, [batch_of("c", "1", 0), batch_of(A, "1", 0)])
    join.settle({(B, 0): 0})
    rest = [batch_of("d", "1", 0), *(batch_of(one, "2", 1) for one in (A, B, "c", "d"))]

    assert ids(joined(join, rest)) == ["2"]
    assert not join.is_waiting


def test_batches_that_were_delivered_twice_are_joined_twice() -> None:
    """As where a delivery is at least once, or a job was replayed although it was delivered."""
    join = GroupJoin([A, B], None)
    sent = [batch_of(topic, "1", offset) for topic in (B, A) for offset in (0, 1)]

    found = finished(join, joined(join, sent))

    assert ids(found) == ["1", "1"]
    assert not join.is_waiting


def test_a_batch_waits_for_its_columns_in_each_topic() -> None:
    join = GroupJoin([A, B, "c"], None)

    assert joined(join, [batch_of(A, "1", 0), batch_of(A, "2", 1)]) == []
    assert joined(join, [batch_of(B, "2", 0), batch_of("c", "2", 0)]) == []
    waited = join.is_waiting
    found = joined(join, [batch_of("c", "1", 1), batch_of(B, "1", 1)])

    assert ids(found) == ["1", "2"]
    assert (waited, join.is_waiting) == (True, False)
    assert [one.rows.schema.names for one in found] == [[A, B, "c"]] * 2
    assert (found[0].topic, found[0].offset) == (A, 0)


def test_partitions_do_not_wait_for_each_other() -> None:
    join = GroupJoin([A, B], None)

    joined(join, [batch_of(A, "1", 0), batch_of(A, "2", 0, partition=1)])
    found = joined(join, [batch_of(B, "2", 0, partition=1)])

    assert ids(found) == ["2"]
    assert join.is_waiting


def test_columns_are_those_that_are_asked_for_and_of_several_the_leaders(golden: Golden) -> None:
    both = [batch_of(A, "1", 0, column="x"), batch_of(B, "1", 0, column="y")]
    (found,) = joined(GroupJoin([A, B], ["y", "x"]), both)
    (one,) = joined(GroupJoin([A, B], ["y"]), both)
    (same,) = joined(
        GroupJoin([A, B], None), [batch_of(A, "1", 0, column="x"), batch_of(B, "1", 0, column="x")]
    )

    assert found.rows.schema.names == ["y", "x"]
    assert one.rows.schema.names == ["y"]
    assert same.rows.schema.names == ["x"]
    with golden.raises(CorruptRecord, match="column z"):
        joined(GroupJoin([A, B], ["z"]), both)


def test_the_rows_of_a_batch_that_is_continued_are_those_behind_the_position() -> None:
    (found,) = joined(GroupJoin([A, B], None), [batch_of(A, "1", 0).skip(2), batch_of(B, "1", 0)])

    assert found.rows.to_pylist() == [{A: "1/2", B: "1/2"}]
    assert (found.row, found.after(1)) == (2, Position(1))


def test_batches_of_other_rows_are_errors(golden: Golden) -> None:
    with golden.raises(CorruptRecord, match=r"b\[0\].*offset 7.*topic a"):
        joined(GroupJoin([A, B], None), [batch_of(A, "1", 3), batch_of(B, "1", 7, rows=2)])
    plain = ConsumedBatch(B, 0, pa.record_batch({"x": [1]}), 5, offsets=[5])
    with golden.raises(CorruptRecord, match=r"b\[0\].*offset 5"):
        joined(GroupJoin([A, B], None), [plain])


@pytest.mark.parametrize("topics", [[], [A], [A, A]])
def test_a_join_needs_two_topics(topics: list[str]) -> None:
    with pytest.raises(Misconfigured):
        GroupJoin(topics, None)


def test_a_batch_whose_columns_do_not_arrive_is_an_error_when_the_other_topic_was_read(
    golden: Golden,
) -> None:
    join, wanted = GroupJoin([A, B], None), [(B, 0)]
    joined(join, [batch_of(A, "1", 4)], now=10.0)

    assert join.overdue(10.0 - JOIN_SECONDS) == []
    assert join.overdue(10.0) == wanted
    join.settle({(B, 0): 9})
    join.reached(B, 0, 8)
    join.settle({})  # the last record may be its part
    assert join.overdue(10.0) == []
    join.reached(B, 0, 9)
    for _ in range(2):
        with golden.raises(CorruptRecord, match=r"a\[0\].*offset 4.*batch 1"):
            join.settle({})


def test_the_end_that_counts_is_that_of_after_the_batch() -> None:
    """Its part may have been written since the end was asked for."""
    join = GroupJoin([A, B], None)
    joined(join, [batch_of(A, "1", 0)])
    join.settle({(B, 0): 1})
    joined(join, [batch_of(B, "1", 0), batch_of(A, "2", 1)])

    join.settle({})

    assert join.overdue(0.0) == [(B, 0)]


def test_what_does_not_fit_is_read_again_from_the_first_batch_that_was_left() -> None:
    join = GroupJoin([A, B], None, most_bytes=1)
    waits = [batch_of(B, f"{one}", one) for one in range(3)]

    assert joined(join, waits) == []
    assert join.flow().paused == {(B, 0)}
    # The leader's next batch needs it: it is read again from what was dropped.
    assert joined(join, [batch_of(A, "2", 0)]) == []
    flow = join.flow()
    assert flow.paused == {(A, 0)}
    assert flow.rewound == {(B, 0): 1}
    assert ids(joined(join, waits[1:])) == ["2"]
    assert join.flow().paused == frozenset()
    # Batch 0 was evicted, because the partition may hold one only.
    assert joined(join, [batch_of(A, "0", 1)]) == []
    join.reached(B, 0, 3)
    assert (B, 0) in join.overdue(-1.0)
    join.settle({(B, 0): 3})
    assert join.flow().rewound == {(B, 0): 0}
    assert ids(joined(join, waits[:1])) == ["0"]


def test_what_waits_of_partitions_of_another_member_is_dropped() -> None:
    join = GroupJoin([A, B], None)
    joined(join, [batch_of(A, "1", 0), batch_of(B, "2", 0)])

    join.forget({(A, 0), (B, 0)})

    assert not join.is_waiting
    join.settle({})
    assert join.positions({(A, 0): Position(0)}) == {}
    # Again from the start, as the next member.
    assert ids(joined(join, [batch_of(B, "1", 1), batch_of(A, "1", 0)])) == ["1"]


def test_only_followers_of_partitions_with_a_position_are_committed() -> None:
    join = GroupJoin([A, B], None)
    joined(join, [batch_of(B, "1", 0), batch_of(B, "2", 0, partition=1)])

    assert set(join.positions({(A, 1): Position(1)})) == {(A, 1), (B, 1)}


def test_of_a_batch_in_part_handled_the_others_are_read_again() -> None:
    join = GroupJoin([A, B], None)
    (found,) = joined(join, [batch_of(B, "1", 0), batch_of(A, "1", 0)])
    join.yielded(found)

    assert join.positions({(A, 0): found.after(1)})[B, 0] == Position(0)
    assert join.positions({(A, 0): found.after(3)})[B, 0] == Position(1)
