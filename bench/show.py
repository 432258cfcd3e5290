"""A result as tables, for consoles and for pages: one walk over the JSON, whatever the case.

Owns: which members become which table. Refuses to know: cases, how tables are drawn.

Members that are mappings of one kind of figure become columns of one table; mappings or lists of
mappings become a table of their own; single figures become rows of the last one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from bench.bars import judged, shown

APART = ("case", "scale", "pairs", "machine")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: the first cell of a row says what it is about."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def grids(result: Mapping[str, Any]) -> Iterator[Grid]:
    """Yield a result's tables."""
    told = {name: value for name, value in result.items() if name not in APART}
    columns = {name: value for name, value in told.items() if _is_column(name, value)}
    if columns:
        names = dict.fromkeys(name for column in columns.values() for name in column)
        yield Grid(
            ["", *(words(name) for name in columns)],
            [
                [words(row), *(cell(name, column.get(row)) for name, column in columns.items())]
                for row in names
            ],
        )
    single: dict[str, Any] = {}
    for name, value in told.items():
        if name in columns:
            continue
        if _is_records(value):
            yield _wide(name, value)
        elif isinstance(value, Mapping):
            yield Grid(
                [words(name), ""], [[words(each), cell(each, one)] for each, one in value.items()]
            )
        else:
            single[name] = value
    if single:
        yield Grid(["", ""], [[words(name), cell(name, value)] for name, value in single.items()])


def words(name: str) -> str:
    """Return a member's name for people."""
    return name.replace("_", " ")


def cell(name: str, value: object) -> str:
    """Return a figure for people; the member's name tells its unit."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " - ".join(cell(name, one) for one in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name.endswith("rss_bytes"):
        return shown(name, value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def show(name: str, result: Mapping[str, Any], console: Console) -> None:
    """Print a case's tables, and how its bars were met."""
    console.print(result["case"], highlight=False)
    for grid in grids(result):
        table = Table(*(Column(name, overflow="fold") for name in grid.head))
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
    for bar, told in judged(name, result):
        console.print(f"{bar.says}: {told} (to hold: {bar.bound()})", highlight=False)


def _is_column(name: str, value: object) -> bool:
    return name != "ratios" and isinstance(value, Mapping) and name.startswith(("rows_", "cpu_"))


def _is_records(value: object) -> bool:
    """Whether these are records of figures, with names or in a list."""
    records = value.values() if isinstance(value, Mapping) else value
    if not isinstance(records, Iterable) or isinstance(records, str):
        return False
    found = list(records)
    return bool(found) and all(isinstance(one, Mapping) for one in found)


def _wide(name: str, value: Any) -> Grid:  # noqa: ANN401 - records, in one of two ways
    """Return one table of records; names, where they have some, are its first column."""
    named = isinstance(value, Mapping)
    records = [{name: label, **one} for label, one in value.items()] if named else value
    columns = list(dict.fromkeys(column for record in records for column in record))
    return Grid(
        [words(column) for column in columns],
        [[cell(column, record.get(column)) for column in columns] for record in records],
    )
