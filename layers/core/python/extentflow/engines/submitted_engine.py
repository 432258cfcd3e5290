"""The engine of a remote run: follows it through the ledger.

One run serves all waves, because its own driver takes every job of its command line. Waves after
the first find most of their extents final and wait for the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from extentflow.engines import RunListener, Task
from extentflow.engines.remote import JobRuns, RunState
from extentflow.errors import ExtentflowError, Retryable, RunFailed
from extentflow.ledger import ExtentItem, Ledger
from extentflow.model import Extent, ExtentState, Outcome, Receipt
from extentflow.retry import Clock

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0
STOP_SLICE_SECONDS = 0.5
# Reading a job of many extents is slow: at most a tenth of the time is spent reading.
POLL_SHARE = 10
OUTCOMES = {ExtentState.DONE: Outcome.DONE, ExtentState.FAILED: Outcome.FAILED}


class SubmittedRunEngine:
    """`Engine` over one run: `start` returns its id, `say` takes lines about its state."""

    def __init__(
        self,
        runs: JobRuns,
        start: Callable[[], str],
        ledger: Ledger,
        clock: Clock,
        *,
        cores: int = 1,
        say: Callable[[str], object] = log.info,
    ) -> None:
        self._runs = runs
        self._start = start
        self._ledger = ledger
        self._clock = clock
        self.cores = cores
        self._say = say
        self._id: str | None = None
        self._state = RunState.WAITING
        self._took, self._stopping = 0.0, False

    def run(self, tasks: Sequence[Task], listener: RunListener) -> None:
        """See `Engine.run`; RunFailed: it ended with extents left; other errors leave it."""
        left = {(one.job, one.ordinal): one for task in tasks for one in task.extents}
        before = self._items(left.values())
        self._see(left, before, listener)
        while left and not self._stopping:
            if self._id is None:
                self._id = self._start()
                self._say(f"run {self._id} is started; it may take minutes to begin")
            # Before the ledger is read, which then has all that an ended run did.
            ended = self._poll(self._id)
            self._see(left, before, listener)
            if left and ended:
                raise RunFailed(ended)
            rest = max(POLL_SECONDS, POLL_SHARE * self._took)
            while left and rest > 0 and not self._stopping:
                self._clock.sleep(min(rest, STOP_SLICE_SECONDS))
                rest -= STOP_SLICE_SECONDS

    def stop(self) -> None:
        self._stopping = True

    def close(self) -> None:
        """Cancel the run if it was stopped here; otherwise it ends by itself."""
        if self._id is None or not self._stopping or self._state.ended:
            return
        try:
            self._runs.cancel(self._id)
            self._say(f"run {self._id} is cancelled; its extents are free when its leases end")
        except ExtentflowError as exc:
            self._say(f"run {self._id} could not be cancelled and continues: {exc}")

    def _poll(self, run_id: str) -> str:
        """Return how the run ended; "" while it continues or its state is unknown."""
        try:
            status = self._runs.describe(run_id)
        except Retryable as exc:
            log.info("run %s: %s", run_id, exc)
            return ""
        if status.state is not self._state:
            self._state = status.state
            self._say(f"run {run_id} is {status.state}")
        why = f": {status.details}" if status.details else ""
        ended = (
            f"run {run_id} ended as {status.state} and has left extents{why}; its log says more, "
            "the same command resumes them"
        )
        return ended if status.state.ended else ""

    def _items(self, extents: Iterable[Extent]) -> dict[tuple[str, int], ExtentItem]:
        begun = self._clock.monotonic()
        items = self._ledger.extents
        ids = {one.job for one in extents}
        found = {(job, item.ordinal): item for job in ids for item in items.list(job)}
        self._took = self._clock.monotonic() - begun
        return found

    def _see(
        self,
        left: dict[tuple[str, int], Extent],
        before: dict[tuple[str, int], ExtentItem],
        listener: RunListener,
    ) -> None:
        """Report extents that became final, or whose job did, and remove them from `left`."""
        # Read before the items, which then include everything that the job did before its end.
        jobs = {id_: self._ledger.jobs.get(id_) for id_ in {one.job for one in left.values()}}
        now = self._items(left.values())
        for place, extent in list(left.items()):
            item, then = (items.get(place) or ExtentItem(*place) for items in (now, before))
            job = jobs[extent.job]
            if item.state.final or job is None or not job.state.open:
                receipt = Receipt(
                    job=extent.job,
                    ordinal=extent.ordinal,
                    uri=extent.uri,
                    outcome=OUTCOMES.get(item.state, Outcome.JOB_CLOSED),
                    position=item.position,
                    records=item.records - then.records,
                    bad=item.bad - then.bad,
                    filtered=item.filtered - then.filtered,
                    reason=item.error,
                )
                listener.on_receipt(receipt)
                del left[place]
