"""Random histories of a folder of Parquet files that queries write and other programs compact.

Files hold the offsets of their rows as JSON. A query ends at any call of its folder. Another query
starts while it writes, and the calls of both are made in any order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from extentflow.errors import Conflict
from extentflow.export.lake.lake_target import Batch, TableState
from extentflow.export.lake.parquet_folder import (
    COMMIT,
    LOG,
    STAGED,
    SUFFIX,
    Entry,
    ParquetFolder,
)
from extentflow.testing.folders import MemoryFolder


class Killed(BaseException):
    """The process ends here."""


@dataclass
class FolderHistory:
    """One history of a folder that holds topic `t`; `killed` counts the queries that were."""

    draws: Random
    by_copy: bool
    killed: int = 0
    trace: list[str] = field(default_factory=list)
    _end: int = 0  # of the topic
    _attempts: int = 0
    _left: int | None = None  # calls of the folder until the process ends, or another one acts
    _intrudes: bool = False
    _running: list[tuple[ParquetFolder, TableState]] = field(default_factory=list)
    _files: MemoryFolder = field(init=False)

    def __post_init__(self) -> None:
        self._files = MemoryFolder(on_call=self._called, moves_by_copy=self.by_copy)

    def run(self, steps: int) -> None:
        """Draw steps, then write the rest. Raises AssertionError."""
        acts = [self._produce, self._start, self._write, self._compact]
        for _ in range(steps):
            act = self.draws.choices(acts, [3, 2, 5, 2])[0]
            if act in {self._start, self._write} and self.draws.random() < 0.6:
                self._left, self._intrudes = self.draws.randrange(24), self.draws.random() < 0.4
            try:
                act()
                done = "done"
            except Killed:
                self.killed += 1
                done = "killed"
            self._left = None
            self.trace.append(f"{act.__name__} {done}: {sorted(self._files.files)}")
        self._start()
        self._written(len(self._running) - 1, self._end)
        self._require(self._end)

    def _called(self, name: str, when: str) -> None:
        if self._left is None:
            return
        if self._left > 0:
            self._left -= 1
            return
        if not self._intrudes:
            raise Killed
        self._left = None
        self.trace.append(f"another query, {when} {name}")
        self._start()
        self._compact()

    def _require(self, end: int) -> None:
        """Assert that readers find the rows up to an offset, each once."""
        found = [at for name in self._visible() for at in json.loads(self._files.files[name])]
        assert sorted(found) == list(range(end)), "\n".join([*self.trace, f"{end}: {found}"])

    def _visible(self) -> list[str]:
        return [name for name in self._files.files if name.endswith(".parquet")]

    def _produce(self) -> None:
        self._end += self.draws.randint(1, 4)

    def _start(self) -> None:
        query = ParquetFolder("x", lambda _: self._files)
        state = query.open(("t",))
        self._require(state.offsets.get("t", {}).get(0, 0))
        self._running.append((query, state))

    def _write(self) -> None:
        """Let a query, also one that was succeeded, write a batch."""
        if self._running:
            self._written(self.draws.randrange(len(self._running)))

    def _written(self, index: int, end: int | None = None) -> None:
        query, state = self._running[index]
        begin = state.offsets.get("t", {}).get(0, 0)
        end = self.draws.randint(begin, max(begin, self._end)) if end is None else end
        cuts = sorted({begin, end, *(self.draws.randint(begin, end) for _ in range(2))})
        self._attempts += 1
        attempt, staged = f"attempt-{self._attempts}", {}
        try:
            for first, behind in pairwise(cuts):
                name = f"t-0-{first}-{behind - 1}.parquet"
                rows = json.dumps(list(range(first, behind))).encode()
                self._files.put(f"{STAGED}{attempt}/{name}{SUFFIX}", rows)
                staged[name] = behind - first
            written = query.commit(staged, Batch({}, {"t": {0: end}}), state, attempt)
        except Conflict:
            self._running = [one for one in self._running if one[0] is not query]
        except Killed:
            self._running = [one for one in self._running if one[0] is not query]
            raise
        else:
            self._running[index] = (query, written.state)

    def _compact(self) -> None:
        """Join files, as docs/lake.md permits: not those of a commit that is the newest entry."""
        newest = max((name for name in self._files.files if name.startswith(LOG)), default=None)
        if newest is None:
            return
        entry = Entry.of(newest, self._files.files[newest])
        kept = set(entry.files) if entry.kind == COMMIT else set()
        joined = [one for one in self._visible() if one not in kept and self.draws.random() < 0.7]
        if joined:
            rows = [at for name in joined for at in json.loads(self._files.files.pop(name))]
            self._attempts += 1
            self._files.files[f"joined-{self._attempts}.parquet"] = json.dumps(rows).encode()
