"""The rows of Parquet row groups, as batches of bounded size.

Owns: driving Arrow's reader, how many rows a batch gets, telling Arrow's verdict on the bytes from
a fault of the source. Refuses to know: extents, positions, what happens to rows that are lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.formats.parquet_ahead import Ahead, RowGroupFile
from extentflow.formats.parquet_blocks import Chunks
from extentflow.formats.parquet_footer import Footer, RowGroup
from extentflow.formats.parquet_types import doubtful_leaves, int96_unit, misfits
from extentflow.storage import RangeSource

__all__ = ["GroupReader", "Rows", "Undecodable"]

BUFFER_BYTES = 64 << 10
BATCH_BYTES = 4 << 20
_FIRST_ROWS = 256
_GROWTH = 16
_VERDICTS = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowIndexError,
    pa.ArrowKeyError,
    pa.ArrowTypeError,
    pa.ArrowCapacityError,
    OSError,
)


class Undecodable(Exception):  # noqa: N818 - an outcome, not a fault
    """Arrow gave up on a row group.

    `tried` is how many rows the failing batch was to have; 1 where fewer would not help.
    """

    def __init__(self, message: str, tried: int) -> None:
        super().__init__(message)
        self.tried = tried


@dataclass(frozen=True, slots=True)
class Rows:
    """Neighbouring rows of one row group; `misfits` are those whose INT96 Arrow got wrong."""

    batch: pa.RecordBatch
    misfits: Sequence[int] = ()


class _View:
    """Some leaf columns of the object, read by an Arrow reader of their own."""

    def __init__(
        self, file: RowGroupFile, metadata: pq.FileMetaData, leaves: Sequence[int], unit: str
    ) -> None:
        self._file = file
        self._leaves = leaves
        options = {
            "metadata": metadata,
            "pre_buffer": False,
            "page_checksum_verification": True,
            "coerce_int96_timestamp_unit": unit,
        }
        self._whole = pq.ParquetFile(pa.PythonFile(file, mode="r"), **options)
        self._paged = pq.ParquetFile(
            pa.PythonFile(file, mode="r"), buffer_size=BUFFER_BYTES, **options
        )
        self._parquet = self._whole
        self.schema: pa.Schema = self._whole.schema_arrow
        self._group = 0
        self._batches: Iterator[pa.RecordBatch] | None = None

    def open(self, group: int, *, whole: bool) -> None:
        """Go on to a row group; `whole`: its column chunks are in memory as a whole anyway."""
        self._parquet = self._whole if whole else self._paged
        self._file.open(group)
        self._group = group

    def close(self) -> None:
        """Let go of the row group's bytes."""
        self._batches = None
        self._file.drop()

    def next(self, rows: int) -> pa.RecordBatch:
        """Return the next rows, at most `rows`.

        Raises:
            Undecodable: Arrow's verdict on the bytes.
        """
        self._parquet.reader.set_batch_size(rows)
        if self._batches is None:
            self._batches = self._parquet.reader.iter_batches(
                rows, [self._group], column_indices=self._leaves, use_threads=False
            )
        try:
            batch = next(self._batches, None)
        except _VERDICTS as exc:
            self._file.check()
            raise Undecodable(" ".join(str(exc).split()), rows) from exc
        self._file.check()
        if not batch:
            raise Undecodable("its pages hold fewer rows than the footer says", rows)
        return batch


class _Pace:
    """How many rows the next batch gets: as many as fit BATCH_BYTES at the width last seen."""

    def __init__(self, row_bytes: int) -> None:
        self.rows = max(1, min(_FIRST_ROWS, BATCH_BYTES // row_bytes))

    def learn(self, batch: pa.RecordBatch) -> None:
        fitting = BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)
        self.rows = max(1, min(fitting, self.rows * _GROWTH))


class GroupReader:
    """Reads `groups`, in this order, at most `batch_rows` rows at a time; a context manager."""

    def __init__(
        self,
        source: RangeSource,
        footer: Footer,
        groups: Sequence[RowGroup],
        *,
        batch_rows: int,
        window_bytes: int,
        readers: int,
    ) -> None:
        metadata = footer.metadata
        every = range(metadata.num_columns)
        doubtful = doubtful_leaves(metadata)
        self._ahead = Ahead(
            source,
            (Chunks(group.ordinal, footer.chunks(group)) for group in groups),
            views=(every, doubtful) if doubtful else (every,),
            window_bytes=window_bytes,
            readers=readers,
        )
        unit = int96_unit(metadata)
        self._main = _View(RowGroupFile(self._ahead), metadata, every, unit)
        self._seconds = (
            _View(RowGroupFile(self._ahead, view=1), metadata, doubtful, "s") if doubtful else None
        )
        self._window_bytes = window_bytes
        self._batch_rows = batch_rows
        self._pace = _Pace(max((group.row_bytes for group in groups), default=1))
        self.schema = self._main.schema

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ahead.close()

    def read(self, group: RowGroup, skip: int) -> Iterator[Rows]:
        """Yield a row group's rows from the `skip`th on.

        Raises:
            Undecodable: what Arrow makes of the bytes.
            ObjectChanged, ObjectGone, StoreUnavailable, AccessDenied: from the source.
        """
        whole = group.end - group.start <= self._window_bytes
        with ExitStack() as views:
            for view in self._views():
                view.open(group.ordinal, whole=whole)
                views.callback(view.close)
            at = 0
            while at < group.rows:
                rows = self._skip(skip - at) if at < skip else self._next(group.rows - at)
                at += rows.batch.num_rows
                if at > skip:
                    yield rows

    def _skip(self, rows: int) -> Rows:
        """Decode rows that were delivered before; where that fails, smaller batches fail too."""
        try:
            return self._rows(min(self._pace.rows, rows))
        except Undecodable as exc:
            raise Undecodable(str(exc), tried=1) from exc

    def _next(self, rows: int) -> Rows:
        return self._rows(min(self._pace.rows, self._batch_rows, rows))

    def _rows(self, rows: int) -> Rows:
        batch = self._main.next(rows)
        self._pace.learn(batch)
        return Rows(batch, self._misfits(batch.num_rows))

    def _views(self) -> Iterator[_View]:
        yield self._main
        if self._seconds is not None:
            yield self._seconds

    def _misfits(self, rows: int) -> list[int]:
        """Return which of the next `rows` rows hold an INT96 timestamp that does not fit."""
        found: list[int] = []
        seen = 0
        while self._seconds is not None and seen < rows:
            batch = self._seconds.next(rows - seen)
            found += [seen + row for row in misfits(batch)]
            seen += batch.num_rows
        return found
