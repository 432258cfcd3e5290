"""Writes a topic of columnar values into files, unread; the truth is in the target, not in Kafka.

records ──`source`──> partition ──`joining`──> file ──`partition_files`──> published
                          └ continues behind the last offset in the names of its files

A position is gone only where records before the partition's first offset were not read. Offsets
that were read to the end, and hold markers of transactions or aborted records, are no gap.
"""

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol

from extentflow.errors import (
    AccessDenied,
    CorruptRecord,
    Misconfigured,
    PositionGone,
    SinkUnavailable,
)
from extentflow.export.exported_topic import NOTE, ExportedTopic, read_note, write_note
from extentflow.export.partition_files import (
    ExportedFile,
    ExportOptions,
    PartitionFiles,
    ResumePosition,
    claim_name,
    folder_of,
    is_passed_name,
    resume,
)
from extentflow.kafka.reading import ConsumedRecord, Place, PolledRecords
from extentflow.retry import Clock
from extentflow.storage.folders import Folder

log = logging.getLogger(__name__)

# Publishing waits for disks and servers, while further values are fetched.
PUBLISHING_THREADS: Final = 4
# How often a run without an end asks for new partitions, and for the topic's id.
REFRESH_SECONDS: Final = 60.0
# After so long without a record, a run with an end gives up.
IDLE_SECONDS: Final = 60.0


POLL_RECORDS: Final = 32
POLL_SECONDS: Final = 0.02
# A fetch takes several values, which have about a megabyte. Brokers report the end of a partition
# when they have waited for more: half a second by default.
FETCH: Final = {
    "fetch.message.max.bytes": "8388608",
    "fetch.wait.max.ms": "50",
    "auto.offset.reset": "error",
}


