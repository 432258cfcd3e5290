"""`SUITE=small-objects`: rate and cost of many small objects through the event path.

Rate and costs are measured separately, because counting requests uses CPU of the same machine.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from demo.eventpath import EventPath, event_path, notification
from demo.eventrows import compare
from demo.rig import CommandError

from bench.counting import RequestCounter
from bench.pairs import Notify
from bench.result import Result
from bench.stand import Terms, end_of, forget, temporary_topic
from extentflow.model import ObjectVersion

OBJECTS = 10_000
OBJECT_BYTES = 10_000
RECORDS = 10
WARM_OBJECTS = 40
COUNTED_OBJECTS = 300
UPLOADERS = 8
SQS_BATCH = 10
STALL_SECONDS = 180.0
STALL_SECONDS = 10.0
OFFSETS_TOPIC = "__consumer_offsets"


def measure(terms: Terms) -> Result:
    """Deliver the objects, then more through a counting proxy."""
    notify = terms.notify
    objects = max(WARM_OBJECTS, round(OBJECTS * terms.scale))
    counted = min(COUNTED_OBJECTS, objects)
    run = time.strftime("%Y%m%d-%H%M%S")
    with ExitStack() as stack:
        path = stack.enter_context(event_path(terms.root, run, notify))
        topic = stack.enter_context(temporary_topic(path.rig, f"bench-small-{run}"))
        stack.callback(forget, path.rig, [topic])
        load = Load(path, topic, notify)
        load.deliver(WARM_OBJECTS)
        seconds, uploaded = load.deliver(objects)
        load.check()
        ledger = path.rig.environment["EXTENTFLOW_LEDGER_ENDPOINT"]
    with ExitStack() as stack:
        counting = stack.enter_context(RequestCounter(ledger))
        around = {"EXTENTFLOW_LEDGER_ENDPOINT": counting.endpoint}
        path = stack.enter_context(event_path(terms.root, f"{run}-counted", notify, around=around))
        topic = stack.enter_context(temporary_topic(path.rig, f"bench-small-{run}-counted"))
        stack.callback(forget, path.rig, [topic])
        load = Load(path, topic, notify)
        load.deliver(WARM_OBJECTS)
        before = _commits(path.rig.kafka)
        counting.take()
        load.deliver(counted)
        counts = counting.take()
        commits = _commits(path.rig.kafka) - before
        load.check()
    return Result(
        case=f"{objects} objects of {OBJECT_BYTES} bytes, {RECORDS} records each, event path",
        scale=terms.scale,
        figures={
            "objects_per_second": round(objects / seconds, 1),
            "seconds": round(seconds, 1),
            "seconds_of_upload": round(uploaded, 1),
            "kafka_transactions_per_object": round(commits / counted, 2),
            **_per_object(counts, counted),
        },
    )


class Load:
    """A connector, named like its topic, and everything that was uploaded for it."""

    def __init__(self, path: EventPath, name: str, notify: Notify) -> None:
        self._path = path
        self._name = name
        self._notify = notify
        self._objects = 0
        config = {"topic": name, "aws.s3.bucket.name": path.bucket, "aws.s3.prefix": f"{name}/"}
        path.rig.put_connector({"name": name, **config})

    def deliver(self, objects: int) -> tuple[float, float]:
        """Upload objects, then send all notifications; return delivery and upload seconds."""
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
        """Check that every record arrived exactly once, and every job is DONE.

        Raises:
            CommandError: a record or a job is wrong.
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
        least, moved, changed_at = self._path.waiting(), time.monotonic(), time.monotonic()
        while (waiting := self._path.waiting()) > 0:
            now = time.monotonic()
            if waiting < least:
                least, moved = waiting, now
            if now - moved > STALL_SECONDS:
                raise CommandError(f"{waiting} messages wait, for {STALL_SECONDS:g} s already")
            if now - changed_at > STALL_SECONDS:
                changed_at = now
                self._notify(f"{waiting} messages wait")
            time.sleep(0.2)


def _per_object(counts: Counter[str], objects: int) -> dict[str, Any]:
    items = counts.pop("items")
    each = {name: round(count / objects, 2) for name, count in sorted(counts.items())}
    return {
        "ledger_requests_per_object": round(counts.total() / objects, 2),
        "ledger_items_written_per_object": round(items / objects, 2),
        "ledger_requests_by_operation": each,
    }


def _commits(kafka: Mapping[str, str]) -> int:
    """Return the number of committed transactions: each has an offset and its marker."""
    return end_of(kafka, OFFSETS_TOPIC) // 2


def _body(numbers: range) -> bytes:
    """Return lines of equal length that fill an object."""
    length = OBJECT_BYTES // len(numbers)
    lines = []
    for number in numbers:
        empty = json.dumps({"n": number, "text": ""})
        lines.append(json.dumps({"n": number, "text": "x" * (length - len(empty) - 1)}))
    return "".join(f"{line}\n" for line in lines).encode()
