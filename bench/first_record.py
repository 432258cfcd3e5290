"""`SUITE=first-record`: seconds from the submission of an object to its 1,280th committed record.

`warm`: the submission is a request to a worker that ran before: one process, with its slot, its
producer and its connections. `cold`: it is the start of `extentflow run --engine inline --cores 1`.
The run is stopped after the record. Every run has an object of its own, a copy.
"""

import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from demo import tpch
from demo.rig import PROGRAM

from bench.data import customer, line_count
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import BUCKET, Stand, Terms
from bench.witness import Witness

NAME = "first-record"
RECORDS = 1_280
TPCH_SCALE = 0.1
COLD_LAPS = 2  # to five warm ones
CELL_SECONDS = 10.0
"""After so long a cell has no further runs: extents of 1 KiB take their time."""
END_SECONDS = 60.0
AUTO = "auto"
EXTENTS = ("1KiB", "4KiB", "1MiB", "4MiB", "1GiB", "4GiB", AUTO)

Submit = Callable[[str, str], "Submission"]


@dataclass(frozen=True, slots=True)
class Submission:
    """A run in progress: its start time, whether it is active, how to end it."""

    started: float
    goes_on: Callable[[], bool]
    end: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table: a data set with an extent size."""

    name: str
    data: tpch.DataSet
    extent_bytes: str


def cells(terms: Terms) -> Iterator[Cell]:
    """Yield every data set with every extent size; finally lineitem, and ten times lineitem."""
    scale = TPCH_SCALE * terms.scale
    sets = {
        "customer CSV": customer(terms.data, scale, "csv"),
        "customer Parquet": customer(terms.data, scale, "parquet"),
        "lineitem Parquet": tpch.lineitem(terms.data, scale),
    }
    for name, data in sets.items():
        for extent_bytes in EXTENTS:
            yield Cell(name, data, extent_bytes)
    yield Cell("lineitem Parquet, ten times as large", _tenfold(terms), AUTO)


def measure(terms: Terms) -> Result:
    """Measure every cell, cold and warm; seconds are medians."""
    found: list[dict[str, Any]] = []
    with (
        Stand.open(terms, NAME) as stand,
        WarmProcess.start("bench.processes.ours", stand.rig.environment, "here") as process,
    ):
        for cell in cells(terms):
            found.append(_seconds(stand, cell, process, terms.pairs))
            terms.notify(", ".join(f"{name} {value}" for name, value in found[-1].items()))
    one, ten = (row["warm_seconds"] for row in found[-2:])
    return Result(
        case=f"seconds from submission to the {RECORDS:,}th committed record, one process",
        scale=terms.scale,
        pairs=terms.pairs,
        ratios={"ten_times_as_large_to_one": round(ten / one, 3)},
        figures={"lineitem_warm_seconds": max(one, ten), "objects": found},
    )


def _seconds(stand: Stand, cell: Cell, process: WarmProcess, pairs: int) -> dict[str, Any]:
    """Return one cell's figures; the first warm run is the warm-up."""
    records = min(RECORDS, _rows(cell.data))
    key = stand.upload(cell.data.path)
    topic = stand.topic()
    connector = stand.connector(topic, {"extent.bytes": cell.extent_bytes})

    def seconds(submit: Submit) -> float:
        copied = stand.copy(key)
        with Witness.of(stand.rig.kafka, topic) as witness:
            submission = submit(connector, copied)
            try:
                return witness.await_records(records, submission.goes_on) - submission.started
            finally:
                submission.end()
                stand.remove(copied)

    cold = [seconds(_cold(stand)) for _ in range(max(1, pairs * COLD_LAPS // 5))]
    seconds(_warm(process))
    warm: list[float] = []
    while len(warm) < pairs and sum(warm) < CELL_SECONDS:
        warm.append(seconds(_warm(process)))
    return {
        "object": cell.name,
        "object_bytes": cell.data.size,
        "extent_bytes": cell.extent_bytes,
        "cold_seconds": round(statistics.median(cold), 3),
        "warm_seconds": round(statistics.median(warm), 3),
        "warm_runs": len(warm),
    }


def _warm(process: WarmProcess) -> Submit:
    def submit(connector: str, key: str) -> Submission:
        """Send the request in a thread, so that the consumer can be polled."""
        answers: list[Mapping[str, Any]] = []
        asking = threading.Thread(
            target=lambda: answers.append(process.ask(connector=connector, key=key))
        )

        def end() -> None:
            if asking.is_alive():
                process.interrupt()
            asking.join(END_SECONDS)
            if not answers:
                raise RuntimeError("the process did not answer")

        started = time.perf_counter()
        asking.start()
        return Submission(started, asking.is_alive, end)

    return submit


def _cold(stand: Stand) -> Submit:
    def submit(connector: str, key: str) -> Submission:
        command = [str(PROGRAM), "run", f"s3://{BUCKET}/{key}", "--connector", connector]
        started = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--engine", "inline", "--cores", "1", "--json"],
            env=dict(stand.rig.environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def end() -> None:
            process.terminate()
            process.wait(END_SECONDS)

        return Submission(started, lambda: process.poll() is None, end)

    return submit


def _tenfold(terms: Terms) -> tpch.DataSet:
    return tpch.lineitem(terms.data, round(10 * TPCH_SCALE * terms.scale, 6))


def _rows(data: tpch.DataSet) -> int:
    path: Path = data.path
    if path.suffix == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    return line_count(path) - 1  # the header
