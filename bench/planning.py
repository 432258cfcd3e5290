"""`SUITE=planning`: the cost of planning objects of up to 50 TB as jobs and messages.

Does what the planner function does with one message, with a real ledger and broker. Only the object
store is computed, and messages are created, counted and discarded. Each case has a process of its
own, warmed up with a small object, as a function is warmed up by an earlier invocation.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.result import Result
from bench.stand import Terms, start
from bench.synthetic import Content, Lines, SyntheticStore
from bench.synthetic_parquet import ParquetRows
from extentflow.config.specs import STORES
from extentflow.delivery.memory import peak_rss_bytes
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.admission import ArrivalHandler
from extentflow.model import JobState
from extentflow.queue import Depth, Message
from extentflow.queue.dispatch import ExtentDispatcher
from extentflow.wiring import Runtime
from extentflow.wiring.functions import RuntimeContext

GB, TB = 10**9, 10**12
CASES = (
    *(("text", size) for size in (GB, 100 * GB, TB, 50 * TB)),
    *(("parquet", size) for size in (GB, 100 * GB, TB)),
)
CONTENTS: Mapping[str, Callable[[int], Content]] = {"text": Lines, "parquet": ParquetRows.of_size}
EXTENSIONS = {"text": "txt", "parquet": "parquet"}
SMALL_BYTES = 1_000_000
NAME = "planning"
TABLE = "extentflow-bench-planning"
"""Not the stack's own: what is planned here is never delivered."""


def measure(terms: Terms) -> Result:
    """Plan every case, its size times the scale."""
    rig = start(terms)
    rig = replace(rig, environment={**rig.environment, "EXTENTFLOW_LEDGER_TABLE": TABLE})
    rig.extentflow("init", quiet=True)
    run = time.strftime("%Y%m%d-%H%M%S")
    cases = []
    for kind, size in CASES:
        scaled = max(SMALL_BYTES, round(size * terms.scale))
        cases.append(_measured(kind, scaled, run, rig.environment))
        terms.notify(_line(cases[-1]))
    return Result(
        case="one arrival to a planned job: ledger writes and message bodies, without sending",
        scale=terms.scale,
        figures={"objects": cases},
    )


def _measured(kind: str, size: int, run: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the cost of one case, from the last line that its process prints.

    Raises:
        RuntimeError: the process failed.
    """
    command = [sys.executable, "-m", "bench.planning", kind, str(size), run]
    done = subprocess.run(command, env=dict(environment), stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"planning {size} bytes of {kind} failed; its messages are above")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _line(case: Mapping[str, Any]) -> str:
    gigabytes, fetched = case["object_bytes"] / GB, case["bytes_fetched"] / 10**6
    peak, growth = (case[name] / 2**20 for name in ("peak_rss_bytes", "peak_rss_growth_bytes"))
    return (
        f"{case['format']} of {gigabytes:,.2f} GB: {case['store_requests']} requests, {fetched:.1f}"
        f" MB; {case['extents']:,} extents in {case['seconds']:.2f} s; peak memory {peak:.0f} MiB,"
        f" {growth:.1f} MiB of it beyond a small object's"
    )


class CountingQueue:
    """A queue that counts sent messages, and is always empty."""

    def __init__(self) -> None:
        self.messages = 0
        self.body_bytes = 0
        self.largest_page = 0

    def send(self, bodies: Sequence[str], *, reason: str = "", group: str = "") -> None:
        """See `Queue.send`."""
        _ = reason, group
        self.messages += len(bodies)
        self.body_bytes += sum(map(len, bodies))
        self.largest_page = max(self.largest_page, len(bodies))

    def receive(
        self, *, wait_seconds: float = 0.0, hide_seconds: float = 30.0, most: int = 10
    ) -> list[Message]:
        """See `Queue.receive`."""
        _ = wait_seconds, hide_seconds, most
        return []

    def delete(self, message: Message) -> None:
        """See `Queue.delete`."""

    def delay(self, message: Message, seconds: float) -> None:
        """See `Queue.delay`."""

    def depth(self) -> Depth:
        """See `Queue.depth`."""
        return Depth(0)


@dataclass(frozen=True, slots=True)
class _Function:
    """The planner function over such queues, as `open_arrival_handler` returns it."""

    handler: ArrivalHandler
    extents: CountingQueue
    others: CountingQueue

    @classmethod
    def open(cls, runtime: Runtime) -> "_Function":
        extents, others = CountingQueue(), CountingQueue()
        dispatch = ExtentDispatcher(runtime.planner(), extents)
        handler = ArrivalHandler(
            context=RuntimeContext(runtime),
            planner=dispatch.planner,
            start=dispatch.start,
            kept=others,
            arrivals=others,
            backfill=lambda _wanted: None,
        )
        return cls(handler, extents, others)

    def plan(self, key: str) -> int:
        """Process the message of one object; return its number of extents.

        Raises:
            RuntimeError: it did not become one RUNNING job with a message for every extent.
        """
        before = self.extents.messages
        arrival = Arrival(NAME, key, Dialect.COMMAND)
        jobs = [
            job
            for received in self.handler.take(json.dumps(arrival.to_message()))
            for job in received.jobs
        ]
        sent = self.extents.messages - before
        found = [(job.state, job.plan.count) for job in jobs]
        if found != [(JobState.RUNNING, sent)] or self.others.messages:
            raise RuntimeError(f"{key}: {jobs}, {sent} messages, {self.others.messages} others")
        return sent


def _case(kind: str, size: int, run: str) -> dict[str, Any]:
    """Plan a small object, then the measured one; return its cost."""
    objects = {
        f"{run}/{name}-{size}.{EXTENSIONS[kind]}": CONTENTS[kind](of_size)
        for name, of_size in (("small", SMALL_BYTES), ("large", size))
    }
    small, large = objects
    store = SyntheticStore(NAME, objects)
    STORES.register(NAME, lambda _options: store)
    runtime = Runtime.from_environment()
    config = {"topic": NAME, "endpoint.type": NAME, "aws.s3.bucket.name": NAME}
    runtime.ledger.connectors.put(NAME, {"name": NAME, **config})
    function = _Function.open(runtime)
    function.plan(small)
    peak, requests, fetched = peak_rss_bytes(), store.requests, store.fetched_bytes
    bodies = function.extents.body_bytes
    started = time.monotonic()
    extents = function.plan(large)
    seconds = time.monotonic() - started
    return {
        "format": kind,
        "object_bytes": objects[large].size,
        "store_requests": store.requests - requests,
        "bytes_fetched": store.fetched_bytes - fetched,
        "extents": extents,
        "message_bytes": function.extents.body_bytes - bodies,
        "largest_page": function.extents.largest_page,
        "seconds": round(seconds, 3),
        "peak_rss_bytes": peak_rss_bytes(),
        "peak_rss_growth_bytes": peak_rss_bytes() - peak,
    }


if __name__ == "__main__":
    print(json.dumps(_case(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
