"""Which rows of a batch cannot be converted, and how blame climbs from nested values to rows.

Owns: making and translating `CorruptRecord.rows`. Refuses to know: objects and extents; whoever
holds the chunk turns ordinals into places.

A converter that raises has looked at every column and every row: the batch without the rows it
names converts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extentflow.errors import CorruptRecord

RowsOf = Callable[[NDArray[np.int64]], NDArray[np.integer[Any]]]


def corrupt(reasons: Mapping[int, str]) -> CorruptRecord:
    """Return the fault of rows (or of nested values, by their ordinals), one reason each."""
    rows = dict(sorted(reasons.items()))
    first, reason = next(iter(rows.items()))
    return CorruptRecord(f"{len(rows)} row(s) cannot be converted; row {first}: {reason}", rows)


def corrupt_alike(rows: Iterable[Any], reason: str) -> CorruptRecord:
    """Return the fault of several rows that share a reason."""
    return corrupt({int(row): reason for row in rows})


@contextmanager
def climbing(rows_of: RowsOf, label: str = "") -> Iterator[None]:
    """Translate faults of values into faults of the rows that hold them.

    `rows_of` maps ordinals of values to ordinals of their rows, one for one; `label` is put before
    the reason.
    """
    try:
        yield
    except CorruptRecord as exc:
        rows = rows_of(np.asarray(list(exc.rows), np.int64)).tolist()
        reasons: dict[int, str] = {}
        for row, reason in zip(rows, exc.rows.values(), strict=True):
            reasons.setdefault(row, label + reason)
        raise corrupt(reasons) from exc


class Blame:
    """Gathers the faults of several columns, so that one pass finds every bad row."""

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}

    @contextmanager
    def gather(self, label: str = "") -> Iterator[None]:
        """Keep a fault raised inside; a row's first reason wins."""
        try:
            yield
        except CorruptRecord as exc:
            for row, reason in exc.rows.items():
                self._reasons.setdefault(row, label + reason)

    def settle(self) -> None:
        """Raise what was gathered."""
        if self._reasons:
            raise corrupt(self._reasons)
