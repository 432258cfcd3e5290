"""`make bench`: extentflow against Spark's own Kafka sink, and exactly once against at least once.

Alternating runs of warm processes on the same machine, so that ratios mean something where
absolute figures do not. `SUITE=memory` runs one job per shape and reports peak memory only,
`SUITE=small` sends many small objects through the event path.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from demo import tpch
from demo.rig import Rig
from rich.console import Console
from rich.table import Table

from bench import small
from bench.lane import Lane

ROOT = Path.cwd()
BUCKET = "bench"
MEGABYTE = 10**6
console = Console(stderr=True)


def main() -> None:
    """Run the chosen suite and write its JSON."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--suite", choices=("main", "memory", "small"), default="main")
    arguments = parser.parse_args()
    started = time.monotonic()
    if arguments.suite == "small":
        result = small.measure(ROOT, arguments.scale, console.print)
        small.show(result, console.print)
    elif arguments.suite == "main":
        result = Bench(Rig.start(ROOT, console.print)).compare(arguments.scale, arguments.pairs)
    else:
        result = Bench(Rig.start(ROOT, console.print)).memory(arguments.scale)
    folder = ROOT / "var" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{arguments.suite}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    took = time.monotonic() - started
    console.print(f"make bench: {took:.0f} s; {path.relative_to(ROOT)}")


class Bench:
    """The measurements, over one rig. Every topic is deleted after its run."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._run = time.strftime("%Y%m%d-%H%M%S")
        self._topics = 0

    def compare(self, scale: float, pairs: int) -> dict[str, Any]:
        """Alternate the three competitors `pairs` times after a warm-up; return medians."""
        data = tpch.lineitem(ROOT / "var" / "demo" / "data", scale)
        rows = pq.ParquetFile(data.path).metadata.num_rows
        key = self._upload(data)
        ours = Lane.start("bench.ours", self._rig.environment)
        native = Lane.start("bench.native", self._rig.environment)
        peaks: list[int] = []

        def extentflow(guarantee: str) -> float:
            answer = self._ours(ours, key, guarantee)
            if answer["records"] < rows:
                raise RuntimeError(f"{answer['records']} records of {rows}")
            peaks.append(answer["worker_peak_rss_bytes"])
            return float(rows / answer["seconds"])

        competitors: dict[str, Callable[[], float]] = {
            "spark_native": lambda: rows / self._native(native, data.path),
            "exactly_once": lambda: extentflow("exactly_once"),
            "at_least_once": lambda: extentflow("at_least_once"),
        }
        try:
            rates = _alternate(competitors, pairs)
        finally:
            ours.close()
            native.close()
        result = {
            "case": f"lineitem Parquet, scale {scale:g}, JSON values, Spark local[2]",
            "pairs": pairs,
            "rows_per_second": {name: round(statistics.median(r)) for name, r in rates.items()},
            "ratios": {
                "extentflow_to_spark_native": _ratio(rates, "exactly_once", "spark_native"),
                "exactly_once_to_at_least_once": _ratio(rates, "exactly_once", "at_least_once"),
            },
            "worker_peak_rss_bytes": max(peaks),
        }
        _show(rates, result)
        return result

    def memory(self, scale: float) -> dict[str, Any]:
        """Run one job per shape, each on fresh workers; return the peaks."""
        folder = ROOT / "var" / "demo" / "data"
        shapes = {
            "scale 1": tpch.lineitem(folder, 1),
            f"scale {scale:g}": tpch.lineitem(folder, scale),
            "row groups of 128 MB": tpch.lineitem(folder, scale, row_group_bytes=128 * MEGABYTE),
            "row groups of 512 MB": tpch.lineitem(folder, scale, row_group_bytes=512 * MEGABYTE),
        }
        found: dict[str, Any] = {}
        for name, data in shapes.items():
            lane = Lane.start("bench.ours", self._rig.environment)
            answer = self._ours(lane, self._upload(data), "exactly_once")
            lane.close()
            found[name] = {
                "object_bytes": data.size,
                "bytes_fetched": answer["bytes_read"],
                "worker_peak_rss_bytes": answer["worker_peak_rss_bytes"],
                "seconds": round(answer["seconds"], 1),
            }
            console.print(f"{name}: {found[name]}")
        return {"case": "peak memory of a worker by shape of the object", "shapes": found}

    def _upload(self, data: tpch.DataSet) -> str:
        key = f"{self._run}/{data.path.name}"
        self._rig.upload(data.path, BUCKET, key)
        return key

    def _ours(self, lane: Lane, key: str, guarantee: str) -> dict[str, Any]:
        with self._topic() as topic:
            name = f"bench-{guarantee}".replace("_", "-")
            self._rig.put_connector(
                {
                    "name": name,
                    "topic": topic,
                    "aws.s3.bucket.name": BUCKET,
                    "delivery.guarantee": guarantee,
                }
            )
            return lane.ask(connector=name, key=key)

    def _native(self, lane: Lane, path: Path) -> float:
        with self._topic() as topic:
            bootstrap = self._rig.kafka["bootstrap.servers"]
            answer = lane.ask(path=str(path), topic=topic, bootstrap=bootstrap)
            return float(answer["seconds"])

    @contextmanager
    def _topic(self) -> Iterator[str]:
        self._topics += 1
        topic = f"bench-{self._run}-{self._topics}"
        self._rig.create_topic(topic)
        try:
            yield topic
        finally:
            self._rig.delete_topics([topic])


def _alternate(competitors: dict[str, Callable[[], float]], pairs: int) -> dict[str, list[float]]:
    """Run everybody in turn, once to warm up and then `pairs` times; return rows per second."""
    rates: dict[str, list[float]] = {name: [] for name in competitors}
    for lap in range(pairs + 1):
        for name, run in competitors.items():
            rate = run()
            label = f"pair {lap}" if lap else "warm-up"
            console.print(f"{label}: {name} {rate:,.0f} rows/s", highlight=False)
            if lap:
                rates[name].append(rate)
    return rates


def _ratio(rates: dict[str, list[float]], ours: str, theirs: str) -> float:
    """Return the median of the ratios pair by pair."""
    pairs = zip(rates[ours], rates[theirs], strict=True)
    return round(statistics.median(a / b for a, b in pairs), 3)


def _show(rates: dict[str, list[float]], result: dict[str, Any]) -> None:
    table = Table("rows/s", "minimum", "median", "maximum")
    for name, found in rates.items():
        figures = (min(found), statistics.median(found), max(found))
        table.add_row(name, *(f"{figure:,.0f}" for figure in figures))
    console.print(table)
    for name, ratio in result["ratios"].items():
        console.print(f"{name}: {ratio}")
    console.print(f"worker memory at most {result['worker_peak_rss_bytes'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
