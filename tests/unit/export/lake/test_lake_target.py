"""Which part of a micro-batch a target lacks."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden

from extentflow.errors import Conflict
from extentflow.export.lake.iceberg import split_partitions
from extentflow.export.lake.lake_target import (
    Batch,
    Doubt,
    TableState,
    advanced,
    offsets_text,
    read_offsets,
)

BATCH = Batch({"t": {0: 10, 1: 0}}, {"t": {0: 20, 1: 5, 2: 3}})


def test_offsets_are_read_as_they_were_written() -> None:
    offsets = {"b": {10: 3, 2: 1}, "a": {0: 5}}

    assert offsets_text(offsets) == '{"a":{"0":5},"b":{"2":1,"10":3}}'
    assert read_offsets(offsets_text(offsets)) == offsets


def test_advancing_keeps_other_topics_and_partitions() -> None:
    held = {"a": {0: 1}, "t": {0: 1, 1: 2}}

    assert advanced(held, {"t": {0: 9}}) == {"a": {0: 1}, "t": {0: 9, 1: 2}}


def test_a_topic_with_another_id_is_in_doubt_until_a_person_decides(golden: Golden) -> None:
    state = TableState(None, {"a": {0: 7}, "b": {0: 1}}, ids={"a": "A", "b": "B"})
    doubt = Doubt.of_ids(state, {"a": "A2", "b": "B"})

    with golden.raises(Conflict, match=r"its id was A, and is A2 now.*--continue-at '{\"a\":{}}'"):
        doubt.settled("table x", None)

    assert doubt.settled("table x", {"a": {}}) == {"a": {}}
    for now in ({"a": "A", "b": "B"}, {"a": ""}, {"c": "C"}):
        assert Doubt.of_ids(state, now) == Doubt()
    other = Doubt({"c": {0: 1}}, {"c": {}}, "why")
    assert doubt.joined(other).upper == {"a": {0: 7}, "c": {0: 1}}


def test_a_batch_that_the_target_lacks_is_written() -> None:
    assert BATCH.remaining({"t": {0: 10}}, "x") == Batch({"t": {0: 10, 1: 0, 2: 0}}, BATCH.end)


def test_a_batch_that_the_target_has_is_skipped() -> None:
    assert BATCH.remaining({"t": {0: 20, 1: 7, 2: 3}}, "x") is None


def test_of_a_batch_that_it_has_in_part_the_rest_is_written() -> None:
    left = BATCH.remaining({"t": {0: 15, 1: 5}}, "x")

    assert left == Batch({"t": {0: 15, 1: 5, 2: 0}}, BATCH.end)


def test_a_part_never_moves_a_partition_back() -> None:
    left = BATCH.remaining({"t": {0: 15, 1: 9}}, "x")

    assert left == Batch({"t": {0: 15, 1: 9, 2: 0}}, {"t": {0: 20, 1: 9, 2: 3}})


@given(
    held=st.dictionaries(st.integers(0, 3), st.integers(0, 20)),
    batch=st.dictionaries(
        st.integers(0, 3), st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)
    ),
)
def test_a_target_advances_by_exactly_the_records_that_it_lacked(
    held: dict[int, int], batch: dict[int, list[int]]
) -> None:
    starts, ends = ({number: one[at] for number, one in batch.items()} for at in range(2))
    if any(held.get(number, start) < start for number, start in starts.items()):
        return  # a gap, which is refused

    left = Batch({"t": starts}, {"t": ends}).remaining({"t": held}, "x")
    behind = held if left is None else advanced({"t": held}, left.end)["t"]

    assert all(behind[number] >= end for number, end in held.items())
    parts = {} if left is None else left.start["t"]
    written = {
        (number, at) for number, first in parts.items() for at in range(first, behind[number])
    }
    lacked = {
        (number, at)
        for number, (first, end) in batch.items()
        for at in range(first, end)
        if at >= held.get(number, 0)
    }
    assert written == lacked


def test_a_batch_behind_a_gap_is_refused(golden: Golden) -> None:
    with golden.raises(Conflict, match=r"t\[0\].*offset 9"):
        BATCH.remaining({"t": {0: 9}}, "x")


def test_a_checkpoint_that_continues_is_refused_by_a_target_that_holds_nothing(
    golden: Golden,
) -> None:
    batch = Batch({"t": {0: 1000}}, {"t": {0: 2000}})

    assert batch.remaining({}, "x") == batch
    with golden.raises(Conflict, match=r"t\[0\].*1000"):
        batch.remaining({}, "x", begins=False)


def test_transforms_of_partitions_keep_their_commas() -> None:
    assert split_partitions("day, bucket(16, id),days(seen)") == (
        "day",
        "bucket(16, id)",
        "days(seen)",
    )
    assert split_partitions("") == ()
