"""Put the rows of runs together, of columns of which only some pages are read.

run            [ 120 ......... 180 )
column a       [100 ........ 160)[160 ........ 220)       its pages: 20 rows before the run,
column b    [ 50 ....... 150)[150 ........... 250)        70 rows before it, are dropped

Tests: unit/formats/parquet/test_page_index.py
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from extentflow.formats.parquet.page_index import Run

# The first batch is small, as the width of decoded rows is unknown; each further one may have 16
# times as many rows.
FIRST_ROWS = 256
GROWTH = 16


class PageCursor:
    """Moves forward through one column, of which only the rows `kept` are read.

    `take` returns at least one and at most so many of the next rows that are read. Batches have
    about `batch_bytes` and at most `batch_rows`; the first one has at most `first_rows`.
    """

    def __init__(
        self,
        take: Callable[[int], pa.RecordBatch],
        kept: Iterable[Run],
        *,
        first_rows: int,
        batch_rows: int,
        batch_bytes: int,
    ) -> None:
        self._take = take
        self._kept = deque(kept)
        self._batch_bytes = batch_bytes
        self._batch_rows = batch_rows
        self._most_rows = min(first_rows, batch_rows)
        self._held: pa.RecordBatch | None = None
        # The row that is first in the held batch, or read next.
        self._row = self._kept[0][0]

    def hold(self, row: int, rows: int) -> int:
        """Read until `row` is held; return how many rows are, at most `rows`."""
        while True:
            if self._held is None:
                self._held = self._read(row, rows)
            held_rows: int = self._held.num_rows
            dropped = min(row - self._row, held_rows)
            self._drop(dropped)
            if dropped < held_rows:
                return min(rows, held_rows - dropped)

    def take(self, rows: int) -> pa.RecordBatch:
        """Return as many rows as are held, or fewer."""
        held = self._held
        if held is None:
            raise ValueError("no row is held")
        self._drop(rows)
        return held.slice(0, rows)

    def _read(self, row: int, rows: int) -> pa.RecordBatch:
        if self._row == self._kept[0][1]:
            self._kept.popleft()
            self._row = self._kept[0][0]
        end = self._kept[0][1]
        # Rows before `row` are read alone, so that all columns have the same rows at once.
        wanted = min(row if self._row < row else row + rows, end) - self._row
        batch = self._take(max(1, min(wanted, self._most_rows)))
        fitting = self._batch_bytes * batch.num_rows // max(1, batch.nbytes)
        self._most_rows = max(1, min(fitting, self._most_rows * GROWTH, self._batch_rows))
        return batch

    def _drop(self, rows: int) -> None:
        held = self._held
        self._row += rows
        if held is not None:
            self._held = held.slice(rows) if rows < held.num_rows else None


def rows_of_runs(
    cursors: Sequence[PageCursor], runs: Iterable[Run], most_rows: Callable[[], int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of runs, at most `most_rows()` at a time, each batch with its first row."""
    schema: pa.Schema | None = None
    for row, end in runs:
        while row < end:
            rows = min(most_rows(), end - row)
            for cursor in cursors:
                rows = cursor.hold(row, rows)
            taken = [cursor.take(rows) for cursor in cursors]
            if schema is None:
                fields = [field for batch in taken for field in batch.schema]
                schema = pa.schema(fields, taken[0].schema.metadata)
            columns = [column for batch in taken for column in batch.columns]
            yield row, pa.record_batch(columns, schema=schema)
            row += rows  # noqa: PLW2901
