"""Engines: run extents on worker processes. This module is their port.

    jobs ──pending──> extents ──pack──> tasks ──Engine.run──> receipts ──> RunListener

    inline    worker processes on this machine
    spark     Python workers of a Spark cluster
    remote    a run that a service starts elsewhere, followed through the ledger (`RunService`)

Nothing of a paused or stopped connector is started: the driver neither plans nor sends its
extents, and workers do not claim them. An extent in progress continues to its end. Extents that a
run skipped stay skipped until the next run: later extents of an ordered job would wait for them.
Selecting and closing jobs is left to `jobs`, delivering one extent to `delivery`. Spark's data
source, with which queries deliver, is the package `spark`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from extentflow import plugins
from extentflow.delivery.runner import DeliveryContext, fail_extent, run_extent
from extentflow.engines.remote import RunService
from extentflow.errors import (
    Defect,
    ExtentflowError,
    LedgerUnavailable,
    Misconfigured,
    contain_defects,
    reason,
)
from extentflow.model import Extent, Outcome, Receipt
from extentflow.plugins import Registry

log = logging.getLogger(__name__)

SMALL_TASK_BYTES = 8 << 20
# Spark reports the extents of a task when it ends.
SMALL_TASK_EXTENTS = 64
# Growing by a fifth, polls of a busy extent find its end at most 20 % later than it happened.
FIRST_POLL_SECONDS = 0.1
POLL_GROWTH = 1.2
MAX_POLL_SECONDS = 2.0
STOP_CHECK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Task:
    """Extents that one worker runs in order, one at a time."""

    extents: tuple[Extent, ...]

    @property
    def size(self) -> int:
        """Bytes of all extents."""
        return sum(extent.end - extent.start for extent in self.extents)


class CachedWorker(Protocol):
    """A worker that a process keeps from one task to the next."""

    def close(self) -> None:
        """Release the slot and the clients."""


R_co = TypeVar("R_co", bound=CachedWorker, covariant=True)


@dataclass(frozen=True, slots=True)
class WorkerSpec(Generic[R_co]):
    """How to open a worker: `open(settings, owner)`; `owner` begins with `run`, for `evict`."""

    open: Callable[[dict[str, str], str], R_co]
    settings: dict[str, str]
    run: str


class Worker(CachedWorker, Protocol):
    """Runs extents in one process; keeps producer, slot, clients and footers between them."""

    def run(self, extent: Extent) -> Receipt:
        """Run one extent until it is final; see `run_until_final`."""

    def stop(self) -> None:
        """Make the extent in progress commit and hand back at its next chunk."""


class RunListener(Protocol):
    """Observes a run on the driver; called from any of its threads."""

    def on_extent(self, extent: Extent) -> None:
        """Called before an extent is sent to a worker."""

    def on_receipt(self, receipt: Receipt) -> None:
        """Called for each receipt, possibly more than once."""


class Engine(Protocol):
    """Runs tasks on workers."""

    @property
    def cores(self) -> int:
        """Number of tasks that run in parallel."""

    def run(self, tasks: Sequence[Task], listener: RunListener) -> None:
        """Run all tasks and pass each receipt to `listener`.

        Returns when every extent is final or skipped, or after `stop`. Raises the error of a worker
        that cannot continue, with its class.
        """

    def stop(self) -> None:
        """End the run within seconds; may be called from a signal handler."""

    def close(self) -> None:
        """Release slots, processes and sessions of the engine."""


class EngineFactory(Protocol):
    """Opens an engine on the driver; the value of an entry point of group `extentflow.engines`."""

    def __call__(
        self, spec: WorkerSpec[Worker], *, cores: int, evict: Callable[[str], int]
    ) -> Engine:
        """Return an engine that runs at most `cores` workers of `spec` at once.

        It calls `evict(owner)` to take over the slots of a worker that has ended, before it runs
        the worker's extents again, and in `close` `evict(spec.run)` for all workers.
        """


# `spark` also needs a master: `wiring.open_engine` opens it.
ENGINES: Registry[EngineFactory | RunService] = Registry(
    plugins.ENGINES, "engine", is_adapter=lambda one: callable(one) or isinstance(one, RunService)
)


def run_service(name: str) -> RunService | None:
    """Return the service of a remote engine; None: engine `name` runs from this process."""
    found = ENGINES.get(name) if name in ENGINES.names() else None
    return found if isinstance(found, RunService) else None


def run_until_final(
    extent: Extent, work: DeliveryContext, skip_reason: Callable[[str], str] = lambda _connector: ""
) -> Receipt:
    """Run an extent until it is DONE or FAILED or its job is closed; wait while it is busy.

    `skip_reason(connector)` returns why no extent of a connector may start, or ""; the extent is
    then skipped once no worker holds it. A defect fails this extent only; any other error means
    that the worker cannot continue.
    """
    poll_seconds = FIRST_POLL_SECONDS
    while True:
        if why := skip_reason(extent.connector):
            if work.stopping() or not _is_held(extent, work):
                log.info("%s is skipped: %s", extent.uri, why)
                skipped = Receipt(extent.job, extent.ordinal, extent.uri, Outcome.SKIPPED)
                return replace(skipped, reason=why, worker=work.slots.owner)
            _wait(work, MAX_POLL_SECONDS)
            continue
        receipt = run_or_fail(extent, work, fatal=(Defect,))
        # BUSY is a result only of a worker that stops: Spark would take a speculative copy's answer
        # for the task's.
        if receipt.outcome is not Outcome.BUSY or work.stopping():
            return receipt
        log.info("%s is busy: %s", extent.uri, receipt.reason)
        # A holder may finish long before the time that the receipt names.
        _wait(work, min(receipt.retry_after_seconds, poll_seconds))
        poll_seconds = min(poll_seconds * POLL_GROWTH, MAX_POLL_SECONDS)


def run_or_fail(
    extent: Extent,
    work: DeliveryContext,
    *,
    message: str = "",
    fatal: tuple[type[ExtentflowError], ...] = (Defect, Misconfigured),
) -> Receipt:
    """Run an extent once, as `run_extent`; errors of the classes `fatal` fail it, too."""
    try:
        with contain_defects(extent.uri):
            return run_extent(extent, work, message=message)
    except fatal as exc:
        return fail_extent(extent, work, reason(exc))


def run_in_turn(extents: Iterable[Extent], run: Callable[[Extent], Receipt]) -> Iterator[Receipt]:
    """Yield the receipts of a task's extents; after a skipped one, skip the rest of its job."""
    skipped: dict[str, Receipt] = {}
    for extent in extents:
        if before := skipped.get(extent.job):
            yield replace(before, ordinal=extent.ordinal, uri=extent.uri)
            continue
        receipt = run(extent)
        if receipt.outcome is Outcome.SKIPPED:
            skipped[extent.job] = receipt
        yield receipt


