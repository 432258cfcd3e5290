"""Objects that are hard to read, each with a second implementation that reads it."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from tests.laws.laws import chunks
from tests.unit.formats.comparison.values import Plain

from extentflow.formats import Format, FormatOptions, open_format
from extentflow.testing.stores import MemorySource

# Returns columns of plain values (`values`); the schema is that of what is delivered.
Reader = Callable[[bytes, Path, pa.Schema], Mapping[str, Sequence[Plain]]]


@dataclass(frozen=True, eq=False)
class Nasty:
    """An object: `write` makes it, `read` is the other implementation.

    `input_format`, `options` and `own` are what it is delivered with, `bad` how many bad records
    it has.
    """

    name: str
    input_format: str
    write: Callable[[], bytes]
    read: Reader
    options: FormatOptions = field(default_factory=FormatOptions)
    own: object = None
    bad: int = 0

    def opened(self, window_bytes: int = 1 << 20, batch_rows: int = 65_536) -> Format:
        """Return its format with these sizes."""
        sizes = replace(self.options, window_bytes=window_bytes, batch_rows=batch_rows)
        return open_format(self.input_format, sizes, self.own)


@dataclass
class Delivered:
    """The batches of extents, and the number of bad records."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    bad: int = 0

    @property
    def table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(self.batches)


def delivered(fmt: Format, body: bytes, cuts: Sequence[int]) -> Delivered:
    """Decode the extents between neighbouring cuts."""
    found, source = Delivered(), MemorySource(body)
    for start, end in pairwise(cuts):
        for chunk in chunks(fmt, source, start, end):
            found.batches.append(chunk.batch)
            found.bad += len(chunk.bad)
    return found


def partitions(fmt: Format, body: bytes) -> Iterator[Sequence[int]]:
    """Yield partitions of an object: as planned, and at random bytes."""
    size, source = len(body), MemorySource(body)
    yield [0, *(end for _, end in fmt.plan(source, size // 10 + 1))]
    if fmt.splittable:
        chance = random.Random(size)
        for count in (1, 20):
            yield [0, *sorted(chance.sample(range(1, size), min(count, size - 1))), size]
