"""What a document turned out to say.

Owns: `News`, and `Unreadable` for what has to be kept for people. Refuses to know: how documents
are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import chain

from extentflow.discovery import Arrival
from extentflow.errors import Permanent
from extentflow.queue.backfill import Backfill

EXCERPT_CHARACTERS = 200


class Unreadable(Permanent):
    """A document, or a part of one, that no dialect explains.

    `document` is a body for the arrivals queue again: once the dialect is understood, sending it
    is all that a replay takes. `why` says what was expected.
    """

    def __init__(self, why: str, document: str) -> None:
        super().__init__(why, document)
        self.why = why
        self.document = document

    def __str__(self) -> str:
        """Say why, how the document begins, what to do."""
        begins = self.document[:EXCERPT_CHARACTERS]
        return (
            f"notification not understood: {self.why}; it begins with {begins!a}. If it announces "
            "an object, deliver that with `extentflow submit s3://bucket/key`"
        )


@dataclass(frozen=True, slots=True)
class News:
    """Everything that one document said; nothing of it is missing here.

    `ignored` holds the names of events that announce no new object, `tests` who tried whether we
    are there (a bucket, a topic). Whoever acts on `arrivals` must keep `unreadable`. `backfills`
    come from our own command line alone.
    """

    arrivals: tuple[Arrival, ...] = ()
    ignored: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    backfills: tuple[Backfill, ...] = ()

    @classmethod
    def merged(cls, parts: Iterable[News]) -> News:
        """Return the news of all parts, in their order."""
        every = tuple(parts)
        names = [field.name for field in fields(cls)]
        return cls(**{name: tuple(chain(*(getattr(one, name) for one in every))) for name in names})
