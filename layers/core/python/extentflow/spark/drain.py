"""Decide when a `--once` run ends: it drains the jobs that were open when it started.

    a connector's objects were all listed, or listing failed ──> its open jobs are tracked
    no tracked job is open any more ──> the run ends
    several queries without progress ──> the run ends and reports what is left
    a job ended FAILED or CANCELLED since the run started ──> the run reports it

Queues and listings do not distinguish old objects from new ones; jobs do. Later jobs are not
tracked. The ledger's lists are eventually consistent: an open job missing from them is read by id.

Spark starts one process per query, so listing progress is kept in a note of the ledger:

    listed on ─┬─ time is up: continues from there
               ├─ to the end ──> a complete round, or a failed one if objects were refused
               └─ failed ──> continues from there; after several failures the run stops waiting
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from operator import attrgetter
from zlib import crc32

from extentflow.errors import ExtentflowError
from extentflow.jobs.preflight import skip_reason
from extentflow.ledger import Ledger
from extentflow.ledger.notes import NoteKind
from extentflow.ledger.summaries import failure_reason
from extentflow.model import Job, JobState

log = logging.getLogger(__name__)

# The first may continue an older listing; the second starts at the first key.
WHOLE_ROUNDS = 2
FAILURES = 3
# Extents may be held by other workers, paused, or not visible in the queue yet.
MAX_IDLE_QUERIES = 3
# A queue's depth is approximate: one empty poll does not prove that it is empty.
QUEUE_POLLS = 2
SHOWN_JOBS = 8
# The progress of all connectors is one item of the table, which DynamoDB limits to 400 KB.
MOST_CHARACTERS = 200
KEEP_SECONDS = 86_400.0
UNDELIVERED = (JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class ListingProgress:
    """How far the listing of one connector is in this run."""

    goes: int = 0  # scans that listed it
    whole: int = 0  # complete listings that registered every object
    failed: int = 0  # failures since the last of those
    found: int = 0  # registered jobs; as `at`, it changes while the listing progresses
    at: str = ""  # identifies the position
    refused: bool = False  # an object of this listing was not registered
    unlisted: str = ""  # the reason of the last failure
    held_up: str = ""  # why the last scan did not read open jobs

    @property
    def complete(self) -> bool:
        """Whether every object that existed when the run started has a job."""
        return self.whole >= WHOLE_ROUNDS

    @property
    def settled(self) -> bool:
        """Whether the run no longer waits for it: complete, or failed `FAILURES` times."""
        return self.complete or self.failed >= FAILURES

    def listed(self, found: int, refused: Sequence[str], *, at: str | None) -> ListingProgress:
        """Return the progress after a scan up to position `at`, None: to the last key."""
        now = replace(
            self,
            at=f"{crc32(at.encode()):08x}" if at else "",  # tokens may be long
            found=self.found + found,
            refused=self.refused or bool(refused),
            unlisted=brief(refused) or self.unlisted,
        )
        if at is None and now.refused:
            return replace(now.failure(now.unlisted), refused=False)
        if at is None:
            return replace(now, whole=now.whole + 1, failed=0, unlisted="")
        # The listing continues behind refused objects, and failed only if it registered none.
        return now.failure(now.unlisted) if refused and not found else now

    def failure(self, why: str) -> ListingProgress:
        """Return the progress after the listing failed."""
        return replace(self, failed=self.failed + 1, unlisted=brief([why]))


ROUNDS: NoteKind[Mapping[str, ListingProgress]] = NoteKind(
    "rounds#",
    lambda rounds: {name: json.dumps(asdict(one)) for name, one in rounds.items()},
    lambda facts: {name: ListingProgress(**json.loads(text)) for name, text in facts.items()},
    KEEP_SECONDS,
)


def recall(ledger: Ledger, run: str) -> defaultdict[str, ListingProgress]:
    """Return the listing progress of a run by connector. Raises LedgerUnavailable."""
    return defaultdict(ListingProgress, ROUNDS.read(ledger.notes, run) or {})


def brief(whys: Iterable[str]) -> str:
    """Return the first reason, or what its note holds of it."""
    return next(iter(whys), "")[:MOST_CHARACTERS]


class DrainTracker:
    """Tracks jobs open at a run's start; `listing` is the run that lists, None with a queue."""

    def __init__(self, ledger: Ledger, connector: str | None, *, listing: str | None) -> None:
        self._ledger = ledger
        self._connector = connector
        self._listing = listing
        self._polls = self._idle = 0
        self._unsettled: set[str] | None = None  # connectors; None before they are read
        self._connectors: set[str] = set()
        self._rounds = defaultdict[str, ListingProgress](ListingProgress)
        self._seen: dict[str, Job] = {}  # open at one of the checks
        self._tracked: dict[str, Job] = {}
        self._final_extents: int | None = None
        self._read_error = ""
        self._undelivered: dict[str, Job] = {}
        self._began = ledger.now()

    def left(self, *, ended: int) -> bool:
        """Return whether to start another query after one in which `ended` extents got final."""
        unsettled = self._unsettled != set()
        try:
            moved = self._track_listed() if unsettled else self._check_progress()
            self._read_error = ""
        except ExtentflowError as exc:
            log.warning("cannot read the remaining work: %s", exc)
            self._read_error = str(exc)
            moved = False
        # While connectors are listed, progress may finish no extent.
        self._idle = 0 if moved and (ended or unsettled) else self._idle + 1
        return self._idle < MAX_IDLE_QUERIES and (self._unsettled != set() or bool(self._tracked))

    def undone(self) -> list[str]:
        """Return a line per undelivered job or connector, with the reason; empty if all is DONE."""
        self._refresh()
        lines: list[str] = []
        if self._read_error:
            lines.append(f"cannot read the remaining work: {self._read_error}")
        for name in sorted(self._connectors):
            if not (progress := self._rounds[name]).complete:
                why = progress.unlisted or "listing made no progress"
                lines.append(f"connector {name}: not all of its objects have jobs: {why}")
        for job in islice(self._undelivered.values(), SHOWN_JOBS):
            what = f"connector {job.connector}: job {job.id} of {job.version.uri} is {job.state}"
            lines.append(f"{what}: {self._cause(job)}")
        if (more := len(self._undelivered) - SHOWN_JOBS) > 0:
            lines.append(f"{more} more jobs ended undelivered; `extentflow status` shows them")
        for name, jobs in sorted(Counter(job.connector for job in self._tracked.values()).items()):
            count = "1 job is" if jobs == 1 else f"{jobs} jobs are"
            lines.append(f"connector {name}: {count} not over: {self._open_reason(name)}")
        return lines

    def _track_listed(self) -> bool:
        """Track the open jobs of settled connectors; return whether listing progresses."""
        self._polls += 1
        listed = self._list_open_jobs()
        self._seen |= listed  # a list of the ledger may miss a job that an earlier one had
        if self._listing is None:
            if self._polls >= QUEUE_POLLS:
                self._tracked, self._unsettled = self._still_open(self._seen, listed), set()
            return True
        if self._unsettled is None:
            self._connectors = set(self._connector_names())
            self._unsettled = set(self._connectors)
        before, self._rounds = self._rounds, recall(self._ledger, self._listing)
        settled = {name for name in self._unsettled if self._rounds[name].settled}
        if settled or not self._unsettled:
            seen = {name: job for name, job in self._seen.items() if job.connector in settled}
            self._tracked = self._still_open({**self._tracked, **seen}, listed)
            self._unsettled -= settled
        # `goes`, `refused` and the reasons change without progress.
        came = attrgetter("whole", "failed", "found", "at")
        return bool(settled) or any(
            came(self._rounds[name]) != came(before[name]) for name in self._unsettled
        )

    def _check_progress(self) -> bool:
        tracked = len(self._tracked)
        self._tracked = self._still_open(self._tracked, self._list_open_jobs())
        if len(self._tracked) < tracked:
            # The next count is of other jobs: it cannot be compared with the last one.
            self._final_extents = None
            return True
        progress = [self._ledger.jobs.progress(job) for job in self._tracked]
        before, self._final_extents = self._final_extents, sum(p.done + p.failed for p in progress)
        return before != self._final_extents

    def _still_open(self, jobs: Mapping[str, Job], listed: Mapping[str, Job]) -> dict[str, Job]:
        """Return which jobs are open, unlisted ones read by id; keep what ended undelivered."""
        found = {name: listed.get(name) or self._ledger.jobs.get(name) for name in jobs}
        self._add_undelivered(job for job in found.values() if job is not None)
        return {name: job for name, job in found.items() if job is not None and job.state.open}

    def _add_undelivered(self, jobs: Iterable[Job]) -> None:
        self._undelivered |= {
            job.id: job for job in jobs if job.state in UNDELIVERED and job.ended >= self._began
        }

    def _list_open_jobs(self) -> dict[str, Job]:
        states, jobs = (JobState.PLANNING, JobState.RUNNING), self._ledger.jobs
        return {job.id: job for state in states for job in jobs.list(self._connector, state)}

    def _refresh(self) -> None:
        try:
            self._tracked = self._still_open(self._tracked, self._list_open_jobs())
            # Jobs that ended between two checks were never tracked.
            for name in self._connector_names():
                for state in UNDELIVERED:
                    self._add_undelivered(self._ledger.jobs.list(name, state))
            if self._listing is not None:
                self._rounds = recall(self._ledger, self._listing)
        except ExtentflowError as exc:
            self._read_error = self._read_error or str(exc)

    def _connector_names(self) -> list[str]:
        return [self._connector] if self._connector else sorted(self._ledger.connectors.names())

    def _cause(self, job: Job) -> str:
        try:
            return failure_reason(self._ledger, job)
        except ExtentflowError:
            return job.reason

    def _open_reason(self, connector: str) -> str:
        """Return why tracked jobs are open; workers that hold their extents may be dead."""
        if held_up := self._rounds[connector].held_up:
            return held_up
        jobs = {name: job for name, job in self._tracked.items() if job.connector == connector}
        try:
            if skipped := skip_reason(self._ledger, connector):
                return skipped
            now = self._ledger.now()
            left = [
                slot.until - now
                for cluster in {job.cluster for job in jobs.values()}
                for slot in self._ledger.slots.list(cluster)
                if slot.working and slot.working[0] in jobs and slot.until > now
            ]
        except ExtentflowError as exc:
            return str(exc)
        if not left:
            return (
                "no progress; the log names the unavailable service, or another worker holds these"
                " extents"
            )
        return (
            f"workers hold {len(left)} of their extents, and if they died, for up to"
            f" {max(left):.0f} s more and a little; then the next start resumes"
        )
