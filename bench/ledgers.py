"""`SUITE=ledgers`: what a ledger takes: claims and completions of extents by 1, 8 and 64 workers.

Workers are threads of up to eight processes; each has its slot, and claims and completes extents of
one job, whose item every claim checks. Nothing is read or sent between the two.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from typing import Any
from uuid import uuid4

from bench.result import Result
from bench.stand import Terms
from extentflow.config.ledgers import LedgerAddress
from extentflow.ledger import Ledger, LedgerOptions, open_ledger
from extentflow.model import Extent, Job, ObjectVersion, Plan, job_id
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.postgres import Postgres
from extentflow_local.stack.stack import Stack

NAME = "ledgers"
WORKERS = (1, 8, 64)
MOST_PROCESSES = 8
SECONDS = 4.0
LEASE_SECONDS = 600.0
EXTENT_BYTES = 1 << 20
# More than any ledger completes in the seconds of a run.
EXTENTS_EACH = 1_000_000
BASELINE = "dynamodb_local"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
}


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does: `threads` workers, the first of them `first`, for `seconds`."""

    options: LedgerOptions
    cluster: str
    job: str
    first: int
    threads: int
    seconds: float


@dataclass(slots=True)
class WorkTotals:
    """What workers did."""

    extents: int = 0
    claim_seconds: float = 0.0


def measure(terms: Terms) -> Result:
    """Alternate the ledgers in each round, with each number of workers."""
    seconds = SECONDS * min(terms.scale, 1.0)
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    os.environ.update(CREDENTIALS)
    with _ledgers(terms) as ledgers:
        for number in range(terms.pairs):
            for workers in WORKERS:
                for name, options in ledgers.items():
                    rates = _run(options, workers, seconds)
                    found.setdefault((name, workers), []).append(rates)
                    terms.notify(
                        f"round {number + 1}: {name}, {workers} workers: {rates[0]:,.0f} claims/s,"
                        f" {rates[1]:,.0f} extents/s"
                    )
    return Result(
        case="claims and completions of extents of one job, without delivery",
        scale=terms.scale,
        pairs=terms.pairs,
        ratios={
            f"{name}_to_{BASELINE}_at_{workers}": _ratio(runs, found[BASELINE, workers])
            for (name, workers), runs in found.items()
            if name != BASELINE
        },
        figures={
            "ledgers": [
                {
                    "ledger": name.replace("_", " "),
                    "workers": workers,
                    "claims_per_second": round(median(claims for claims, _ in runs)),
                    "extents_per_second": round(median(extents for _, extents in runs)),
                }
                for (name, workers), runs in found.items()
            ]
        },
    )


