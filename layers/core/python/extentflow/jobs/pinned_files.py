"""Reads a file only while it has the content that its job was registered with.

    ctime      is that of the job's version    read
               differs, digests are equal      read: a mode, an owner or a link changed
               differs, digests differ         ObjectChanged
               differs, digest of samples      ObjectChanged: samples prove no equality
               differs, a digest is unknown    read, with a warning

Otherwise a file that is overwritten in place, with its size and its time restored, would be
delivered with two contents mixed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from extentflow.errors import ObjectChanged, StoreUnavailable
from extentflow.jobs import contents
from extentflow.ledger.notes import NoteStore
from extentflow.model import ObjectVersion
from extentflow.storage import ObjectStore
from extentflow.storage.ranges import RangeReader

log = logging.getLogger(__name__)

# A file whose inode changes during each of so many reads is not ready to be delivered.
MOST_READS = 10
MOST_FILES = 1_000


@dataclass(slots=True)
class SameContents:
    """Files whose inode changed since they were pinned, and whose content did not.

    One for a process; used by several threads.
    """

    open_notes: Callable[[], NoteStore]
    _changed: dict[tuple[str, ObjectVersion, int], int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def require(self, connector: str, store: ObjectStore, version: ObjectVersion) -> int:
        """Return the ctime of a file that has its job's content now. Raises as `PinnedFile`."""
        now = store.head(version.bucket, version.key)
        key = connector, version, version.modified
        # A file with another pin is refused where it is read. Jobs of 0.1.0 state no ctime.
        if now.etag != version.etag or version.modified in (0, now.modified):
            return now.modified
        with self._lock:
            if self._changed.get(key) != now.modified:
                self._compare(connector, store, version, now)
                if len(self._changed) >= MOST_FILES:
                    self._changed.clear()
                self._changed[key] = now.modified
        return now.modified

    def _compare(
        self, connector: str, store: ObjectStore, version: ObjectVersion, now: ObjectVersion
    ) -> None:
        known = contents.recall(self.open_notes(), connector, version)
        if known is None or known.pin != version.etag or not (known.digest and known.registered):
            log.warning(
                "%s was touched while its job runs, and no digest of it is stored: it is read on",
                version.uri,
            )
            return
        if contents.is_sampled(known.digest):
            raise ObjectChanged(
                f"{version.uri} was touched while its job runs, and a file above"
                f" {contents.MAX_DIGEST_BYTES >> 20} MiB is not compared in full: it may have been"
                " overwritten in place. Run its address again to deliver it as it is now"
            )
        digest = contents.digest_of(now, lambda: RangeReader(store, now))
        if known.registered != version.modified or digest not in ("", known.digest):
            raise ObjectChanged(
                f"{version.uri} was overwritten in place while its job runs: its size and time are"
                " those of before, and its content is another one. Run its address again to"
                " deliver it as it is now; to replace a file, write another one and rename it"
            )
        log.info("%s was touched while its job runs; its content is the same", version.uri)


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """The reads of one file of a job, for a `RangeReader`; other calls are those of `store`."""

    store: ObjectStore
    connector: str
    same: SameContents

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """Return exactly the bytes `[start, end)`, as `ObjectStore.read`.

        Raises ObjectChanged where the file has another content than its job; StoreUnavailable where
        it is changed all the time.
        """
        for _ in range(MOST_READS):
            before = self.same.require(self.connector, self.store, version)
            body = self.store.read(version, start, end)
            if self.store.head(version.bucket, version.key).modified == before:
                return body
        raise StoreUnavailable(f"{version.uri} is changed during each read")
