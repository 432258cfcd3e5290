"""Logs bad records, one line of JSON each, at a bounded rate."""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from extentflow.formats import BadRecord
from extentflow.model import Extent

log = logging.getLogger(__name__)

LINES_PER_MINUTE = 100
MOST_RECORD_BYTES = 1_024
_MINUTE = 60.0


@dataclass(slots=True)
class LogRate:
    """At most LINES_PER_MINUTE lines a minute, of all extents of one process. Thread-safe."""

    monotonic: Callable[[], float]
    left_out: int = 0
    _began: float = field(default=float("-inf"))
    _lines: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self) -> tuple[bool, int]:
        """Return whether a line may be written, and how many were left out before its minute."""
        with self._lock:
            now, left_out = self.monotonic(), 0
            if now - self._began >= _MINUTE:
                self._began, self._lines = now, 0
                left_out, self.left_out = self.left_out, 0
            if self._lines >= LINES_PER_MINUTE:
                self.left_out += 1
                return False, 0
            self._lines += 1
            return True, left_out


@dataclass(frozen=True, slots=True)
class BadRecordLog:
    """The log of one connector's bad records; `with_bytes` adds the beginnings of their bytes."""

    rate: LogRate
    with_bytes: bool = False

    def write(self, extent: Extent, bad: Sequence[BadRecord], location_unit: str) -> None:
        """Log each record, when it is sent: a transaction that is repeated logs it again."""
        for record in bad:
            admitted, left_out = self.rate.admit()
            if left_out:
                log.warning(
                    "%d bad records are not in this log: it has at most %d lines a minute",
                    left_out,
                    LINES_PER_MINUTE,
                )
            if admitted:
                line = self._members(extent, record, location_unit)
                log.warning("bad record %s", json.dumps(line, separators=(",", ":")))

    def _members(self, extent: Extent, record: BadRecord, location_unit: str) -> dict[str, object]:
        # JSON in ASCII: neither a key of an object nor a record can forge a line.
        members: dict[str, object] = {
            "connector": extent.connector,
            "job": extent.job,
            "object": extent.version.address,
            "version": extent.version.version_id or extent.version.etag,
            "extent": f"{extent.start}-{extent.end}",
            location_unit: record.location,
            "reason": record.reason,
        }
        if self.with_bytes and record.raw is not None:
            raw = record.raw[:MOST_RECORD_BYTES]
            members["record"] = raw.decode("utf-8", "backslashreplace")
            members["bytes"] = len(record.raw)
        return members
