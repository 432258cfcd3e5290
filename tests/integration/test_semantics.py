"""What a delivery means for the object behind it, for bad records, and for what a topic takes."""

import gzip
import json
import re
import time
from collections import Counter
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from tests.integration.conftest import MakeTopic
from tests.support.backups import BACKUPS
from tests.support.delivery import Delivery, joined, numbered_lines, parsed
from tests.support.real import (
    Crash,
    at,
    crash,
    replay_here,
    run_here,
    take_over,
    the_job,
)
from tests.support.waiting import eventually

from extentflow.kafka.record_headers import by_name
from extentflow.model import ExtentState, JobState
from extentflow.testing.broker import java_partition
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    pass

LINES = numbered_lines("line ", 5_000)
TOLERANT = {"errors.tolerance": "all"}


@pytest.fixture
def versioned(delivery: Delivery, versioned_bucket: str) -> Delivery:
    return replace(delivery, bucket=versioned_bucket)


def states(delivery: Delivery) -> Counter[str]:
    return Counter(job.state.value for job in delivery.jobs())


# -- objects that change --------------------------------------------------------------------------

A, B = numbered_lines("first version ", 20_000), numbered_lines("second version ", 20_000)


@pytest.mark.long
def test_an_object_a_then_b_then_a_again_on_an_unversioned_bucket(delivery: Delivery) -> None:
    delivery.put("x.txt", joined(A))
    delivery.connector({"extent.bytes": "96KiB"})

    replaced = run_here(delivery, before=at(8, lambda: delivery.put("x.txt", joined(B))))

    (job,) = replaced.jobs
    assert (replaced.ok, job.state) == (False, "SUPERSEDED")
    assert "stay in the topic" in job.reason
    partial = delivery.values()
    assert 0 < len(partial) < len(A)
    assert set(partial) < set(A)

    second = run_here(delivery)

    assert second.ok
    assert states(delivery) == {"SUPERSEDED": 1, "DONE": 1}
    assert sorted(delivery.values()) == sorted(partial + B)

    delivery.put("x.txt", joined(A))
    third = run_here(delivery)

    assert third.ok
    assert third.jobs[0].job == job.job
    assert third.jobs[0].records == len(A)
    assert sorted(delivery.values()) == sorted(A + B)
    assert delivery.leftovers() == []


@pytest.mark.long
def test_trap_t12_a_version_replaced_mid_read_is_still_delivered_in_full(
    versioned: Delivery,
) -> None:
    versioned.put("x.txt", joined(A))
    versioned.connector({"extent.bytes": "96KiB"})

    first = run_here(versioned, before=at(8, lambda: versioned.put("x.txt", joined(B))))

    assert first.ok
    assert sorted(versioned.values()) == sorted(A)
    assert "?versionId=" in first.jobs[0].uri

    second = run_here(versioned)

    assert second.ok
    assert states(versioned) == {"DONE": 2}
    assert sorted(versioned.values()) == sorted(A + B)


def test_trap_t11_a_deleted_object_fails_its_job_and_can_be_replayed(
    delivery: Delivery,
) -> None:
    key = delivery.put("x.txt", joined(LINES))
    delivery.connector({"extent.bytes": "20KiB"})

    def delete() -> None:
        delivery.s3.delete_object(Bucket=delivery.bucket, Key=key)

    gone = run_here(delivery, before=at(1, delete))

    assert (gone.ok, gone.jobs[0].state) == (False, "FAILED")
    failed = [item.state for item in delivery.items()].count(ExtentState.FAILED)
    (error,) = gone.errors
    assert error.startswith("object gone: s3://")
    assert failed == 1 or error.endswith(f"(and {failed - 1} more extents alike)")
    delivery.put("x.txt", joined(LINES))

    replayed = replay_here(delivery, the_job(delivery))

    assert replayed.ok
    assert sorted(delivery.values()) == sorted(LINES)


def test_trap_t31_a_delivered_object_is_not_delivered_again(delivery: Delivery) -> None:
    """Trap: a finished object was delivered again later, without any crash."""
    delivery.put("x.txt", joined(LINES))
    delivery.connector({})
    assert run_here(delivery).ok

    delivery.put("x.txt", joined(LINES))
    again = run_here(delivery)

    assert again.ok
    assert again.records_this_run == 0
    assert len(delivery.values()) == len(LINES)
    on_purpose = run_here(delivery, again=True)
    assert on_purpose.records_this_run == len(LINES)
    assert set(Counter(delivery.values()).values()) == {2}


