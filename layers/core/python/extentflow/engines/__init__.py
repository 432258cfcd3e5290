"""What all engines share: tasks, the rule when a task may return, the life of a run.

Owns: packing extents into tasks, waiting out busy extents, leaving alone those of connectors that
rest, closing jobs. Refuses to know: Spark, processes, queues, adapters.

    jobs ──pending──> extents ──pack──> tasks ──Engine.run──> receipts
                                                   └─ close every job; totals are the ledger's

Of a paused or stopped connector nothing is begun: neither planned nor sent by the driver, nor
claimed by a worker. An extent in work goes on to its end. What was left alone once, the next run
takes: an ordered job's later extents would wait for it in vain.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from extentflow.delivery.runner import DeliveryContext, fail_extent, run_extent
from extentflow.errors import (
    ExtentflowError,
    LedgerUnavailable,
    Misconfigured,
    reason,
)
from extentflow.model import Extent, Outcome, Receipt

log = logging.getLogger(__name__)

SMALL_TASK_BYTES = 8 << 20
# Most holders are nearly done when somebody waits for the last extents of a query: whoever waits
# notices within a fifth of the time that it took.
FIRST_LOOK_SECONDS = 0.1
LOOK_GROWTH = 1.2
BUSY_LOOK_SECONDS = 2.0
BUSY_SLICE_SECONDS = 0.5
MOST_GROWTHS = 20


@dataclass(frozen=True, slots=True)
class Task:
    """Extents that one worker runs one after the other."""

    extents: tuple[Extent, ...]

    @property
    def size(self) -> int:
        """Bytes of all extents."""
        return sum(extent.end - extent.start for extent in self.extents)


class CachedWorker(Protocol):
    """What stays in a process for as long as it lives."""

    def close(self) -> None:
        """Release slot and clients."""
        ...


R_co = TypeVar("R_co", bound=CachedWorker, covariant=True)


@dataclass(frozen=True, slots=True)
class WorkerSpec(Generic[R_co]):
    """How a process far away becomes a worker; everything in it can be pickled.

    `open(settings, owner)` is a module-level function that returns a worker; `owner` begins with
    `run`, so that the run's driver can take over what its workers leave behind.
    """

    open: Callable[[dict[str, str], str], R_co]
    settings: dict[str, str]
    run: str


class Worker(CachedWorker, Protocol):
    """One process that runs extents; producer, slot, clients and footers live as long as it."""

    def run(self, extent: Extent) -> Receipt:
        """Run one extent until it is final (see `run_until_final`)."""
        ...

    def stop(self) -> None:
        """Ask the extent in work to commit and hand back at the next chunk."""
        ...


class RunListener(Protocol):
    """Whoever wants to see a run from the driver; called from any thread of the driver."""

    def on_extent(self, extent: Extent) -> None:
        """Note that this extent is about to be run."""
        ...

    def on_receipt(self, receipt: Receipt) -> None:
        """Take a receipt; the same one may come more than once."""
        ...


class Engine(Protocol):
    """Something that runs tasks on workers."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        """Run all tasks; `watch` sees each receipt.

        Returns when every extent is final or was left alone, or `stop` was called. Raises the error
        of a worker that could not go on.
        """
        ...

    def stop(self) -> None:
        """End the run soon, from a signal handler: commit or abort, release, return from `run`."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...