def _ratio(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> float:
    rounds = zip(ours, theirs, strict=True)
    return round(median(one[1] / max(other[1], 0.1) for one, other in rounds), 2)


@contextmanager
def _ledgers(terms: Terms) -> Iterator[Mapping[str, LedgerOptions]]:
    """Start the servers, and yield how new ledgers are reached, each on the same disk."""
    folder = (terms.root / "var" / "bench" / NAME).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    service, services = Postgres(), folder / "servers"
    with Stack(services, services=[DynamoDbLocal(), service], free_ports=True) as stack:
        stack.up()
        file = folder / "ledger.db"
        ledgers = {
            BASELINE: LedgerOptions("bench", stack.endpoint("dynamodb"), REGION),
            "sqlite": LedgerOptions(url=LedgerAddress.of_file(file).url),
            "postgresql": LedgerOptions(url=stack.endpoint("postgres")),
        }
        for options in ledgers.values():
            open_ledger(options).admin.create()
        yield ledgers
    shutil.rmtree(service.home(services / "var" / "postgres"), ignore_errors=True)
    shutil.rmtree(folder)


def _run(options: LedgerOptions, workers: int, seconds: float) -> tuple[float, float]:
    """Return claims per second, had the workers only claimed, and extents per second."""
    job = _job(open_ledger(options), workers)
    processes = min(workers, MOST_PROCESSES)
    threads = workers // processes
    context = get_context("spawn")
    ready, done = context.Barrier(processes), context.SimpleQueue()
    cluster = f"bench-{uuid4().hex[:8]}"
    shares = [
        Share(options, cluster, job.id, number * threads, threads, seconds)
        for number in range(processes)
    ]
    started = [context.Process(target=_work, args=(share, ready, done)) for share in shares]
    for process in started:
        process.start()
    worked = [done.get() for _ in started]
    for process in started:
        process.join()
    if failures := [one for one in worked if isinstance(one, str)]:
        raise RuntimeError(f"a worker of {options.url or options.table}: {failures[0]}")
    extents = sum(one.extents for one in worked)
    claiming = sum(one.claim_seconds for one in worked) / max(extents, 1)
    return workers / max(claiming, 1e-9), extents / seconds


def _job(ledger: Ledger, workers: int) -> Job:
    count = workers * EXTENTS_EACH
    version = ObjectVersion("bench", uuid4().hex, None, "etag", count * EXTENT_BYTES)
    job = ledger.jobs.register(
        Job(
            id=job_id("bench", version),
            connector="bench",
            revision=1,
            version=version,
            format="text",
            cluster="bench",
            plan=Plan(target_bytes=EXTENT_BYTES),
        )
    )
    return ledger.jobs.plan(job.id, count=count, cursor=version.size, complete=True)


def _work(share: Share, ready: Any, done: Any) -> None:  # noqa: ANN401 - of multiprocessing
    try:
        done.put(_worked(share, ready.wait))
    except BaseException as exc:
        ready.abort()  # the others do not wait for this process
        done.put(repr(exc))
        raise


def _worked(share: Share, wait: Callable[[], object]) -> WorkTotals:
    ledger = open_ledger(share.options)
    job = ledger.jobs.get(share.job)
    if job is None:
        raise RuntimeError(f"the ledger has no job {share.job}")
    workers = [
        _Worker(ledger, job, share.cluster, share.first + number) for number in range(share.threads)
    ]
    wait()
    end = time.monotonic() + share.seconds
    with ThreadPoolExecutor(share.threads) as pool:
        found = list(pool.map(lambda worker: worker.work(end), workers))
    return WorkTotals(sum(one.extents for one in found), sum(one.claim_seconds for one in found))


class _Worker:
    """One worker with a slot of its own."""

    def __init__(self, ledger: Ledger, job: Job, cluster: str, number: int) -> None:
        self._ledger, self._job, self._ordinal = ledger, job, number * EXTENTS_EACH
        seen = ledger.slots.get(cluster, number)
        leased = ledger.slots.lease(seen, owner=f"worker-{number}", lease_seconds=LEASE_SECONDS)
        if leased is None:
            raise RuntimeError(f"slot {number} of {cluster} is taken")
        self._lease, _ = leased

    def work(self, end: float) -> WorkTotals:
        """Claim and complete extents until `end`."""
        worked = WorkTotals()
        while time.monotonic() < end:
            worked.claim_seconds += self._deliver()
            worked.extents += 1
        return worked

    def _deliver(self) -> float:
        """Claim and complete the next extent; return how long the claim took."""
        job, ordinal = self._job, self._ordinal
        self._ordinal += 1
        start = ordinal * EXTENT_BYTES
        end = start + EXTENT_BYTES
        extent = Extent(job.id, ordinal, job.connector, job.version, start, end, job.format)
        extents = self._ledger.extents
        began = time.monotonic()
        seen, nonce = extents.get(job.id, ordinal), uuid4().hex
        claim = extents.claim(self._lease, extent, seen, nonce=nonce, lease_seconds=LEASE_SECONDS)
        took = time.monotonic() - began
        if claim is None:
            raise RuntimeError(f"extent {ordinal} of job {job.id} was refused")
        extents.complete(claim, position=end, records=1, bad=0, filtered=0)
        return took
