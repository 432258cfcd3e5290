"""Dead letters as a replay reads them from their queue, and what operators state about them.

Tests: unit/services/test_dead_letter_queues.py
"""

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TypeAlias

from extentflow.delivery.dead_letters import ATTEMPT, BYTES, PAYLOAD, ROW
from extentflow.kafka.reading import ConsumedRecord
from extentflow.kafka.record_headers import by_name

MOST_DIGITS = 18  # of a number below 2**63


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter: its place in the queue, the record's bytes, and its headers by name."""

    partition: int
    offset: int
    raw: bytes | None
    headers: Mapping[str, bytes]
    timestamp: int = 0

    @classmethod
    def of(cls, record: ConsumedRecord) -> "DeadLetter":
        """Return a record of the queue as a dead letter."""
        headers = by_name(record.headers)
        return cls(record.partition, record.offset, record.value, headers, record.timestamp)

    def text(self, name: str) -> str:
        """Return the text of a header, empty without it."""
        return self.headers.get(name, b"").decode("utf-8", "replace")

    @property
    def connector(self) -> str:
        """The connector that sent it; empty without context headers."""
        return self.text("__connect.errors.connector.name")

    @property
    def job(self) -> str:
        """The job of its object."""
        return self.text("__connect.errors.task.id").rpartition("-")[0]

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Ordinal, start and end of its extent, and its location. Raises ValueError."""
        ordinal = self.text("__connect.errors.task.id").rpartition("-")[2]
        start, _, end = self.text("extentflow.extent").partition("-")
        where = self.text("extentflow.offset") or self.text("extentflow.row")
        return _number(ordinal), _number(start), _number(end), _number(where)

    @property
    def unit(self) -> str:
        """What its location counts: `offset` or `row`."""
        return "offset" if self.text("extentflow.offset") else "row"

    @property
    def reason(self) -> str:
        """Why the record is bad."""
        return self.text("extentflow.reason")

    @property
    def attempt(self) -> int:
        """How often its record was decoded."""
        try:
            return _number(self.text(ATTEMPT))
        except ValueError:
            return 1

    @property
    def is_row(self) -> bool:
        """Whether its record is to be read from the object again: its bytes are not the record's.

        They are the value that the topic rejected, or none, as columns were rejected.
        """
        return self.text(BYTES) in (PAYLOAD, ROW)

    @property
    def lacks_bytes(self) -> str:
        """Why it has no bytes, where it is no row either."""
        if omitted := self.text("extentflow.omitted.bytes"):
            return f"its {omitted} bytes were too many for the queue"
        return "its record has none of its own, or is part of a row group or block that is lost"

    def __str__(self) -> str:
        """Return how messages name it."""
        return f"dead letter {self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Repair:
    """What an operator says about one dead letter: other bytes, or None to discard it.

    `keeps`: it is sent to the queue again as it is, because only others are discarded. `row`: it is
    read from its object, as without a repair, and must be such a dead letter.
    """

    raw: bytes | None
    keeps: bool = False
    row: bool = False


KEEP = Repair(None, keeps=True)

# By partition and offset.
Repairs: TypeAlias = Mapping[tuple[int, int], Repair]


def digest_of(repairs: Repairs) -> str:
    """Return a digest of repairs; empty without any."""
    digest = hashlib.sha256()
    for place in sorted(repairs):
        digest.update(repr((place, *astuple(repairs[place]))).encode())
    return digest.hexdigest() if repairs else ""


def _number(text: str) -> int:
    """Return the number that a header states. Raises ValueError for what no sender of ours wrote.

    Python reads other digits as well, and refuses thousands of them.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise ValueError(f"{text[:MOST_DIGITS]!r} is no number")
    return int(text)
