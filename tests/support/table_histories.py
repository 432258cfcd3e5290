"""Random histories of an Iceberg table that queries, other programs and persons change.

ModelTable imitates what Iceberg does with snapshots, tags and metadata files. `TableHistory` draws
steps of everyone, and compares the table's rows with those of the topics. It makes the same draws
with every table of the same behaviour, so its trace compares a ModelTable with a real table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from extentflow.export.lake.lake_target import OFFSETS_KEY, Offsets, TableState
from extentflow.export.lake.snapshot_history import (
    DOUBTS_KEY,
    OTHERS_KEY,
    Snapshot,
    Snapshots,
    newest_statement,
    read_history,
    summary_of,
)

Rows = Mapping[tuple[str, int], int]  # (topic, offset) -> how often
OTHER: Final = "other program"
QUERIES: Final = (("a",), ("b",), ("a",), ("b", "c"))


_WEIGHTS: Final = {
    "produce": 4,
    "query": 12,
    "kill": 1,
    "append": 2,
    "compact": 2,
    "return": 1,
    "expire": 1,
    "replace": 1,
    "empty": 0.2,
    "clear": 0.2,
    "pick": 1,
}
STEPS: Final = frozenset(_WEIGHTS)


class Table(Protocol):
    """What happens to a table; `find` also returns expired snapshots of former metadata."""

    @property
    def snapshots(self) -> Snapshots: ...

    def kept(self) -> list[Snapshot]:
        """Return the snapshots that are not expired, in the order of their commits."""
        ...

    def rows(self) -> Rows: ...

    def commit(self, rows: list[tuple[str, int]], summary: dict[str, str], base: int | None) -> str:
        """Commit as a query does: `done`, `conflict`, or `lost` where rows cannot be validated."""
        ...

    def state(self, summary: dict[str, str]) -> None: ...
    def tag(self, number: int) -> None: ...
    def append(self, rows: list[tuple[str, int]]) -> None: ...
    def compact(self) -> None: ...
    def return_to(self, number: int) -> None: ...
    def expire(self, retained: int) -> None: ...
    def replace(self, *, with_rows: bool) -> None: ...
    def clear(self) -> None: ...
    def pick(self, number: int) -> None: ...


@dataclass(frozen=True)
class _Kept:
    snapshot: Snapshot
    rows: Rows
    added: tuple[tuple[str, int], ...] = ()


@dataclass
class ModelTable:
    """An Iceberg table in memory; `most_former` bounds the metadata files that it lists."""

    most_former: int = 100
    _all: dict[int, _Kept] = field(default_factory=dict)
    _main: int | None = None
    _tag: int | None = None
    _former: list[dict[int, _Kept]] = field(default_factory=list)
    _numbers: int = 0

    @property
    def snapshots(self) -> Snapshots:
        return self

    def current(self) -> Snapshot | None:
        return None if self._main is None else self._all[self._main].snapshot

    def find(self, number: int) -> Snapshot | None:
        for version in (self._all, *reversed(self._former)):
            if number in version:
                return version[number].snapshot
        return None

    def kept(self) -> list[Snapshot]:
        return [one.snapshot for one in self._all.values()]

    def known(self) -> list[Snapshot]:
        found = {
            number: one.snapshot
            for version in (*self._former, self._all)
            for number, one in version.items()
        }
        return sorted(found.values(), key=lambda one: one.sequence, reverse=True)

    def rows(self) -> Rows:
        return {} if self._main is None else self._all[self._main].rows

    def commit(self, rows: list[tuple[str, int]], summary: dict[str, str], base: int | None) -> str:
        at = self._main
        while at is not None and at != base:
            found = self._all.get(at)
            if found is None or found.added:
                return "conflict"
            at = found.snapshot.parent
        if at != base and self._main is not None:
            return "conflict"  # the base is no ancestor
        self._add(self._main, rows, summary)
        return "done"

    def state(self, summary: dict[str, str]) -> None:
        self._add(self._main, [], summary)

    def tag(self, number: int) -> None:
        if self._tag != number:
            self._change()
            self._tag = number

    def append(self, rows: list[tuple[str, int]]) -> None:
        self._add(self._main, rows, {})

    def compact(self) -> None:
        self._add(self._main, [], {})

    def return_to(self, number: int) -> None:
        self._change()
        self._main = number

    def expire(self, retained: int) -> None:
        keep, at = {self._tag}, self._main
        for _ in range(retained):
            if at is not None and at in self._all:
                keep.add(at)
                at = self._all[at].snapshot.parent
        self._change()
        self._all = {number: one for number, one in self._all.items() if number in keep}

    def replace(self, *, with_rows: bool) -> None:
        self._add(None, list(Counter(self.rows()).elements()) if with_rows else [], {})

    def clear(self) -> None:
        self._change()
        self._main = None

    def pick(self, number: int) -> None:
        found = self._all[number]
        if found.snapshot.parent == self._main:
            self.return_to(number)
        else:
            self._add(self._main, list(found.added), {"source-snapshot-id": str(number)})

    def _add(self, parent: int | None, added: list[tuple[str, int]], own: dict[str, str]) -> None:
        self._change()
        self._numbers += 1
        rows = (
            Counter(added) if parent is None else Counter(self._all[parent].rows) + Counter(added)
        )
        counts = {"total-records": str(rows.total()), "added-records": str(len(added))}
        summary = {**own, **counts}
        snapshot = Snapshot(self._numbers, parent, summary, self._numbers)
        self._all[self._numbers] = _Kept(snapshot, rows, tuple(added))
        self._main = self._numbers

    def _change(self) -> None:
        self._former = (
            [*self._former, dict(self._all)][-self.most_former :] if self.most_former else []
        )


@dataclass
class TableHistory:
    """One history; `trace` has a line per step, `doubted` how often a person had to decide."""

    table: Table
    draws: Random
    trace: list[str] = field(default_factory=list)
    doubted: int = 0
    ended: bool = False  # the table holds rows that no offsets describe
    # Per topic: whether each offset is a row; the others are of aborted transactions.
    topics: dict[str, list[bool]] = field(default_factory=lambda: {"a": [], "b": [], "c": []})
    _running: dict[int, Iterator[str]] = field(default_factory=dict)
    _untagged: set[str] = field(default_factory=set)
    _commits: int = 0

    def run(self, steps: int, *, only: AbstractSet[str] = STEPS) -> None:
        """Draw steps, then let every query write the rest. Raises AssertionError."""
        names = sorted(only)
        weights = [_WEIGHTS[one] for one in names]
        for _ in range(steps):
            if self.ended:
                return
            name = self.draws.choices(names, weights)[0]
            done = getattr(self, f"_{name}")()
            self._note(f"{name} {done}")
        self._running.clear()
        for query in range(len(QUERIES)):
            if not self.ended:
                for done in self._written(query, whole=True):
                    self._note(f"last {query} {done}")
        if not self.ended:
            for topic, offsets in self.topics.items():
                self._require(topic, len(offsets))

    def _note(self, text: str) -> None:
        self.trace.append(f"{text}: {sorted(self.table.rows().items())}")

    def _require(self, topic: str, end: int) -> None:
        """Assert that the table has the rows of a topic up to an offset, each once."""
        rows = {at: count for (name, at), count in self.table.rows().items() if name == topic}
        wanted = {at: 1 for at, is_row in enumerate(self.topics[topic][:end]) if is_row}
        assert rows == wanted, "\n".join([*self.trace, f"{topic} up to {end}: {rows}"])

    # -- the topics and their queries --------------------------------------------------------------

    def _produce(self) -> str:
        topic = self.draws.choice(sorted(self.topics))
        is_row = self.draws.random() < 0.8
        self.topics[topic] += [is_row] * self.draws.randint(1, 3)
        return f"{topic} {is_row}"

    def _query(self) -> str:
        """Let a query do a step; one that ended starts again."""
        query = self.draws.randrange(len(QUERIES))
        if query not in self._running:
            self._running[query] = self._written(query)
        done = next(self._running[query], "ended")
        if done in {"ended", "refused"}:
            del self._running[query]
        return f"{query} {done}"

    def _kill(self) -> str:
        query = self.draws.randrange(len(QUERIES))
        return f"{query} {self._running.pop(query, None) is not None}"

    def _written(self, query: int, *, whole: bool = False) -> Iterator[str]:
        """What IcebergTable and LakeService do, in steps."""
        topics = QUERIES[query]
        state = self._opened(topics)
        if state is None:
            yield "refused"
            return
        yield f"opened {state.offsets}"
        for _ in range(1 if whole else 3):
            begins = {one: state.offsets.get(one, {}).get(0, 0) for one in topics}
            ends = {
                one: len(self.topics[one])
                if whole
                else self.draws.randint(begin, max(begin, len(self.topics[one])))
                for one, begin in begins.items()
            }
            if begins == ends:
                return
            rows = [
                (one, at)
                for one in topics
                for at in range(begins[one], ends[one])
                if self.topics[one][at]
            ]
            own: Offsets = {one: {0: end} for one, end in ends.items()}
            yield f"read up to {ends}"
            self._commits += 1
            name = f"commit {self._commits}"
            while self.table.commit(rows, summary_of(state, own, name), state.version) != "done":
                found = self._state()
                alike = _own(found.offsets, topics) == _own(state.offsets, topics)
                if not alike or found.doubts.keys() & set(topics):
                    yield "refused"
                    return
                state = found
                yield "conflict"
            self._untagged |= set(topics)
            yield "committed"
            self._keep()
            state = self._state()
            if _own(state.offsets, topics) != own:
                yield "refused"
                return
            yield f"tagged {state.offsets}"

    def _keep(self) -> None:
        """What IcebergTable does behind a commit, and at a start."""
        snapshots = self.table.snapshots
        newest = newest_statement(snapshots)
        if newest is not None and not newest.repeats_others:
            state = self._state()
            own = newest.stated(OFFSETS_KEY).keys() & state.offsets.keys()
            if not own:
                return
            offsets = {one: state.offsets[one] for one in own}
            self.table.state(summary_of(state, offsets, "repeated"))
            newest = newest_statement(self.table.snapshots)
        if newest is not None and newest.number in {one.number for one in self.table.kept()}:
            self.table.tag(newest.number)
            for key in (OFFSETS_KEY, OTHERS_KEY, DOUBTS_KEY):
                self._untagged -= newest.stated(key).keys()

    def _state(self) -> TableState:
        snapshots = self.table.snapshots
        found, current = read_history(snapshots), snapshots.current()
        version = None if current is None else current.number
        return TableState(None, found.offsets, version, found.doubts)

    def _opened(self, topics: tuple[str, ...]) -> TableState | None:
        """Return the state in which a query starts; a person settles doubts by looking at rows."""
        self._keep()
        state = self._state()
        doubts = [one for one in topics if one in state.doubts]
        if doubts:
            self.doubted += 1
            stated = {one: self._end_of_rows(one) for one in doubts}
            if None in stated.values():
                self.ended = True
                return None
            own = {one: {0: end or 0} for one, end in stated.items()}
            self.table.state(summary_of(state, own, "stated"))
            self._keep()
            state = self._state()
        for topic in topics:
            self._require(topic, state.offsets.get(topic, {}).get(0, 0))
        return state

    def _end_of_rows(self, topic: str) -> int | None:
        rows = {at: count for (name, at), count in self.table.rows().items() if name == topic}
        for end in range(len(self.topics[topic]) + 1):
            if rows == {at: 1 for at, is_row in enumerate(self.topics[topic][:end]) if is_row}:
                return end
        return None

    # -- other programs and persons ----------------------------------------------------------------

    def _append(self) -> str:
        self.table.append([(OTHER, self.draws.randrange(100))])
        return ""

    def _compact(self) -> str:
        if self.table.rows():
            self.table.compact()
        return ""

    def _return(self) -> str:
        kept = [one.number for one in self.table.kept()]
        if kept:
            self.table.return_to(self.draws.choice(kept))
        return ""

    def _expire(self) -> str:
        # docs/lake.md: a query that died before it set the tag starts before snapshots expire.
        retained = self.draws.choice([1, 1, 2])
        if self._untagged or self.table.snapshots.current() is None:
            return "not yet"
        self.table.expire(retained)
        return str(retained)

    def _replace(self) -> str:
        if self.table.rows():
            self.table.replace(with_rows=True)
        return ""

    def _empty(self) -> str:
        if self.table.snapshots.current() is not None:
            self.table.replace(with_rows=False)
        return ""

    def _clear(self) -> str:
        """Replace the table by one without a snapshot."""
        self.table.clear()
        return ""

    def _pick(self) -> str:
        """Pick the rows of a snapshot that is no ancestor, as Iceberg permits."""
        past = {one.number for one in _line(self.table)}
        found = [
            one.number
            for one in self.table.kept()
            if one.number not in past
            and one.parent is not None
            and int(one.summary.get("added-records") or 0)
            and not any(
                each.summary.get("source-snapshot-id") == str(one.number)
                for each in _line(self.table)
            )
        ]
        if found:
            self.table.pick(self.draws.choice(found))
        return str(len(found))


def _line(table: Table) -> Iterator[Snapshot]:
    kept = {one.number: one for one in table.kept()}
    found = table.snapshots.current()
    while found is not None:
        yield found
        found = None if found.parent is None else kept.get(found.parent)


def _own(offsets: Offsets, topics: tuple[str, ...]) -> Offsets:
    return {one: offsets.get(one, {}) for one in topics}
