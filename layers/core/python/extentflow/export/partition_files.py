"""The files of one partition: columnar values appended unread, and published one after the other.

    TOPIC/PARTITION/00000000000000000000-00000000000000000041.parquet
    TOPIC/PARTITION/00000000000000000042-...

A partition continues behind the last offset in its file names, and without files where
`exported_topic` notes that it began. A file is published in four steps; a process may end between
any two of them:

    0  the topic has the id that it had at the start: no record is one of a topic created again
    1  create .next-<position>, unless it exists: this file, from `first` to `last`, is the next one
    2  list the names from `position` on: there is none
    3  publish FIRST-LAST, whole and at once
    4  delete .next-<position>

`position` is the offset behind the file before, so that it is the same for all writers. A process
that finds `.next-<position>` at its start writes exactly that file, with the same bytes. One that
finds it later is not alone, and ends.

Behind the last file there may be markers of transactions, aborted records and records without a
value. `.passed-<position>-<last>` states that there is nothing else up to offset `last`, or that a
person accepted a gap there. So it is no gap when retention deletes these offsets.

Tests: unit/export/test_topic_export.py
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, Self

from extentflow.consumer.row_batches import place
from extentflow.errors import Conflict, Misconfigured, ObjectGone
from extentflow.export.stored_values import FileJoiner, StoredValue, join_from, stored_value
from extentflow.kafka.reading import ConsumedRecord
from extentflow.storage.folders import Folder, Spool
from extentflow.wording import counted

FILE_BYTES: Final = 128 << 20
FILE_SECONDS: Final = 60.0
_FILE_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.(?:parquet|arrows)")
_CLAIM_NAME = re.compile(r"\.next-([0-9]{20})")
_PASSED_NAME = re.compile(r"\.passed-([0-9]{20})-([0-9]{20})")
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How files are cut, and when reading ends.

    A file is closed before it would have more than `bytes`, and without `once` when its first value
    is `seconds` old. `once`: reading ends at the ends of the partitions as they are at the start.
    `accept_gap`: continue behind records that retention deleted before they were written.
    """

    bytes: int = FILE_BYTES
    seconds: float = FILE_SECONDS
    once: bool = False
    accept_gap: bool = False


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file that was published: the records `[first, last]` of a partition."""

    uri: str
    partition: int
    first: int
    last: int
    values: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Which records the next file of a partition has; `writer` is a process."""

    first: int
    last: int
    writer: str

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        members = {"first": self.first, "last": self.last, "writer": self.writer}
        return json.dumps(members, separators=(",", ":")).encode()

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the claim in a file. Raises ValueError, TypeError or KeyError: it is none."""
        found = json.loads(content)
        return cls(int(found["first"]), int(found["last"]), str(found["writer"]))


@dataclass(frozen=True, slots=True)
class ResumePosition:
    """Where a partition continues: the offset behind its files, and the claim on the next one.

    `offset` is 0 where there is no file. `passed` is the offset behind what follows the files and
    is in none, as the file called `note` states; 0 where there is no such statement.
    """

    offset: int = 0
    claim: Claim | None = None
    passed: int = 0
    note: str = ""


def claim_name(position: int) -> str:
    """Return the name of the claim on the file that follows offset `position - 1`."""
    return f".next-{position:020}"


def folder_of(topic: str, partition: int) -> str:
    """Return the name of the folder of a partition's files."""
    return f"{topic}/{partition}"


def is_passed_name(name: str) -> bool:
    """Return whether a file of a partition, below any folder, states offsets without records."""
    return _PASSED_NAME.fullmatch(name.rpartition("/")[2]) is not None


