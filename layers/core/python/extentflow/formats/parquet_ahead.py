"""The bytes of row groups: fetched ahead by a bounded distance, each once, and let go of early.

Owns: the memory that fetched blocks take, the threads that fetch, the file through which Arrow
reads. Refuses to know: where blocks are cut (parquet_blocks), pages, rows.

    queued -> in flight -> held -> dropped      when every walk that needs a block has left it
       '----- read by Arrow's own thread ----'  where the walk arrives before a reader does

At most four windows are in flight or held, beyond them one block per column at worst.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType

from extentflow.background import ExceptionRelay
from extentflow.formats.parquet_blocks import Block, Chunks, cut, runs
from extentflow.storage import RangeSource

__all__ = ["Ahead", "RowGroupFile"]

HELD_WINDOWS = 4
LINGER_SECONDS = 2.0


@dataclass(slots=True, eq=False)
class Walk:
    """One pass of Arrow through one column chunk; `blocks` are those it has not left yet."""

    position: int
    end: int
    blocks: deque[Block]


class _Readers:
    """Threads that fetch blocks in the order in which they are asked for.

    They die with the process: a request that hangs at the store must not keep it alive.
    """

    def __init__(self, source: RangeSource, count: int) -> None:
        self._source = source
        self._asked: SimpleQueue[tuple[Future[bytes], int, int] | None] = SimpleQueue()
        self._threads = [
            Thread(target=self._run, name=f"parquet {source.version.uri}", daemon=True)
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, start: int, end: int) -> Future[bytes]:
        """Fetch `[start, end)` as soon as a thread is free, unless it is cancelled before."""
        outcome: Future[bytes] = Future()
        self._asked.put((outcome, start, end))
        return outcome

    def close(self) -> None:
        """Forget what was not begun; wait a little for what was."""
        try:
            while True:
                self._asked.get_nowait()
        except Empty:
            pass
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            thread.join(LINGER_SECONDS / len(self._threads))

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            outcome, start, end = asked
            if outcome.set_running_or_notify_cancel():
                with ExceptionRelay(outcome):
                    outcome.set_result(self._source.read(start, end))


class Ahead:
    """Fetches the blocks of consecutive row groups once each, in the order of need.

    Used by one thread (Arrow's); only `source.read` runs on others. `views` are the sets of leaf
    columns that will be walked through, each by a `RowGroupFile` of its own. Groups must be
    walked through in their order.
    """

    def __init__(
        self,
        source: RangeSource,
        groups: Iterable[Chunks],
        *,
        views: Sequence[Sequence[int]],
        window_bytes: int,
        readers: int,
    ) -> None:
        self.source = source
        self._runs = runs(groups, window_bytes)
        self._views = views
        self._window_bytes = window_bytes
        self._walks: dict[tuple[int, int], list[Walk]] = {}
        self._queue: deque[Block] = deque()
        self._held_bytes = 0
        self._readers = _Readers(source, readers) if readers else None

    def close(self) -> None:
        """Give up what was not yet asked for."""
        if self._readers is not None:
            self._readers.close()

    def walks(self, view: int, group: int) -> list[Walk]:
        """Return a view's walks through a row group, by first byte, and start fetching."""
        while (view, group) not in self._walks:
            self._expand(next(self._runs))
        self._fetch()
        return self._walks.pop((view, group))

    def data(self, block: Block) -> bytes:
        """Return a block's bytes: fetched ahead, or now where no reader has begun with them."""
        if block.fetched is None:
            self._held_bytes += block.size
        if block.fetched is None or block.fetched.cancel():
            block.fetched = Future()
            block.fetched.set_result(self.source.read(block.start, block.end))
        return block.fetched.result()

    def leave(self, block: Block) -> None:
        """Take note that one walk is through with a block."""
        block.users -= 1
        if block.users or block.fetched is None:
            return
        block.fetched.cancel()
        self._held_bytes -= block.size
        self._fetch()

    def _expand(self, run: Sequence[Chunks]) -> None:
        """Queue a run's blocks and prepare every view's walks through its row groups."""
        blocks, homes = cut(run, self._window_bytes)
        self._queue.extend(blocks)
        for view, columns in enumerate(self._views):
            for group in run:
                self._walks[view, group.group] = []
            for chunk, home in homes:
                if chunk.column in columns:
                    walk = Walk(chunk.start, chunk.end, deque(home))
                    self._walks[view, chunk.group].append(walk)
                    for block in home:
                        block.users += 1

    def _fetch(self) -> None:
        """Ask for blocks while the budget lasts."""
        while self._readers is not None:
            if not self._queue:
                run = next(self._runs, None)
                if run is None:
                    return
                self._expand(run)
            block = self._queue[0]
            if block.users and block.fetched is None:
                if self._held_bytes + block.size > HELD_WINDOWS * self._window_bytes:
                    return
                self._held_bytes += block.size
                block.fetched = self._readers.ask(block.start, block.end)
            self._queue.popleft()


class _Fault:
    """Keeps what was raised inside; Arrow may wrap it, or take it for the file's own."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _: type[BaseException] | None, raised: BaseException | None, __: TracebackType | None
    ) -> None:
        self.raised = raised or self.raised


class RowGroupFile:
    """The object as Arrow's file, good for one row group at a time.

    Not for threads. Whatever reading raised is kept: `check()` raises it again, unchanged.
    """

    closed = False

    def __init__(self, ahead: Ahead, view: int = 0) -> None:
        self._ahead = ahead
        self._view = view
        self._size = ahead.source.version.size
        self._fault = _Fault()
        self._walks: list[Walk] = []
        self._starts: list[int] = []
        self._position = 0

    def open(self, group: int) -> None:
        """Go on to a row group; what was left of the one before is dropped."""
        self.drop()
        self._walks = self._ahead.walks(self._view, group)
        self._starts = [walk.position for walk in self._walks]

    def drop(self) -> None:
        """Give up the row group's blocks."""
        for walk in self._walks:
            while walk.blocks:
                self._ahead.leave(walk.blocks.popleft())
        self._walks, self._starts = [], []

    def check(self) -> None:
        """Raise what reading raised, if it did."""
        if self._fault.raised is not None:
            raise self._fault.raised

    def seek(self, position: int, whence: int = 0) -> int:
        """Set the position, as files do."""
        self._position = position + (0, self._position, self._size)[whence] if whence else position
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def read(self, size: int) -> bytes | memoryview:
        """Return `size` bytes, fewer at the object's end only."""
        with self._fault:
            data = self._walked(min(self._position + size, self._size))
            self._position += len(data)
            return data

    def close(self) -> None:
        """Do nothing: blocks are dropped by `drop`, readers by `Ahead`."""

    def _walked(self, end: int) -> bytes | memoryview:
        """Return `[position, end)` from its walk, and what no walk covers from the source.

        That is what Arrow wants to see behind the chunks of writers before 2014 (PARQUET-816).
        """
        index = bisect_right(self._starts, self._position) - 1
        walk = self._walks[index] if index >= 0 else None
        at = self._position
        pieces: list[bytes | memoryview] = []
        if walk is not None and walk.position == at:
            while walk.position < min(end, walk.end):
                pieces.append(self._piece(walk, end))
            at = walk.position
        if at < end:
            pieces.append(self._ahead.source.read(at, end))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, walk: Walk, end: int) -> memoryview:
        """Go on with a walk to `end`, but not beyond its block."""
        block = walk.blocks[0]
        stop = min(end, block.end, walk.end)
        data = memoryview(self._ahead.data(block))[walk.position - block.start : stop - block.start]
        walk.position = stop
        if stop in (block.end, walk.end):
            self._ahead.leave(walk.blocks.popleft())
        return data
