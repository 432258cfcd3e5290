"""Notes: small facts that may be lost or outdated without harm, such as the progress of scans.

The kinds of notes, and the module that defines each:

    listing#CONNECTOR      where the listing of a bucket continues         discovery.listing
    seen#JOB               what an earlier listing saw of an object        discovery.listing
    content#CONNECTOR#FILE the digest of a file, and its jobs              jobs.contents
    round#CONNECTOR#STATE  how many open jobs a scan checked               discovery.stalled_jobs
    watch#JOB              when a job made progress last                   discovery.stalled_jobs
    again#DELIVERY         when an unfinished second delivery began        services.runs
    run#RUN                what a submitted run delivers                   engines.submitted_runs
    runs-of#WHAT           the runs that deliver a job or a connector      engines.submitted_runs
    resume#JOB#ORDINAL     where decompression can start                   delivery.resume
    rounds#RUN             the listings of a `--once` run                  spark.drain
    completion#JOB         why `after.completion` of a DONE job failed     jobs.completion
    deadletters#IDENTITY   how far dead letters were replayed              delivery.redelivery
    deadletters-last#ID    the same, of the queue that was read last       delivery.redelivery
    deadletters-targets#ID the topics that got their records               delivery.replay_targets
    stop#RUN               a request to stop a run                         spark.tasks
"""

import logging
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from extentflow.ledger.items import EXPIRY_ATTRIBUTE, Items, Key, Write, decoding

log = logging.getLogger(__name__)

T = TypeVar("T")

NOTES = "NOTES"


class NoteStore(Protocol):
    """Notes by name, as texts; `NoteKind` gives them types."""

    def recall(self, name: str) -> Mapping[str, str] | None:
        """Return a note; None without one, or when it has expired."""

    def remember(
        self, name: str, facts: Mapping[str, str], *, keep_seconds: float | None = None
    ) -> None:
        """Replace a note: the last writer wins. `keep_seconds` None: it never expires."""


@dataclass(frozen=True, slots=True)
class NoteKind(Generic[T]):
    """Notes of one type; `prefix` and the encoded texts are a stored format.

    `keep_seconds` counts from the last write; None keeps a note for ever.
    """

    prefix: str
    encode: Callable[[T], Mapping[str, str]]
    decode: Callable[[Mapping[str, str]], T]
    keep_seconds: float | None = None

    def read(self, notes: NoteStore, key: str) -> T | None:
        """Return a note; None without one, or when it has expired, was cleared or is unreadable.

        A note may be lost without harm: what another version or a defect wrote counts as lost.
        """
        facts = notes.recall(self.prefix + key)
        try:
            return self.decode(facts) if facts else None
        except (KeyError, RecursionError, TypeError, ValueError, zlib.error) as exc:
            log.warning("note %s%s is not used: %r", self.prefix, key, exc)
            return None

    def write(self, notes: NoteStore, key: str, value: T) -> None:
        """Replace a note: the last writer wins."""
        notes.remember(self.prefix + key, self.encode(value), keep_seconds=self.keep_seconds)

    def clear(self, notes: NoteStore, key: str) -> None:
        """Replace a note by an empty one, which reads as None."""
        notes.remember(self.prefix + key, {}, keep_seconds=self.keep_seconds)


class StoredNotes:
    """A `NoteStore`."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def recall(self, name: str) -> Mapping[str, str] | None:
        item = self._items.get(Key(NOTES, name))
        # DynamoDB deletes expired items only days later.
        if item is None:
            return None
        with decoding(item):
            if item.get(EXPIRY_ATTRIBUTE, math.inf) <= self._items.now():
                return None
            return {str(each): str(text) for each, text in item["facts"].items()}

    def remember(
        self, name: str, facts: Mapping[str, str], *, keep_seconds: float | None = None
    ) -> None:
        write = Write(Key(NOTES, name), sets={"facts": {**facts}}, removes=(EXPIRY_ATTRIBUTE,))
        if keep_seconds is not None:
            # DynamoDB's TTL ignores values that are not whole seconds.
            expires = {EXPIRY_ATTRIBUTE: math.ceil(self._items.now() + keep_seconds)}
            write = replace(write, sets={**write.sets, **expires}, removes=())
        self._items.update(f"writing note {name}", write)