def resume(folder: Folder) -> ResumePosition:
    """Return where a partition's folder continues; remove what is left of an earlier process.

    Raises Misconfigured for names that overlap, and for names of other programs.
    """
    folder.clean()
    names = list(folder.names())
    files = [(int(found[1]), int(found[2]), found[0]) for found in _matches(_FILE_NAME, names)]
    claims = {int(found[1]): found[0] for found in _matches(_CLAIM_NAME, names)}
    notes = [
        (int(found[2]) + 1, int(found[1]), found[0]) for found in _matches(_PASSED_NAME, names)
    ]
    known = {name for _, _, name in [*files, *notes]} | set(claims.values())
    if foreign := [name for name in names if name not in known]:
        shown = ", ".join(foreign[:_SHOWN_NAMES])
        raise Misconfigured(
            f"{folder.uri()} has {counted(len(foreign), 'file')} of other programs ({shown}): its"
            " files say where the partition continues, so nothing else may be there; move them"
            " away, or choose another target"
        )
    position, before = 0, ""
    for first, last, name in sorted(files):
        if first < position or last < first:
            raise Misconfigured(
                f"{folder.uri()}: {name} overlaps {before or 'itself'}: its records are in both;"
                " move one of them away"
            )
        position, before = last + 1, name
    behind = [*claims.items(), *((at, name) for _, at, name in notes)]
    if later := [name for at, name in behind if at > position]:
        raise Misconfigured(
            f"{folder.uri(later[0])} belongs behind a file that is not there; restore the files"
            " that were deleted, or delete it once no other process writes there"
        )
    for at, name in claims.items():
        if at < position:
            folder.delete(name)
    passed, _, note = max(notes, default=(0, 0, ""))
    if passed <= position:
        passed, note = 0, ""
    for _, _, name in notes:
        if name != note:
            folder.delete(name)
    claim = _read_claim(folder, position) if position in claims else None
    return ResumePosition(position, claim, passed, note)


def _matches(pattern: re.Pattern[str], names: Iterable[str]) -> Iterator[re.Match[str]]:
    return (found for name in names if (found := pattern.fullmatch(name)) is not None)


def _read_claim(folder: Folder, position: int) -> Claim | None:
    name = claim_name(position)
    try:
        return Claim.of(folder.read(name))
    except ObjectGone:  # another process has published the file meanwhile; the next step says so
        return None
    except (ValueError, TypeError, KeyError) as exc:
        raise Misconfigured(
            f"{folder.uri(name)} is no claim of this version ({exc}); delete it once no other"
            " process writes there"
        ) from exc


@dataclass(slots=True)
class _OpenFile:
    """A file that values are appended to."""

    joined: FileJoiner
    spool: Spool
    opened: float  # on the monotonic clock
    first: int
    last: int = 0
    values: int = 0
    rows: int = 0
    size_bytes: int = 0

    def write(self, data: bytes | memoryview) -> None:
        self.spool.write(data)
        self.size_bytes += len(data)

    def append(self, value: StoredValue, offset: int) -> None:
        self.write(self.joined.append(value))
        self.last = offset
        self.values += 1
        self.rows += value.rows


@dataclass(frozen=True, slots=True)
class _Publication:
    """The last steps of a file; `position` is behind the file before."""

    folder: Folder
    position: int
    claim: Claim
    is_adopted: bool
    spool: Spool
    file: ExportedFile
    confirm: Callable[[], None]

    def run(self) -> ExportedFile:
        """Publish the file, and return it. Raises Conflict for another process."""
        with closing(self.spool):
            self.confirm()
            if not self.is_adopted:
                self._claim()
            self.spool.publish(self.file.uri.rpartition("/")[2])
        self.folder.delete(claim_name(self.position))
        return self.file

    def _claim(self) -> None:
        folder, name = self.folder, claim_name(self.position)
        if not folder.create(name, self.claim.to_bytes()):
            raise self._not_alone(folder.uri(name))
        there = next(folder.names(start=f"{self.position:020}"), None)
        if there is not None:
            folder.delete(name)
            raise self._not_alone(folder.uri(there))

    def _not_alone(self, where: str) -> Conflict:
        return Conflict(
            f"{where} was written by another process, which exports the same partition; nothing is"
            " written twice: stop one of them, or give it another target, and start again"
        )


