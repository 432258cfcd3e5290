"""The log of bad records: one line of JSON each, bytes only on request, at a bounded rate."""

import json
import logging
from dataclasses import replace

import pytest
from tests.support.memory_delivery import DEAD, TOPIC, World

from extentflow.delivery.badrecords import (
    LINES_PER_MINUTE,
    MOST_RECORD_BYTES,
    BadRecordLog,
    LogRate,
)
from extentflow.delivery.dead_letters import DeadLetters
from extentflow.delivery.runner import run_extent
from extentflow.formats import BadRecord
from extentflow.model import Extent, ObjectVersion

EXTENT = Extent("job", 0, "c", ObjectVersion("bucket", "a\nb", None, "etag", 9), 0, 9, "text")


class Seconds:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        return self.now


def members(message: str) -> dict[str, object]:
    assert "\n" not in message
    found = json.loads(message.removeprefix("bad record "))
    assert isinstance(found, dict)
    return found


def test_a_line_has_object_version_extent_place_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = BadRecordLog(LogRate(Seconds().read))

    log.write(EXTENT, [BadRecord(b"secret", 4, "no\nnumber")], "offset")

    (message,) = caplog.messages
    assert members(message) == {
        "connector": "c",
        "job": "job",
        "object": "s3://bucket/a\nb",
        "version": "etag",
        "extent": "0-9",
        "offset": 4,
        "reason": "no\nnumber",
    }


def test_bytes_are_logged_on_request_and_cut(caplog: pytest.LogCaptureFixture) -> None:
    log = BadRecordLog(LogRate(Seconds().read), with_bytes=True)

    log.write(
        EXTENT, [BadRecord(b"\xff" + b"x" * 5_000, 4, "bad"), BadRecord(None, 5, "bad")], "row"
    )

    first, second = map(members, caplog.messages)
    assert first["record"] == "\\xff" + "x" * (MOST_RECORD_BYTES - 1)
    assert first["bytes"] == 5_001
    assert "record" not in second


def test_the_rate_is_bounded_and_what_was_left_out_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seconds = Seconds()
    log = BadRecordLog(LogRate(seconds.read))

    log.write(EXTENT, [BadRecord(None, place, "bad") for place in range(1_000)], "row")
    within = len(caplog.messages)
    seconds.now += 60
    log.write(EXTENT, [BadRecord(None, 1_000, "bad")], "row")

    assert within == LINES_PER_MINUTE
    assert caplog.messages[-2].startswith("900 bad records are not in this log")
    assert members(caplog.messages[-1])["row"] == 1_000


@pytest.mark.parametrize("topic", [None, DEAD])
def test_bad_records_are_logged_whether_they_are_tolerated_or_not(
    topic: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tolerant=topic is not None)
    (extent,) = world.extents(world.job(b"ab!d"))
    log = BadRecordLog(LogRate(Seconds().read))
    letters = DeadLetters(topic, TOPIC, "offset", log=log)
    work = replace(world.worker(), dead_letters=lambda _: letters)

    with caplog.at_level(logging.WARNING, "extentflow.delivery.badrecords"):
        run_extent(extent, work)

    lines = [line for line in caplog.messages if line.startswith("bad record {")]
    assert [members(line)["offset"] for line in lines] == [2]
