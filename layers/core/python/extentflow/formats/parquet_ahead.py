"""Which bytes of row groups are fetched, when, and for how long they are kept.

Owns: cutting row groups into blocks, fetching every block once and a bounded distance ahead, the
file through which Arrow reads them. Refuses to know: pages, rows, what a column holds.

    row groups up to a window    |g0 g1 g2|g3 g4 g5|       a run of whole row groups is one block
    a larger row group           |a |a |a |b |b |cde|f |f |    large column chunks are cut, small
                                                               neighbours share a block

Arrow walks through all column chunks of a row group side by side, each from its first byte to its
last. So blocks are fetched in the order in which that walk enters them, and a block is dropped
once every chunk that lies in it has been walked through. At most four windows are held or in
flight, and one block per column at worst.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from types import TracebackType
from typing import Protocol, TypeVar

from extentflow.storage import RangeSource

__all__ = ["Ahead", "Chunks", "RowGroupFile"]

READERS = 6
WALK_WINDOWS = 3
HELD_WINDOWS = 4
SMALLEST_SHARE = 64


@dataclass(frozen=True, slots=True)
class Chunks:
    """The byte ranges of one row group's column chunks, by leaf column."""

    group: int
    ranges: Sequence[tuple[int, int]]

    @property
    def start(self) -> int:
        """The row group's first byte."""
        return min(self.ranges)[0]

    @property
    def end(self) -> int:
        """The byte behind the row group."""
        return max(end for _, end in self.ranges)


@dataclass(slots=True, eq=False)
class Block:
    """Bytes `[start, end)`, fetched in one request; `users` walks still need some of them."""

    start: int
    end: int
    users: int = 0
    fetched: Future[bytes] | bytes | None = None

    @property
    def size(self) -> int:
        """How many bytes the block holds."""
        return self.end - self.start


@dataclass(slots=True, eq=False)
class Walk:
    """One pass of Arrow through one column chunk; `blocks` are those it has not left yet."""

    position: int
    end: int
    blocks: deque[Block]


class _Stretch(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Chunk:
    start: int
    end: int
    group: int
    column: int


_S = TypeVar("_S", bound=_Stretch)


def _packed(stretches: Iterable[_S], limit_bytes: int) -> Iterator[list[_S]]:
    """Yield neighbours that fit into `limit_bytes` together; larger stretches stay alone."""
    pack: list[_S] = []
    for stretch in stretches:
        if pack and stretch.end - pack[0].start > limit_bytes:
            yield pack
            pack = []
        pack.append(stretch)
    if pack:
        yield pack


def _blocks(start: int, end: int, limit_bytes: int) -> list[Block]:
    """Cut `[start, end)` into equal blocks of at most `limit_bytes`."""
    count = -(-(end - start) // limit_bytes)
    cuts = [start + (end - start) * i // count for i in range(count + 1)]
    return [Block(*pair) for pair in pairwise(cuts)]


def _share(run: Sequence[Chunks], window_bytes: int) -> int:
    """Return how large a block may be: a whole run, or what a column gets of three windows."""
    if run[-1].end - run[0].start <= window_bytes:
        return window_bytes
    fair = WALK_WINDOWS * window_bytes // len(run[0].ranges)
    return max(1, window_bytes // SMALLEST_SHARE, min(fair, window_bytes))


def _cut(
    run: Sequence[Chunks], window_bytes: int
) -> tuple[list[Block], list[tuple[_Chunk, list[Block]]]]:
    """Return a run's blocks in the order of need, and its column chunks with theirs."""
    share = _share(run, window_bytes)
    chunks = sorted(
        (start, end, group.group, column)
        for group in run
        for column, (start, end) in enumerate(group.ranges)
        if start < end
    )
    order: list[tuple[float, int, Block]] = []
    homes: list[tuple[_Chunk, list[Block]]] = []
    for pack in _packed((_Chunk(*chunk) for chunk in chunks), share):
        blocks = _blocks(pack[0].start, max(chunk.end for chunk in pack), share)
        order += [(i / len(blocks), block.start, block) for i, block in enumerate(blocks)]
        homes += [(chunk, blocks) for chunk in pack]
    order.sort(key=itemgetter(0, 1))
    return [block for _, _, block in order], homes


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
    ) -> None:
        self.source = source
        self._runs = _packed(groups, window_bytes)
        self._views = views
        self._window_bytes = window_bytes
        self._walks: dict[tuple[int, int], list[Walk]] = {}
        self._queue: deque[Block] = deque()
        self._held_bytes = 0
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="parquet")

    def close(self) -> None:
        """Give up what was not yet asked for; requests in flight end by themselves."""
        self._readers.shutdown(wait=False, cancel_futures=True)

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
            block.fetched = self.source.read(block.start, block.end)
        elif isinstance(block.fetched, Future):
            late = block.fetched.cancel()
            block.fetched = (
                self.source.read(block.start, block.end) if late else block.fetched.result()
            )
        return block.fetched

    def leave(self, block: Block) -> None:
        """Take note that one walk is through with a block."""
        block.users -= 1
        if block.users or block.fetched is None:
            return
        if isinstance(block.fetched, Future):
            block.fetched.cancel()
        block.fetched = None
        self._held_bytes -= block.size
        self._fetch()

    def _expand(self, run: Sequence[Chunks]) -> None:
        """Queue a run's blocks and prepare every view's walks through its row groups."""
        blocks, homes = _cut(run, self._window_bytes)
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
        while True:
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
                block.fetched = self._readers.submit(self.source.read, block.start, block.end)
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
        """Return `[position, end)` from its walk, or straight from the source where none fits.

        None fits where files of 2014 and before make Arrow look behind a chunk's end (PARQUET-816).
        """
        index = bisect_right(self._starts, self._position) - 1
        walk = self._walks[index] if index >= 0 else None
        if walk is None or walk.position != self._position or end > walk.end:
            return self._ahead.source.read(self._position, end) if self._position < end else b""
        pieces = []
        while walk.position < end:
            pieces.append(self._piece(walk, end))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, walk: Walk, end: int) -> memoryview:
        """Go on with a walk to `end`, but not beyond its block."""
        block = walk.blocks[0]
        stop = min(end, block.end)
        data = memoryview(self._ahead.data(block))[walk.position - block.start : stop - block.start]
        walk.position = stop
        if stop in (block.end, walk.end):
            self._ahead.leave(walk.blocks.popleft())
        return data
