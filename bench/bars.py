"""The required figures: lower or upper bounds, by case.

Bars are for two cores with the broker on the same machine, at scale 1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Bar:
    """A bound for the figure at `place` (member names, joined by dots), described by `says`."""

    place: str
    says: str
    least: float | None = None
    most: float | None = None

    def figure(self, result: Mapping[str, Any]) -> float | None:
        """Return the figure, or None if the case did not measure it."""
        found: Any = result
        for name in self.place.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return None if found is None else float(found)

    def holds(self, figure: float) -> bool:
        """Return whether a figure is within the bound."""
        if self.least is not None and figure < self.least:
            return False
        return self.most is None or figure <= self.most

    def bound(self) -> str:
        """Return the bound as text."""
        sign, limit = ("≥", self.least) if self.least is not None else ("≤", self.most)
        return f"{sign} {shown(self.place, limit or 0)}"


BARS: Mapping[str, tuple[Bar, ...]] = {
    "spark-native": (
        Bar(
            "ratios.extentflow_to_spark_native",
            "Parquet to JSON, exactly once, against Spark's own sink",
            least=2.4,
        ),
        Bar("ratios.exactly_once_to_at_least_once", "exactly against at least once", least=0.95),
    ),
    "data-source": (
        Bar("ratios.data_source_to_run", "the data source against `extentflow run`", least=0.95),
    ),
    "parquet-json": (
        Bar(
            "ratios.one_process_to_plain",
            "Parquet to JSON, one process, against `plain`: row dicts",
            least=1.6,
        ),
        Bar(
            "ratios.one_process_to_plain_columns",
            "Parquet to JSON, one process, against `plain columns`",
            least=1.6,
        ),
    ),
    "columnar": (
        Bar("ratios.arrow_to_rows", "columns as Arrow against JSON rows, one process", least=2.5),
        Bar("ratios.arrow_bytes_to_rows", "their bytes in the log", most=0.35),
        Bar("ratios.arrow_cpu_to_rows", "their CPU time of client and broker", most=0.4),
        Bar("ratios.parquet_to_rows", "columns as Parquet against them", least=2.5),
        Bar("ratios.parquet_bytes_to_rows", "their bytes in the log", most=0.35),
        Bar("ratios.parquet_cpu_to_rows", "their CPU time of client and broker", most=0.4),
        Bar("ratios.passed_through_to_rows", "row groups passed through", least=6),
        Bar("ratios.parquet_batches_to_orjson", "consumer, against orjson per row", least=5),
        Bar("ratios.narrow_to_all_groups", "two of sixteen columns, against all", least=6),
        Bar("ratios.narrow_bytes_to_all_groups", "their bytes", most=0.2),
    ),
    "lake": (
        Bar("ratios.lake_to_from_json_iceberg", "into Iceberg, against `from_json`", least=3),
        Bar("ratios.lake_to_from_json_parquet", "into Parquet files, against it", least=3),
    ),
    "export": (
        Bar("ratios.export_to_copy_folder", "files of columnar values, against copies", least=0.8),
        Bar("ratios.export_to_copy_s3", "the same into the S3 server", least=0.8),
    ),
    "lines": (
        Bar(
            "ratios.one_process_to_ceiling",
            "lines of text, one process, against payloads in memory",
            least=0.7,
        ),
    ),
    "slow-brokers": (
        Bar("least_share_committed", "committed of what slow brokers take", least=0.9),
    ),
    "slow-ledger": (
        Bar(
            "ratios.late_by_200_ms_to_prompt",
            "throughput with a ledger that responds after 200 ms",
            least=0.95,
        ),
        Bar(
            "ratios.late_by_1_s_to_prompt",
            "throughput with a ledger that responds after 1 s",
            least=0.85,
        ),
    ),
    "scaling": (
        Bar(
            "ratios.broker_cpu_two_to_one",
            "CPU time per row, two processes against one",
            most=1.15,
        ),
    ),
    "memory": (
        Bar(
            "ratios.text_largest_to_smallest",
            "peak memory, text, objects a hundred times as large",
            most=1.1,
        ),
        Bar(
            "ratios.parquet_largest_to_smallest",
            "peak memory, Parquet, objects a hundred times as large",
            most=1.1,
        ),
        Bar("ratios.row_groups_most_to_least", "peak memory over row-group sizes", most=1.1),
        Bar("worker_peak_rss_bytes", "peak memory of any worker", most=400 * MIB),
    ),
    "first-record": (
        Bar(
            "lineitem_warm_seconds",
            "seconds to 1,280 records of lineitem, warm, the larger object too",
            most=1.0,
        ),
        Bar(
            "ratios.ten_times_as_large_to_one",
            "the same for an object ten times as large",
            most=1.5,
        ),
    ),
    "start": (
        Bar(
            "ratios.help_to_python",
            "CPU time of `extentflow --help`, against `python -c pass`",
            most=9,
        ),
    ),
}


def judged(case: str, result: Mapping[str, Any]) -> Iterator[tuple[Bar, str]]:
    """Yield the case's bars, each with the measured figure and the verdict, as text."""
    for bar in BARS.get(case, ()):
        yield bar, judgement(bar, result)


def judgement(bar: Bar, result: Mapping[str, Any]) -> str:
    """Return a figure as text, marked if it misses its bar; a small scale cannot miss."""
    figure = bar.figure(result)
    if figure is None:
        return "not recorded yet"
    text = shown(bar.place, figure)
    if result["scale"] < 1:
        return f"{text} with SCALE={result['scale']:g}, not judged"
    return text if bar.holds(figure) else f"{text}, missed"


def shown(place: str, figure: float) -> str:
    """Return a figure as text."""
    return f"{figure / MIB:.0f} MiB" if place.endswith("_bytes") else f"{figure:g}"
