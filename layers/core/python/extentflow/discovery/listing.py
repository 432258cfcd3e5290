"""Find objects without a notification: list a connector's prefix, page by page over many runs.

    token of the last run ──page──> data by its name ──ledger, 100 at a time──> no job: an arrival
             ^                │
             └────stored──────┘     complete: the next run starts at the first key

The order of keys and their age do not matter: a key that sorts before the token is found
in the next round. Keys with a job cause no further request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from extentflow.config.connector import ConnectorConfig, hidden
from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.admission import AdmissionResult
from extentflow.discovery.report import Report, attempt_step
from extentflow.errors import AccessDenied, Permanent
from extentflow.jobs.contents import is_file, is_seen, is_touched
from extentflow.jobs.planner import in_pages
from extentflow.ledger import Ledger
from extentflow.ledger.notes import NoteKind
from extentflow.model import ObjectVersion, job_id
from extentflow.storage import FileNames, ObjectStore, Page

log = logging.getLogger(__name__)

BATCH_KEYS = 100
KEEP_SECONDS = 14 * 86_400.0
# Where a listing continues: the bucket and prefix to which a token belongs, and that token.
POSITIONS: NoteKind[tuple[str, str | None]] = NoteKind(
    "listing#",
    lambda at: {"place": at[0], **({} if at[1] is None else {"token": at[1]})},
    lambda facts: (facts.get("place", ""), facts.get("token")),
)
# ETag and size of an object at an earlier listing.
SEEN: NoteKind[tuple[str, int]] = NoteKind(
    "seen#",
    lambda seen: {"etag": seen[0], "size": str(seen[1])},
    lambda facts: (facts["etag"], int(facts["size"])),
    KEEP_SECONDS,
)


@dataclass(frozen=True, slots=True)
class ListedPrefix:
    """What a connector reads, with its store.

    `settles`: objects may still be written when they are first seen, so two listings must agree.
    """

    config: ConnectorConfig
    store: ObjectStore
    settles: bool = False

    @property
    def place(self) -> str:
        """What a token belongs to."""
        config = self.config
        return f"{config.endpoint_type} {config.endpoint} {config.bucket} {config.listed_prefix}"

    def is_data(self, version: ObjectVersion) -> bool:
        """Return whether it is data: an empty object with a slash is a console's folder."""
        folder = version.key.endswith("/") and not version.size
        ours = self.config.matches(version.bucket, version.key)
        return ours and not folder and not hidden(version.key, self.config.listed_prefix)


@dataclass(frozen=True, slots=True)
class ListingScan:
    """Finds objects without a job. `receive` registers jobs; `since` is the start of the run.

    `on_failure` is called with the reason if an object could not be registered.
    """

    ledger: Ledger
    receive: Callable[[Arrival], AdmissionResult]
    late: Callable[[], bool]
    since: float
    on_failure: Callable[[str], object] = lambda _why: None

    def scan(self, listed_prefix: ListedPrefix) -> Iterator[Report]:
        """Continue a listing where the last run stopped, at most up to its end.

        A step is a batch of keys, or one new object. A page that is incomplete when time runs out
        is listed again by the next run. If something in it failed, it waits for the next round, so
        that a failing object does not delay those after it. Raises as `ObjectStore`.
        """
        config, here = listed_prefix.config, listed_prefix.place
        place, token = POSITIONS.read(self.ledger.notes, config.name) or (here, None)
        if place != here:
            token = None
        if self.late():
            return
        names = FileNames(
            lambda key: config.matches(config.bucket, key) and not hidden(key, config.listed_prefix)
        )
        try:
            for page in listed_prefix.store.pages(config.bucket, config.listed_prefix, token=token):
                problems = 0
                _warn_of_links(config.bucket, page)
                listed = [
                    one
                    for one in page.versions
                    if not (
                        listed_prefix.is_data(one)
                        and names.is_another(one.key, page.links.get(one.key))
                    )
                ]
                for step in self._page(listed_prefix, listed):
                    problems += step.problems
                    yield step
                if self.late() and not problems:
                    return
                POSITIONS.write(self.ledger.notes, config.name, (here, page.token))
                if self.late() and (page.token is not None or problems):
                    return
        except AccessDenied:
            raise
        except Permanent:  # the store may have rejected the token
            POSITIONS.write(self.ledger.notes, config.name, (here, None))
            raise
        yield Report(listings_finished=(config.name,))

    def _page(
        self, listed_prefix: ListedPrefix, versions: Sequence[ObjectVersion]
    ) -> Iterator[Report]:
        name = listed_prefix.config.name
        for batch in in_pages(versions, BATCH_KEYS):
            if self.late():
                return
            yield Report(keys_listed=len(batch))
            data = {job_id(name, one): one for one in batch if listed_prefix.is_data(one)}
            known = self.ledger.jobs.find_registered(data)
            known -= self._touched(name, data, known)
            for version in (one for found, one in data.items() if found not in known):
                if self.late():
                    return
                step = partial(self._arrived, listed_prefix, version)
                yield attempt_step(version.uri, step, on_failure=self.on_failure)

    def _touched(
        self, name: str, data: Mapping[str, ObjectVersion], known: Container[str]
    ) -> set[str]:
        """Return the registered files whose content may be another; see `contents`."""
        files = [found for found, one in data.items() if found in known and is_file(one)]
        jobs = self.ledger.jobs.get_many(files) if files else ()
        return {
            job.id
            for job in jobs
            if is_touched(job, data[job.id]) and not is_seen(self.ledger.notes, name, data[job.id])
        }

    def _arrived(self, listed_prefix: ListedPrefix, version: ObjectVersion) -> Report:
        if listed_prefix.settles:
            key, look = job_id(listed_prefix.config.name, version), (version.etag, version.size)
            if SEEN.read(self.ledger.notes, key) != look:
                SEEN.write(self.ledger.notes, key, look)
                return Report()
        arrival = Arrival(
            bucket=version.bucket,
            key=version.key,
            dialect=Dialect.LISTING,
            version_id=version.version_id,
            etag=version.etag or None,
            size=version.size,
            endpoint=listed_prefix.config.endpoint,
            region=listed_prefix.config.region,
        )
        received = self.receive(arrival)
        return Report(jobs_new=sum(job.created >= self.since for job in received.jobs))


def resume_token(ledger: Ledger, connector: str) -> str:
    """Return the token at which a listing continues; empty for the first key."""
    _, token = POSITIONS.read(ledger.notes, connector) or ("", None)
    return token or ""


def _warn_of_links(bucket: str, page: Page) -> None:
    for key, link in page.links.items():
        if link.problem:
            log.warning("%s/%s is left out: %s", bucket, key, link.problem)
