"""The ceiling: payloads in memory, through our own sink, exactly once.

Nothing is read, decoded or converted during the measurement; only the Kafka client remains.
"""

import os
import time
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from bench.process import serve
from extentflow.converters import open_converter
from extentflow.kafka import ProducerSettings, Records, Sink, SlotProgress
from extentflow.storage.ranges import WINDOW_BYTES
from extentflow.wiring import Runtime

BATCH_ROWS = 1 << 14
NEVER = "\x01"  # no line has it


@cache
def payloads(path: str) -> Sequence[pa.Array]:
    """Return the values of a whole file: the rows of a Parquet file as JSON, else lines."""
    return _json(path) if path.endswith(".parquet") else _lines(path)


def main() -> None:
    """Process runs through one warm sink."""
    runtime = Runtime.from_environment()
    pa.set_cpu_count(1)
    client = ProducerSettings(max_message_bytes=1_048_588)
    sink = runtime.broker.fence(f"bench-ceiling-{os.getpid()}", client).open()
    serve(partial(_run, sink, runtime.settings.transaction_max_bytes))
    sink.close()


def _run(sink: Sink, transaction_bytes: int, request: dict[str, Any]) -> dict[str, Any]:
    arrays = payloads(request["path"])
    started = time.perf_counter()
    waiting = records = 0
    for values in arrays:
        sink.send(Records(request["topic"], values))
        records += len(values)
        waiting += values.nbytes
        if waiting >= transaction_bytes:
            sink.commit(SlotProgress(epoch=1, position=records))
            waiting = 0
    sink.commit(SlotProgress(epoch=1, position=records, done=True))
    return {"seconds": time.perf_counter() - started, "records": records}


def _json(path: str) -> Sequence[pa.Array]:
    with pq.ParquetFile(path) as file:
        convert = open_converter("json", file.schema_arrow)
        return [convert(batch) for batch in file.iter_batches(BATCH_ROWS)]


def _lines(path: str) -> Sequence[pa.Array]:
    """Return a file's lines, window by window, as a single column."""
    table = pc.read_csv(
        path,
        read_options=pc.ReadOptions(column_names=["value"], block_size=WINDOW_BYTES),
        parse_options=pc.ParseOptions(delimiter=NEVER, quote_char=False),
        convert_options=pc.ConvertOptions(column_types={"value": pa.binary()}),
    )
    chunks: list[pa.Array] = table.column(0).chunks
    return chunks


if __name__ == "__main__":
    main()
