"""`SUITE=formats`: every format, decoded, converted to JSON and sent, against a loop over its rows.

One process, a local file, and librdkafka's mock of a broker: what a format costs by itself, with
the call that queues its records. All formats hold the same rows.
The memory of Parquet is also measured for shapes that need most of it. Each competitor has a
process of its own, because a peak covers the whole life of a process.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq

from bench.pairs import Run, Runs, alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import Terms

PAGE = Path(__file__).parents[1] / "docs" / "formats.md"
ROWS = 1_000_000
BATCH_ROWS = 10_000
GIGABYTE = 10**9
# Where the pages of one row group are unpacked to this, at scale 1.
LARGE_GROUP_BYTES = 1 << 30
WIDE_COLUMNS, WIDE_ROWS = 3_000, 20_000
LONG_TEXT_BYTES, LONG_TEXT_ROWS = 64 << 10, 8_000

_AVRO = fastavro.parse_schema(
    {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "amount", "type": "double"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "paid", "type": "boolean"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "quantity", "type": "int"},
        ],
    }
)


def orders(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of eight columns; the same rows every time."""
    chance = np.random.default_rng(7)
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        ids = np.arange(first, first + count)
        notes = [f"left at door {n} of house {n % 89}" if n % 3 else None for n in ids]
        yield pa.record_batch(
            {
                "id": pa.array(ids),
                "customer": pa.array([f"Customer#{n % 99_991:09}" for n in ids]),
                "amount": pa.array(np.round(chance.random(count) * 10_000, 2)),
                "day": pa.array((ids % 4_000 + 8_000).astype(np.int32), pa.date32()),
                "seen": pa.array(
                    ids * 1_000_003 + 1_600_000_000_000_000, pa.timestamp("us", "UTC")
                ),
                "paid": pa.array(ids % 7 != 0),
                "note": pa.array(notes, pa.string()),
                "quantity": pa.array((ids % 50).astype(np.int32)),
            }
        )


def _csv(path: Path, table: pa.Table) -> None:
    pyarrow.csv.write_csv(table, path)


def _json_lines(path: Path, table: pa.Table) -> None:
    with path.open("wb") as file:
        for batch in table.to_batches():
            file.writelines(orjson.dumps(row) + b"\n" for row in batch.to_pylist())


def _json(path: Path, table: pa.Table) -> None:
    with path.open("wb") as file:
        before = b"[\n"
        for batch in table.to_batches():
            for row in batch.to_pylist():
                file.write(before + orjson.dumps(row))
                before = b",\n"
        file.write(b"]\n")


def _parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def _arrow(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=BATCH_ROWS)


def _avro(path: Path, table: pa.Table) -> None:
    with path.open("wb") as file:
        rows = (row for batch in table.to_batches() for row in batch.to_pylist())
        fastavro.writer(file, _AVRO, rows, codec="deflate", sync_interval=64_000)


def _orc(path: Path, table: pa.Table) -> None:
    pyarrow.orc.write_table(table, path, compression="zstd")


# By format, in the order of the table; `text` and `bytes` read the file of `csv`.
WRITERS: Mapping[str, Callable[[Path, pa.Table], None]] = {
    "text": _csv,
    "csv": _csv,
    "jsonl": _json_lines,
    "json": _json,
    "parquet": _parquet,
    "avro": _avro,
    "orc": _orc,
    "arrow": _arrow,
    "bytes": _csv,
}


def _large_group(path: Path, scale: float) -> None:
    rows = max(1_000, round(LARGE_GROUP_BYTES * scale / 108))
    columns = {f"c{n}": pa.array(np.arange(rows) * (n + 1)) for n in range(8)}
    columns["text"] = pa.array([f"{n:040}" for n in range(rows)])
    table = pa.table(columns)
    pq.write_table(table, path, row_group_size=rows, compression="zstd", use_dictionary=False)


