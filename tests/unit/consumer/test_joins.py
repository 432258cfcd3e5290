"""Joins of the topics of column groups: whatever the order, each row once, and exact positions."""

import random
import time

import pyarrow as pa
import pytest
from tests.support.group_reading import Committed, Crash, Member, Topics, batch_of

from extentflow.consumer import ConsumedBatch, Position
from extentflow.consumer.joins import JOIN_SECONDS, GroupJoin
from extentflow.errors import CorruptRecord, Misconfigured

# What the broker takes as metadata of an offset (`offset.metadata.max.bytes`).
MOST_METADATA_BYTES = 4096
A, B = "a", "b"


def ids(batches: list[ConsumedBatch]) -> list[str]:
    return [one.facts.batch for one in batches if one.facts is not None]


def finished(join: GroupJoin, batches: list[ConsumedBatch]) -> list[ConsumedBatch]:
    """Hand out joined batches, as a consumer whose caller takes all rows."""
    for one in batches:
        join.yielded(one)
        join.finish(one)
    return batches


@pytest.mark.parametrize("displaced", [0, 3, 12])
@pytest.mark.parametrize("topics", [2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_members_that_crash_join_each_batch_once_in_the_leaders_order(
    seed: int, topics: int, displaced: int
) -> None:
    source = random.Random(f"{seed} {topics} {displaced}")
    made = Topics.made(source, topics=topics, partitions=2, count=25, displaced=displaced)
    committed = Committed()

    for _ in range(200):
        try:
            Member(made, committed, source).read(crash=0.08, commit=0.3)
        except Crash:
            continue
        break
    else:
        pytest.fail("no member came to the end")

    assert committed.rows == made.truth


@pytest.mark.parametrize("seed", range(12))
def test_at_the_end_all_positions_are_behind_the_last_batch(seed: int) -> None:
    source = random.Random(seed)
    made = Topics.made(source, topics=2, partitions=2, count=25, displaced=6)
    committed = Committed()

    for crash in (0.2, 0.2, 0.2, 0.2, 0.0, 0.0):
        try:
            Member(made, committed, source).read(crash=crash, commit=0.4)
        except Crash:
            continue

    assert committed.rows == made.truth
    ends = {place: (made.ends(place), 0, ()) for place in made.batches}
    found = {place: (at.offset, at.row, at.done) for place, at in committed.positions.items()}
    assert found == ends


def test_positions_state_what_was_handled_also_for_the_member_after_the_next_one() -> None:
    """b2 waits in topic b since before a restart, b1 and b3 behind it are done."""
    first = GroupJoin([A, B], None)
    finished(first, first.add([batch_of(B, "2", 0), batch_of(B, "1", 1), batch_of(A, "1", 0)]))
    at = first.positions({(A, 0): Position(1)})
    assert at == {(B, 0): Position(0, done=((1, 1),))}

    second = GroupJoin([A, B], None)
    second.begin(B, 0, at[B, 0])
    # Read from offset 0 on; the record at 1 is left out, because it is done.
    finished(second, second.add([batch_of(B, "2", 0), batch_of(B, "3", 2)]))

    assert second.positions({(A, 0): Position(1)}) in (
        {(B, 0): Position(0, done=((1, 1),))},
        {},  # nothing new to commit
    )


def test_positions_of_many_batches_before_their_turn_fit_into_metadata() -> None:
    join, count = GroupJoin([A, B], None), 3_000
    early = [batch_of(B, "late", 0, rows=1)]
    early += [batch_of(B, f"{one}", one, rows=1) for one in range(1, count)]
    join.add(early)
    leading = [batch_of(A, f"{one}", one, rows=1) for one in range(1, count)]

    assert len(finished(join, join.add(leading))) == count - 1

    (at,) = join.positions({(A, 0): Position(count)}).values()
    assert len(at.to_metadata()) <= MOST_METADATA_BYTES


def test_batches_that_were_delivered_twice_are_joined_twice() -> None:
    """As where a delivery is at least once, or a job was replayed although it was delivered."""
    join = GroupJoin([A, B], None)
    sent = [batch_of(topic, "1", offset) for topic in (B, A) for offset in (0, 1)]

    found = finished(join, join.add(sent))

    assert ids(found) == ["1", "1"]
    assert not join.is_waiting


def test_a_batch_waits_for_its_columns_in_each_topic() -> None:
    join = GroupJoin([A, B, "c"], None)

    assert join.add([batch_of(A, "1", 0), batch_of(A, "2", 1)]) == []
    assert join.add([batch_of(B, "2", 0), batch_of("c", "2", 0)]) == []
    waited = join.is_waiting
    found = join.add([batch_of("c", "1", 1), batch_of(B, "1", 1)])

    assert ids(found) == ["1", "2"]
    assert (waited, join.is_waiting) == (True, False)
    assert [one.rows.schema.names for one in found] == [[A, B, "c"]] * 2
    assert (found[0].topic, found[0].offset) == (A, 0)


def test_partitions_do_not_wait_for_each_other() -> None:
    join = GroupJoin([A, B], None)

    join.add([batch_of(A, "1", 0), batch_of(A, "2", 0, partition=1)])
    found = join.add([batch_of(B, "2", 0, partition=1)])

    assert ids(found) == ["2"]
    assert join.is_waiting


def test_columns_are_those_that_are_asked_for_and_of_several_the_leaders() -> None:
    both = [batch_of(A, "1", 0, column="x"), batch_of(B, "1", 0, column="y")]
    (found,) = GroupJoin([A, B], ["y", "x"]).add(both)
    (one,) = GroupJoin([A, B], ["y"]).add(both)
    (same,) = GroupJoin([A, B], None).add(
        [batch_of(A, "1", 0, column="x"), batch_of(B, "1", 0, column="x")]
    )

    assert found.rows.schema.names == ["y", "x"]
    assert one.rows.schema.names == ["y"]
    assert same.rows.schema.names == ["x"]
    with pytest.raises(CorruptRecord, match="no group has the column z"):
        GroupJoin([A, B], ["z"]).add(both)


def test_the_rows_of_a_batch_that_is_continued_are_those_behind_the_position() -> None:
    (found,) = GroupJoin([A, B], None).add([batch_of(A, "1", 0).skip(2), batch_of(B, "1", 0)])

    assert found.rows.to_pylist() == [{A: "1/2", B: "1/2"}]
    assert (found.row, found.after(1)) == (2, Position(1))


def test_batches_of_other_rows_are_errors() -> None:
    with pytest.raises(CorruptRecord, match=r"topic b\[0\] offset 7: .* topic a at offset 3"):
        GroupJoin([A, B], None).add([batch_of(A, "1", 3), batch_of(B, "1", 7, rows=2)])
    plain = ConsumedBatch(B, 0, pa.record_batch({"x": [1]}), 5, offsets=[5])
    with pytest.raises(CorruptRecord, match=r"topic b\[0\] offset 5: no columnar value"):
        GroupJoin([A, B], None).add([plain])


@pytest.mark.parametrize("topics", [[], [A], [A, A]])
def test_a_join_needs_two_topics(topics: list[str]) -> None:
    with pytest.raises(Misconfigured):
        GroupJoin(topics, None)


def test_a_batch_whose_columns_do_not_arrive_is_an_error_after_the_bound() -> None:
    join, both = GroupJoin([A, B], None), {(A, 0), (B, 0)}
    began = time.monotonic()
    join.add([batch_of(A, "1", 4)])
    ended = time.monotonic()

    join.require_progress(began + JOIN_SECONDS, ended=both)
    join.require_progress(ended + JOIN_SECONDS + 1, ended={(A, 0)})
    with pytest.raises(CorruptRecord, match=r"topic a\[0\] offset 4: its columns of b are missing"):
        join.require_progress(ended + JOIN_SECONDS + 1, ended=both)
    join.add([batch_of(B, "1", 0)])
    join.require_progress(ended + JOIN_SECONDS + 1, ended=both)


def test_what_waits_of_partitions_of_another_member_is_dropped() -> None:
    join = GroupJoin([A, B], None)
    join.add([batch_of(A, "1", 0), batch_of(B, "2", 0)])

    join.forget({(A, 0), (B, 0)})

    assert not join.is_waiting
    join.require_progress(time.monotonic() + 2 * JOIN_SECONDS, ended={(A, 0), (B, 0)})
    assert join.positions({(A, 0): Position(0)}) == {}
    # Again from the start, as the next member.
    assert ids(join.add([batch_of(B, "1", 1), batch_of(A, "1", 0)])) == ["1"]


def test_only_followers_of_partitions_with_a_position_are_committed() -> None:
    join = GroupJoin([A, B], None)
    join.add([batch_of(B, "1", 0), batch_of(B, "2", 0, partition=1)])

    assert set(join.positions({(A, 1): Position(0)})) == {(B, 1)}


def test_of_a_batch_in_part_handled_the_others_are_read_again() -> None:
    join = GroupJoin([A, B], None)
    (found,) = join.add([batch_of(B, "1", 0), batch_of(A, "1", 0)])
    join.yielded(found)

    assert join.positions({(A, 0): found.after(1)}) == {(B, 0): Position(0)}
    assert join.positions({(A, 0): found.after(3)}) == {(B, 0): Position(1)}
