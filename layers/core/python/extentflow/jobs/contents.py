"""Whether a file with the size and modification time of a delivered one has its content.

A file's pin is its inode, modification time and size. Programs set modification times, so that the
pin proves no content: a copy has another inode, and a file that is written again may keep all
three. The time of the last change of an inode (ctime) tells both from an untouched file, but it
also changes with a mode, an owner or a link. So where only inode or ctime differ, digests decide.

The digest of a file is stored when its job is registered: of all its bytes up to MAX_DIGEST_BYTES,
and of samples of a larger one. Samples that differ prove other content, and equal ones nothing.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from extentflow.errors import CorruptRecord, Permanent
from extentflow.ledger.notes import NoteKind, NoteStore
from extentflow.model import Job, ObjectVersion
from extentflow.storage import RangeSource
from extentflow.wording import again_command

log = logging.getLogger(__name__)

# A file is read once more for its digest, which takes about a second for this many bytes.
MAX_DIGEST_BYTES = 256 << 20
# Of a larger file: so many blocks at even distances, the first and the last one included.
SAMPLES, SAMPLE_BYTES = 64, 1 << 20
SAMPLED = "sampled:"
# How buckets of files begin.
FILES = ("/", "file://")


@dataclass(frozen=True, slots=True)
class StoredContent:
    """What is known of a file: its pin and ctime when last seen, and its digest, empty if unknown.

    `delivered` is the pin under which its jobs are. `registered` is the ctime with which the job of
    this content was registered, 0 if unknown.
    """

    pin: str
    changed: int
    digest: str
    delivered: str
    registered: int = 0

    def is_of(self, version: ObjectVersion) -> bool:
        """Return whether the file is as it was when last seen."""
        return (self.pin, self.changed) == (version.etag, version.modified)


CONTENTS: NoteKind[StoredContent] = NoteKind(
    "content#",
    lambda one: {
        "pin": one.pin,
        "changed": str(one.changed),
        "digest": one.digest,
        "delivered": one.delivered,
        "registered": str(one.registered),
    },
    lambda facts: StoredContent(
        facts["pin"],
        int(facts["changed"]),
        facts["digest"],
        facts["delivered"],
        int(facts.get("registered", 0)),
    ),
)


def is_file(version: ObjectVersion) -> bool:
    """Return whether an object is a file, and its ctime is known."""
    return version.bucket.startswith(FILES) and version.modified > 0


def is_touched(job: Job, version: ObjectVersion) -> bool:
    """Return whether a file has the pin of a job's version, and another ctime than it had then."""
    read = job.version
    return is_file(version) and read.etag == version.etag and 0 < read.modified != version.modified


def recall(notes: NoteStore, connector: str, version: ObjectVersion) -> StoredContent | None:
    """Return what is known of the file under a connector."""
    return CONTENTS.read(notes, _name(connector, version))


def is_seen(notes: NoteStore, connector: str, version: ObjectVersion) -> bool:
    """Return whether a file's content is known, as it is now, without reading it."""
    known = recall(notes, connector, version)
    return known is not None and known.is_of(version)


def register(
    notes: NoteStore, connector: str, version: ObjectVersion, content: StoredContent
) -> None:
    """Store the content of a file as that of a new job."""
    found = replace(content, registered=version.modified)
    CONTENTS.write(notes, _name(connector, version), found)


def remember(
    notes: NoteStore, connector: str, version: ObjectVersion, known: StoredContent
) -> None:
    """Store that a file, as it is now, has a content that is known."""
    found = replace(known, pin=version.etag, changed=version.modified)
    CONTENTS.write(notes, _name(connector, version), found)


def may_be_same(known: StoredContent, version: ObjectVersion) -> bool:
    """Return whether a file has the size and the modification time of a known one."""
    return known.pin.partition("-")[2] == version.etag.partition("-")[2]


def is_sampled(digest: str) -> bool:
    """Return whether a digest is one of samples, which proves no equality."""
    return digest.startswith(SAMPLED)


def digest_of(version: ObjectVersion, source: Callable[[], RangeSource]) -> str:
    """Return a file's SHA-256, or that of samples of a large one; empty if it cannot be read.

    Raises StoreUnavailable.
    """
    found = hashlib.sha256()
    try:
        for window in _windows(source(), version.size):
            found.update(window)
    except (Permanent, CorruptRecord) as exc:  # its extents end the job, with this reason
        log.debug("no digest of %s: %s", version.uri, exc)
        return ""
    return f"{SAMPLED if version.size > MAX_DIGEST_BYTES else ''}{found.hexdigest()}"


def _windows(source: RangeSource, size: int) -> Iterator[bytes]:
    if size <= MAX_DIGEST_BYTES:
        yield from source.stream(0, size)
        return
    last = size - SAMPLE_BYTES
    for number in range(SAMPLES):
        start = last * number // (SAMPLES - 1)
        yield source.read(start, start + SAMPLE_BYTES)


def warn_unknown(job: Job) -> None:
    """Say that a file counts as delivered, although its content may be another."""
    log.warning(
        "%s was touched since job %s pinned it, and counts as delivered: size and time are"
        " the same, and no digest is stored. %s delivers it",
        job.version.uri,
        job.id,
        again_command(job.version.address, job.connector),
    )


def warn_sampled(version: ObjectVersion, connector: str) -> None:
    """Say that a large file counts as delivered, although some of its bytes may be others."""
    log.warning(
        "%s was touched since it was delivered, and counts as delivered: its size, its time and"
        " %d MiB of samples are the same. %s delivers it",
        version.uri,
        SAMPLES * SAMPLE_BYTES >> 20,
        again_command(version.address, connector),
    )


def _name(connector: str, version: ObjectVersion) -> str:
    return f"{connector}#{version.bucket}/{version.key}"
