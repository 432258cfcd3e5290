"""`SUITE=small`: many small objects through the event path; how fast, and what each one costs.

Owns: the objects, the two measurements. Refuses to know: how the event path works.

Rate and costs are measured apart, because counting requests takes a part of this machine.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from demo.eventpath import EventPath, event_path, notification
from demo.eventrows import compare
from demo.rig import CommandError

from bench.counting import Counting
from extentflow.model import ObjectVersion

OBJECTS = 10_000
OBJECT_BYTES = 10_000
RECORDS = 10
WARM_OBJECTS = 40
COUNTED_OBJECTS = 300
UPLOADERS = 8
SQS_BATCH = 10
STALL_SECONDS = 180.0
NEWS_SECONDS = 10.0
OFFSETS_TOPIC = "__consumer_offsets"

Notify = Callable[[str], None]


def measure(root: Path, scale: float, notify: Notify) -> dict[str, Any]:
    """Deliver the objects, then some more through a way that counts; return both results."""
    objects = max(WARM_OBJECTS, round(OBJECTS * scale))
    run = time.strftime("%Y%m%d-%H%M%S")
    with event_path(root, run, notify) as path:
        load = Load(path, f"bench-small-{run}", notify)
        load.deliver(WARM_OBJECTS)
        seconds, uploaded = load.deliver(objects)
        load.check()
        ledger = path.rig.environment["EXTENTFLOW_LEDGER_ENDPOINT"]
    with ExitStack() as stack:
        counting = stack.enter_context(Counting(ledger))
        around = {"EXTENTFLOW_LEDGER_ENDPOINT": counting.endpoint}
        path = stack.enter_context(event_path(root, f"{run}-counted", notify, around=around))
        load = Load(path, f"bench-small-{run}-counted", notify)
        load.deliver(WARM_OBJECTS)
        before = _commits(path.rig.kafka)
        counting.take()
        load.deliver(COUNTED_OBJECTS)
        counts = counting.take()
        commits = _commits(path.rig.kafka) - before
        load.check()
    return {
        "case": f"{objects} objects of {OBJECT_BYTES} bytes, {RECORDS} records each, event path",
        "objects_per_second": round(objects / seconds, 1),
        "seconds": round(seconds, 1),
        "seconds_of_upload": round(uploaded, 1),
        "kafka_transactions_per_object": round(commits / COUNTED_OBJECTS, 2),
        **_per_object(counts),
    }


class Load:
    """A connector with a topic of its own, and everything that was uploaded for it."""

    def __init__(self, path: EventPath, name: str, notify: Notify) -> None:
        self._path = path
        self._name = name
        self._notify = notify
        self._objects = 0
        config = {"topic": name, "aws.s3.bucket.name": path.bucket, "aws.s3.prefix": f"{name}/"}
        path.rig.put_connector({"name": name, **config})
        path.rig.create_topic(name)

    def deliver(self, objects: int) -> tuple[float, float]:
        """Upload objects, then notify of all; return how long delivery and upload took."""
        numbers = range(self._objects, self._objects + objects)
        started = time.monotonic()
        with ThreadPoolExecutor(UPLOADERS) as executor:
            versions = list(executor.map(self._upload, numbers))
        self._objects += objects
        uploaded = time.monotonic()
        for first in range(0, objects, SQS_BATCH):
            self._announce(versions[first : first + SQS_BATCH])
        self._await_rest()
        return time.monotonic() - uploaded, uploaded - started

    def check(self) -> None:
        """Look for every record, exactly once, and every job DONE.

        Raises:
            CommandError: it is not so.
        """
        numbers = [range(self._objects * RECORDS)]
        found = compare(self._path.rig.kafka, self._name, numbers, [])
        states = Counter(
            job["state"] for job in self._path.jobs().values() if job["connector"] == self._name
        )
        if found.duplicates or found.missing or found.foreign or states != {"DONE": self._objects}:
            raise CommandError(f"{found}; jobs: {dict(states)}")
        self._notify(f"{found.records:,} records, each exactly once; {dict(states)}")

    def _upload(self, number: int) -> ObjectVersion:
        key = f"{self._name}/{number:06d}.jsonl"
        body = _body(range(number * RECORDS, (number + 1) * RECORDS))
        answer = self._path.s3.put_object(Bucket=self._path.bucket, Key=key, Body=body)
        return ObjectVersion(
            bucket=self._path.bucket,
            key=key,
            version_id=answer.get("VersionId"),
            etag=answer["ETag"].strip('"'),
            size=len(body),
        )

    def _announce(self, versions: list[ObjectVersion]) -> None:
        answer = self._path.sqs.send_message_batch(
            QueueUrl=self._path.deployment.outputs["ArrivalsQueueUrl"],
            Entries=[
                {"Id": str(number), "MessageBody": notification(version)}
                for number, version in enumerate(versions)
            ],
        )
        if "Failed" in answer:
            raise CommandError(f"not announced: {answer['Failed']}")

    def _await_rest(self) -> None:
        """Wait until all queues are empty, as long as they empty."""
        least, moved, told = self._path.waiting(), time.monotonic(), time.monotonic()
        while (waiting := self._path.waiting()) > 0:
            now = time.monotonic()
            if waiting < least:
                least, moved = waiting, now
            if now - moved > STALL_SECONDS:
                raise CommandError(f"{waiting} messages wait, for {STALL_SECONDS:g} s already")
            if now - told > NEWS_SECONDS:
                told = now
                self._notify(f"{waiting} messages wait")
            time.sleep(0.2)


def show(result: Mapping[str, Any], notify: Notify) -> None:
    """Print a result."""
    for name, value in result.items():
        notify(f"{name.replace('_', ' ')}: {value}")


def _per_object(counts: Counter[str]) -> dict[str, Any]:
    items = counts.pop("items")
    each = {name: round(count / COUNTED_OBJECTS, 2) for name, count in sorted(counts.items())}
    return {
        "ledger_requests_per_object": round(counts.total() / COUNTED_OBJECTS, 2),
        "ledger_items_written_per_object": round(items / COUNTED_OBJECTS, 2),
        "ledger_requests_by_operation": each,
    }


def _commits(kafka: Mapping[str, str]) -> int:
    """Return how many transactions with an offset were decided: the offset and its marker each."""
    admin = AdminClient({**kafka})
    partitions = admin.list_topics(OFFSETS_TOPIC).topics[OFFSETS_TOPIC].partitions
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {TopicPartition(OFFSETS_TOPIC, n): latest for n in partitions}
    found = admin.list_offsets(places)
    return sum(int(each.result().offset) for each in found.values()) // 2


def _body(numbers: range) -> bytes:
    """Return lines of equal length that fill an object."""
    length = OBJECT_BYTES // len(numbers)
    lines = []
    for number in numbers:
        empty = json.dumps({"n": number, "text": ""})
        lines.append(json.dumps({"n": number, "text": "x" * (length - len(empty) - 1)}))
    return "".join(f"{line}\n" for line in lines).encode()
