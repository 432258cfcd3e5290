"""Dead letters: bytes, Connect's context headers, and our own."""

from dataclasses import replace
from typing import Literal

import pytest
from tests.support.golden import Golden

from extentflow.delivery.dead_letters import DeadLetters, describe
from extentflow.errors import CorruptRecord
from extentflow.formats import BadRecord
from extentflow.kafka import ProducerSettings, SlotProgress
from extentflow.kafka.record_headers import by_name
from extentflow.model import Extent, ObjectVersion
from extentflow.testing.broker import MemoryBroker

VERSION = ObjectVersion("bucket", "in/key.csv", None, "etag1", 1_000)
EXTENT = Extent("job1", 3, "orders", VERSION, 100, 200, "csv")
BAD = BadRecord(b"raw bytes", 120, "2 fields, expected 3")


def letters(
    location_unit: Literal["offset", "row"] = "offset", *, context: bool = True
) -> DeadLetters:
    return DeadLetters("dead", "records", location_unit, context=context)


def headers(
    extent: Extent = EXTENT, bad: BadRecord = BAD, *, queue: DeadLetters | None = None
) -> dict[str, bytes]:
    records = (queue or letters()).records(extent, [bad])
    assert records.headers is not None
    return by_name(records.headers[0])


def test_a_dead_letter_is_the_records_own_bytes() -> None:
    records = letters().records(EXTENT, [BAD, BadRecord(None, 130, "no bytes of its own")])

    assert records.topic == "dead"
    assert records.values.to_pylist() == [b"raw bytes", None]
    assert records.keys is None
    assert records.headers is not None
    assert len(records.headers) == 2


def test_a_dead_letter_carries_connects_headers() -> None:
    found = headers()

    assert found["__connect.errors.topic"] == b"records"
    assert found["__connect.errors.connector.name"] == b"orders"
    assert found["__connect.errors.task.id"] == b"job1-3"
    assert found["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert found["__connect.errors.exception.class.name"] == b"extentflow.errors.CorruptRecord"
    assert found["__connect.errors.exception.message"] == (
        b"s3://bucket/in/key.csv[100-200): bad record at offset 120: 2 fields, expected 3"
    )


def test_a_dead_letter_says_where_the_record_stands() -> None:
    found = headers()

    assert found["extentflow.object"] == b"s3://bucket/in/key.csv"
    assert found["extentflow.version"] == b"etag1"
    assert found["extentflow.extent"] == b"100-200"
    assert found["extentflow.offset"] == b"120"
    assert found["extentflow.reason"] == b"2 fields, expected 3"
    assert "extentflow.row" not in found


def test_a_columnar_formats_place_is_a_row() -> None:
    found = headers(queue=letters("row"))

    assert found["extentflow.row"] == b"120"
    assert "extentflow.offset" not in found


def test_a_version_id_is_the_version_where_there_is_one() -> None:
    extent = replace(EXTENT, version=replace(VERSION, version_id="v7"))

    found = headers(extent)

    assert found["extentflow.version"] == b"v7"
    assert found["extentflow.object"] == b"s3://bucket/in/key.csv"


def test_a_local_objects_address_is_a_file_url() -> None:
    extent = replace(EXTENT, version=replace(VERSION, bucket="/data"))

    assert headers(extent)["extentflow.object"] == b"file:///data/in/key.csv"


def test_headers_can_be_left_out() -> None:
    records = letters(context=False).records(EXTENT, [BAD])

    assert records.headers is None


def test_a_record_too_large_for_the_queue_leaves_its_place_and_its_size() -> None:
    records = letters().records(EXTENT, [BAD], raw=False)

    assert records.values.to_pylist() == [None]
    assert records.headers is not None
    found = dict(records.headers[0])
    assert found["extentflow.omitted.bytes"] == b"9"
    assert found["extentflow.offset"] == b"120"


def test_only_what_the_queue_takes_goes_there_with_its_bytes() -> None:
    small, large = BadRecord(b"x" * 100, 1, "bad"), BadRecord(b"x" * 2_000, 2, "bad")

    records = replace(letters(), limit_bytes=2_000).records(EXTENT, [small, large, small])

    assert records.values.to_pylist() == [small.raw, None, small.raw]
    assert records.headers is not None
    omitted = [dict(headers).get("extentflow.omitted.bytes") for headers in records.headers]
    assert omitted == [None, b"2000", None]


@pytest.mark.parametrize("context", [True, False])
def test_a_dead_letter_with_bytes_and_headers_fits_into_the_topic(
    context: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    limit = 3_000
    queue = replace(letters(context=context), limit_bytes=limit)
    kept = [
        size
        for size in range(1_000, 3_000)
        if queue.records(EXTENT, [BadRecord(b"x" * size, 1, "bad")]).values[0].is_valid
    ]

    fields = queue.records(EXTENT, [BAD]).headers
    names = sum(len(name) + len(text) for name, text in by_name(fields[0]).items()) if fields else 0
    assert kept == list(range(1_000, kept[-1] + 1))
    assert limit - 500 < kept[-1] + names < limit - 61


def test_text_that_is_no_utf_8_becomes_headers_all_the_same() -> None:
    extent = replace(EXTENT, version=replace(VERSION, key="odd \udcff key"))

    assert headers(extent)["extentflow.object"] == b"s3://bucket/odd ? key"


def test_without_a_queue_the_first_bad_record_fails_the_extent() -> None:
    with pytest.raises(CorruptRecord, match=r"s3://bucket/in/key.csv\[100-200\).*offset 120"):
        replace(letters(), topic=None).records(EXTENT, [BAD])


def test_the_one_line_about_a_bad_record_names_extent_place_and_reason(golden: Golden) -> None:
    line = describe(EXTENT, BAD, "row")

    golden(line)
    assert "s3://bucket/in/key.csv[100-200)" in line


def test_only_the_rejected_dead_letters_are_sent_again() -> None:
    broker = MemoryBroker({"dead": 1})
    sink = broker.fence("slot", ProducerSettings(max_message_bytes=5_000)).open()
    large = BadRecord(b"x" * 6_000, 130, "too long")

    letters().send(sink, EXTENT, [BAD, large])
    sink.commit(SlotProgress(epoch=1))

    sent = broker.read_committed("dead")
    assert [one.value for one in sent] == [b"raw bytes", None]
    assert by_name(sent[1].headers)["extentflow.omitted.bytes"] == b"6000"


def test_a_dead_letter_that_is_rejected_without_its_bytes_is_an_error(golden: Golden) -> None:
    sink = MemoryBroker({"dead": 1}).fence("slot", ProducerSettings(max_message_bytes=100)).open()

    with golden.raises(CorruptRecord, match="offset 120"):
        letters().send(sink, EXTENT, [BAD])
