"""Report rows of a batch that cannot be converted.

A converter that raises has checked every column and row: the batch without the reported rows
converts. `delivery` translates row ordinals into locations.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extentflow.errors import CorruptRecord

RowsOf = Callable[[NDArray[np.int64]], NDArray[np.integer[Any]]]


def corrupt_record(reasons: Mapping[int, str]) -> CorruptRecord:
    """Return the error for rows (or nested values) by ordinal, with one reason each."""
    rows = dict(sorted(reasons.items()))
    first, reason = next(iter(rows.items()))
    return CorruptRecord(f"{len(rows)} row(s) cannot be converted; row {first}: {reason}", rows)


def corrupt_rows(rows: Iterable[Any], reason: str) -> CorruptRecord:
    """Return the error for rows that share a reason."""
    return corrupt_record({int(row): reason for row in rows})


@contextmanager
def attribute_to_rows(rows_of: RowsOf, label: str = "") -> Iterator[None]:
    """Translate errors of nested values into errors of the rows that contain them.

    `rows_of` maps ordinals of values to ordinals of rows, one to one; `label` precedes the reason.
    """
    try:
        yield
    except CorruptRecord as exc:
        rows = rows_of(np.asarray(list(exc.rows), np.int64)).tolist()
        reasons: dict[int, str] = {}
        for row, reason in zip(rows, exc.rows.values(), strict=True):
            reasons.setdefault(row, label + reason)
        raise corrupt_record(reasons) from exc


class RowErrors:
    """Collects the errors of several columns, so that one pass finds every bad row."""

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}

    @contextmanager
    def collect(self, label: str = "") -> Iterator[None]:
        """Collect an error raised inside; the first reason of a row wins."""
        try:
            yield
        except CorruptRecord as exc:
            for row, reason in exc.rows.items():
                self._reasons.setdefault(row, label + reason)

    def raise_collected(self) -> None:
        """Raise the collected errors, if any."""
        if self._reasons:
            raise corrupt_record(self._reasons)