def run_until_final(
    extent: Extent, work: DeliveryContext, rests: Callable[[str], str] = lambda _connector: ""
) -> Receipt:
    """Run an extent until it is DONE or FAILED or its job is closed; busy is waited out.

    Busy is never a result: Spark would take a speculative copy's answer for the task's. An error
    that is no part of the error tree is a defect; it fails this extent and not its neighbours.
    `rests` says why nothing of a connector may be begun, "" where it may: RESTING, once nobody
    works on the extent any more.
    """
    looks = 0
    while True:
        if why := rests(extent.connector):
            if work.stopping() or not _held(extent, work):
                return _left_alone(extent, work, why)
            _wait(work, BUSY_LOOK_SECONDS)
            continue
        try:
            receipt = run_extent(extent, work)
        except ExtentflowError:
            raise
        except Exception as exc:
            log.exception("%s: unexpected error", extent.uri)
            return fail_extent(
                extent, work, f"{extent.uri}: unexpected {type(exc).__name__}: {exc}"
            )
        if receipt.outcome is not Outcome.BUSY or work.stopping():
            return receipt
        log.info("%s is busy: %s", extent.uri, receipt.reason)
        _wait(work, min(receipt.retry_after_seconds, FIRST_LOOK_SECONDS * LOOK_GROWTH**looks))
        looks = min(looks + 1, MOST_GROWTHS)


def _held(extent: Extent, work: DeliveryContext) -> bool:
    """Whether somebody works on an extent, of which a copy's answer would be the end."""
    try:
        return work.slots.held(extent)
    except LedgerUnavailable as exc:
        log.warning("%s: whether somebody works on it is not known now: %s", extent.uri, exc)
        return True


def _left_alone(extent: Extent, work: DeliveryContext, why: str) -> Receipt:
    log.info("%s is left alone: %s", extent.uri, why)
    return Receipt(
        extent.job,
        extent.ordinal,
        extent.uri,
        Outcome.RESTING,
        reason=why,
        worker=work.slots.owner,
    )


def run_in_turn(extents: Iterable[Extent], run: Callable[[Extent], Receipt]) -> Iterator[Receipt]:
    """Yield the receipts of a task's extents; behind one that was left alone so are its job's."""
    left: dict[str, Receipt] = {}
    for extent in extents:
        before = left.get(extent.job)
        if before is None:
            receipt = run(extent)
        else:
            receipt = replace(before, ordinal=extent.ordinal, uri=extent.uri)
        if receipt.outcome is Outcome.RESTING:
            left[extent.job] = receipt
        yield receipt


def run_or_fail(extent: Extent, work: DeliveryContext, *, message: str = "") -> Receipt:
    """Run an extent once, as `run_extent`; what concerns more than its data fails it.

    For whoever has nobody to tell: settings that are wrong, and defects of ours.
    """
    try:
        return run_extent(extent, work, message=message)
    except Misconfigured as exc:
        return fail_extent(extent, work, reason(exc))
    except ExtentflowError:
        raise
    except Exception as exc:
        log.exception("%s: unexpected error", extent.uri)
        what = f"{extent.uri}: unexpected {type(exc).__name__}: {exc}"
        return fail_extent(extent, work, what)


def _wait(work: DeliveryContext, seconds: float) -> None:
    """Wait, but look again at least every few seconds: the holder may finish early."""
    rest = min(seconds, BUSY_LOOK_SECONDS)
    while rest > 0 and not work.stopping():
        work.clock.sleep(min(rest, BUSY_SLICE_SECONDS))
        rest -= BUSY_SLICE_SECONDS


def pack(extents: Iterable[Extent], ordered: Callable[[str], bool], cores: int) -> list[Task]:
    """Return tasks: one per extent, small ones together, all of an ordered job in one.

    Small extents share a task only as long as every core still gets a few tasks.
    """
    extents = list(extents)
    total = sum(extent.end - extent.start for extent in extents)
    small = min(SMALL_TASK_BYTES, total // max(1, cores * 4))
    tasks: list[Task] = []
    sequences: dict[str, list[Extent]] = {}
    shared: list[Extent] = []
    shared_bytes = 0
    for extent in extents:
        if ordered(extent.job):
            sequences.setdefault(extent.job, []).append(extent)
            continue
        shared.append(extent)
        shared_bytes += extent.end - extent.start
        if shared_bytes >= small:
            tasks.append(Task(tuple(shared)))
            shared, shared_bytes = [], 0
    tasks += [Task(tuple(sequence)) for sequence in sequences.values()]
    if shared:
        tasks.append(Task(tuple(shared)))
    return sorted(tasks, key=lambda task: -task.size)