def test_trap_t15_nothing_is_ever_changed_in_the_source(delivery: Delivery) -> None:
    key = delivery.put("x.txt", joined(LINES))
    delivery.connector({})
    before = delivery.s3.head_object(Bucket=delivery.bucket, Key=key)

    assert run_here(delivery).ok

    after = delivery.s3.head_object(Bucket=delivery.bucket, Key=key)
    listed = delivery.s3.list_objects_v2(Bucket=delivery.bucket, Prefix=delivery.prefix)
    assert (after["ETag"], after["LastModified"]) == (before["ETag"], before["LastModified"])
    assert listed["KeyCount"] == 1


# -- bad records ----------------------------------------------------------------------------------

ROWS = [f"{n},value {n}".encode() for n in range(4_000)]
BAD_AT = (700, 1_500, 3_999)
WITH_BAD = joined(
    [b"n,v", *(b"too,many,fields" if n in BAD_AT else row for n, row in enumerate(ROWS))]
)
GOOD = [row for n, row in enumerate(ROWS) if n not in BAD_AT]


def as_json(rows: list[bytes]) -> list[Any]:
    pairs = (row.decode().split(",") for row in rows)
    return sorted(({"n": n, "v": v} for n, v in pairs), key=json.dumps)


def with_dead_letters(delivery: Delivery) -> str:
    """Let bad records go to a queue of their own; return its name."""
    queue = delivery.make_topic("dead", partitions=1)
    delivery.connector({**TOLERANT, "errors.deadletterqueue.topic.name": queue})
    return queue


def test_tolerated_bad_records_go_to_the_queue_with_their_place(delivery: Delivery) -> None:
    key = delivery.put("x.csv", WITH_BAD)
    queue = with_dead_letters(delivery)

    report = run_here(delivery)

    (job,) = report.jobs
    assert report.ok
    assert (job.records, job.bad) == (len(GOOD), len(BAD_AT))
    assert parsed(delivery.values()) == as_json(GOOD)
    letters = delivery.read(queue)
    assert [letter.value for letter in letters] == [b"too,many,fields"] * 3
    offsets = [int(by_name(letter.headers)["extentflow.offset"]) for letter in letters]
    assert [WITH_BAD[at:].split(b"\n")[0] for at in offsets] == [b"too,many,fields"] * 3
    headers = by_name(letters[0].headers)
    uri = f"s3://{delivery.bucket}/{key}"
    assert headers["__connect.errors.topic"] == delivery.topic.encode()
    assert headers["__connect.errors.connector.name"] == delivery.connector_name.encode()
    assert headers["__connect.errors.task.id"] == f"{job.job}-0".encode()
    assert headers["__connect.errors.exception.message"].startswith(f"{uri}[0-".encode())
    assert headers["extentflow.object"] == uri.encode()
    assert headers["extentflow.extent"] == f"0-{len(WITH_BAD)}".encode()
    assert headers["extentflow.reason"] == b"expected 2 fields, got 3"


def test_dead_letters_and_records_are_committed_together_or_not_at_all(delivery: Delivery) -> None:
    delivery.changes["transaction_max_bytes"] = 64 << 20
    delivery.put("x.csv", WITH_BAD)
    queue = with_dead_letters(delivery)

    with pytest.raises(Crash):
        run_here(delivery, before=at(3, crash))
    take_over(delivery)
    assert delivery.values() == []
    assert delivery.read(queue) == []

    report = run_here(delivery)

    assert report.ok
    assert parsed(delivery.values()) == as_json(GOOD)
    assert len(delivery.read(queue)) == len(BAD_AT)


def test_a_bad_record_that_is_not_tolerated_fails_its_job_at_that_record(
    delivery: Delivery,
) -> None:
    delivery.put("x.csv", WITH_BAD)
    delivery.connector({})

    failed = run_here(delivery)

    (error,) = failed.errors
    (item,) = delivery.items()
    offset = WITH_BAD.index(b"too,many")
    assert failed.jobs[0].state == "FAILED"
    assert f"x.csv[0-{len(WITH_BAD)}): bad record at offset {offset}: " in error
    assert item.error == error
    delivered = delivery.values()
    assert len(delivered) == item.records == failed.records_this_run

    replayed = replay_here(delivery, the_job(delivery))

    assert replayed.errors == (error,)
    assert replayed.records_this_run == 0
    assert delivery.values() == delivered
    assert item.position == delivery.items()[0].position


# -- damaged objects ------------------------------------------------------------------------------


