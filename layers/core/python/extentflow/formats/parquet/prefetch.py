"""Prefetch the bytes of row groups in bounded memory and serve them to Arrow as a file.

    row groups up to a window    |g0 g1 g2|g3 g4 g5|       a run of whole row groups is one block
    a larger row group           |a |a |a |b |b |cde|f |f |    large column chunks are cut, small
                                                               neighbours share a block

    queued -> in flight -> held -> released     when every scan that needs a block has passed it
       '----- read by Arrow's own thread ----'  if the scan arrives before a fetch thread does

Arrow scans all column chunks of a row group side by side, each from its first byte to its last. So
the order of need is the relative position within the chunk. At most four windows are in flight or
held, plus one block per column in the worst case.

Of a row group that is read by its page index, only some pages are fetched, in parts. Arrow reads
them as if they were all of their column chunk:

    column chunk      dictionary | page 0 | page 1 | page 2 | page 3 | page 4
    parts             0 ^^^^^^^^            1 ^^^^^^                   2 ^^^^
    as Arrow reads it dictionary | page 1 | page 4
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from extentflow.background import ExceptionRelay
from extentflow.errors import CorruptObject
from extentflow.formats.parquet.pages import IndexContradictionError, IndexedPage, PageGuard
from extentflow.storage import RangeSource
from extentflow.wording import again_command

# The blocks that are scanned side by side share three windows; the fourth is for what comes next.
HELD_WINDOWS = 4
SCAN_WINDOWS = 3
# However many columns share the windows, a block has 1/64 of one, which bounds the requests.
SMALLEST_SHARE = 64
CLOSE_WAIT_SECONDS = 2.0


# Between columns that are read: a request of its own takes about as long as these bytes.
LARGEST_GAP_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class RowGroupRanges:
    """The byte ranges of one row group's column chunks, by leaf column.

    `part`: those of consecutive pages of it, which are `pages`, by leaf column.
    """

    group: int
    ranges: Sequence[tuple[int, int]]
    part: int = 0
    pages: Mapping[int, Sequence[IndexedPage]] | None = None

    @property
    def start(self) -> int:
        """The first byte of the row group."""
        return min(self.ranges)[0]

    @property
    def end(self) -> int:
        """The byte after the row group."""
        return max(end for _, end in self.ranges)


@dataclass(slots=True, eq=False)
class Block:
    """Bytes `[start, end)`, fetched in one request; `users` scans still need some of them."""

    start: int
    end: int
    users: int = 0
    fetched: Future[bytes] | None = None

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, order=True)
class ColumnChunk:
    """One column chunk: bytes `[start, end)`."""

    start: int
    end: int
    group: int
    column: int
    part: int = 0


_Range = TypeVar("_Range", RowGroupRanges, ColumnChunk)


def _packed(ranges: Iterable[_Range], limit_bytes: int, gap_bytes: int) -> Iterator[list[_Range]]:
    """Yield consecutive ranges that fit into `limit_bytes` together; larger ones alone."""
    pack: list[_Range] = []
    for each in ranges:
        far = pack and each.start - pack[-1].end > gap_bytes
        if far or (pack and each.end - pack[0].start > limit_bytes):
            yield pack
            pack = []
        pack.append(each)
    if pack:
        yield pack


def cut_blocks(
    run: Sequence[RowGroupRanges], window_bytes: int, gap_bytes: int = LARGEST_GAP_BYTES
) -> tuple[list[Block], list[tuple[ColumnChunk, list[Block]]]]:
    """Return the blocks of a run in order of need, and its column chunks with their blocks."""
    share = window_bytes
    if run[-1].end - run[0].start > window_bytes:
        fair = SCAN_WINDOWS * window_bytes // len(run[0].ranges)
        share = max(1, window_bytes // SMALLEST_SHARE, min(fair, window_bytes))
    chunks = sorted(
        ColumnChunk(start, end, group.group, column, group.part)
        for group in run
        for column, (start, end) in enumerate(group.ranges)
        if start < end
    )
    order: list[tuple[float, int, Block]] = []
    chunk_blocks: list[tuple[ColumnChunk, list[Block]]] = []
    for pack in _packed(chunks, share, gap_bytes):
        start, end = pack[0].start, max(chunk.end for chunk in pack)
        count = -(-(end - start) // share)
        cuts = [start + (end - start) * i // count for i in range(count + 1)]
        blocks = [Block(*pair) for pair in pairwise(cuts)]
        # Columns are scanned side by side, so blocks are needed by their relative positions.
        order += [(i / len(blocks), block.start, block) for i, block in enumerate(blocks)]
        chunk_blocks += [(chunk, blocks) for chunk in pack]
    order.sort(key=itemgetter(0, 1))
    return [block for _, _, block in order], chunk_blocks


@dataclass(slots=True, eq=False)
class ColumnScan:
    """One pass of Arrow through (a part of) a column chunk; `blocks` are those not yet passed."""

    column: int
    position: int
    end: int
    blocks: deque[Block]
    guard: PageGuard | None = None


@dataclass(slots=True, eq=False)
class _ScannedColumn:
    """A column chunk from its first byte on, as Arrow reads it: `scans`, one after the other.

    `position`: how far Arrow has come, as if nothing were between the scans. `is_whole`: all of
    the chunk is read.
    """

    position: int
    scans: deque[ColumnScan]
    is_whole: bool = True


class _FetchThreads:
    def __init__(self, source: RangeSource, count: int) -> None:
        self._source = source
        self._requests: SimpleQueue[tuple[Future[bytes], int, int] | None] = SimpleQueue()
        self._closed = False
        # Daemon threads: a request that hangs in the store must not keep the process alive.
        self._threads = [
            Thread(target=self._run, name=f"parquet {source.version.uri}", daemon=True)
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, start: int, end: int) -> Future[bytes]:
        outcome: Future[bytes] = Future()
        self._requests.put((outcome, start, end))
        return outcome

    def close(self) -> None:
        # Drops requests that have not started; waits briefly for those in flight.
        self._closed = True
        # One end mark per thread: each thread takes one.
        for _ in self._threads:
            self._requests.put(None)
        for thread in self._threads:
            thread.join(CLOSE_WAIT_SECONDS / len(self._threads))

    def _run(self) -> None:
        while (request := self._requests.get()) is not None and not self._closed:
            outcome, start, end = request
            if outcome.set_running_or_notify_cancel():
                with ExceptionRelay(outcome):
                    outcome.set_result(self._source.read(start, end))


class BlockPrefetcher:
    """Fetches the blocks of consecutive row groups once each, in the order of need.

    Used by one thread (Arrow's); only `source.read` runs on others. `views` are the sets of leaf
    columns that are scanned, each by a `RowGroupFile` of its own. Groups must be scanned in order.
    Ranges up to `gap_bytes` apart share a request. With `page_limit_bytes`, each page is checked;
    without it, none, as encrypted ones have to.
    """

    def __init__(
        self,
        source: RangeSource,
        groups: Iterable[RowGroupRanges],
        *,
        views: Sequence[Sequence[int]],
        window_bytes: int,
        readers: int,
        page_limit_bytes: int | None = None,
        gap_bytes: int = LARGEST_GAP_BYTES,
    ) -> None:
        self.source = source
        self._page_limit_bytes = page_limit_bytes
        self._runs = _packed(groups, window_bytes, gap_bytes)
        self._gap_bytes = gap_bytes
        self._views = views
        self._window_bytes = window_bytes
        self._scans: dict[tuple[int, int, int], list[ColumnScan]] = {}
        self._queue: deque[Block] = deque()
        self._held_bytes = 0
        self._readers = _FetchThreads(source, readers) if readers else None

    def close(self) -> None:
        """Drop requests that have not started."""
        if self._readers is not None:
            self._readers.close()

    def scans(self, view: int, group: int, part: int = 0) -> list[ColumnScan]:
        """Return the scans of a view through a row group by first byte, and start fetching."""
        # Runs are added in order, so the group is in this run or in a later one.
        while (view, group, part) not in self._scans:
            self._add_run(next(self._runs))
        self._fetch()
        return self._scans.pop((view, group, part))

    def data(self, block: Block) -> bytes:
        """Return the bytes of a block: prefetched, or read now if no thread has started."""
        if block.fetched is None:
            self._held_bytes += block.size
        # A future that is not running can be cancelled: reading here is faster than waiting.
        if block.fetched is None or block.fetched.cancel():
            block.fetched = Future()
            block.fetched.set_result(self.source.read(block.start, block.end))
        return block.fetched.result()

    def release(self, block: Block) -> None:
        """Record that one scan has passed a block; the last one frees its memory."""
        block.users -= 1
        if block.users or block.fetched is None:
            return
        # A scan may pass a block without reading it, when it ends early.
        block.fetched.cancel()
        self._held_bytes -= block.size
        self._fetch()

    def _add_run(self, run: Sequence[RowGroupRanges]) -> None:
        blocks, chunk_blocks = cut_blocks(run, self._window_bytes, self._gap_bytes)
        self._queue.extend(blocks)
        pages = {(each.group, each.part): each.pages for each in run if each.pages is not None}
        for view, columns in enumerate(self._views):
            for group in run:
                self._scans[view, group.group, group.part] = []
            for chunk, blocks_of_chunk in chunk_blocks:
                if chunk.column in columns:
                    limit, guard = self._page_limit_bytes, None
                    if limit is not None:
                        indexed = pages.get((chunk.group, chunk.part), {}).get(chunk.column)
                        guard = PageGuard(chunk.start, chunk.end, limit, indexed)
                    scan = ColumnScan(
                        chunk.column, chunk.start, chunk.end, deque(blocks_of_chunk), guard
                    )
                    self._scans[view, chunk.group, chunk.part].append(scan)
                    for block in blocks_of_chunk:
                        block.users += 1

    def _fetch(self) -> None:
        while self._readers is not None:
            if not self._queue:
                run = next(self._runs, None)
                if run is None:
                    return
                self._add_run(run)
            block = self._queue[0]
            # A block without users contains columns of no view; a scan may have read it already.
            if block.users and block.fetched is None:
                # The block stays first in the queue until a release makes room.
                if self._held_bytes + block.size > HELD_WINDOWS * self._window_bytes:
                    return
                self._held_bytes += block.size
                block.fetched = self._readers.submit(block.start, block.end)
            self._queue.popleft()


class PageContradiction(CorruptObject):
    """A page that is read is not the one in the page index, by which others were skipped."""


class _FirstError:
    """Keeps the exception raised inside, which Arrow may wrap or replace."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        self.raised = raised or self.raised


class RowGroupFile(io.IOBase):
    """The object as a file for Arrow, limited to one row group at a time.

    Not thread-safe. `check()` re-raises the exception of a failed read unchanged. `close()` frees
    nothing: `release_blocks` and `BlockPrefetcher` do.
    """

    def __init__(self, ahead: BlockPrefetcher, view: int = 0) -> None:
        self._ahead = ahead
        self._view = view
        self._size = ahead.source.version.size
        self._first_error = _FirstError()
        self._columns: list[_ScannedColumn] = []
        self._starts: list[int] = []
        self._position = 0

    def open(self, group: int) -> None:
        """Move to a row group; releases the blocks of the previous one."""
        self.release_blocks()
        scans = self._ahead.scans(self._view, group)
        self._columns = [_ScannedColumn(scan.position, deque([scan])) for scan in scans]
        self._starts = [scan.position for scan in scans]

    def open_parts(self, group: int, parts: int, starts: Mapping[int, int]) -> None:
        """Move to a row group of which `parts` are read, as `open`.

        `starts` are the first bytes of the column chunks, by leaf column.
        """
        self.release_blocks()
        scans: dict[int, deque[ColumnScan]] = {column: deque() for column in starts}
        for part in range(parts):
            for scan in self._ahead.scans(self._view, group, part):
                scans[scan.column].append(scan)
        self._columns = [
            _ScannedColumn(start, scans[column], is_whole=False)
            for column, start in sorted(starts.items(), key=itemgetter(1))
        ]
        self._starts = [column.position for column in self._columns]

    def release_blocks(self) -> None:
        """Release the blocks of the row group."""
        for column in self._columns:
            for scan in column.scans:
                while scan.blocks:
                    self._ahead.release(scan.blocks.popleft())
        self._columns, self._starts = [], []
        # It concerns this row group alone.
        if isinstance(self._first_error.raised, PageContradiction):
            self._first_error.raised = None

    def check(self) -> None:
        """Raise the exception of a read, if any."""
        if self._first_error.raised is not None:
            raise self._first_error.raised

    @property
    def refused(self) -> str:
        """Why a page of the row group did not reach Arrow, if one did not."""
        scans = (scan for column in self._columns for scan in column.scans)
        reasons = (each.guard.refused for each in scans if each.guard)
        return next(filter(None, reasons), "")

    def readable(self) -> bool:
        """Return True: Arrow asks before it reads."""
        return True

    def seek(self, position: int, whence: int = 0) -> int:
        """Set the position, as files do."""
        self._position = position + (0, self._position, self._size)[whence] if whence else position
        return self._position

    def read(self, size: int) -> bytes | memoryview:
        """Return `size` bytes; fewer only at the end of the object."""
        end = min(self._position + size, self._size)
        pieces: list[bytes | memoryview] = []
        with self._first_error:
            index = bisect_right(self._starts, self._position) - 1
            column = self._columns[index] if index >= 0 else None
            if column is not None and column.position == self._position:
                for piece in self._pieces(column, end - self._position):
                    pieces.append(piece)
                    column.position += len(piece)
                self._position = column.position
            # Arrow reads up to 100 bytes beyond a chunk of an old parquet-mr (PARQUET-816).
            if self._position < end and (column is None or column.is_whole):
                pieces.append(self._ahead.source.read(self._position, end))
                self._position = end
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _pieces(self, column: _ScannedColumn, size: int) -> Iterator[bytes | memoryview]:
        """Yield the next `size` bytes of a column; fewer only at its end."""
        while size and column.scans:
            scan = column.scans[0]
            if scan.position == scan.end:
                if len(column.scans) == 1:
                    # The last one stays: it may have been refused.
                    return
                column.scans.popleft()
                continue
            block = scan.blocks[0]
            stop = min(scan.position + size, block.end, scan.end)
            data = memoryview(self._ahead.data(block))
            piece: bytes | memoryview = data[scan.position - block.start : stop - block.start]
            if scan.guard is not None:
                piece = self._guarded(scan, scan.guard, piece)
            scan.position = stop
            size -= len(piece)
            if stop in (block.end, scan.end):
                self._ahead.release(scan.blocks.popleft())
            yield piece

    def _guarded(
        self, scan: ColumnScan, guard: PageGuard, piece: bytes | memoryview
    ) -> bytes | memoryview:
        try:
            return guard.passed(scan.position, piece, partial(self._ahead_of, scan))
        except IndexContradictionError as exc:
            version = self._ahead.source.version
            raise PageContradiction(
                f"{version.uri}[{scan.position}-{scan.end}) contradicts its page index: {exc}; rows"
                " may have been skipped by it; set parquet.page.index=false and deliver the object"
                f" in full with {again_command(version.address)}, or upload it again"
            ) from exc

    def _ahead_of(self, scan: ColumnScan, start: int, size: int) -> bytes | memoryview:
        """Return bytes of a scan that it has not passed, fewer than `size` at its end."""
        end = min(start + size, scan.end)
        pieces = []
        for block in scan.blocks:
            if block.start >= end:
                break
            if block.end > start:
                data = memoryview(self._ahead.data(block))
                pieces.append(data[max(start, block.start) - block.start : end - block.start])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
