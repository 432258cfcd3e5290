"""`ParsedNotification` and `UnparseableNotification`: the results of parsing one document.

`extentflow.discovery.notifications` parses documents into these values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import chain

from extentflow.discovery import Arrival
from extentflow.errors import Permanent
from extentflow.queue.backfill import Backfill

EXCERPT_CHARACTERS = 200


class UnparseableNotification(Permanent):
    """A document, or a part of one, that no dialect explains.

    `document` is a body for the arrivals queue, so a later version can process it after a replay.
    `why` is what was expected.
    """

    def __init__(self, why: str, document: str) -> None:
        super().__init__(why, document)
        self.why = why
        self.document = document

    def __str__(self) -> str:
        """Return the reason, the start of the document, and the remedy."""
        begins = self.document[:EXCERPT_CHARACTERS]
        return (
            f"notification not understood: {self.why}; it begins with {begins!a}. If it announces "
            "an object, deliver that with `extentflow submit s3://bucket/key`"
        )


@dataclass(frozen=True, slots=True)
class ParsedNotification:
    """The complete content of one document.

    `ignored` are names of events without a new object, `tests` the bucket or topic of each test
    message. A caller that processes `arrivals` must dead-letter `unreadable`. `backfills` come from
    the command line only.
    """

    arrivals: tuple[Arrival, ...] = ()
    ignored: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    unreadable: tuple[UnparseableNotification, ...] = ()
    backfills: tuple[Backfill, ...] = ()

    @classmethod
    def merged(cls, parts: Iterable[ParsedNotification]) -> ParsedNotification:
        """Return the content of all parts, in their order."""
        every = tuple(parts)
        names = [field.name for field in fields(cls)]
        return cls(**{name: tuple(chain(*(getattr(one, name) for one in every))) for name in names})