def parquet(rows: int = 4_000, group_rows: int = 500) -> bytes:
    """Return row groups of plain pages, each with a checksum."""
    sink = pa.BufferOutputStream()
    table = pa.table({"n": range(rows), "text": [f"value {n} of the table" for n in range(rows)]})
    pq.write_table(
        table,
        sink,
        row_group_size=group_rows,
        use_dictionary=False,
        compression="none",
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


WHOLE = parquet()


def with_a_damaged_page(body: bytes) -> bytes:
    """Return the object with one byte of row 2,100's text changed."""
    where = body.index(b"value 2100 of")
    return body[:where] + b"V" + body[where + 1 :]


@pytest.mark.parametrize(
    ("damaged", "says"),
    [
        pytest.param(WHOLE[: len(WHOLE) // 2], "PAR1", id="truncated", marks=pytest.mark.variant),
        pytest.param(
            WHOLE[:-20] + b"\xff" * 12 + WHOLE[-8:],
            "footer",
            id="footer",
            marks=pytest.mark.variant,
        ),
        pytest.param(WHOLE[:-8] + b"\xff\xff\xff\x7f" + b"PAR1", "footer", id="footer length"),
        pytest.param(b"PAR1", "PAR1", id="four bytes"),
    ],
)
def test_parquet_without_a_usable_footer_fails_before_its_first_record(
    delivery: Delivery, damaged: bytes, says: str
) -> None:
    key = delivery.put("x.parquet", damaged)
    with_dead_letters(delivery)

    report = run_here(delivery)

    (job,) = report.jobs
    assert job.state == "FAILED"
    assert f"s3://{delivery.bucket}/{key}" in job.reason
    assert says in job.reason
    assert delivery.values() == []


def test_a_damaged_page_is_reported_with_its_row_and_other_rows_arrive(
    delivery: Delivery,
) -> None:
    delivery.put("x.parquet", with_a_damaged_page(WHOLE))
    queue = with_dead_letters(delivery)

    report = run_here(delivery)

    assert report.ok
    assert report.jobs[0].bad == 1
    (letter,) = delivery.read(queue)
    headers = by_name(letter.headers)
    assert letter.value is None
    assert 2_000 <= int(headers["extentflow.row"]) <= 2_100
    assert b"row group 4" in headers["extentflow.reason"]
    delivered = {json.loads(value)["n"] for value in delivery.values()}
    assert len(delivery.values()) == len(delivered)
    assert set(range(4_000)) - delivered == set(range(int(headers["extentflow.row"]), 2_500))


def test_a_damaged_page_that_is_not_tolerated_fails_the_job_at_its_row(delivery: Delivery) -> None:
    delivery.put("x.parquet", with_a_damaged_page(WHOLE))
    delivery.connector({})

    report = run_here(delivery)

    (error,) = report.errors
    assert report.jobs[0].state == "FAILED"
    assert "bad record at row 2" in error
    assert "row group 4" in error
    delivered = sorted(json.loads(value)["n"] for value in delivery.values())
    assert delivered == list(range(len(delivered)))
    assert 1_500 <= len(delivered) <= 2_100


def test_trap_t21_truncated_gzip_fails_and_keeps_what_was_whole(delivery: Delivery) -> None:
    body = gzip.compress(joined(A[:15_000])) + gzip.compress(joined(A[15_000:]))
    delivery.put("x.txt.gz", body[:-30])
    delivery.connector({})

    report = run_here(delivery)

    (error,) = report.errors
    delivered = delivery.values()
    assert report.jobs[0].state == "FAILED"
    assert "x.txt.gz" in error
    assert "truncated" in error
    assert sorted(delivered) == sorted(A[: len(delivered)])
    assert 10_000 < len(delivered) < len(A)


def test_trap_t09_a_damaged_object_stops_no_other(delivery: Delivery) -> None:
    delivery.put("a.parquet", WHOLE[:-1])
    delivery.put("b.txt.gz", gzip.compress(joined(LINES))[:-30])
    delivery.put("c.txt", joined(LINES[:10]))
    delivery.put("d.txt", b"")
    delivery.connector({})

    report = run_here(delivery)

    assert not report.ok
    assert [job.state for job in report.jobs] == ["FAILED", "FAILED", "DONE", "DONE"]
    assert set(LINES[:10]) <= set(delivery.values())
    assert states(delivery) == {"FAILED": 2, "DONE": 2}


def test_chunks_of_any_bytes_join_to_the_object(delivery: Delivery) -> None:
    body = bytes(range(256)) * 1_000
    delivery.put("picture.bin", body)
    headers = "uri=uri,size=size,offset=location"
    config = {"input.format": "bytes", "bytes.chunk.bytes": "10000", "headers": headers}
    delivery.connector({**config, "extent.bytes": "64KiB"})

    report = run_here(delivery)

    assert report.ok
    assert report.jobs[0].extents > 1
    joined_chunks = bytearray(len(body))
    places = []
    for record in delivery.read():
        facts = by_name(record.headers)
        places.append(int(facts["offset"]))
        joined_chunks[places[-1] : places[-1] + len(record.value or b"")] = record.value or b""
        assert int(facts["size"]) == len(body)
    assert sorted(places) == list(range(0, len(body), 10_000))
    assert bytes(joined_chunks) == body


# -- what a topic takes ---------------------------------------------------------------------------


def limited(delivery: Delivery, make_topic: MakeTopic, limit: int, **config: str) -> str:
    """Let the connector write to a topic that takes batches of so many bytes."""
    topic = make_topic("limited", config={"max.message.bytes": str(limit)})
    delivery.connector({"topic": topic, "producer.compression.type": "none", **config})
    return topic


def test_trap_t29_a_topic_with_a_small_limit_accepts_small_batches(
    delivery: Delivery, make_topic: MakeTopic
) -> None:
    lines = [b"%06d " % n + b"x" * 500 for n in range(4_000)]
    delivery.put("x.txt", joined(lines))
    topic = limited(delivery, make_topic, 20_000)

    report = run_here(delivery)

    assert report.ok
    assert sorted(delivery.values(topic)) == lines


@pytest.mark.parametrize("tolerance", ["all", "none"])
def test_trap_t28_a_record_too_large_for_the_topic(
    delivery: Delivery, make_topic: MakeTopic, tolerance: str
) -> None:
    """Trap: one record above the limit of the topic stopped all others."""
    lines = [*LINES[:100], b"large " + b"x" * 50_000, *LINES[100:200]]
    body = joined(lines)
    delivery.put("x.txt", body)
    queue = delivery.make_topic("dead", partitions=1)
    tolerant = {**TOLERANT, "errors.deadletterqueue.topic.name": queue}
    topic = limited(delivery, make_topic, 20_000, **(tolerant if tolerance == "all" else {}))

    report = run_here(delivery)

    offset = body.index(b"large")
    if tolerance == "none":
        (error,) = report.errors
        assert report.jobs[0].state == "FAILED"
        assert f"bad record at offset {offset}: " in error
        assert "too large" in error
        assert b"large" not in b"".join(delivery.values(topic))
        return
    assert report.ok
    assert sorted(delivery.values(topic)) == sorted(LINES[:200])
    (letter,) = delivery.read(queue)
    headers = by_name(letter.headers)
    assert headers["extentflow.offset"] == str(offset).encode()
    assert headers["extentflow.omitted.bytes"] == str(len(lines[100])).encode()
    assert b"too large" in headers["extentflow.reason"]


def test_the_queues_limit_leaves_good_records_alone(
    delivery: Delivery, make_topic: MakeTopic
) -> None:
    good = [b"%03d " % n + b"x" * 50_000 for n in range(40)]
    bad = [b"\xff%03d " % n + b"x" * (300 if n else 30_000) for n in range(300)]
    delivery.put("x.txt", joined([*good, *bad]))
    queue = make_topic("small", partitions=1, config={"max.message.bytes": "20000"})
    config = {**TOLERANT, "errors.deadletterqueue.topic.name": queue}
    topic = limited(delivery, make_topic, 200_000, **config)

    report = run_here(delivery)

    assert report.ok
    assert sorted(delivery.values(topic)) == good
    letters = delivery.read(queue)
    assert [letter.value for letter in letters] == [None, *bad[1:]]
    assert by_name(letters[0].headers)["extentflow.omitted.bytes"] == str(len(bad[0])).encode()


def stamped(rows: range, *, bad: int = -1, instant: datetime, key: str = "k") -> bytes:
    """CSV with a key and a timestamp per row; those of the row `bad` are given."""
    now = datetime.now(UTC)
    lines = ["id,t"]
    for row in rows:
        name, at = (key, instant) if row == bad else (f"k{row}", now)
        lines.append(f"{name},{at.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}")
    return "\n".join([*lines, ""]).encode()


REFUSALS = {
    "timestamp": r"timestamp 20\d\d-.* is 30 days ahead .*\(message.timestamp.after.max.ms=",
    # So close to the limit that only the brokers judge: the record is found by halving.
    "rejected": r"the brokers reject it for topic \S+ \(INVALID_\w+\); ",
    "key": "the key is null, and topic .* is comp",
}


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [
        ("timestamp", "none"),
        ("rejected", "all"),
        *(
            pytest.param(kind, tolerance, marks=pytest.mark.variant)
            for kind, tolerance in [
                ("timestamp", "all"),
                ("rejected", "none"),
                ("key", "none"),
                ("key", "all"),
            ]
        ),
    ],
)
def test_a_record_that_the_topic_refuses_stops_no_other_object(
    delivery: Delivery, make_topic: MakeTopic, tolerance: str, kind: str
) -> None:
    """Trap: brokers rejected its batch, which was sent again for ever; later objects waited."""
    says = REFUSALS[kind]
    limits = {"timestamp": "3600000", "rejected": "60000", "key": "3600000"}
    ahead = {"timestamp": timedelta(days=30, hours=1), "rejected": timedelta(minutes=5)}
    topic_config = {"message.timestamp.after.max.ms": limits[kind]}
    topic_config |= {"cleanup.policy": "compact"} if kind == "key" else {}
    topic = make_topic("refusing", partitions=2, config=topic_config)
    instant = datetime.now(UTC) + ahead.get(kind, timedelta())
    for number in range(5):
        bad = 1_700 if number == 1 else -1
        rows = range(number * 1_000, number * 1_000 + 1_000)
        key = "" if kind == "key" else "k1700"
        body = stamped(rows, bad=bad, instant=instant, key=key)
        delivery.put(f"{number}.csv", body)
        if number == 1:
            offset = len(b"\n".join(body.split(b"\n")[:701])) + 1
    queue = delivery.make_topic("dead", partitions=1)
    tolerant = {**TOLERANT, "errors.deadletterqueue.topic.name": queue}
    delivery.connector(
        {
            "topic": topic,
            "csv.schema": "id:string,t:timestamp(ms,UTC)",
            "csv.null": "",
            "message.key": "column:id",
            "message.timestamp": "column:t",
            **(tolerant if tolerance == "all" else {}),
        }
    )

    report = run_here(delivery)

    delivered = Counter(json.loads(value or b"")["id"] for value in delivery.values(topic))
    assert set(delivered.values()) == {1}
    found = {job.uri.split("/")[-1].split("?")[0]: job.state for job in report.jobs}
    if tolerance == "none":
        assert found == {f"{n}.csv": "FAILED" if n == 1 else "DONE" for n in range(5)}
        assert set(delivered) >= {f"k{row}" for row in range(5_000) if not 1_000 <= row < 2_000}
        (error,) = report.errors
        assert f"bad record at offset {offset}: " in error
        assert re.search(says, error)
        return
    assert report.ok
    assert set(found.values()) == {"DONE"}
    assert set(delivered) == {f"k{row}" for row in range(5_000) if row != 1_700}
    (letter,) = delivery.read(queue)
    headers = by_name(letter.headers)
    assert headers["extentflow.offset"] == str(offset).encode()
    assert re.search(says, (headers["extentflow.reason"] or b"").decode())


def lower_limit(delivery: Delivery, kind: ResourceType, name: str, setting: str, to: int) -> None:
    """Lower a limit of a topic or of a broker."""
    entry = ConfigEntry(setting, str(to), incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(kind, name, incremental_configs=[entry])

    def lowered() -> bool:
        admin = AdminClient({"bootstrap.servers": delivery.settings.bootstrap_servers})
        altered = admin.incremental_alter_configs([changed], request_timeout=60)
        try:
            altered[changed].result()
        except KafkaException as exc:
            if exc.args[0].code() == KafkaError._TIMED_OUT:
                return False
            raise
        return True

    eventually(f"{setting} of {name} is {to}", lowered)


@pytest.mark.parametrize(("guarantee", "keyed"), [("exactly_once", True), ("at_least_once", False)])
@pytest.mark.long
def test_a_limit_that_is_lowered_during_an_extent_makes_its_batches_smaller(
    delivery: Delivery, make_topic: MakeTopic, guarantee: str, *, keyed: bool
) -> None:
    """Trap: batches of good records were sent as before until the facts of the topic expired."""
    lines = [b"%06d " % n + b"x" * 500 for n in range(4_000)]
    delivery.put("x.txt", joined(lines))
    key = {"message.key": "object"} if keyed else {}
    topic = limited(delivery, make_topic, 1_000_000, **key, **{"delivery.guarantee": guarantee})

    def lower() -> None:
        lower_limit(delivery, ResourceType.TOPIC, topic, "max.message.bytes", 4_000)

    report = run_here(delivery, before=at(3, lower))

    assert report.ok, report.errors
    delivered = delivery.values(topic)
    assert sorted(set(delivered)) == lines
    if guarantee == "exactly_once":
        assert len(delivered) == len(lines)


@pytest.mark.parametrize("tolerance", ["all", "none"])
@pytest.mark.long
def test_a_record_above_a_limit_that_was_lowered_meanwhile_is_a_bad_record(
    delivery: Delivery, make_topic: MakeTopic, tolerance: str
) -> None:
    lines = [b"%06d " % n + b"x" * 500 for n in range(3_000)]
    lines[2_500] = b"large " + b"x" * 50_000
    delivery.put("x.txt", joined(lines))
    queue = delivery.make_topic("dead", partitions=1)
    tolerant = {**TOLERANT, "errors.deadletterqueue.topic.name": queue}
    topic = limited(delivery, make_topic, 1_000_000, **(tolerant if tolerance == "all" else {}))

    def lower() -> None:
        lower_limit(delivery, ResourceType.TOPIC, topic, "max.message.bytes", 4_000)

    report = run_here(delivery, before=at(2, lower))

    good = [line for line in lines if not line.startswith(b"large")]
    if tolerance == "none":
        (error,) = report.errors
        assert report.jobs[0].state == "FAILED"
        assert f"bad record at offset {joined(lines).index(b'large')}: " in error
        assert "too large" in error
        delivered = delivery.values(topic)
        assert set(delivered) <= set(good)
        assert len(delivered) == len(set(delivered))
        return
    assert report.ok, report.errors
    assert sorted(delivery.values(topic)) == good
    (letter,) = delivery.read(queue)
    assert b"too large" in by_name(letter.headers)["extentflow.reason"]


@pytest.mark.soak
@pytest.mark.long
def test_a_brokers_limit_that_is_lowered_makes_batches_smaller(
    delivery: Delivery, second_broker: Stack
) -> None:
    lines = [b"%06d " % n + b"x" * 500 for n in range(4_000)]
    delivery.changes["bootstrap_servers"] = servers = second_broker.endpoint("kafka")
    delivery.put("x.txt", joined(lines))
    delivery.connector({"producer.compression.type": "none"})
    number = str(min(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=60).brokers))

    def lower() -> None:
        lower_limit(delivery, ResourceType.BROKER, number, "message.max.bytes", 4_000)

    try:
        report = run_here(delivery, before=at(3, lower))
    finally:
        lower_limit(delivery, ResourceType.BROKER, number, "message.max.bytes", 1_048_588)

    assert report.ok, report.errors
    assert sorted(delivery.values()) == lines


@pytest.mark.long
def test_the_queues_limit_may_be_lowered_during_an_extent(
    delivery: Delivery, make_topic: MakeTopic
) -> None:
    bad = [b"\xff%04d " % n + b"x" * (300 if n != 2_500 else 30_000) for n in range(3_000)]
    delivery.put("x.txt", joined(bad))
    queue = make_topic("small", partitions=1)
    config = {**TOLERANT, "errors.deadletterqueue.topic.name": queue}
    limited(delivery, make_topic, 1_000_000, **config)

    def lower() -> None:
        lower_limit(delivery, ResourceType.TOPIC, queue, "max.message.bytes", 4_000)

    report = run_here(delivery, before=at(2, lower))

    assert report.ok, report.errors
    letters = [letter.value for letter in delivery.read(queue)]
    assert letters == [value if len(value) < 1_000 else None for value in bad]


# -- keys -----------------------------------------------------------------------------------------


def test_records_go_to_the_partitions_that_the_java_client_chooses(
    delivery: Delivery,
) -> None:
    delivery.put("x.csv", joined([b"n,v", *ROWS]))
    delivery.connector({"message.key": "column:n"})

    assert run_here(delivery).ok

    records = delivery.read()
    assert len(records) == len(ROWS)
    for record in records:
        assert record.key == json.loads(record.value or b"")["n"].encode()
        assert record.partition == java_partition(record.key or b"", 4)
    assert {record.partition for record in records} == {0, 1, 2, 3}


def test_a_key_of_several_members_is_one_json_object_of_their_texts(delivery: Delivery) -> None:
    rows = [{"a": n, "b": f"b{n}", "rest": None} for n in range(100)]
    delivery.put("x.jsonl", joined(json.dumps(row).encode() for row in rows))
    delivery.connector({"message.key": "column:b,a"})

    assert run_here(delivery).ok

    found = {record.key: json.loads(record.value or b"") for record in delivery.read()}
    assert found == {b'{"b":"b%d","a":"%d"}' % (n, n): row for n, row in enumerate(rows)}


@pytest.mark.long
def test_records_keyed_by_their_object_share_one_partition(
    delivery: Delivery,
) -> None:
    keys = [delivery.put(f"ü {n}.txt", joined(LINES[n::3])) for n in range(3)]
    delivery.connector({"message.key": "object", "ordering": "object", "extent.bytes": "8KiB"})

    assert run_here(delivery).ok

    by_key = delivery.values_by_key()
    assert by_key == {key: LINES[n::3] for n, key in enumerate(keys)}
    for record in delivery.read():
        assert record.partition == java_partition(record.key or b"", 4)


def test_a_finished_delivery_leaves_no_open_job(delivery: Delivery) -> None:
    delivery.put("x.txt", joined(LINES[:10]))
    delivery.connector({})

    run_here(delivery)

    assert the_job(delivery).state is JobState.DONE
    assert delivery.owned() == []


# -- transforms -----------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "guarantee"),
    [("inline", "exactly_once"), pytest.param("spark", "at_least_once", marks=pytest.mark.soak)],
)
@pytest.mark.long
def test_transforms_filter_mask_and_key_what_arrives(
    delivery: Delivery, engine: str, guarantee: str
) -> None:
    table = pa.table(
        {
            "id": pa.array(range(6_000), pa.int64()),
            "kind": pa.array([("a", "b", None)[row % 3] for row in range(6_000)]),
            "secret": [f"secret {row}" for row in range(6_000)],
            "text": ["x" if row == 21 else str(row) for row in range(6_000)],
        }
    )
    file = pa.BufferOutputStream()
    pq.write_table(table, file, row_group_size=500)
    delivery.put("rows.parquet", file.getvalue().to_pybytes())
    delivery.put("dropped.parquet", _only(table, "b"))
    delivery.connector(
        {
            **TOLERANT,
            "errors.deadletterqueue.topic.name": delivery.make_topic("dead"),
            "delivery.guarantee": guarantee,
            "extent.bytes": "16KiB",
            "transforms": "only,mask,number,key,rest",
            "transforms.only.type": "Filter",
            "transforms.only.predicate": "a",
            "transforms.only.negate": "true",
            "predicates": "a",
            "predicates.a.type": "Condition",
            "predicates.a.condition": "kind = 'a'",
            "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
            "transforms.mask.fields": "secret",
            "transforms.mask.replacement": "***",
            "transforms.number.type": "Cast",
            "transforms.number.spec": "text:int32",
            "transforms.key.type": "ValueToKey",
            "transforms.key.fields": "id",
            "transforms.rest.type": "ReplaceField",
            "transforms.rest.exclude": "kind",
        }
    )

    report = delivery.finish(engine)

    kept = [row for row in range(0, 6_000, 3) if row != 21]
    assert {job.state.value for job in delivery.jobs()} == {"DONE"}
    rows = [(json.loads(record.value or b""), record.key) for record in delivery.read()]
    assert sorted((value["id"], value["secret"], value["text"], key) for value, key in rows) == [
        (row, "***", row, str(row).encode()) for row in kept
    ]
    assert sum(job["records"] for job in report["jobs"]) == len(kept)
    assert sum(job["bad"] for job in report["jobs"]) == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "guarantee"),
    [pytest.param("inline", "at_least_once", marks=pytest.mark.soak), ("spark", "exactly_once")],
)
@pytest.mark.long
def test_values_name_the_topics_of_their_records(
    delivery: Delivery, engine: str, guarantee: str
) -> None:
    topics = [delivery.make_topic(name) for name in ("de", "fr")]
    named = [*topics, None, "elsewhere"]
    table = pa.table(
        {"id": pa.array(range(6_000), pa.int64()), "to": [named[row % 4] for row in range(6_000)]}
    )
    file = pa.BufferOutputStream()
    pq.write_table(table, file, row_group_size=500)
    delivery.put("rows.parquet", file.getvalue().to_pybytes())
    dead = delivery.make_topic("dead")
    delivery.connector(
        {
            **TOLERANT,
            "errors.deadletterqueue.topic.name": dead,
            "delivery.guarantee": guarantee,
            "extent.bytes": "16KiB",
            "transforms": "route",
            "transforms.route.type": "ExtractTopic",
            "transforms.route.field": "to",
            "transforms.route.topics": ",".join(topics),
            "transforms.route.skip.missing.or.null": "true",
        }
    )

    report = delivery.finish(engine)

    for place, topic in enumerate([*topics, delivery.topic]):
        found = sorted(json.loads(value)["id"] for value in delivery.values(topic))
        assert found == list(range(place, 6_000, 4))
    assert len(delivery.read(dead)) == 1_500
    assert sum(job["records"] for job in report["jobs"]) == 4_500
    assert {job.state.value for job in delivery.jobs()} == {"DONE"}


