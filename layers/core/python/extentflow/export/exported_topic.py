"""Which topic a target holds, and where its partitions began: `TOPIC/.topic`, written once.

The first process that writes a topic creates it before any file, so that two of them agree:

    {"id":"JYYiD99JRVKFBhkGKJFu5A","first":{"0":0,"1":1200}}

A partition that `first` lacks was added since: it began at offset 0. So did all partitions without
files where files were written before there was such a note.

Tests: unit/export/test_topic_export.py
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from extentflow.errors import Conflict, Misconfigured, ObjectGone
from extentflow.kafka.reading import created_again, is_another
from extentflow.storage.folders import Folder

NOTE: Final = ".topic"


@dataclass(frozen=True, slots=True)
class ExportedTopic:
    """The id of the topic that was exported first, and the first offset of each partition then.

    `id` is empty where the brokers have none.
    """

    id: str
    first: Mapping[int, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        return json.dumps(
            {"id": self.id, "first": self.first}, separators=(",", ":"), sort_keys=True
        ).encode()

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return what a file states. Raises ValueError, TypeError, KeyError or AttributeError."""
        found = json.loads(content)
        first = {int(one): int(offset) for one, offset in found["first"].items()}
        return cls(str(found["id"]), first)

    def is_of_another(self, now: str) -> bool:
        """Return whether the topic whose id is `now` is known to be another one."""
        return is_another(self.id, now)

    def require(self, topic: str, now: str, where: str) -> None:
        """Raise Misconfigured where the topic, whose id is `now`, is another one."""
        if self.is_of_another(now):
            raise Misconfigured(
                f"{created_again(topic, self.id, now)}; {where} holds records of the topic before,"
                " which has other records at the same offsets; choose another target"
            )


def read_note(folder: Folder) -> ExportedTopic | None:
    """Return the note in the folder of a topic; None: there is none. Raises Misconfigured."""
    try:
        return ExportedTopic.of(folder.read(NOTE))
    except ObjectGone:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise Misconfigured(
            f"{folder.uri(NOTE)} does not state a topic's id and first offsets ({exc}); restore it,"
            " or choose another target"
        ) from exc


def write_note(folder: Folder, found: ExportedTopic) -> ExportedTopic:
    """Create the note in the folder of a topic; return it, or that of another process.

    Raises Misconfigured, and Conflict where it is deleted meanwhile.
    """
    if folder.create(NOTE, found.to_bytes()):
        return found
    there = read_note(folder)
    if there is None:
        raise Conflict(f"{folder.uri(NOTE)} was deleted at the same moment; start again")
    return there