def _many_columns(path: Path, scale: float) -> None:
    rows = max(100, round(WIDE_ROWS * scale))
    numbers = np.arange(rows)
    table = pa.table({f"column_{n}": numbers * n for n in range(WIDE_COLUMNS)})
    pq.write_table(table, path, row_group_size=max(50, rows // 2), use_dictionary=False)


def _long_texts(path: Path, scale: float) -> None:
    rows = max(100, round(LONG_TEXT_ROWS * scale))
    chance = np.random.default_rng(7)
    letters = [chance.integers(97, 123, LONG_TEXT_BYTES, np.uint8).tobytes() for _ in range(64)]
    texts = [f"{n:09}".encode() + letters[n % len(letters)] for n in range(rows)]
    table = pa.table({"n": range(rows), "text": pa.array(texts, pa.string())})
    pq.write_table(table, path, row_group_size=rows, use_dictionary=False)


# Shapes of Parquet whose memory is measured, without a loop beside them.
SHAPES: Mapping[str, Callable[[Path, float], None]] = {
    "one row group of 1 GiB": _large_group,
    "3,000 columns": _many_columns,
    "texts of 64 KiB": _long_texts,
}


@dataclass(frozen=True, slots=True)
class Competitor:
    """One way of reading one file; every run has to find as many records."""

    process: WarmProcess
    path: Path
    format: str
    way: str

    def __call__(self) -> Run:
        """Read the file once."""
        answer = self.process.ask(path=str(self.path), format=self.format, way=self.way)
        peak = answer["worker_peak_rss_bytes"]
        return Run(answer["records"], answer["seconds"], answer["cpu_seconds"], peak)


def measure(terms: Terms) -> Result:
    """Alternate both ways for each format, then read each shape once."""
    table = pa.Table.from_batches(orders(round(ROWS * terms.scale)))
    found: dict[str, dict[str, Any]] = {}
    rates: dict[str, int] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=_folder(terms)) as folder:
        path = Path(folder, "object")
        for name, write in WRITERS.items():
            write(path, table)
            runs = _compared(path, name, terms)
            _require_same_records(name, runs)
            found[name] = _figures(path.stat().st_size, runs)
            rates |= {name: runs.rates()["columns"], f"{name}_row_by_row": runs.rates()["rows"]}
            ratios[f"{name}_to_row_by_row"] = runs.ratio("columns", "rows")
        del table
        peaks = dict(_peaks(path, terms))
    return Result(
        case="eight columns in every format, decoded, converted to JSON and sent to a mock broker",
        scale=terms.scale,
        pairs=terms.pairs,
        rows_per_second=rates,
        ratios=ratios,
        figures={"formats": found, "parquet_peak_rss_bytes": peaks},
    )


def _folder(terms: Terms) -> Path:
    folder = terms.root / "var" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _compared(path: Path, name: str, terms: Terms) -> Runs:
    with ExitStack() as stack:
        competitors = {
            way: Competitor(stack.enter_context(_process()), path, name, way)
            for way in ("columns", "rows")
        }
        return alternate(competitors, terms.pairs, lambda line: terms.notify(f"{name}, {line}"))


def _process() -> WarmProcess:
    return WarmProcess.start("bench.processes.formats", dict(os.environ))


def _require_same_records(name: str, runs: Runs) -> None:
    counts = {run.rows for each in runs.by_name.values() for run in each}
    if len(counts) > 1:
        raise RuntimeError(f"{name}: the competitors found {sorted(counts)} records")


def _figures(size: int, runs: Runs) -> dict[str, Any]:
    run_of_median = sorted(runs.by_name["columns"], key=lambda run: run.seconds)
    median = run_of_median[len(run_of_median) // 2]
    return {
        "object_bytes": size,
        "rows_per_second": runs.rates()["columns"],
        "megabytes_per_second": round(size / 1e6 / median.seconds, 1),
        "cpu_seconds_per_gigabyte": round(median.cpu_seconds / size * GIGABYTE, 1),
        "peak_rss_bytes": runs.peak_rss_bytes(["columns"]),
        "to_row_by_row": runs.ratio("columns", "rows"),
    }


def _peaks(path: Path, terms: Terms) -> Iterator[tuple[str, int]]:
    for name, write in SHAPES.items():
        write(path, terms.scale)
        with _process() as process:
            run = Competitor(process, path, "parquet", "columns")()
        terms.notify(f"parquet, {name}: peak memory {run.peak_rss_bytes >> 20} MiB")
        yield name.replace(" ", "_"), run.peak_rss_bytes


def measured(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the measured part of the page."""
    return "\n".join(_table(results.get("formats", {}).get("formats", {})))


def _table(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not found:
        yield "Not recorded yet."
        return
    yield "| format | rows/s | MB/s of the object | CPU seconds per GB | peak memory | to a loop |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, of in found.items():
        cells = (
            f"{of['rows_per_second']:,}",
            f"{of['megabytes_per_second']:g}",
            f"{of['cpu_seconds_per_gigabyte']:g}",
            f"{of['peak_rss_bytes'] >> 20} MiB",
            f"{of['to_row_by_row']:.1f}",
        )
        yield f"| `{name}` | {' | '.join(cells)} |"