def _only(table: pa.Table, kind: str) -> bytes:
    file = pa.BufferOutputStream()
    pq.write_table(table.filter(pc.equal(table["kind"], kind)), file, row_group_size=500)
    return bytes(file.getvalue().to_pybytes())


@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "guarantee"),
    [("inline", "at_least_once"), pytest.param("spark", "exactly_once", marks=pytest.mark.soak)],
)
@pytest.mark.long
def test_records_have_the_headers_timestamps_and_partitions_of_columns(
    delivery: Delivery, engine: str, guarantee: str
) -> None:
    # Brokers delete what is older than a topic's retention, and reject what lies ahead of them.
    count, begin = 3_000, int(time.time()) - 3_000
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "at": pa.array(range(begin, begin + count), pa.timestamp("s", "UTC")),
            "place": pa.array([row % 5 for row in range(count)], pa.int32()),
        }
    )
    file = pa.BufferOutputStream()
    pq.write_table(table, file, row_group_size=500)
    key = delivery.put("rows.parquet", file.getvalue().to_pybytes())
    delivery.connector(
        {
            **TOLERANT,
            "errors.deadletterqueue.topic.name": delivery.make_topic("dead"),
            "delivery.guarantee": guarantee,
            "extent.bytes": "8KiB",
            "select": "id",
            "headers": 'id=column:id,file=key,row=location,site="text:a,b"',
            "message.timestamp": "column:at",
            "message.partition": "column:place",
        }
    )

    report = delivery.finish(engine)

    (job,) = report["jobs"]
    # The topic has four partitions.
    assert (job["state"], job["records"], job["bad"]) == ("DONE", count * 4 // 5, count // 5)
    found = {json.loads(record.value or b"")["id"]: record for record in delivery.read()}
    assert sorted(found) == [row for row in range(count) if row % 5 < 4]
    for row, record in found.items():
        text = str(row).encode()
        named = [("id", text), ("file", key.encode()), ("row", text), ("site", b"a,b")]
        assert record.headers == named
        assert (record.timestamp, record.partition) == ((begin + row) * 1_000, row % 5)


# Every engine restores each of them in test_formats_through_functions.py.
FIRST = ("records.avro", "spark.parquet")
RESTORED = [
    *((name, "inline") for name in FIRST),
    *(
        pytest.param(name, "inline", marks=pytest.mark.soak)
        for name in sorted(BACKUPS.keys() - {*FIRST})
    ),
    pytest.param("spark.parquet", "spark", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("name", "engine"), RESTORED)
@pytest.mark.long
def test_a_backup_is_restored_record_by_record(delivery: Delivery, name: str, engine: str) -> None:
    backup = BACKUPS[name]
    delivery.put(name, backup.write())
    delivery.connector({"input.format": backup.format, **backup.config})

    if engine == "spark":
        (first,) = delivery.finish(engine)["jobs"]
    else:
        (first,) = map(asdict, run_here(delivery).jobs)
    again = run_here(delivery)

    assert (first["state"], first["records"], first["bad"]) == ("DONE", len(backup.originals), 0)
    assert again.records_this_run == 0
    records = delivery.read()
    found = {(each.timestamp, each.key, each.value): each for each in records}
    assert len(found) == len(records) == len(backup.originals)
    for one in backup.originals:
        restored = found[one.timestamp, one.key, one.value]
        assert list(restored.headers) == list(one.headers)
        if "message.partition" in backup.config:
            assert restored.partition == one.partition


@pytest.mark.long
def test_a_chain_of_connects_transforms_runs_from_the_command_line(delivery: Delivery) -> None:
    rows = [
        {"id": 1, "kind": "a", "price": "1.50", "at": 1_700_000_000_000, "in": {"x": 7}, "s": "x"},
        {"id": 2, "kind": "b", "price": "2.00", "at": 1_700_000_000_000, "in": {"x": 8}, "s": "y"},
    ]
    file = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), file)
    delivery.put("rows.parquet", file.getvalue().to_pybytes())
    routed = delivery.make_topic("routed")
    steps = {
        "only": {"type": "Filter", "predicate": "is_b"},
        "flat": {"type": "Flatten$Value", "delimiter": "_"},
        "cast": {"type": "Cast$Value", "spec": "price:decimal(10,2)"},
        "mask": {"type": "MaskField$Value", "fields": "s"},
        "time": {
            "type": "TimestampConverter$Value",
            "field": "at",
            "target.type": "string",
            "format": "yyyy-MM-dd",
        },
        "site": {"type": "InsertField$Value", "static.field": "site", "static.value": "north"},
        "kind": {
            "type": "HeaderFrom$Value",
            "fields": "kind",
            "headers": "kind",
            "operation": "move",
        },
        "more": {"type": "InsertHeader", "header": "more", "value.literal": "1"},
        "less": {"type": "DropHeaders", "headers": "gone"},
        "key": {"type": "ValueToKey", "fields": "id"},
        "plain": {"type": "ExtractField$Key", "field": "id"},
        "names": {"type": "ReplaceField$Value", "exclude": "id", "renames": "price:amount"},
        "whole": {"type": "HoistField$Value", "field": "v"},
        "route": {"type": "RegexRouter", "regex": ".*", "replacement": routed},
    }
    connect = "org.apache.kafka.connect.transforms."
    config = {"transforms": ",".join(steps), "headers": "gone=text:x,file=extent"}
    for alias, step in steps.items():
        name = {"type": connect + step["type"]}
        config |= {f"transforms.{alias}.{key}": text for key, text in (step | name).items()}
    config |= {
        "predicates": "is_b",
        "predicates.is_b.type": "Condition",
        "predicates.is_b.condition": "kind = 'b'",
    }
    delivery.connector(config)

    (job,) = delivery.finish("inline")["jobs"]

    assert (job["records"], job["filtered"]) == (1, 1)
    (record,) = delivery.read(routed)
    assert record.key == b"1"
    assert json.loads(record.value or b"") == {
        "v": {"amount": 1.5, "at": "2023-11-14", "in_x": 7, "s": "", "site": "north"}
    }
    assert [name for name, _ in record.headers] == ["file", "kind", "more"]
    assert by_name(record.headers)["kind"] == b"a"
