"""The work of a `--once` run: the jobs that were open when it started, and how far listings are.

    a connector's objects were all listed, or listing failed ──> its open jobs are noted
    no noted job is open any more ──> the run ends
    several queries without progress ──> the run ends and reports what is left
    a job ended FAILED or CANCELLED since the run started ──> the run reports it

Queues and listings cannot tell old objects from new ones; jobs can, and later jobs are not noted.
The ledger's lists are eventually consistent: an open job missing from them is read by its id.

Spark starts one process per query, so listing progress is kept in a note of the ledger:

    listed on ─┬─ time is up: continues from there
               ├─ to the end ──> a complete round, or a failed one if objects were refused
               └─ failed ──> continues from there; after several failures the run stops waiting
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from zlib import crc32

from extentflow.delivery.connector_state import explain_skip
from extentflow.errors import ExtentflowError
from extentflow.ledger import Ledger
from extentflow.ledger.causes import cause
from extentflow.model import Job, JobState

# The first may continue an older listing; the second starts at the first key.
WHOLE_ROUNDS = 2
FAILURES = 3
# All connectors' facts are one item of the table.
MOST_CHARACTERS = 200
KEEP_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class ListingProgress:
    """One connector's.

    `goes` counts the scans that listed it; `whole` the complete listings that registered every
    object, `failed` the failures since the last of those. `found` counts registered jobs and `at`
    identifies the position: they change while the listing progresses. `refused`: an object of this
    listing was not registered. `unlisted` is the reason of the last failure, `held_up` why the last
    scan did not read open jobs.
    """

    goes: int = 0
    whole: int = 0
    failed: int = 0
    found: int = 0
    at: str = ""
    refused: bool = False
    unlisted: str = ""
    held_up: str = ""

    @property
    def complete(self) -> bool:
        """Whether every object that was there when the run began has been seen, and has a job."""
        return self.whole >= WHOLE_ROUNDS

    @property
    def settled(self) -> bool:
        """Whether it is complete, or failed too often to wait for."""
        return self.complete or self.failed >= FAILURES

    @property
    def came(self) -> tuple[object, ...]:
        """Comparable progress; constant once no object is added."""
        return self.whole, self.failed, self.found, self.at

    def begun(self) -> ListingProgress:
        """Return it at the start of a scan."""
        return replace(self, goes=self.goes + 1)

    def going_on(self, at: str, found: int, refused: Iterable[str]) -> ListingProgress:
        """Return it after the time limit; `refused` are reasons why objects were not registered.

        A listing continues behind refused objects. It failed if it only refused.
        """
        whys = list(refused)
        now = self._further(at, found, whys)
        return now.failure(now.unlisted) if whys and not found else now

    def _further(self, at: str, found: int, whys: Sequence[str]) -> ListingProgress:
        return replace(
            self,
            at=f"{crc32(at.encode()):08x}" if at else "",  # tokens may be long
            found=self.found + found,
            refused=self.refused or bool(whys),
            unlisted=_brief(whys) or self.unlisted,
        )

    def ended(self, found: int, refused: Iterable[str]) -> ListingProgress:
        """Return it after the last key."""
        now = self._further("", found, list(refused))
        if now.refused:
            return replace(now.failure(now.unlisted), refused=False)
        return replace(now, whole=now.whole + 1, failed=0, unlisted="")

    def failure(self, why: str) -> ListingProgress:
        """Return it after the listing failed."""
        return replace(self, failed=self.failed + 1, unlisted=_brief([why]))

    def holding_up(self, whys: Iterable[str]) -> ListingProgress:
        """Return it with the reasons that open jobs were not read."""
        return replace(self, held_up=_brief(whys))


def recall(ledger: Ledger, run: str) -> dict[str, ListingProgress]:
    """Return what a run noted, by connector. Raises LedgerUnavailable."""
    facts = ledger.notes.recall(_note(run)) or {}
    return {name: ListingProgress(**json.loads(text)) for name, text in facts.items()}


def remember(ledger: Ledger, run: str, rounds: Mapping[str, ListingProgress]) -> None:
    """Note them for the run's other processes. Raises LedgerUnavailable."""
    facts = {name: json.dumps(asdict(one)) for name, one in rounds.items()}
    ledger.notes.remember(_note(run), facts, keep_seconds=KEEP_SECONDS)


