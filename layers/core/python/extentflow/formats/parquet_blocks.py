"""How row groups are cut into blocks that are fetched in one request each.

Owns: where blocks begin and end, the order in which they are needed. Refuses to know: requests,
memory, what a column holds.

    row groups up to a window    |g0 g1 g2|g3 g4 g5|       a run of whole row groups is one block
    a larger row group           |a |a |a |b |b |cde|f |f |    large column chunks are cut, small
                                                               neighbours share a block

Arrow walks through all column chunks of a row group side by side, each from its first byte to its
last. So a block is needed when that walk enters it, at about the same fraction of every chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Protocol, TypeVar

__all__ = ["Block", "Chunk", "Chunks", "cut", "runs"]

WALK_WINDOWS = 3
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
    fetched: Future[bytes] | None = None

    @property
    def size(self) -> int:
        """How many bytes the block holds."""
        return self.end - self.start


class _Stretch(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """One column chunk: bytes `[start, end)`."""

    start: int
    end: int
    group: int
    column: int


_S = TypeVar("_S", bound=_Stretch)


def runs(groups: Iterable[Chunks], window_bytes: int) -> Iterator[list[Chunks]]:
    """Yield neighbouring row groups that fit into a window together, larger ones alone."""
    return _packed(groups, window_bytes)


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


def cut(
    run: Sequence[Chunks], window_bytes: int
) -> tuple[list[Block], list[tuple[Chunk, list[Block]]]]:
    """Return a run's blocks in the order of need, and its column chunks with theirs."""
    share = _share(run, window_bytes)
    chunks = sorted(
        (start, end, group.group, column)
        for group in run
        for column, (start, end) in enumerate(group.ranges)
        if start < end
    )
    order: list[tuple[float, int, Block]] = []
    homes: list[tuple[Chunk, list[Block]]] = []
    for pack in _packed((Chunk(*chunk) for chunk in chunks), share):
        blocks = _blocks(pack[0].start, max(chunk.end for chunk in pack), share)
        order += [(i / len(blocks), block.start, block) for i, block in enumerate(blocks)]
        homes += [(chunk, blocks) for chunk in pack]
    order.sort(key=itemgetter(0, 1))
    return [block for _, _, block in order], homes
