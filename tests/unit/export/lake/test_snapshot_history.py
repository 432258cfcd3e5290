"""Which offsets of an Iceberg table's snapshots count."""

import os
from random import Random

import pytest
from tests.support.table_histories import STEPS, ModelTable, TableHistory

from extentflow.export.lake.lake_target import TableState
from extentflow.export.lake.snapshot_history import read_history, summary_of

HISTORIES = int(os.environ.get("HISTORIES", "300"))


def written(table: ModelTable, topic: str, end: int, *, rows: int = 10, topic_id: str = "") -> int:
    """Commit rows of a topic, as a query does, and tag them; return the snapshot's number."""
    found, current = read_history(table), table.current()
    version = None if current is None else current.number
    state = TableState(None, found.offsets, version, found.doubts, found.ids)
    state = state.of_topics({topic: topic_id})
    added = [(topic, at) for at in range(end - rows, end)]
    assert table.commit(added, summary_of(state, {topic: {0: end}}, "x"), version) == "done"
    behind = table.current()
    assert behind is not None
    table.tag(behind.number)
    return behind.number


def test_a_table_that_was_rolled_back_continues_at_its_own_offsets() -> None:
    table = ModelTable()
    first = written(table, "a", 10)
    written(table, "a", 20)

    table.return_to(first)
    table.append([("other", 1)])
    table.expire(1)

    assert read_history(table).offsets == {"a": {0: 10}}


def test_a_tag_alone_does_not_state_where_a_table_continues() -> None:
    """The former metadata files are lost, too."""
    table = ModelTable(most_former=0)
    first = written(table, "a", 10)
    written(table, "a", 20)

    table.return_to(first)
    table.append([("other", 1)])
    table.expire(1)

    found = read_history(table)
    assert (found.offsets, found.doubts) == ({}, {"a": {0: 20}})


@pytest.mark.parametrize("with_rows", [True, False])
def test_a_replaced_table_is_in_doubt_unless_it_is_empty(with_rows: bool) -> None:  # noqa: FBT001
    table = ModelTable()
    written(table, "a", 20, rows=20)

    table.replace(with_rows=with_rows)

    found = read_history(table)
    assert (found.offsets, found.doubts) == ({}, {"a": {0: 20}} if with_rows else {})


def test_the_id_of_a_topic_is_that_of_the_statement_that_counts() -> None:
    table = ModelTable()
    first = written(table, "a", 10, topic_id="A1")
    written(table, "b", 5, rows=5, topic_id="B1")
    assert read_history(table).ids == {"a": "A1", "b": "B1"}

    written(table, "a", 20, topic_id="A2")
    assert read_history(table).ids == {"a": "A2", "b": "B1"}

    table.return_to(first)
    assert read_history(table).ids == {"a": "A1"}


def test_a_statement_of_an_earlier_release_has_no_id() -> None:
    table = ModelTable()
    written(table, "a", 10)

    assert (read_history(table).offsets, read_history(table).ids) == ({"a": {0: 10}}, {})


def test_a_doubt_stays_when_another_query_commits() -> None:
    table = ModelTable(most_former=0)
    written(table, "a", 20, rows=20)
    table.replace(with_rows=True)

    written(table, "b", 5, rows=5)
    table.expire(1)

    found = read_history(table)
    assert (found.offsets, found.doubts) == ({"b": {0: 5}}, {"a": {0: 20}})


def test_the_newest_statement_of_each_topic_counts() -> None:
    """B committed offsets without rows while A wrote a batch."""
    table = ModelTable()
    written(table, "a", 10)
    base = written(table, "b", 11)
    stale = TableState(None, {"a": {0: 10}, "b": {0: 11}}, base)
    written(table, "b", 62, rows=0)

    late = summary_of(stale, {"a": {0: 20}}, "late")
    assert table.commit([("a", 19)], late, base) == "done"

    assert read_history(table).offsets == {"a": {0: 20}, "b": {0: 62}}


def test_a_batch_that_ends_behind_a_replacement_states_nothing() -> None:
    """Iceberg validates nothing if the table has no snapshot any more."""
    table = ModelTable()
    base = written(table, "a", 10)
    state = TableState(None, {"a": {0: 10}}, base)
    table.clear()

    assert table.commit([("a", 10)], summary_of(state, {"a": {0: 11}}, "late"), base) == "done"

    found = read_history(table)
    assert (found.offsets, found.doubts) == ({}, {"a": {0: 11}})


def test_rows_of_a_batch_that_were_picked_are_in_doubt() -> None:
    table = ModelTable()
    first = written(table, "a", 10)
    second = written(table, "a", 20)
    table.return_to(first)
    table.append([("other", 1)])

    table.pick(second)

    found = read_history(table)
    assert (found.offsets, found.doubts) == ({}, {"a": {0: 20}})


@pytest.mark.parametrize(
    ("most_former", "left_out"),
    [(100, set()), (3, {"return", "pick"}), (0, {"return", "pick"})],
    ids=["all metadata files", "three", "none"],
)
def test_histories_are_continued_right_or_a_person_decides(
    most_former: int, left_out: set[str]
) -> None:
    doubted = 0

    for seed in range(HISTORIES):
        history = TableHistory(ModelTable(most_former), Random(seed))
        history.run(60, only=STEPS - left_out)
        doubted += history.doubted

    assert doubted > HISTORIES / 10


def test_only_replaced_tables_and_picked_batches_need_a_person() -> None:
    for seed in range(HISTORIES // 3):
        history = TableHistory(ModelTable(), Random(seed))

        history.run(60, only=STEPS - {"replace", "empty", "clear", "pick"})

        assert history.doubted == 0
