"""How large one array of text may become, and what happens when a batch would pass that.

Owns: the limit of 32-bit offsets and the halving of batches. Refuses to know: what is converted.

Everything inside a converter works on 32-bit offsets. Each step that makes text knows its size
before it allocates: where that would pass the limit, the batch is converted in halves and the
halves are returned as one array with 64-bit offsets.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from extentflow.converters.faults import Blame, climbing, corrupt

OFFSET_LIMIT_BYTES = 2**31 - 1


class OffsetOverflowError(Exception):
    """Text would not fit 32-bit offsets; never leaves a converter."""


def require(size_bytes: int, limit_bytes: int) -> None:
    """Raise OffsetOverflowError where text of `size_bytes` would pass the limit."""
    if size_bytes > limit_bytes:
        raise OffsetOverflowError


def in_halves(
    convert: Callable[[pa.RecordBatch], pa.BinaryArray], batch: pa.RecordBatch
) -> pa.BinaryArray | pa.LargeBinaryArray:
    """Convert a batch, in halves (and their halves) where its text would pass the limit.

    Raises:
        CorruptRecord: as `convert`, over all halves; also a row that passes the limit by itself.
    """
    try:
        return convert(batch)
    except OffsetOverflowError as exc:
        if batch.num_rows == 1:
            reason = "its text is longer than 2 GiB; no Kafka record can be"
            raise corrupt({0: reason}) from exc
    return _halved(convert, batch)


def _halved(
    convert: Callable[[pa.RecordBatch], pa.BinaryArray], batch: pa.RecordBatch
) -> pa.LargeBinaryArray:
    middle = batch.num_rows // 2
    halves: list[pa.LargeBinaryArray] = []
    blame = Blame()
    for start, half in ((0, batch.slice(0, middle)), (middle, batch.slice(middle))):
        with blame.gather(), climbing(partial(np.add, start)):
            halves.append(in_halves(convert, half).cast(pa.large_binary()))
    blame.settle()
    return pa.concat_arrays(halves)
