"""Columnar values on a real broker: each row once, exact, in each group, whatever dies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.columnar_delivery import (
    SOURCES,
    Value,
    batches_by_id,
    make_topics,
    numbers,
    parquet,
    table_of,
    values_in,
)
from tests.support.delivery import Delivery
from tests.support.dying_workers import deliver_despite_deaths
from tests.support.local_engine import CallingThreadEngine
from tests.support.real import Crash, at, crash, run_here, take_over, worker

from extentflow.columnar.schemas import identity
from extentflow.converters import open_converter
from extentflow.testing.broker import java_partition

if TYPE_CHECKING:
    pass

ROWS = 1_000
PARTITIONS = 3
NONE: Mapping[str, str] = {}


def ids_of(values: Sequence[Value]) -> Counter[int]:
    return Counter(n for one in values for n in one.ids)


# -- formats --------------------------------------------------------------------------------------


def put_each_format(delivery: Delivery) -> dict[str, pa.Table]:
    """Store an object of each format, with ids of its own; return their rows by key."""
    tables = [numbers(at, at + ROWS) for at in range(0, ROWS * len(SOURCES), ROWS)]
    return {
        delivery.put(f"rows.{name}", write(table)): table
        for (name, (write, _)), table in zip(SOURCES.items(), tables, strict=True)
    }


def run_each(delivery: Delivery, objects: Mapping[str, pa.Table], **more: str) -> list[int]:
    """Deliver all objects, those of a format whose columns a connector declares apart."""
    counts = []
    declared = {".csv": "csv", ".jsonl": "jsonl"}
    for suffix in ("", *declared):
        own = SOURCES[declared[suffix]][1] if suffix else {}
        delivery.connector({**own, "extent.bytes": "16KiB", **more})
        keys = [key for key in objects if key.endswith(suffix)]
        if not suffix:
            keys = [key for key in keys if not key.endswith(tuple(declared))]
        # Processes of the inline engine take seconds to start: only those of most formats.
        with worker(delivery) as here:
            engine = CallingThreadEngine(here.run) if suffix or "topic" in more else None
            report = delivery.run(keys=keys, again="topic" in more, engine=engine)
        assert report.ok
        counts += [job.records for job in report.jobs]
        assert report.records_this_run == ROWS * len(keys)
    return counts


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["parquet", pytest.param("arrow", marks=pytest.mark.soak)])
def test_rows_of_each_format_are_delivered_once_with_their_types(
    delivery: Delivery, encoding: str
) -> None:
    objects = put_each_format(delivery)

    counts = run_each(delivery, objects, **{"columnar.encoding": encoding})
    values = values_in(delivery)
    as_json = delivery.make_topic("json")
    run_each(delivery, objects, topic=as_json)
    expected = Counter(delivery.values(as_json))

    assert counts == [ROWS] * len(objects)
    assert ids_of(values) == Counter(range(ROWS * len(objects)))
    assert Counter(v for one in values for v in in_json(one.rows)) == expected
    for key, table in objects.items():
        own = [one for one in values if one.facts.object == f"s3://{delivery.bucket}/{key}"]
        found = table_of(own)
        assert found.schema.types == table.schema.types, key
        if not key.endswith(".csv"):  # whose empty fields are no nulls
            assert found.to_pylist() == table.to_pylist(), key
        for one in own:
            assert one.facts.rows == one.rows.num_rows
            assert one.facts.encoding == encoding
            assert one.facts.schema == identity(one.rows.schema)
            assert one.facts.first <= one.facts.last


def in_json(rows: pa.RecordBatch) -> list[bytes]:
    return list(open_converter("json", rows.schema)(rows).to_pylist())


# -- workers that die -----------------------------------------------------------------------------

GROUPS = "ids: id; texts: id, text; others: *"


def lay_out(
    delivery: Delivery, objects: int, rows: int, config: Mapping[str, str] = NONE
) -> list[str]:
    """Store objects of rows, and a connector to three groups; return the topics."""
    for number in range(objects):
        name, (write, _) = list(SOURCES.items())[number % 4]  # those without settings
        table = numbers(number * rows, (number + 1) * rows)
        delivery.put(f"{number}.{name}", write(table))
    topics = make_topics(delivery, ["ids", "texts", "others"], PARTITIONS)
    delivery.connector(
        {
            "topic": f"grouped-{delivery.name}",
            "columnar.encoding": "arrow",
            "columnar.groups": GROUPS,
            "columnar.batch.bytes": "2KiB",
            "extent.bytes": "16KiB",
            **config,
        }
    )
    return topics


def check_groups(delivery: Delivery, topics: Sequence[str], count: int, *, keyed: bool) -> None:
    """Each row once in each topic, in the same batches, in the same partition."""
    ids, texts = (values_in(delivery, topic) for topic in topics[:2])
    others = values_in(delivery, topics[2])
    expected = numbers(0, count)

    assert ids_of(ids) == ids_of(texts) == Counter(range(count))
    assert sum(one.rows.num_rows for one in others) == count
    assert {one.facts.group for one in texts} == {"texts"}
    joined = batches_by_id(ids)
    assert batches_by_id(texts) == joined
    assert all(len(found) == 1 for found in joined.values())
    assert table_of(texts).column("text").to_pylist() == expected.column("text").to_pylist()
    by_batch = {one.facts.batch: one for one in ids}
    rows: list[dict[str, Any]] = []
    for one in others:
        leader = by_batch.pop(one.facts.batch)
        assert leader.record.partition == one.record.partition
        assert leader.rows.num_rows == one.rows.num_rows
        rows += [{"id": n, **row} for n, row in zip(leader.ids, one.rows.to_pylist(), strict=True)]
    assert by_batch == {}
    wanted = expected.select(["id", "x", "flag"]).to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == wanted
    for one in ids if keyed else ():
        places = {java_partition(str(n).encode(), PARTITIONS) for n in one.ids}
        assert places == {one.record.partition}


KEYED = {"message.key": "column:id", "key.converter": "string"}


@pytest.mark.long
@pytest.mark.parametrize(
    "keyed",
    # A worker that is killed, below, has no keys either.
    [pytest.param(False, marks=pytest.mark.soak), True],
    ids=["aligned", "keyed"],
)
def test_a_crash_between_chunks_leaves_no_row_twice_or_out_in_any_group(
    delivery: Delivery, *, keyed: bool
) -> None:
    delivery.changes["transaction_max_bytes"] = 4 << 10
    topics = lay_out(delivery, 2, 3_000, KEYED if keyed else NONE)

    for chunk in (2, 4):
        with pytest.raises(Crash):
            run_here(delivery, before=at(chunk, crash))
        take_over(delivery)
    report = run_here(delivery)

    assert report.ok
    check_groups(delivery, topics, 6_000, keyed=keyed)
    assert delivery.leftovers() == []


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [
        {"ordering": "object"},
        pytest.param({"message.partition": "column:id"}, marks=pytest.mark.variant),
        pytest.param(
            {"file.name.template": "{{partition}}.parquet", "message.partition": "name"},
            marks=pytest.mark.variant,
        ),
    ],
    ids=["ordered", "by a column", "by name"],
)
def test_groups_need_no_topic_beside_their_own_to_choose_partitions(
    delivery: Delivery, config: Mapping[str, str]
) -> None:
    delivery.put("2.parquet", parquet(numbers(0, PARTITIONS)))
    topics = make_topics(delivery, ["ids", "others"], PARTITIONS)
    groups = {"columnar.encoding": "arrow", "columnar.groups": "ids: id; others: *"}
    delivery.connector({"topic": topics[0].removesuffix(".ids"), **groups, **config})

    report = run_here(delivery)

    assert report.ok, report.errors
    ids, others = (values_in(delivery, topic) for topic in topics)
    places = [one.record.partition for one in others]
    assert [one.record.partition for one in ids] == places
    match config.get("message.partition"):
        case "column:id":
            assert sorted(places) == [*range(PARTITIONS)]
        case "name":
            assert places == [2]
        case _:
            assert len(set(places)) == 1


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("seed", "keyed"),
    [
        pytest.param(0, True, id="keyed"),
        pytest.param(1, False, id="aligned", marks=pytest.mark.soak),
        *(pytest.param(2, keyed, marks=pytest.mark.soak) for keyed in (True, False)),
        pytest.param(0, False, marks=pytest.mark.soak),
        pytest.param(1, True, marks=pytest.mark.soak),
    ],
)
def test_workers_killed_at_random_points_leave_no_row_twice_or_out(
    delivery: Delivery, seed: int, *, keyed: bool
) -> None:
    delivery.changes["transaction_max_bytes"] = 8 << 10
    topics = lay_out(delivery, 10, 10_000, KEYED if keyed else NONE)

    deaths = deliver_despite_deaths(delivery, seed=seed, deaths=8)

    assert deaths >= 4
    check_groups(delivery, topics, 100_000, keyed=keyed)
    assert delivery.leftovers() == []