def _brief(whys: Iterable[str]) -> str:
    """Return the first reason, cut where it is long; empty where there is none."""
    return next(iter(whys), "")[:MOST_CHARACTERS]


def _note(run: str) -> str:
    return f"rounds#{run}"


log = logging.getLogger(__name__)

# Extents may be held by other workers, paused, or not visible in the queue yet.
MAX_IDLE_QUERIES = 3
# A queue's depth is approximate.
QUEUE_POLLS = 2
SHOWN_JOBS = 8
UNDELIVERED = (JobState.FAILED, JobState.CANCELLED)


class DrainTracker:
    """The jobs of one connector, or of all of them, that are open when a run begins.

    `listing` names the run whose scans list objects; None if a queue holds all work.
    """

    def __init__(self, ledger: Ledger, connector: str | None, *, listing: str | None) -> None:
        self._ledger = ledger
        self._connector = connector
        self._listing = listing
        self._looks = 0
        self._idle = 0
        self._looking: set[str] | None = None  # connectors; None before they are read
        self._all: set[str] = set()
        self._rounds: dict[str, ListingProgress] = {}
        self._seen: dict[str, Job] = {}  # open at one of the checks
        self._noted: dict[str, Job] = {}
        self._over: int | None = None
        self._unknown = ""
        self._undelivered: dict[str, Job] = {}
        self._began = ledger.now()

    def left(self, *, ended: int) -> bool:
        """Return whether another query is worth it, after one that ended so many extents.

        An unavailable ledger counts as no progress.
        """
        looking = self._looking != set()
        try:
            moved = self._looked() if looking else self._moved()
            self._unknown = ""
        except ExtentflowError as exc:
            log.warning("cannot read the remaining work: %s", exc)
            self._unknown = str(exc)
            moved = False
        self._idle = 0 if moved and (ended or looking) else self._idle + 1
        return self._idle < MAX_IDLE_QUERIES and (self._looking != set() or bool(self._noted))

    def undone(self) -> list[str]:
        """Return a line per undelivered job or connector, with the reason; empty if all is DONE."""
        try:
            self._refresh()
        except ExtentflowError as exc:
            self._unknown = self._unknown or str(exc)
        unknown = [f"cannot read the remaining work: {self._unknown}"] if self._unknown else []
        listed = [self._unlisted(name) for name in sorted(self._all) if not self._complete(name)]
        left = sorted(Counter(job.connector for job in self._noted.values()).items())
        ended = [
            f"connector {job.connector}: job {job.id} of {job.version.uri} is {job.state}:"
            f" {self._cause(job)}"
            for job in islice(self._undelivered.values(), SHOWN_JOBS)
        ]
        more = len(self._undelivered) - SHOWN_JOBS
        ended += [f"{more} more jobs ended undelivered; `extentflow status` shows them"] * (
            more > 0
        )
        return [*unknown, *listed, *ended, *(self._left_of(name, jobs) for name, jobs in left)]

    # -- looking --------------------------------------------------------------------------------

    def _looked(self) -> bool:
        """Note the jobs of listed connectors; return whether listing progresses."""
        self._looks += 1
        listed = self._open()
        self._seen |= listed
        if self._listing is None:
            if self._looks >= QUEUE_POLLS:
                self._noted, self._looking = self._still(self._seen, listed), set()
            return True
        if self._looking is None:
            self._all = set(self._names())
            self._looking = set(self._all)
        before, self._rounds = self._rounds, recall(self._ledger, self._listing)
        settled = {name for name in self._looking if self._of(name).settled}
        if settled or not self._looking:
            seen = {name: job for name, job in self._seen.items() if job.connector in settled}
            self._noted = self._still({**self._noted, **seen}, listed)
            self._looking -= settled
        return bool(settled) or any(
            self._of(name).came != before.get(name, ListingProgress()).came
            for name in self._looking
        )

    def _of(self, name: str) -> ListingProgress:
        return self._rounds.get(name, ListingProgress())

    # -- delivering -----------------------------------------------------------------------------

    def _moved(self) -> bool:
        """Return whether a noted job or one of its extents became final."""
        still = self._still(self._noted, self._open())
        fewer, self._noted = len(still) < len(self._noted), still
        if fewer:
            self._over = None
            return True
        before, self._over = self._over, sum(self._ended(job) for job in still.values())
        return before != self._over

    def _still(self, jobs: Mapping[str, Job], listed: Mapping[str, Job]) -> dict[str, Job]:
        """Return those of the jobs that are open; note those that ended without being delivered.

        `listed` are the open jobs in the ledger's lists; the others are read one by one.
        """
        found = {name: listed.get(name) or self._ledger.jobs.get(name) for name in jobs}
        self._note_undelivered(job for job in found.values() if job is not None)
        return {name: job for name, job in found.items() if job is not None and job.state.open}

    def _note_undelivered(self, jobs: Iterable[Job]) -> None:
        self._undelivered |= {
            job.id: job for job in jobs if job.state in UNDELIVERED and job.ended >= self._began
        }

    def _open(self) -> dict[str, Job]:
        states = (JobState.PLANNING, JobState.RUNNING)
        found = (job for state in states for job in self._ledger.jobs.list(self._connector, state))
        return {job.id: job for job in found}

    def _ended(self, job: Job) -> int:
        progress = self._ledger.jobs.progress(job.id)
        return progress.done + progress.failed

    # -- what is left ---------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read the final state."""
        self._noted = self._still(self._noted, self._open())
        for name in self._names():
            for state in UNDELIVERED:
                self._note_undelivered(self._ledger.jobs.list(name, state))
        if self._listing is not None:
            self._rounds = recall(self._ledger, self._listing)

    def _names(self) -> list[str]:
        named = self._connector
        return sorted(self._ledger.connectors.names()) if named is None else [named]

    def _cause(self, job: Job) -> str:
        try:
            return cause(self._ledger, job)
        except ExtentflowError:
            return job.reason

    def _complete(self, name: str) -> bool:
        return self._of(name).complete

    def _unlisted(self, name: str) -> str:
        why = self._of(name).unlisted or "listing made no progress"
        return f"connector {name}: not all of its objects have jobs: {why}"

    def _left_of(self, connector: str, jobs: int) -> str:
        counted = f"{jobs} job is" if jobs == 1 else f"{jobs} jobs are"
        return f"connector {connector}: {counted} not over: {self._why(connector)}"

    def _why(self, connector: str) -> str:
        if held_up := self._of(connector).held_up:
            return held_up
        try:
            state = self._ledger.connectors.state(connector)
        except ExtentflowError as exc:
            return str(exc)
        if skipped := explain_skip(connector, state):
            return skipped
        if held := self._held(connector):
            return held
        return (
            "no progress; the log names the unavailable service, or another worker holds these"
            " extents"
        )

    def _held(self, connector: str) -> str:
        """Return how many extents workers hold, dead ones included; "" if unknown."""
        jobs = {name: job for name, job in self._noted.items() if job.connector == connector}
        try:
            now = self._ledger.now()
            left = [
                slot.until - now
                for cluster in {job.cluster for job in jobs.values()}
                for slot in self._ledger.slots.list(cluster)
                if slot.working and slot.working[0] in jobs and slot.until > now
            ]
        except ExtentflowError:
            return ""
        if not left:
            return ""
        return (
            f"workers hold {len(left)} of their extents, and if they died, for up to"
            f" {max(left):.0f} s more and a little; then the next start resumes"
        )
