"""`SUITE=columnar`: values that hold many rows as columns, against a value per row.

One process delivers from a local file; another one reads the topics. The table of sizes is made
without Kafka: the same rows in batches of several lengths. With it, the test plan of KIP-1008 is
carried out: sizes, CPU of producers and consumers, with and without columns.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from demo import tpch
from demo.rig import broker_seconds
from demo.tpch import DataSet

from bench.competitors import EXACTLY_ONCE
from bench.pairs import Run, alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import Stand, Terms
from extentflow.columnar.schemas import plain
from extentflow.columnar.values import encoder, to_plain
from extentflow.converters import open_converter

NAME = "columnar"
LINEITEM_SCALE = 1.0
# Two of sixteen columns, and the fifth of the bytes that is asked for at most.
NARROW = "l_orderkey,l_linenumber"
LARGE = {"max.message.bytes": str(8 << 20)}
AS_PARQUET = {**EXACTLY_ONCE, "columnar.encoding": "parquet"}
PRODUCERS: Mapping[str, Mapping[str, str]] = {
    "rows": EXACTLY_ONCE,
    "parquet": {**AS_PARQUET, "columnar.passthrough": "false"},
    "arrow": {**EXACTLY_ONCE, "columnar.encoding": "arrow"},
    "passed_through": AS_PARQUET,
}
GROUPED = {**PRODUCERS["parquet"], "columnar.groups": f"narrow: {NARROW}; rest: *"}
CONSUMERS = {
    "rows_by_orjson": ("rows", "orjson"),
    "parquet_in_batches": ("parquet", "batches"),
    "arrow_in_batches": ("arrow", "batches"),
    "parquet_as_dicts": ("parquet", "rows"),
}
BATCH_ROWS = (100, 1_000, 10_000, 30_000)


def measure(terms: Terms) -> Result:
    """Alternate the producers, then the consumers of what they wrote, then encode batches."""
    scale = LINEITEM_SCALE * terms.scale
    data = tpch.lineitem(terms.data, scale)
    rows = pq.read_metadata(data.path).num_rows
    with Stand.open(terms, NAME) as stand, ExitStack() as processes:
        here = processes.enter_context(_process(stand, "bench.processes.ours", "here"))
        reader = processes.enter_context(_process(stand, "bench.processes.consumers"))
        produced = alternate(
            {kind: _producing(stand, here, data, rows, kind) for kind in PRODUCERS},
            terms.pairs,
            terms.notify,
        )
        topics = {kind: _topic(stand, kind) for kind in PRODUCERS}
        for kind, config in PRODUCERS.items():
            _deliver(stand, here, data, topics[kind], config)
        wire = {kind: stand.rig.logged_bytes(topic) / rows for kind, topic in topics.items()}
        grouped = stand.fresh()
        narrow, rest = (stand.topic(name=f"{grouped}.{group}") for group in ("narrow", "rest"))
        _deliver(stand, here, data, grouped, GROUPED)
        read: dict[str, Callable[[], Run]] = {
            name: _consuming(stand, reader, topics[kind], rows, way)
            for name, (kind, way) in CONSUMERS.items()
        }
        read |= {
            "narrow_group": _consuming(stand, reader, narrow, rows, "batches"),
            "all_groups": _consuming(stand, reader, f"{rest},{narrow}", rows, "batches"),
        }
        consumed = alternate(read, terms.pairs, terms.notify)
        bytes_of = {
            name: stand.rig.logged_bytes(topic)
            for name, topic in (("narrow", narrow), ("rest", rest))
        }
    return Result(
        case=f"lineitem Parquet, scale {scale:g}, from a local file, one process, exactly once",
        scale=terms.scale,
        pairs=terms.pairs,
        rows_per_second={**produced.rates(), **consumed.rates()},
        cpu_seconds_per_million_rows={**produced.costs(), **consumed.costs()},
        worker_peak_rss_bytes=produced.peak_rss_bytes(list(PRODUCERS)),
        ratios={
            "parquet_to_rows": produced.ratio("parquet", "rows"),
            "arrow_to_rows": produced.ratio("arrow", "rows"),
            "passed_through_to_rows": produced.ratio("passed_through", "rows"),
            "parquet_cpu_to_rows": produced.cost_ratio("parquet", "rows"),
            "arrow_cpu_to_rows": produced.cost_ratio("arrow", "rows"),
            "passed_through_cpu_to_rows": produced.cost_ratio("passed_through", "rows"),
            "parquet_bytes_to_rows": round(wire["parquet"] / wire["rows"], 3),
            "arrow_bytes_to_rows": round(wire["arrow"] / wire["rows"], 3),
            "parquet_batches_to_orjson": consumed.ratio("parquet_in_batches", "rows_by_orjson"),
            "arrow_batches_to_orjson": consumed.ratio("arrow_in_batches", "rows_by_orjson"),
            "parquet_dicts_to_orjson": consumed.ratio("parquet_as_dicts", "rows_by_orjson"),
            "narrow_to_all_groups": consumed.ratio("narrow_group", "all_groups"),
            "narrow_bytes_to_all_groups": round(
                bytes_of["narrow"] / (bytes_of["narrow"] + bytes_of["rest"]), 3
            ),
        },
        figures={
            "logged_bytes_per_row": {kind: round(size, 1) for kind, size in wire.items()},
            "sizes": {f"{count:,} rows": made for count, made in _sizes(data.path)},
            "rows_per_second_least_and_most": {**produced.spread(), **consumed.spread()},
        },
    )


def _process(stand: Stand, module: str, *arguments: str) -> WarmProcess:
    return WarmProcess.start(module, stand.rig.environment, *arguments)


def _topic(stand: Stand, kind: str) -> str:
    return stand.topic(LARGE if kind == "passed_through" else {})


def _deliver(
    stand: Stand, process: WarmProcess, data: DataSet, topic: str, config: Mapping[str, str]
) -> dict[str, Any]:
    place = {"endpoint.type": "localfile", "directory": str(data.path.parent)}
    connector = stand.connector(topic, {**config, **place})
    return process.ask(connector=connector, key=data.path.name)


def fill(stand: Stand, path: Path, topics: Mapping[str, str], times: int) -> None:
    """Deliver a local file to the topic of each kind of PRODUCERS, so many times."""
    place = {"endpoint.type": "localfile", "directory": str(path.parent)}
    with _process(stand, "bench.processes.ours", "here") as process:
        for kind, topic in topics.items():
            connector = stand.connector(topic, {**PRODUCERS[kind], **place})
            for _ in range(times):
                process.ask(connector=connector, key=path.name)


def _producing(
    stand: Stand,
    process: WarmProcess,
    data: DataSet,
    rows: int,
    kind: str,
) -> Callable[[], Run]:
    """Return runs of one kind; their CPU time is that of the client and the broker."""
    place = {"endpoint.type": "localfile", "directory": str(data.path.parent)}
    connector = stand.connector(_topic(stand, kind), {**PRODUCERS[kind], **place})

    def run() -> Run:
        before = broker_seconds(stand.rig.root)
        answer = process.ask(connector=connector, key=data.path.name)
        if answer["records"] != rows:
            raise RuntimeError(f"{answer['records']:,} rows of {rows:,}")
        spent = answer["cpu_seconds"] + broker_seconds(stand.rig.root) - before
        return Run(rows, answer["seconds"], spent, answer["worker_peak_rss_bytes"])

    return run


def _consuming(
    stand: Stand, process: WarmProcess, topics: str, rows: int, way: str
) -> Callable[[], Run]:
    bootstrap = stand.rig.kafka["bootstrap.servers"]

    def run() -> Run:
        answer = process.ask(
            bootstrap=bootstrap, topics=topics.split(","), way=way, group=stand.fresh()
        )
        if answer["rows"] != rows:
            raise RuntimeError(f"{answer['rows']:,} rows of {rows:,} in {topics}")
        return Run(rows, answer["seconds"], answer["cpu_seconds"])

    return run


def _sizes(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield bytes per row, and microseconds of CPU, of batches of several lengths."""
    with pq.ParquetFile(path) as file:
        batch = next(file.iter_batches(max(BATCH_ROWS)))
    columns = plain(batch.schema)
    whole = to_plain(batch, columns)
    as_json = open_converter("json", whole.schema)
    for count in BATCH_ROWS:
        parts = [whole.slice(at, count) for at in range(0, whole.num_rows, count)]
        made: dict[str, float] = {}
        for encoding in ("parquet", "arrow"):
            encode = encoder(encoding, "zstd", columns)
            encode.observe(whole)
            started = time.process_time()
            size = sum(encode(part).size for part in parts)
            spent = time.process_time() - started
            made[f"{encoding}_bytes_per_row"] = round(size / whole.num_rows, 1)
            made[f"{encoding}_cpu_us_per_row"] = round(spent / whole.num_rows * 1e6, 2)
        for codec in ("lz4", "zstd"):
            size = sum(_compressed(as_json(part), codec) for part in parts)
            made[f"json_{codec}_bytes_per_row"] = round(size / whole.num_rows, 1)
        yield count, made


def _compressed(values: pa.Array, codec: str) -> int:
    joined = b"".join(values.to_pylist())
    return len(pa.compress(joined, codec, asbytes=True))