def _is_held(extent: Extent, work: DeliveryContext) -> bool:
    try:
        return work.slots.is_held(extent)
    except LedgerUnavailable as exc:
        # Spark would take the skipped copy's answer and end the task of a worker that holds it.
        log.warning("%s: cannot read whether a worker holds it: %s", extent.uri, exc)
        return True


def _wait(work: DeliveryContext, seconds: float) -> None:
    while seconds > 0 and not work.stopping():
        work.clock.sleep(min(seconds, STOP_CHECK_SECONDS))
        seconds -= STOP_CHECK_SECONDS


def pack(extents: Iterable[Extent], ordered: Callable[[str], bool], cores: int) -> list[Task]:
    """Return tasks, largest first: one per extent, one per ordered job, small extents together."""
    everything = Task(tuple(extents))
    # Small extents share a task only while every core still gets four of them.
    small = min(SMALL_TASK_BYTES, everything.size // max(1, cores * 4))
    tasks: list[Task] = []
    sequences: dict[str, list[Extent]] = {}
    shared: list[Extent] = []
    shared_bytes = 0
    for extent in everything.extents:
        if ordered(extent.job):
            sequences.setdefault(extent.job, []).append(extent)
            continue
        shared.append(extent)
        shared_bytes += extent.end - extent.start
        if shared_bytes >= small or len(shared) == SMALL_TASK_EXTENTS:
            tasks.append(Task(tuple(shared)))
            shared, shared_bytes = [], 0
    tasks += [Task(tuple(one)) for one in (*sequences.values(), shared) if one]
    return sorted(tasks, key=lambda task: -task.size)
