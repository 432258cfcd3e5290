"""Read samples of an object, from which types are inferred at planning."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from typing import cast

import pyarrow as pa

from extentflow.errors import UnsupportedFormat
from extentflow.formats import Chunk, Format
from extentflow.model import Extent
from extentflow.storage import RangeSource

SAMPLE_BYTES = 256 << 10
_SAMPLES = 5
MOST_SAMPLED_BYTES = _SAMPLES * SAMPLE_BYTES
SAMPLE_WINDOW_BYTES = 64 << 10
_MOST_FACTS_BYTES = 200_000


def sampled_ranges(size: int) -> Iterator[tuple[int, int]]:
    """Yield where the samples of an object lie: start, quarters and end; all of a small one."""
    if size <= MOST_SAMPLED_BYTES:
        yield 0, size
        return
    for sample in range(_SAMPLES):
        start = (size - SAMPLE_BYTES) * sample // (_SAMPLES - 1)
        yield start, start + SAMPLE_BYTES


def sampled_batches(fmt: Format, source: RangeSource) -> Iterator[pa.RecordBatch]:
    """Yield what samples of an object hold; of one that is not cut, what its first content holds.

    `fmt` is opened with windows of SAMPLE_WINDOW_BYTES.
    """
    size = source.version.size
    if not size:
        return
    # Some objects cannot be cut although their format can.
    halves = list(islice(fmt.plan(source, max(1, size // 2)), 2)) if fmt.splittable else []
    for start, end in sampled_ranges(size) if len(halves) > 1 else [(0, size)]:
        extent = Extent("", 0, "", source.version, start, end, "")
        left = MOST_SAMPLED_BYTES
        # A generator: closing it ends the reads ahead.
        with closing(cast("Generator[Chunk]", fmt.decode(source, extent, 0))) as chunks:
            for chunk in chunks:
                yield chunk.batch
                left -= chunk.batch.nbytes
                if left <= 0:
                    break


def bounded(facts: str, what: str, remedy: str) -> str:
    """Return the facts. UnsupportedFormat if they are longer than a job can hold."""
    if len(facts.encode()) > _MOST_FACTS_BYTES:
        raise UnsupportedFormat(
            f"{what}: a job holds {_MOST_FACTS_BYTES} bytes of names and types, and those of the"
            f" object's columns are longer; {remedy}"
        )
    return facts
