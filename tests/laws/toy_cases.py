"""A third party's format, registered from outside: records of five bytes, columnar places."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from tests.laws.laws import FormatCase, Sample

from extentflow.errors import StoreUnavailable
from extentflow.formats import Chunk, FormatOptions
from extentflow.model import Extent
from extentflow.storage import RangeSource

WIDTH = 5


@dataclass(frozen=True)
class FiveBytes:
    """Record n stands at byte 5 n; a position is a row ordinal within the extent."""

    options: FormatOptions
    splittable: bool = True
    location_unit: Literal["offset", "row"] = "row"
    extent_bytes: int | None = 32 << 20
    cut_version = 1

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of equal size, wherever they fall."""
        size = source.version.size
        for start in range(0, size, target_bytes):
            yield start, min(start + target_bytes, size)

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the records whose first byte is the extent's."""
        first, last = -(-extent.start // WIDTH), -(-extent.end // WIDTH)
        window = max(1, self.options.window_bytes // WIDTH)
        step = min(self.options.batch_rows, window)
        for row in range(first + position, last, step):
            rows = range(row, min(row + step, last))
            body = source.read(rows.start * WIDTH, rows.stop * WIDTH)
            if len(body) != len(rows) * WIDTH:
                raise StoreUnavailable("short")
            values = [body[at : at + WIDTH] for at in range(0, len(body), WIDTH)]
            batch = pa.record_batch([pa.array(values, pa.binary())], names=["record"])
            yield Chunk(batch, rows.stop - first, rows)


def _sample(name: str, count: int) -> Sample:
    values = [f"{number:05}".encode() for number in range(count)]
    rows = [{"record": value} for value in values]
    return Sample(name, b"".join(values), rows, locations=range(count))


CASES = [
    FormatCase(
        "five-bytes",
        FiveBytes,
        [_sample("one", 1), _sample("nine", 9)],
        [_sample("many", 5000)],
    )
]
