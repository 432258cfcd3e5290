"""Columnar values of Parquet objects: row groups as they are stored, and rows beyond a limit."""

import io
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from tests.support.columnar_delivery import Value, numbers, parquet, table_of, values_in
from tests.support.delivery import Delivery
from tests.support.local_engine import CallingThreadEngine
from tests.support.real import Crash, Hooked, at, crash, nothing, take_over, worker

from extentflow.delivery.pipeline import Pipeline
from extentflow.errors import ProducerSpent
from extentflow.formats import Chunk, StoredRows
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.jobs.run import RunReport
from extentflow.model import Extent
from extentflow.services.composition import open_dead_letters

if TYPE_CHECKING:
    pass

AS_PARQUET = {"columnar.encoding": "parquet"}


def create(delivery: Delivery, name: str, limit: int, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": delivery.settings.bootstrap_servers})
    topic = NewTopic(name, partitions, config={"max.message.bytes": str(limit)})
    admin.create_topics([topic])[name].result(60)
    return name


def raise_limit(delivery: Delivery, topic: str, to: int) -> None:
    entry = ConfigEntry("max.message.bytes", str(to), incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": delivery.settings.bootstrap_servers})
    admin.incremental_alter_configs([changed])[changed].result(60)


def noise(sizes: list[int], group_rows: int = 20) -> pa.Table:
    """Return rows of incompressible bytes; those of each row group have one of `sizes`."""
    source = random.Random(len(sizes))
    blobs = [source.randbytes(size) for size in sizes for _ in range(group_rows)]
    return pa.table({"id": pa.array(range(len(blobs)), pa.int64()), "blob": pa.array(blobs)})


def is_stored(body: bytes, value: Value) -> bool:
    """Whether the pages of a value are those of the object, whose pages are of version 2."""
    found = value.record.value or b""
    end = len(found) - 8 - int.from_bytes(found[-8:-4], "little")
    return found[4:end] in body


class StoredHooked:
    """Parquet whose row groups, decoded or as they are stored, call `before`."""

    def __init__(self, inner: Parquet, before: Callable[[], object]) -> None:
        self._inner, self._before = inner, before

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of Parquet
        return getattr(self._inner, name)

    def decode_stored(self, *args: Any, **words: Any) -> Iterator[Chunk | StoredRows]:  # noqa: ANN401
        for chunk in self._inner.decode_stored(*args, **words):
            self._before()
            yield chunk


def run_stored(delivery: Delivery, before: Callable[[], object] = nothing) -> RunReport:
    """Run on this thread, with a hook that row groups pass that are not decoded."""
    with worker(delivery) as made:
        usual = made._work.open

        def pipeline(extent: Extent) -> Pipeline:
            found = usual(extent)
            assert isinstance(found.format, Hooked)
            inner = cast("Any", found.format.inner)
            return replace(found, format=cast("Any", StoredHooked(inner, before)))

        made._work = replace(made._work, open=pipeline)
        return delivery.run(engine=CallingThreadEngine(made.run))


SIZES = [100, 1_500, 100, 100, 1_500, 100]


@pytest.mark.parametrize("passes", ["true", pytest.param("false", marks=pytest.mark.variant)])
def test_row_groups_that_fit_are_values_as_they_are_stored(delivery: Delivery, passes: str) -> None:
    table = noise(SIZES)
    body = parquet(table, 20, compression="zstd", data_page_version="2.0")
    topic = create(delivery, f"limited-{delivery.name}", 20_000)
    delivery.put("x.parquet", body)
    delivery.connector({**AS_PARQUET, "topic": topic, "columnar.passthrough": passes})

    report = run_stored(delivery)
    values = values_in(delivery, topic)

    assert report.ok
    assert [job.records for job in report.jobs] == [table.num_rows]
    assert report.records_this_run == table.num_rows
    assert table_of(values).equals(table)
    assert [n for one in values for n in one.ids] == [*range(120)]
    assert all((one.facts.first, one.facts.last) == (one.ids[0], one.ids[-1]) for one in values)
    stored = [one.ids[0] for one in values if is_stored(body, one)]
    assert stored == ([0, 40, 60, 100] if passes == "true" else [])


@pytest.mark.long
def test_a_stop_between_row_groups_continues_exactly(delivery: Delivery) -> None:
    delivery.changes["transaction_max_bytes"] = 1 << 10
    table = noise(SIZES * 3)
    topic = create(delivery, f"limited-{delivery.name}", 20_000)
    delivery.put("x.parquet", parquet(table, 20))
    delivery.connector({**AS_PARQUET, "topic": topic, "extent.bytes": "1MiB"})
    seen = []

    # Chunks and stored row groups pass the hook. Two of them may be in work behind the one that is
    # committed, and a crash loses these.
    for chunk in (4, 5, 4):
        with pytest.raises(Crash):
            run_stored(delivery, before=at(chunk, crash))
        take_over(delivery)
        seen.append(sum(item.position for item in delivery.items()))
    report = run_stored(delivery)

    assert report.ok
    assert seen == sorted(set(seen))
    assert 0 < seen[0] < seen[-1] < table.num_rows
    assert table_of(values_in(delivery, topic)).equals(table)
    assert [job.records for job in report.jobs] == [table.num_rows]
    assert [item.position for item in delivery.items()] == [table.num_rows]


@pytest.mark.parametrize("passes", ["true", pytest.param("false", marks=pytest.mark.variant)])
def test_a_damaged_page_is_a_bad_record_as_decoding_reports_it(
    delivery: Delivery, passes: str
) -> None:
    table = noise([100] * 3)
    body = bytearray(
        parquet(table, 20, compression="none", use_dictionary=False, write_page_checksum=True)
    )
    column = pq.ParquetFile(io.BytesIO(body)).metadata.row_group(1).column(1)
    body[column.data_page_offset + column.total_compressed_size - 9] ^= 1
    queue = delivery.make_topic("dead")
    delivery.put("x.parquet", bytes(body))
    tolerant = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": queue}
    delivery.connector({**AS_PARQUET, **tolerant, "columnar.passthrough": passes})

    report = run_stored(delivery)
    values = values_in(delivery)

    assert report.ok
    assert sorted(n for one in values for n in one.ids) == [*range(20), *range(40, 60)]
    (letter,) = delivery.read(queue)
    assert any(b"CRC checksum" in (value or b"") for _, value in letter.headers)


@pytest.mark.parametrize(
    ("written", "config"),
    [
        ({"use_deprecated_int96_timestamps": True}, {}),
        pytest.param({}, {"columnar.encoding.compression": "snappy"}, marks=pytest.mark.variant),
        pytest.param(
            {},
            {"message.key": "column:id", "key.converter": "string"},
            marks=pytest.mark.variant,
        ),
        (
            {},
            {
                "transforms": "c",
                "transforms.c.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
                "transforms.c.exclude": "x",
            },
        ),
    ],
    ids=["int96", "compression", "key", "transform"],
)
def test_what_changes_rows_or_values_is_not_passed_through(
    delivery: Delivery, written: dict[str, bool], config: dict[str, str]
) -> None:
    table = numbers(0, 100)
    if written:
        table = table.append_column("t", pa.array(range(100), pa.timestamp("ns")))
    body = parquet(table, 20, compression="zstd", data_page_version="2.0", **written)
    delivery.put("x.parquet", body)
    delivery.connector({**AS_PARQUET, **config})

    assert run_stored(delivery).ok
    values = values_in(delivery)

    assert not any(is_stored(body, one) for one in values)
    found = table_of(values)
    assert found.num_rows == 100
    assert found.equals(table.select(found.schema.names))


GROUPS = ("ids", "rest")


def replay(delivery: Delivery) -> None:
    """Replay dead letters, again where a busy broker spends a producer between transactions."""
    for _ in range(10):
        with suppress(ProducerSpent):
            open_dead_letters(delivery.runtime, delivery.connector_name).replay()
            return


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["arrow", pytest.param("parquet", marks=pytest.mark.variant)])
def test_a_row_above_the_limit_is_dead_lettered_and_replayed_when_the_limit_is_raised(
    delivery: Delivery, encoding: str
) -> None:
    table = noise([100, 100, 100])
    blobs = table.column("blob").to_pylist()
    blobs[33] = random.Random(9).randbytes(30_000)
    table = table.set_column(1, "blob", pa.array(blobs))
    topic, queue = f"grouped-{delivery.name}", delivery.make_topic("dead")
    topics = [create(delivery, f"{topic}.{name}", 20_000, 3) for name in GROUPS]
    delivery.put("x.parquet", parquet(table, 60))
    delivery.connector(
        {
            "topic": topic,
            "columnar.encoding": encoding,
            "columnar.groups": "ids: id; rest: *",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": queue,
        }
    )

    (job,) = run_stored(delivery).jobs
    ids, rest = (values_in(delivery, name) for name in topics)

    assert (job.records, job.bad) == (59, 1)
    assert sorted(n for one in ids for n in one.ids) == [n for n in range(60) if n != 33]
    assert sum(one.rows.num_rows for one in rest) == 59
    assert {one.facts.batch for one in ids} == {one.facts.batch for one in rest}
    assert len(delivery.read(queue)) == 1

    for name in topics:
        raise_limit(delivery, name, 100_000)
    replay(delivery)

    ids, rest = (values_in(delivery, name) for name in topics)
    assert sorted(n for one in ids for n in one.ids) == [*range(60)]
    (last,) = [one for one in ids if one.ids == [33]]
    (late,) = [one for one in rest if one.facts.batch == last.facts.batch]
    assert late.rows.to_pylist() == [{"blob": blobs[33]}]
    assert late.record.partition == last.record.partition


@pytest.mark.parametrize("encoding", ["arrow", pytest.param("parquet", marks=pytest.mark.variant)])
def test_a_row_of_a_fifth_of_the_limit_is_delivered(delivery: Delivery, encoding: str) -> None:
    table = noise([4_000], 5)
    topic = create(delivery, f"limited-{delivery.name}", 20_000)
    delivery.put("x.parquet", parquet(table))
    delivery.connector({"topic": topic, "columnar.encoding": encoding})

    report = run_stored(delivery)

    assert report.ok, report.jobs
    assert table_of(values_in(delivery, topic)).equals(table)
