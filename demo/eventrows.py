"""Objects of rows with unique numbers, and the check that each was delivered once."""

import csv
import gzip
import io
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import orjson
from confluent_kafka import OFFSET_END, Consumer, Message, TopicPartition
from numpy.typing import NDArray

from demo.eventpath import PATIENCE_SECONDS, OverdueError
from demo.rig import PARTITIONS
from extentflow.kafka.reading import read_committed


def as_json_lines(numbers: range) -> bytes:
    """Return one JSON object per number and line."""
    return b"".join(json.dumps({"n": n, "name": f"row {n}"}).encode() + b"\n" for n in numbers)


def as_csv(numbers: range) -> bytes:
    """Return a header and one line per number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("n", "name"))
    writer.writerows((n, f"row {n}") for n in numbers)
    return text.getvalue().encode()


def as_gzip(numbers: range) -> bytes:
    """Return compressed JSON lines."""
    return gzip.compress(as_json_lines(numbers), mtime=0)


def as_half_a_gzip(numbers: range) -> bytes:
    """Return the beginning of a gzip stream, as after an interrupted upload."""
    whole = as_gzip(numbers)
    return whole[: len(whole) // 2]


@dataclass(frozen=True, slots=True)
class TopicComparison:
    """The content of a topic against the expected content."""

    topic: str
    expected: int
    records: int
    duplicates: int
    missing: int
    foreign: int


def compare(
    kafka: Mapping[str, str], topic: str, expected: list[range], tolerated: list[range]
) -> TopicComparison:
    """Read a topic's committed records and compare them."""
    found = np.array(
        [
            int(orjson.loads(record.value or b"null")["n"])
            for batch in read_committed(kafka, topic)
            for record in batch
        ],
        np.int64,
    )
    return judge(topic, found, expected, tolerated)


def judge(
    topic: str, found: NDArray[np.int64], expected: list[range], tolerated: list[range]
) -> TopicComparison:
    """Compare numbers with the expected ones; `tolerated` ones may occur once or not at all."""
    truth = _numbers(expected)
    distinct = np.unique(found)
    return TopicComparison(
        topic=topic,
        expected=len(truth),
        records=len(found),
        duplicates=len(found) - len(distinct),
        missing=len(np.setdiff1d(truth, distinct)),
        foreign=len(np.setdiff1d(distinct, _numbers([*expected, *tolerated]))),
    )


def _number(record: Message) -> int:
    return int(orjson.loads(record.value() or b"null")["n"])


def _numbers(ranges: list[range]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(one.start, one.stop, dtype=np.int64) for one in ranges])


class Watcher:
    """A consumer of committed records, positioned at the end of a topic."""

    def __init__(self, kafka: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                **kafka,
                "group.id": f"demo.events.{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )

    def __enter__(self) -> Self:
        """Seek to the end of every partition."""
        places = [TopicPartition(self._topic, n, OFFSET_END) for n in range(PARTITIONS)]
        self._consumer.assign(places)
        at_end: set[int | None] = set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(at_end) < PARTITIONS:
            message = self._consumer.poll(0.1)
            if message is not None:
                at_end.add(message.partition())  # its end: no producer is active
            elif time.monotonic() > deadline:
                raise OverdueError(f"topic {self._topic}: its end was not reached")
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def seconds_to_first_record(self, numbers: range, act: Callable[[], object]) -> float:
        """Return the seconds from the start of `act` to the first record of these numbers."""
        started = time.monotonic()
        act()
        while (now := time.monotonic()) - started < PATIENCE_SECONDS:
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None and _number(message) in numbers:
                return time.monotonic() - started
        raise OverdueError(f"topic {self._topic}: no record within {now - started:.0f} s")