@dataclass(slots=True)
class PartitionFiles:
    """Appends the values of one partition to files, and publishes these one after the other.

    `submit` runs a publication, which only starts when the one before has ended well. It calls
    `confirm` first, which raises where the records are not those of the topic that the target has.
    """

    topic: str
    partition: int
    folder: Folder
    options: ExportOptions
    submit: Callable[[Callable[[], ExportedFile]], "Future[ExportedFile]"]
    writer: str
    resumed: ResumePosition
    confirm: Callable[[], None]
    _open: _OpenFile | None = field(default=None, init=False)
    _running: "Future[ExportedFile] | None" = field(default=None, init=False)
    _reached: int = field(default=0, init=False)
    _noted: float = field(default=-math.inf, init=False)

    def append(self, record: ConsumedRecord, now: float) -> Iterator[ExportedFile]:
        """Append a record's value; yield files that are published by now.

        Raises as `stored_value` and `_Publication.run`.
        """
        value = stored_value(self.topic, record)
        if value is None:
            return
        offset, claim = record.offset, self.resumed.claim
        if claim is not None:
            self._require_claimed(claim, record, value)
        elif self._open is not None and self._must_close(self._open, value):
            yield from self.close()
        if self._open is None:
            self._open = _OpenFile(join_from(value), self.folder.spool(), opened=now, first=offset)
            self._open.write(self._open.joined.begin())
        self._open.append(value, offset)
        if claim is not None and offset == claim.last:
            yield from self.close()

    def reach(self, end: int) -> None:
        """Note that each record before the offset `end` was appended, as far as there is one."""
        self._reached = max(self._reached, end)

    def close_old(self, now: float) -> Iterator[ExportedFile]:
        """Close the file if it is old; yield files that are published by now.

        States what follows the files and is in none, at most once in `seconds`.
        """
        if (
            self._open is not None
            and self.resumed.claim is None
            and now - self._open.opened >= self.options.seconds
        ):
            yield from self.close()
        if self._running is not None and self._running.done():
            yield from self.published()
        if self._running is None and now - self._noted >= self.options.seconds:
            self._noted = now if self.note_passed() else self._noted

    def note_passed(self) -> bool:
        """State what follows the files and is in none; return whether there was something to state.

        All files must be published. Raises as `confirm` and `Folder`.
        """
        position, claim = self.resumed.offset, self.resumed.claim
        is_open = self._open is not None or claim is not None
        if is_open or self._reached <= max(position, self.resumed.passed):
            return False
        self.confirm()
        before, note = self.resumed.note, f".passed-{position:020}-{self._reached - 1:020}"
        self.folder.create(note, b"")
        if before:
            self.folder.delete(before)
        self.resumed = replace(self.resumed, passed=self._reached, note=note)
        return True

    def close(self) -> Iterator[ExportedFile]:
        """Publish the open file in the background; yield the one before it."""
        opened, claim, position = self._open, self.resumed.claim, self.resumed.offset
        if opened is None or (claim is not None and opened.last < claim.last):
            return  # an incomplete file of a claim is written again at the next start
        yield from self.published()
        opened.write(opened.joined.end())
        name = f"{opened.first:020}-{opened.last:020}.{opened.joined.extension}"
        publication = _Publication(
            self.folder,
            position,
            claim or Claim(opened.first, opened.last, self.writer),
            claim is not None,
            opened.spool,
            ExportedFile(
                self.folder.uri(name),
                self.partition,
                opened.first,
                opened.last,
                opened.values,
                opened.rows,
                opened.size_bytes,
            ),
            self.confirm,
        )
        # The note before is of no use now, and is deleted with the next one.
        self._open, self.resumed = None, ResumePosition(opened.last + 1, note=self.resumed.note)
        self._running = self.submit(publication.run)

    def published(self) -> Iterator[ExportedFile]:
        """Wait for the publication that runs; yield its file. Raises as `_Publication.run`."""
        running, self._running = self._running, None
        if running is not None:
            yield running.result()

    def drop(self) -> None:
        """Drop the open file, and wait for what is being published."""
        if self._open is not None:
            self._open.spool.close()
        if self._running is not None:
            self._running.exception()

    def _must_close(self, opened: _OpenFile, value: StoredValue) -> bool:
        too_large = opened.size_bytes + len(value.data) > self.options.bytes
        return too_large or not opened.joined.takes(value)

    def _require_claimed(self, claim: Claim, record: ConsumedRecord, value: StoredValue) -> None:
        opened, offset = self._open, record.offset
        first = offset if opened is None else opened.first
        fits = opened is None or opened.joined.takes(value)
        if first != claim.first or offset > claim.last or not fits:
            name = claim_name(self.resumed.offset)
            raise Misconfigured(
                f"{place(self.topic, self.partition, offset)} is not what"
                f" {self.folder.uri(name)} states: an earlier process began a file of the offsets"
                f" {claim.first} to {claim.last}. Records were deleted, or the topic was created"
                " again; delete that file once no other process writes there"
            )
