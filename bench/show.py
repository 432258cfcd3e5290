"""Show a result as tables on consoles and pages: one traversal of the JSON for all cases.

Mappings of one kind of figure become columns of one table; mappings or lists of mappings become a
table of their own; single figures become rows of the last table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from bench.bars import judged, shown

APART = ("case", "scale", "pairs", "machine")
RATES = "rows_per_second"
# The least and the most rate of the runs, shown behind the median.
RANGES = f"{RATES}_least_and_most"


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; the first cell of a row is its label."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def grids(result: Mapping[str, Any]) -> Iterator[Grid]:
    """Yield a result's tables."""
    shown_members = {name: value for name, value in result.items() if name not in APART}
    ranges = shown_members.pop(RANGES, {})
    columns = {name: value for name, value in shown_members.items() if _is_column(name, value)}
    if columns:
        names = dict.fromkeys(name for column in columns.values() for name in column)
        yield Grid(
            ["", *(words(name) for name in columns)],
            [
                [
                    words(row),
                    *(
                        cell(name, column.get(row)) + _range(name, ranges.get(row))
                        for name, column in columns.items()
                    ),
                ]
                for row in names
            ],
        )
    alike = _alike(shown_members, columns)
    if alike:
        yield _wide("", {words(name): value for name, value in alike.items()})
    single: dict[str, Any] = {}
    for name, value in shown_members.items():
        if name in columns or name in alike:
            continue
        if _is_records(value):
            yield _wide(name, value)
        elif isinstance(value, Mapping):
            unit = name if name.endswith("rss_bytes") else ""
            figures = [[words(each), cell(unit or each, one)] for each, one in value.items()]
            yield Grid([words(name), ""], figures)
        else:
            single[name] = value
    if single:
        yield Grid(["", ""], [[words(name), cell(name, value)] for name, value in single.items()])


def words(name: str) -> str:
    """Return a member's name as text."""
    return name.replace("_", " ")


def cell(name: str, value: object) -> str:
    """Return a figure as text; the member's name determines its unit."""
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
    """Print a case's tables, and the verdicts on its bars."""
    console.print(result["case"], highlight=False)
    for grid in grids(result):
        table = Table(*(Column(name, overflow="fold") for name in grid.head))
        for row in grid.rows:
            table.add_row(*row)
        console.print(table)
    for bar, shown_members in judged(name, result):
        console.print(f"{bar.says}: {shown_members} (to hold: {bar.bound()})", highlight=False)


def _range(name: str, least_and_most: object) -> str:
    return f" ({cell(name, least_and_most)})" if name == RATES and least_and_most else ""


def _is_column(name: str, value: object) -> bool:
    return name != "ratios" and isinstance(value, Mapping) and name.startswith(("rows_", "cpu_"))


def _alike(members: Mapping[str, Any], columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the mappings that have the figures of another one, such as one per rate."""
    keys = [tuple(value) for value in members.values() if isinstance(value, Mapping)]
    return {
        name: value
        for name, value in members.items()
        if name not in columns
        and isinstance(value, Mapping)
        and not _is_records(value)
        and keys.count(tuple(value)) > 1
    }


def _is_records(value: object) -> bool:
    """Return whether these are records of figures, by name or in a list."""
    records = value.values() if isinstance(value, Mapping) else value
    if not isinstance(records, Iterable) or isinstance(records, str):
        return False
    found = list(records)
    return bool(found) and all(isinstance(one, Mapping) for one in found)


def _wide(name: str, value: Any) -> Grid:  # noqa: ANN401 - records, in one of two ways
    """Return one table of records; names, if there are any, are its first column."""
    named = isinstance(value, Mapping)
    records = [{name: label, **one} for label, one in value.items()] if named else value
    columns = list(dict.fromkeys(column for record in records for column in record))
    return Grid(
        [words(column) for column in columns],
        [[cell(column, record.get(column)) for column in columns] for record in records],
    )
