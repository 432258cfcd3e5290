"""TPC-H data sets: generated once per scale, with expected content from independent readers."""

import csv
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

LINES_PER_ORDER = 8
SAMPLE_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class DataSet:
    """One object of the demo. `identity` are the fields that identify a row."""

    name: str
    path: Path
    identity: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.path.stat().st_size


@dataclass(frozen=True, slots=True)
class Truth:
    """The content of a data set: all row identities, sorted, and some whole rows."""

    rows: int
    identities: NDArray[np.int64]
    samples: dict[int, dict[str, Any]]


def number(row: dict[str, Any]) -> int:
    """Return a row's identity as one integer."""
    if "l_orderkey" in row:
        return int(row["l_orderkey"]) * LINES_PER_ORDER + int(row["l_linenumber"])
    return int(row["o_orderkey"])


def lineitem(folder: Path, scale: float, *, row_group_bytes: int | None = None) -> DataSet:
    """Return TPC-H lineitem as Parquet; generate it if it is missing."""
    name = f"lineitem-{scale:g}" + (f"-{row_group_bytes}" if row_group_bytes else "")
    options = ["--row-group-bytes", str(row_group_bytes)] if row_group_bytes else []
    path = generate(folder / f"{name}.parquet", "parquet", "lineitem", scale, options)
    return DataSet("lineitem", path, ("l_orderkey", "l_linenumber"))


def orders(folder: Path, scale: float) -> DataSet:
    """Return TPC-H orders as CSV; generate it if it is missing."""
    path = generate(folder / f"orders-{scale:g}.csv", "csv", "orders", scale)
    return DataSet("orders", path, ("o_orderkey",))


def truth(data: DataSet) -> Truth:
    """Read a data set with pyarrow's Parquet reader or Python's csv module."""
    return _parquet_truth(data) if data.path.suffix == ".parquet" else _csv_truth(data)


def generate(path: Path, kind: str, table: str, scale: float, options: Sequence[str] = ()) -> Path:
    """Return `path`, a TPC-H table as `csv` or `parquet`; generate it if it is missing."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    fresh = path.parent / f".{path.name}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    arguments = [kind, "-s", f"{scale:g}", "-T", table, "--output-dir", str(fresh), *options]
    subprocess.run([str(program), *arguments], check=True, stdout=subprocess.DEVNULL)
    (fresh / f"{table}.{kind}").rename(path)
    fresh.rmdir()
    return path


def _parquet_truth(data: DataSet) -> Truth:
    file = pq.ParquetFile(data.path)
    keys = pq.read_table(data.path, columns=list(data.identity))
    first, second = (keys.column(name).to_numpy() for name in data.identity)
    identities = first.astype(np.int64) * LINES_PER_ORDER + second.astype(np.int64)
    group = file.read_row_group(file.num_row_groups // 2)
    step = max(1, group.num_rows // SAMPLE_ROWS)
    rows = [group.slice(row, 1).to_pylist()[0] for row in range(0, group.num_rows, step)]
    samples = {number(row): {name: _as_json(value) for name, value in row.items()} for row in rows}
    return Truth(file.metadata.num_rows, np.sort(identities), samples)


def _as_json(value: Any) -> Any:  # noqa: ANN401 - any column's value
    """Return a value in the documented JSON mapping; decimals as text to compare exactly."""
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _csv_truth(data: DataSet) -> Truth:
    identities: list[int] = []
    samples: dict[int, dict[str, Any]] = {}
    for ordinal, row in enumerate(_csv_rows(data.path)):
        identity = number(row)
        identities.append(identity)
        if ordinal % SAMPLE_ROWS == 0:
            samples[identity] = row
    return Truth(len(identities), np.sort(np.array(identities, np.int64)), samples)


def _csv_rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)
