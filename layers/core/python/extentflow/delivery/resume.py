"""Keep points in compressed objects, so that another call need not decompress from the start."""

import base64
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from extentflow.errors import LedgerUnavailable
from extentflow.formats import ResumePoint, ResumePoints
from extentflow.ledger.notes import NoteKind, NoteStore
from extentflow.model import Extent

log = logging.getLogger(__name__)

MOST_STATE_BYTES = 64 << 10
KEEP_SECONDS = 14 * 86_400.0


def _encode(point: ResumePoint) -> Mapping[str, str]:
    state = base64.b85encode(zlib.compress(point.state)).decode()
    return {"content": str(point.content), "compressed": str(point.compressed), "state": state}


def _decode(facts: Mapping[str, str]) -> ResumePoint:
    unpacker = zlib.decompressobj()
    state = unpacker.decompress(base64.b85decode(facts["state"]), MOST_STATE_BYTES)
    if not unpacker.eof:
        raise ValueError(f"its state is incomplete, or larger than {MOST_STATE_BYTES} bytes")
    return ResumePoint(int(facts["content"]), int(facts["compressed"]), state)


# At most about 40 KiB each, one per extent: the last one at or before its committed position.
POINTS = NoteKind("resume#", _encode, _decode, KEEP_SECONDS)


@dataclass(slots=True)
class PointLog:
    """The resume points of one extent during one call.

    A point is saved once the position has reached it. Saving is a hint: without it, the next call
    decompresses more. `saved` counts the points that went to the ledger.
    """

    notes: NoteStore
    extent: Extent
    points: ResumePoints
    saved: int = 0
    _seen: int = field(default=0)

    @classmethod
    def open(cls, notes: NoteStore, extent: Extent, position: int) -> "PointLog":
        """Start at the saved point. Raises LedgerUnavailable."""
        start = POINTS.read(notes, _key(extent)) if position else None
        # The ledger may have been restored since.
        usable = start if start is not None and start.content <= position else None
        return cls(notes, extent, ResumePoints(usable))

    def save(self, position: int) -> bool:
        """Save the last point that `position` has reached; return whether content was read."""
        content, before = self.points.content, self._seen
        self._seen = content
        point = self.points.take(position)
        if point is not None:
            try:
                POINTS.write(self.notes, _key(self.extent), point)
                self.saved += 1
            except LedgerUnavailable as exc:
                log.warning("%s: a resume point was not saved: %s", self.extent.uri, exc)
        return content > before


def _key(extent: Extent) -> str:
    return f"{extent.job}#{extent.ordinal}"
