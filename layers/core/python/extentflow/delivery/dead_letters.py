"""Dead letters: the payload and headers of a bad record in the dead letter queue topic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from extentflow.delivery.badrecords import BadRecordLog
from extentflow.errors import CorruptRecord
from extentflow.formats import BadRecord
from extentflow.kafka import Records, Sink
from extentflow.model import Extent
from extentflow.wording import TOLERATE

# Upper bounds of what Kafka's record format v2 adds to a header or record, and to a batch.
FRAME_BYTES = 25
BATCH_BYTES = 61
# Headers of ours that replays read.
ATTEMPT, BYTES = "extentflow.attempt", "extentflow.bytes"
# What the bytes of a dead letter are, if not those of its record in the object: the value that the
# topic rejected, or none, because the record is a row of the object.
PAYLOAD, ROW = "payload", "row"


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letter queue of one connector.

    `topic` None means `errors.tolerance=none`: a bad record fails its extent. `context` False omits
    the headers. `limit_bytes` is the topic's limit: a larger dead letter is sent without its bytes,
    but with its location, which counts `location_unit`s. A job may have `most_records` bad records
    (None: any number). `log` receives each of them (None: none). `attempt`: how often the record
    was decoded, replays included.
    """

    topic: str | None
    source_topic: str
    location_unit: Literal["offset", "row"]
    context: bool = True
    limit_bytes: int | None = None
    most_records: int | None = None
    log: BadRecordLog | None = None
    attempt: int = 1

    def report(self, extent: Extent, bad: Sequence[BadRecord]) -> None:
        """Write bad records to the log, if there is one."""
        if self.log is not None:
            self.log.write(extent, bad, self.location_unit)

    def send(self, sink: Sink, extent: Extent, bad: Sequence[BadRecord]) -> None:
        """Log bad records and send them; one that is rejected goes again, without its bytes.

        CorruptRecord: one is rejected without its bytes as well, or there is no topic.
        """
        self.report(extent, bad)
        large = [bad[one.index] for one in sink.send(self.records(extent, bad))]
        again = sink.send(self.records(extent, large, raw=False)) if large else ()
        if again:
            bad_record = describe(extent, large[again[0].index], self.location_unit)
            raise CorruptRecord(
                f"{bad_record}; the dead letter queue rejected it as well: {again[0].reason}"
            )

    def records(self, extent: Extent, bad: Sequence[BadRecord], *, raw: bool = True) -> Records:
        """Return a dead letter per bad record, with bytes if `raw`; CorruptRecord without topic."""
        if self.topic is None:
            raise not_tolerated(extent, bad[0], self.location_unit)
        letters = [(record, raw and self._fits(extent, record)) for record in bad]
        values = [record.raw if whole else None for record, whole in letters]
        headers = [self._headers(extent, record, raw=whole) for record, whole in letters]
        binary = pa.array(values, pa.large_binary())
        return Records(self.topic, binary, headers=headers if self.context else None)

    def _fits(self, extent: Extent, record: BadRecord) -> bool:
        if self.limit_bytes is None:
            return True
        headers = self._headers(extent, record, raw=True) if self.context else []
        size = sum(len(name) + len(text) + FRAME_BYTES for name, text in headers)
        return size + len(record.raw or b"") + FRAME_BYTES + BATCH_BYTES <= self.limit_bytes

    def _headers(self, extent: Extent, record: BadRecord, *, raw: bool) -> list[tuple[str, bytes]]:
        # Kafka Connect's names (KIP-298), which existing tools read; ours are `extentflow.*`.
        fields = {
            "__connect.errors.topic": self.source_topic,
            "__connect.errors.connector.name": extent.connector,
            "__connect.errors.task.id": f"{extent.job}-{extent.ordinal}",
            "__connect.errors.stage": "VALUE_CONVERTER",
            "__connect.errors.exception.class.name": "extentflow.errors.CorruptRecord",
            "__connect.errors.exception.message": describe(extent, record, self.location_unit),
            "extentflow.object": extent.version.address,
            "extentflow.version": extent.version.version_id or extent.version.etag,
            "extentflow.extent": f"{extent.start}-{extent.end}",
            f"extentflow.{self.location_unit}": str(record.location),
            "extentflow.reason": record.reason,
        }
        if self.attempt > 1:
            fields[ATTEMPT] = str(self.attempt)
        if record.payload:
            fields[BYTES] = PAYLOAD
        elif record.row:
            fields[BYTES] = ROW
        if not raw and record.raw is not None:
            fields["extentflow.omitted.bytes"] = str(len(record.raw))
        return [(name, text.encode("utf-8", "replace")) for name, text in fields.items()]


def describe(extent: Extent, record: BadRecord, location_unit: str) -> str:
    """Return one line that states which record is bad, where and why."""
    return f"{extent.uri}: bad record at {location_unit} {record.location}: {record.reason}"


def not_tolerated(extent: Extent, record: BadRecord, location_unit: str) -> CorruptRecord:
    """Return the error of a bad record where `errors.tolerance` is none, with the way out."""
    return CorruptRecord(f"{describe(extent, record, location_unit)}; {TOLERATE}")
