"""Data sets for benchmarks only, and sizes of the others."""

from pathlib import Path

from demo.tpch import DataSet, generate

LINEITEM_PARQUET_BYTES = 232_000_000
ORDERS_CSV_BYTES = 174_000_000
"""At scale 1, roughly."""

COUNTED_BYTES = 8 << 20


def customer(folder: Path, scale: float, kind: str) -> DataSet:
    """Return TPC-H customer as `csv` or `parquet`, generated where it is missing."""
    path = generate(folder / f"customer-{scale:g}.{kind}", kind, "customer", scale)
    return DataSet("customer", path, ("c_custkey",))


def scale_of(size: float, bytes_at_one: int) -> float:
    """Return the scale at which a table has about `size` bytes; three digits, for file names."""
    return float(f"{size / bytes_at_one:.3g}")


def line_count(path: Path) -> int:
    """Count a file's lines, each ended by a newline."""
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(COUNTED_BYTES), b""))
