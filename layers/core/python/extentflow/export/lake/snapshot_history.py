"""Which offsets the current snapshot of an Iceberg table has, by the snapshots' own statements.

    s1 ── s2 ── s3        the table was rolled back to s2, then another program added s4: the
           └─── s4        offsets that s3 states do not count, although a tag refers to s3

A summary states the offsets of the topics of its writer. Of each topic, the newest statement among
the ancestors of the current snapshot counts. A summary also repeats what its writer read of other
topics, and names the snapshot that it read. If that is its parent, its older ancestors add nothing
and may expire.

    the walk ends at                   a topic without a statement on the way
    a summary that repeats the rest    has what it repeats
    the table's first snapshot, or     has no rows: the table was rolled back to before its first
    an empty one without a parent      batch, or replaced by an empty one
    another one without a parent       may have rows, if a snapshot elsewhere states the topic: the
                                       table was replaced
    an ancestor that is unknown        the same: its ancestors expired

A topic that may have rows is in doubt: a person states where it continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from extentflow.export.lake.lake_target import (
    OFFSETS_KEY,
    Offsets,
    TableState,
    TopicIds,
    offsets_text,
    read_offsets,
)

# In a summary beside the offsets: which attempt to write a batch committed it, the snapshot whose
# history its writer read, and what that history states of topics of other writers.
COMMIT_KEY: Final = "extentflow.commit"
BASE_KEY: Final = "extentflow.base"
OTHERS_KEY: Final = "extentflow.other-offsets"
DOUBTS_KEY: Final = "extentflow.doubted-offsets"
IDS_KEY: Final = "extentflow.topic-ids"
_NONE: Final = "none"
# Of Iceberg (SnapshotSummary.java).
_ROWS: Final = "total-records"
_PICKED: Final = "source-snapshot-id"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a table; `parent` None: none was before it, or it replaced the table.

    `sequence` is Iceberg's sequence number, which counts the snapshots of a table from 1.
    """

    number: int
    parent: int | None
    summary: Mapping[str, str]
    sequence: int

    @property
    def is_begin(self) -> bool:
        """Whether nothing that was committed before is in the snapshot."""
        return self.parent is None and (self.sequence == 1 or self.summary.get(_ROWS) == "0")

    def stated(self, key: str) -> Offsets:
        """Return the offsets below a key of the summary."""
        text = self.summary.get(key)
        return {} if text is None else read_offsets(text)

    @property
    def ids(self) -> TopicIds:
        """The ids of the topics whose offsets the summary has; earlier releases stated none."""
        # A map of Java knows no default.
        text = self.summary.get(IDS_KEY)
        found: dict[str, str] = {} if text is None else json.loads(text)
        return found

    @property
    def is_grounded(self) -> bool:
        """Whether its writer continued what the table had; False: that was replaced meanwhile."""
        return self.parent is not None or self.summary.get(BASE_KEY, _NONE) == _NONE

    @property
    def repeats_others(self) -> bool:
        """Whether the summary has all that is known of its ancestors."""
        if self.summary.get(OFFSETS_KEY) is None:
            return False
        # Summaries without a base have the offsets of all topics.
        base = self.summary.get(BASE_KEY)
        return base is None or base == _base_text(self.parent)


class Snapshots(Protocol):
    """The snapshots of a table, as one version of its metadata has them."""

    def current(self) -> Snapshot | None:
        """Return the snapshot that readers see; None: the table is empty."""
        ...

    def find(self, number: int) -> Snapshot | None:
        """Return a snapshot, also an expired one that is known; None: it is unknown."""
        ...

    def known(self) -> Iterable[Snapshot]:
        """Return all snapshots that `find` finds, newest first."""
        ...


