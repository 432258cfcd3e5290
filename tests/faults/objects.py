"""Objects of a campaign: rows whose fields follow from their number, written in every format.

No number occurs twice in a campaign. The files stay on disk: the comparison reads them with DuckDB.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# Beyond what a double holds exactly, so that a number that passed through one differs.
FIRST_NUMBER = 9_007_199_254_740_993
GROUPS = 53
BEGIN = datetime(2024, 2, 28, 23, 59, 59, tzinfo=UTC)
TEXTS = ("plain", "ünïcödé 🚀", 'says "hi"', "back\\slash", "comma, separated", "", "tab\tbed")
NAMES = ("id", "object", "grp", "amount", "ratio", "made_at", "day", "flag", "note")
ARROW = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("object", pa.string()),
        pa.field("grp", pa.string()),
        pa.field("amount", pa.decimal128(15, 2)),
        pa.field("ratio", pa.float64()),
        pa.field("made_at", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("flag", pa.bool_()),
        pa.field("note", pa.string()),
    ]
)
CSV_SCHEMA = (
    "id:int64,object:string,grp:string,amount:decimal(15,2),ratio:float64,made_at:timestamp(us),"
    "day:date,flag:bool,note:string"
)
BAD_EVERY = 97
# A note in so many is longer than topics of some lanes accept.
LARGE_EVERY, LARGE_CHARACTERS = 389, 6_000
# Days apart: a limit of timestamps lies between two of them.
DAYS, DAYS_APART = 4_000, 5


@dataclass(frozen=True)
class Rows:
    """Numbers of one object version; `label` tells it from all others."""

    label: str
    first: int
    count: int

    def row(self, ordinal: int) -> dict[str, Any]:
        """Return one row; most seventh notes and every fifth flag are null."""
        number = self.first + ordinal
        return {
            "id": number,
            "object": self.label,
            "grp": f"g{number % GROUPS}",
            "amount": Decimal(number % 10**13) / 100 * (-1 if number % 3 == 0 else 1),
            "ratio": number % 1_000_003 / 7,
            "made_at": (BEGIN + timedelta(microseconds=number % 10**12)).replace(tzinfo=None),
            "day": day_of(number),
            "flag": None if number % 5 == 0 else number % 2 == 0,
            "note": _note(number),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows, in file order."""
        return [self.row(ordinal) for ordinal in range(self.count)]


def day_of(number: int) -> date:
    """Return the day of a number: one of DAYS, up to 2054."""
    return date(1999, 12, 31) + timedelta(days=number % DAYS * DAYS_APART)


def _note(number: int) -> str | None:
    if number % LARGE_EVERY == 0:
        return f"{'large ' * (LARGE_CHARACTERS // 6)}{number}"
    return None if number % 7 == 0 else f"{TEXTS[number // 7 % len(TEXTS)]} {number}"


def parquet(rows: Rows) -> bytes:
    """Return a Parquet file of small row groups."""
    body = io.BytesIO()
    table = pa.Table.from_pylist(rows.rows(), ARROW)
    pq.write_table(table, body, row_group_size=max(1, rows.count // 8))
    return body.getvalue()


def json_lines(rows: Rows) -> bytes:
    """Return a JSON object per line."""
    lines = (json.dumps(row, ensure_ascii=False, default=_plain) for row in rows.rows())
    return "".join(f"{line}\n" for line in lines).encode()


def text_lines(rows: Rows) -> bytes:
    """Return lines of text; the last one has no newline."""
    return "\n".join(
        f"{row['id']} {row['object']} {row['note'] or ''}" for row in rows.rows()
    ).encode()


def csv_lines(rows: Rows, *, bad: bool = True) -> bytes:
    """Return CSV with a header; with `bad`, a line in BAD_EVERY has a number that is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(NAMES)
    for ordinal, row in enumerate(rows.rows()):
        values = {name: _field(value) for name, value in row.items()}
        if bad and ordinal % BAD_EVERY == BAD_EVERY - 1:
            values["id"] = f"bad-{row['id']}"
        writer.writerow(values.values())
    return text.getvalue().encode()


def _plain(value: object) -> object:
    # Exact: the converter passes JSON lines through as they are.
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def _field(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, bool):
        return str(value).lower()
    # repr is the shortest text that reads back as the same double.
    return repr(value) if isinstance(value, float) else value


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    "parquet": parquet,
    "csv": csv_lines,
    "csv.gz": lambda rows: gzip.compress(csv_lines(rows)),
    "jsonl": json_lines,
    "jsonl.gz": lambda rows: gzip.compress(json_lines(rows)),
    "txt": text_lines,
    "txt.gz": lambda rows: gzip.compress(text_lines(rows)),
}


@dataclass(frozen=True)
class Written:
    """An object version on disk. Its name in the store ends with `format`."""

    rows: Rows
    format: str
    path: Path

    @property
    def body(self) -> bytes:
        """What is uploaded."""
        return self.path.read_bytes()


@dataclass
class Numbers:
    """Writes objects below `folder`, with numbers that no other object of the campaign has."""

    folder: Path
    random: Random
    _next: int = FIRST_NUMBER
    _written: int = field(default=0)

    def write(self, kind: str, count: int) -> Written:
        """Write an object of `count` rows."""
        rows = Rows(f"v{self._written:06}", self._next, count)
        self._next += count
        self._written += 1
        path = self.folder / f"{rows.label}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(WRITERS[kind](rows))
        return Written(rows, kind, path)