class RecordSource(Protocol):
    """Committed records; see `kafka.reading.RecordReader`, whose settings begin with FETCH."""

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has now."""
        ...

    def watermarks(self, place: Place) -> tuple[int, int]:
        """Return the first offset that a partition has, and the one behind its last."""
        ...

    def read_from(self, place: Place, begin: int) -> None:
        """Read a partition from an offset on, also one that is read already."""
        ...

    def poll(self, most: int, seconds: float) -> PolledRecords:
        """Return at most so many records, after so long a wait."""
        ...


@dataclass(slots=True)
class TopicExport:
    """Reads a topic and writes its files. `stop` returns whether reading is to end early.

    `identify` returns the topic's id; each file is published only while it is that of the start.
    Used by one thread; publishes on `threads` others, which call `identify`.
    """

    topic: str
    source: RecordSource
    target: Folder
    options: ExportOptions
    stop: Callable[[], bool]
    identify: Callable[[], str]
    clock: Clock = field(default_factory=Clock)
    threads: int = PUBLISHING_THREADS
    _files: dict[int, PartitionFiles] = field(default_factory=dict, init=False)
    _ends: dict[int, int] = field(default_factory=dict, init=False)
    _highs: dict[int, int] = field(default_factory=dict, init=False)
    _note: ExportedTopic = field(default=ExportedTopic(""), init=False)

    def run(self) -> Iterator[ExportedFile]:
        """Yield the files as they are published, until the end or `stop`.

        At the end all files are closed. Where a value is corrupt, the values before it are
        published, too.

        Raises:
            CorruptRecord: a value contradicts its headers or itself.
            Misconfigured: the target has other files, the topic was created again, or a value is
                a row.
            PositionGone: records were deleted before they were written (unless `accept_gap`).
            Conflict: another process writes the same files.
            SinkUnavailable, StoreUnavailable, AccessDenied, ProcessExhausted: as their names say.
        """
        with ThreadPoolExecutor(self.threads, "publish") as pool:
            writer = secrets.token_hex(8)

            def files(partition: int, resumed: ResumePosition) -> PartitionFiles:
                folder = self._folder(partition)
                return PartitionFiles(
                    self.topic,
                    partition,
                    folder,
                    self.options,
                    pool.submit,
                    writer,
                    resumed,
                    self._require_same_topic,
                )

            try:
                self._begin(files)
                try:
                    yield from self._read(files)
                except (CorruptRecord, AccessDenied, Misconfigured, PositionGone):
                    # Of a value that cannot be written: those before it are.
                    yield from self._close_all()
                    raise
                yield from self._close_all()
            finally:
                for one in self._files.values():
                    one.drop()

    def _folder(self, partition: int) -> Folder:
        return self.target.below(folder_of(self.topic, partition))

    def _begin(self, files: Callable[[int, ResumePosition], PartitionFiles]) -> None:
        """Assign the partitions that are new, each where its files end."""
        begins: dict[int, int] = {}
        new = range(len(self._files), self.source.partitions(self.topic))
        bounds = {one: self.source.watermarks((self.topic, one)) for one in new}
        if not self._files:
            self._drop_former()
        positions = {one: resume(self._folder(one)) for one in new}
        if not self._files:
            self._settle(bounds, positions)
        for partition, resumed in positions.items():
            low, high = bounds[partition]
            begins[partition] = begin = self._checked(partition, resumed, low, high)
            self._files[partition] = files(partition, resumed)
            if self.options.accept_gap:
                self._files[partition].reach(begin)
            self._highs[partition] = high
            if not self.options.once or begin < high:
                self._ends[partition] = high
        for partition in self._ends.keys() & begins.keys():
            self.source.read_from((self.topic, partition), begins[partition])

    def _drop_former(self) -> None:
        """Delete what is noted of a former topic of which nothing was written.

        For example because its values were rows.
        """
        folder = self.target.below(self.topic)
        folder.clean()
        found = read_note(folder)
        if found is None or not found.is_of_another(self.identify()):
            return
        names = list(folder.names())
        if all(name == NOTE or is_passed_name(name) for name in names):
            # The topic's note is the last one, so that a process that ends here leaves it.
            for name in sorted(names, key=NOTE.__eq__):
                folder.delete(name)

    def _settle(
        self,
        bounds: Mapping[int, tuple[int, int]],
        positions: Mapping[int, ResumePosition],
    ) -> None:
        """Note which topic this is, and where its partitions begin, unless the target says so.

        Raises Misconfigured where it says that it holds another topic.
        """
        folder = self.target.below(self.topic)
        found = read_note(folder)
        if found is None:
            is_begun = any(one.offset or one.claim or one.note for one in positions.values())
            firsts = {one: 0 if is_begun else low for one, (low, _) in bounds.items()}
            found = write_note(folder, ExportedTopic(self.identify(), firsts))
        self._note = found
        self._require_same_topic()

    def _require_same_topic(self) -> None:
        self._note.require(self.topic, self.identify(), self.target.below(self.topic).uri())

    def _checked(self, partition: int, resumed: ResumePosition, low: int, high: int) -> int:
        """Return the offset from which on a partition is read."""
        claim = resumed.claim
        offset = max(resumed.offset or self._note.first.get(partition, 0), resumed.passed)
        where = f"topic {self.topic}[{partition}]"
        files = self._folder(partition).uri()
        if max(resumed.offset, resumed.passed) > high:
            raise self._shorter(partition, offset, high)
        if claim is not None and low > claim.first:
            raise Misconfigured(
                f"{where}: the offsets {claim.first} to {low - 1} were deleted, and"
                f" {claim_name(resumed.offset)} in {files} begins a file with them; delete it once"
                " no other process writes there, and use --accept-gap"
            )
        if low > offset:
            self._accept(self._gap(partition, offset, low))
        return max(low, offset)

    def _accept(self, gap: PositionGone) -> None:
        """Name a gap that is accepted; raise it otherwise."""
        if not self.options.accept_gap:
            raise gap
        log.warning("%s", gap)

    def _shorter(self, partition: int, offset: int, high: int) -> Misconfigured:
        return Misconfigured(
            f"topic {self.topic}[{partition}] ends at offset {high}, and"
            f" {self._folder(partition).uri()} has files up to {offset - 1}: the topic was created"
            " again, or lost records; choose another target"
        )

    def _gap(self, partition: int, offset: int, low: int) -> PositionGone:
        message = (
            f"topic {self.topic}[{partition}]: retention deleted the offsets {offset} to {low - 1}"
            f" before they were written to {self._folder(partition).uri()};"
            f" --accept-gap continues without them, from {low} on"
        )
        return PositionGone(message, self.topic, partition, offset, low)

    def _read(
        self, files: Callable[[int, ResumePosition], PartitionFiles]
    ) -> Iterator[ExportedFile]:
        refreshed = arrived = self.clock.monotonic()
        while not self.stop() and (self._ends or not self.options.once):
            polled = self.source.poll(POLL_RECORDS, POLL_SECONDS)
            now = self.clock.monotonic()
            for _, record in polled.records:
                yield from self._append(record, now)
            for (_, partition), offset in polled.lost.items():
                yield from self._continue_behind_gap(partition, offset)
            self._reach(polled)
            if self.options.once:
                for _, partition in polled.ended:
                    self._ends.pop(partition, None)
                if polled.records or polled.ended:
                    arrived = now
                elif now - arrived > IDLE_SECONDS:
                    raise SinkUnavailable(
                        f"topic {self.topic}: nothing read for {IDLE_SECONDS:g} s; what was written"
                        " stays, and the same command continues"
                    )
                continue
            for one in self._files.values():
                yield from one.close_old(now)
            if now - refreshed >= REFRESH_SECONDS:
                refreshed = now
                self._require_same_topic()
                self._begin(files)

    def _reach(self, polled: PolledRecords) -> None:
        """Note how far partitions were read; a run with an end leaves out what was added since."""
        for (_, partition), end in polled.ended.items():
            most = self._highs[partition] if self.options.once else end
            self._files[partition].reach(min(end, most))

    def _append(self, record: ConsumedRecord, now: float) -> Iterator[ExportedFile]:
        end = self._ends.get(record.partition, 0)
        if self.options.once and record.offset >= end:
            self._ends.pop(record.partition, None)
            return
        yield from self._files[record.partition].append(record, now)
        if self.options.once and record.offset + 1 >= end:
            self._ends.pop(record.partition, None)

    def _continue_behind_gap(self, partition: int, offset: int) -> Iterator[ExportedFile]:
        """Close the file before records that were deleted while this run was behind."""
        files = self._files[partition]
        yield from files.close()
        yield from files.published()
        place = self.topic, partition
        low, high = self.source.watermarks(place)
        if low <= offset:
            self._require_same_topic()
            raise self._shorter(partition, offset, high)
        self._accept(self._gap(partition, offset, low))
        files.reach(low)
        self.source.read_from(place, low)

    def _close_all(self) -> Iterator[ExportedFile]:
        for one in self._files.values():
            yield from one.close()
        for one in self._files.values():
            yield from one.published()
            one.note_passed()