@dataclass(frozen=True, slots=True)
class SnapshotHistory:
    """What the current snapshot states: the offsets of topics, and those that are in doubt.

    `doubts` has offsets that a snapshot states which may be no ancestor. `ids` has the ids that
    topics had when their offsets were stated.
    """

    offsets: dict[str, Mapping[int, int]] = field(default_factory=dict)
    doubts: dict[str, Mapping[int, int]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)

    def _add(self, offsets: Offsets, doubts: Offsets, ids: TopicIds) -> None:
        for topic, ends in offsets.items():
            if topic not in self.doubts and topic not in self.offsets:
                self.offsets[topic] = ends
                if topic in ids:
                    self.ids[topic] = ids[topic]
        for topic, ends in doubts.items():
            if topic not in self.offsets:
                self.doubts.setdefault(topic, ends)


def ancestors(snapshots: Snapshots) -> Iterator[Snapshot]:
    """Yield the current snapshot and its ancestors, up to the first one or an unknown one."""
    found = snapshots.current()
    while found is not None:
        yield found
        found = None if found.parent is None else snapshots.find(found.parent)


def read_history(snapshots: Snapshots) -> SnapshotHistory:
    """Return what the current snapshot of a table states."""
    history = SnapshotHistory()
    passed: set[int] = set()
    last, counts = None, True
    for last in ancestors(snapshots):
        passed.add(last.number)
        copied = _copied(snapshots, last)
        # Rows of an unknown batch may be in the table, too.
        counts = counts and copied is not None and last.is_grounded
        history._add({}, copied or {}, {})  # noqa: SLF001 - of this module
        stated = [last.stated(OFFSETS_KEY)]
        doubts: Offsets = {}
        if last.repeats_others:
            stated.append(last.stated(OTHERS_KEY))
            doubts = last.stated(DOUBTS_KEY)
        for offsets in stated:
            both = (offsets, {}) if counts else ({}, offsets)
            history._add(*both, last.ids)  # noqa: SLF001
        history._add({}, doubts, {})  # noqa: SLF001
        if last.repeats_others:
            return history
    if last is None or last.is_begin:
        return history
    for other in snapshots.known():
        if other.number in passed:
            continue
        claims = {**other.stated(DOUBTS_KEY), **other.stated(OTHERS_KEY)}
        history._add({}, {**claims, **other.stated(OFFSETS_KEY)}, {})  # noqa: SLF001
    return history


def summary_of(state: TableState, own: Offsets, attempt: str) -> dict[str, str]:
    """Return the summary of a commit of the topics of `own`, whose writer read `state`."""
    others = {topic: ends for topic, ends in state.offsets.items() if topic not in own}
    doubts = {topic: ends for topic, ends in state.doubts.items() if topic not in own}
    ids = {topic: one for topic, one in state.ids.items() if topic in own or topic in others}
    return {
        OFFSETS_KEY: offsets_text(own),
        COMMIT_KEY: attempt,
        BASE_KEY: _base_text(state.version),
        **({OTHERS_KEY: offsets_text(others)} if others else {}),
        **({DOUBTS_KEY: offsets_text(doubts)} if doubts else {}),
        **({IDS_KEY: json.dumps(ids, separators=(",", ":"), sort_keys=True)} if ids else {}),
    }


def commit_of(snapshots: Snapshots, attempt: str) -> Snapshot | None:
    """Return the ancestor that an attempt committed; None: it did not.

    Others may be behind it: of queries that write other topics.
    """
    return next((one for one in ancestors(snapshots) if _is_of(one, attempt)), None)


def newest_statement(snapshots: Snapshots) -> Snapshot | None:
    """Return the newest ancestor with offsets. If it does not repeat others, it is not enough."""
    return next((one for one in ancestors(snapshots) if OFFSETS_KEY in one.summary), None)


def _copied(snapshots: Snapshots, snapshot: Snapshot) -> Offsets | None:
    """Return the offsets of the batch whose rows a snapshot has by a cherry-pick; None: unknown."""
    source = snapshot
    while (picked := source.summary.get(_PICKED)) is not None:
        found = snapshots.find(int(picked))
        if found is None:
            return None
        source = found
    return {} if source is snapshot else source.stated(OFFSETS_KEY)


def _is_of(snapshot: Snapshot, attempt: str) -> bool:
    return snapshot.summary.get(COMMIT_KEY) == attempt


def _base_text(version: int | None) -> str:
    return _NONE if version is None else str(version)
