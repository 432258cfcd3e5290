"""Parses `columnar.groups`: which columns go to which topic.

columnar.groups   prices: id, price; texts: id, "a, b"; rest: *
"""

import re
from dataclasses import dataclass

from extentflow.config.column_lists import NAMES
from extentflow.config.types import Kind, repeated

# What `columnar.encoding` and `columnar.encoding.compression` may be.
NONE, PARQUET, ARROW = ENCODINGS = ("none", "parquet", "arrow")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_COMPRESSION = "zstd"
# Of buffers in Arrow's IPC format.
ARROW_COMPRESSIONS = ("none", "lz4", "zstd")
REST = "*"

_GROUP = re.compile(r'\s*(?P<name>[A-Za-z0-9._-]+)\s*:(?P<columns>(?:"[^"]*"|[^;"])*)(?:;|$)')


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Columns whose values go to a topic of their own, `TOPIC.name`; REST: those of no other."""

    name: str
    columns: tuple[str, ...]

    def topic(self, topic: str) -> str:
        """Return the topic of this group's values, for records of a topic."""
        return f"{topic}.{self.name}"


def _read(text: str) -> tuple[ColumnGroup, ...]:
    found: list[ColumnGroup] = []
    text, at = text.strip().rstrip("; \t\n"), 0
    while at < len(text) or not found:
        match = _GROUP.match(text, at)
        if match is None:
            raise ValueError(
                f"write group: column, column; group: *; cannot read {text[at:][:40]!r}"
            )
        found.append(ColumnGroup(match["name"], NAMES.read(match["columns"].strip())))
        at = match.end()
    if twice := repeated(one.name for one in found):
        raise ValueError(f"names the group {', '.join(twice)} more than once; keep one")
    if any(REST in one.columns and len(one.columns) > 1 for one in found):
        raise ValueError("a group of * has no other columns; it takes those of no other group")
    if sum(one.columns == (REST,) for one in found) > 1:
        raise ValueError("two groups of *; keep one")
    return tuple(found)


def _write(groups: tuple[ColumnGroup, ...]) -> str:
    return "; ".join(f"{one.name}: {','.join(map(_quoted, one.columns))}" for one in groups)


def _quoted(name: str) -> str:
    written = NAMES.write((name,))
    return f'"{name}"' if written == name and ";" in name else written


GROUPS: Kind[tuple[ColumnGroup, ...]] = Kind(_read, _write)
