"""`SUITE=memory`: the peak memory of a worker, by size and shape of the object.

Sizes are 0.1, 1 and 10 GB at scale 1; scale 10 with enough disk gives 100 GB. Each shape has new
workers, because a peak covers the whole life of a process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import EXACTLY_ONCE, TEXT, delivery
from bench.data import LINEITEM_PARQUET_BYTES, ORDERS_CSV_BYTES, scale_of
from bench.process import WarmProcess
from bench.result import Result
from bench.settings import CORES
from bench.stand import Stand, Terms

NAME = "memory"
GIGABYTE = 10**9
MEGABYTE = 10**6
SIZES = (0.1 * GIGABYTE, 1 * GIGABYTE, 10 * GIGABYTE)
CSV_SIZES = SIZES[:2]
ROW_GROUPS = (7 * MEGABYTE, 128 * MEGABYTE, 512 * MEGABYTE)
ROW_GROUPS_IN = 2 * GIGABYTE
"""Row groups are sized before compression, the object after it: enough of the largest ones."""
KEPT_BYTES = 1 * GIGABYTE
"""Data sets up to this size stay on disk for the next time."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One object and how it is read. Peaks are compared within a `family`."""

    family: str
    name: str
    make: Callable[[], tpch.DataSet]
    config: Mapping[str, str] = field(default_factory=lambda: EXACTLY_ONCE)


def shapes(terms: Terms) -> Iterator[Shape]:
    """Yield text, CSV and Parquet by size, and Parquet by size of its row groups."""
    for size in (size * terms.scale for size in SIZES):
        scale = scale_of(size, ORDERS_CSV_BYTES)
        yield Shape(
            "text", f"text, {_gb(size)}", partial(tpch.orders, terms.data, scale), config=TEXT
        )
    for size in (size * terms.scale for size in CSV_SIZES):
        scale = scale_of(size, ORDERS_CSV_BYTES)
        yield Shape("csv", f"CSV to JSON, {_gb(size)}", partial(tpch.orders, terms.data, scale))
    for size in (size * terms.scale for size in SIZES):
        scale = scale_of(size, LINEITEM_PARQUET_BYTES)
        yield Shape("parquet", f"Parquet, {_gb(size)}", partial(tpch.lineitem, terms.data, scale))
    scale = scale_of(ROW_GROUPS_IN * terms.scale, LINEITEM_PARQUET_BYTES)
    for group in ROW_GROUPS:
        yield Shape(
            "row_groups",
            f"Parquet, {_gb(ROW_GROUPS_IN * terms.scale)}, row groups of {group // MEGABYTE} MB",
            partial(tpch.lineitem, terms.data, scale, row_group_bytes=group),
        )


def measure(terms: Terms) -> Result:
    """Run one job per shape."""
    found: dict[str, dict[str, Any]] = {}
    families: dict[str, list[int]] = {}
    with Stand.open(terms, NAME) as stand:
        for shape in shapes(terms):
            found[shape.name] = figures = _deliver(stand, shape)
            families.setdefault(shape.family, []).append(figures["worker_peak_rss_bytes"])
            text = ", ".join(f"{name} {value:,}" for name, value in figures.items())
            terms.notify(f"{shape.name}: {text}")
    return Result(
        case=f"peak memory of a worker by shape of the object, Spark local[{CORES}]",
        scale=terms.scale,
        ratios={
            "text_largest_to_smallest": _ratio(families["text"], -1, 0),
            "csv_largest_to_smallest": _ratio(families["csv"], -1, 0),
            "parquet_largest_to_smallest": _ratio(families["parquet"], -1, 0),
            "row_groups_most_to_least": _ratio(sorted(families["row_groups"]), -1, 0),
        },
        worker_peak_rss_bytes=max(peak for peaks in families.values() for peak in peaks),
        figures={"shapes": found},
    )


def _deliver(stand: Stand, shape: Shape) -> dict[str, Any]:
    data = shape.make()
    size, row_groups = data.size, _row_groups(data)
    key = stand.upload(data.path)
    if size > KEPT_BYTES:
        data.path.unlink()
    with WarmProcess.start("bench.processes.ours", stand.rig.environment, "spark") as process:
        answer = delivery(stand, process, data, shape.config)()
    stand.remove(key)
    return {
        "object_bytes": size,
        **row_groups,
        "bytes_fetched": answer["bytes_read"],
        "worker_peak_rss_bytes": answer["worker_peak_rss_bytes"],
        "seconds": round(answer["seconds"], 1),
    }


def _row_groups(data: tpch.DataSet) -> dict[str, int]:
    """Return a Parquet file's largest row group, before compression."""
    if data.path.suffix != ".parquet":
        return {}
    footer = pq.read_metadata(data.path)
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    return {"largest_row_group_bytes": max(group.total_byte_size for group in groups)}


def _ratio(peaks: Sequence[int], one: int, other: int) -> float:
    return round(peaks[one] / peaks[other], 3)


def _gb(size: float) -> str:
    return f"{size / GIGABYTE:g} GB"
