"""Decode Avro's binary encoding to Arrow arrays on columns, without a Python object per value.

A record begins where the previous one ends, and nothing states its length. So blocks are decoded in
two steps, both with one cursor per record instead of one loop over values:

    where records begin    one cursor per block; all of them pass record 0, then record 1, ...
    columns                one cursor per record; all of them pass field 0, then field 1, ...

Where few blocks are left, a loop over their values finds where records begin, at the speed of one.
The first step checks every length and branch, so the second one reads within its records. A cursor
that leaves its block stops at the end of the content, and the block is refused when it ends there.

Tests: unit/formats/avro/test_avro_format.py
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.arrays.spans import Spans
from extentflow.decoders.avro_content import Content, Cursors, DamagedBlock
from extentflow.decoders.avro_nodes import Node, Record

# With fewer cursors than these, a loop over values is faster.
FEWEST_CURSORS = 24


def record_starts(
    content: Content, node: Node, begins: Cursors, ends: Cursors, counts: NDArray[np.int64]
) -> Cursors:
    """Return where each record begins, block by block.

    DamagedBlock if the records of a block do not end where the block does.
    """
    # Each record takes a byte at least.
    if (counts > ends - begins).any():
        raise DamagedBlock("it has more records than bytes")
    firsts = np.cumsum(counts) - counts
    starts = np.empty(counts.sum(), np.int64)
    # The blocks with the most records come first, so that those still open lead.
    order = np.argsort(-counts, kind="stable")
    at, firsts, left, ends = begins[order], firsts[order], counts[order].tolist(), ends[order]
    active, record = len(left), 0
    while True:
        while active and left[active - 1] <= record:
            active -= 1
        if active < FEWEST_CURSORS:
            break
        starts[firsts[:active] + record] = at[:active]
        at[:active] = node.skip(content, at[:active])
        record += 1
    for block in range(active):
        first = firsts[block]
        places = _starts_in_turn(content, node, int(at[block]), left[block] - record)
        starts[first + record : first + left[block]] = places[:-1]
        at[block] = places[-1]
    if (at != ends).any():
        raise DamagedBlock("its records do not end where it ends")
    return starts


def _starts_in_turn(content: Content, node: Node, at: int, count: int) -> list[int]:
    """Return where `count` records begin, and the end of the last one."""
    places = [at]
    try:
        for _ in range(count):
            at = node.step(content.joined, at)
            places.append(at)
    except IndexError:
        raise DamagedBlock("a value is longer than its block") from None
    return [min(place, content.size + 1) for place in places]


def decode_values(record: Record, texts: Spans) -> pa.RecordBatch:
    """Return texts of one record each as rows. DamagedBlock: one is not of the schema."""
    first, last = (int(texts.starts[0]), int(texts.ends[-1])) if len(texts) else (0, 0)
    content = Content([texts.data[first:last].data])
    ones = np.ones(len(texts), np.int64)
    starts = record_starts(content, record, texts.starts - first, texts.ends - first, ones)
    columns, _ = record.columns(content, starts)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(record.arrow)))
