"""Headers of records, as columns: the same names for all records, or a list for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Names may repeat; the value of a header may be null.
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
HeaderValues: TypeAlias = pa.BinaryArray | pa.LargeBinaryArray


def by_name(headers: Headers) -> dict[str, bytes]:
    """Return the last value of each name, without nulls."""
    return {name: value for name, value in headers if value is not None}


class HeaderColumns(Sequence[Headers]):
    """Headers as columns: one Arrow array per name, or one value for all records.

    A null in an array means that the record lacks the header. Slices stay columns; a record's
    headers are made when they are read, or iterated over.
    """

    def __init__(
        self, columns: Sequence[tuple[str, HeaderValues | bytes]], count: int, start: int = 0
    ) -> None:
        self._columns, self._count, self._start = columns, count, start

    def __len__(self) -> int:
        """Return the number of records."""
        return self._count

    @overload
    def __getitem__(self, place: int) -> Headers: ...

    @overload
    def __getitem__(self, place: slice) -> HeaderColumns: ...

    def __getitem__(self, place: int | slice) -> Headers | HeaderColumns:
        """Return the headers of one record, or those of several."""
        if isinstance(place, slice):
            start, end, _ = place.indices(self._count)
            return HeaderColumns(self._columns, max(0, end - start), self._start + start)
        return next(iter(self[place : place + 1]))

    def take(self, indices: pa.Int64Array) -> HeaderColumns:
        """Return the headers of the records at these places, in that order."""
        columns = [
            (name, values)
            if isinstance(values, bytes)
            else (name, values.slice(self._start, self._count).take(indices))
            for name, values in self._columns
        ]
        return HeaderColumns(columns, len(indices))

    def __iter__(self) -> Iterator[Headers]:
        """Yield the headers of each record, in C unless some lack one."""
        columns: list[Iterable[tuple[str, bytes]]] = []
        complete = True
        for name, values in self._columns:
            if isinstance(values, bytes):
                columns.append(repeat((name, values), self._count))
            else:
                part = values.slice(self._start, self._count)
                complete = complete and not part.null_count
                columns.append(zip(repeat(name), part.to_pylist(), strict=False))
        if not columns:
            return repeat((), self._count)
        rows = zip(*columns, strict=True)
        if complete:
            return rows
        return ([pair for pair in row if pair[1] is not None] for row in rows)

    @property
    def nbytes(self) -> int:
        """The bytes of names and values, about."""
        sizes = (
            len(name) * self._count
            + (len(values) * self._count if isinstance(values, bytes) else values.nbytes)
            for name, values in self._columns
        )
        return sum(sizes)

    def lists(self) -> HeaderLists:
        """Return the same headers as a list for each record."""
        found = HeaderLists.none(self._count)
        for name, values in self._columns:
            if isinstance(values, bytes):
                found = found.with_header(name, values)
            else:
                part = values.slice(self._start, self._count)
                found = found.with_header(name, part, lacks_nulls=True)
        return found


class HeaderLists(Sequence[Headers]):
    """Headers as a list for each record: of any number, in their order, with nulls.

    Those of record i are `names[offsets[i]:offsets[i + 1]]`, a string array, with `values`.
    """

    def __init__(
        self, offsets: NDArray[np.int64], names: pa.StringArray, values: HeaderValues
    ) -> None:
        self._offsets, self._names, self._values = offsets, names, values

    @classmethod
    def none(cls, count: int) -> HeaderLists:
        """Return the headers of records that have none."""
        empty = pa.array([], pa.string()), pa.array([], pa.binary())
        return cls(np.zeros(count + 1, np.int64), *empty)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> Headers: ...

    @overload
    def __getitem__(self, place: slice) -> HeaderLists: ...

    def __getitem__(self, place: int | slice) -> Headers | HeaderLists:
        """Return the headers of one record, or those of several, zero copy."""
        if isinstance(place, slice):
            start, end, _ = place.indices(len(self))
            return HeaderLists(
                self._offsets[start : max(start, end) + 1], self._names, self._values
            )
        return next(iter(self[place : place + 1]))

    def __iter__(self) -> Iterator[Headers]:
        """Yield the headers of each record."""
        offsets = (self._offsets - self._offsets[0]).tolist()
        pairs = list(zip(*(part.to_pylist() for part in self._entries()), strict=True))
        return (pairs[start:end] for start, end in pairwise(offsets))

    @property
    def nbytes(self) -> int:
        """The bytes of names and values, about."""
        return sum(int(part.nbytes) for part in self._entries())

    def take(self, indices: pa.Int64Array) -> HeaderLists:
        """Return the headers of the records at these places, in that order."""
        chosen = np.asarray(indices)
        lengths = np.diff(self._offsets)[chosen]
        offsets = _offsets(lengths)
        starts = np.repeat(self._offsets[:-1][chosen] - offsets[:-1], lengths)
        entries = pa.array(starts + np.arange(offsets[-1]))
        return HeaderLists(offsets, self._names.take(entries), self._values.take(entries))

    def joined(self, other: HeaderLists) -> HeaderLists:
        """Return the headers of each record, and behind them those that it has in `other`."""
        names, values = self._entries()
        more_names, more_values = other._entries()
        counts, more = np.diff(self._offsets), np.diff(other._offsets)
        offsets = _offsets(counts + more)
        # An entry moves by what is put before it.
        places = np.empty(offsets[-1], np.int64)
        mine, theirs = np.arange(len(names)), np.arange(len(more_names))
        places[mine + np.repeat(_offsets(more)[:-1], counts)] = mine
        places[theirs + np.repeat(_offsets(counts)[1:], more)] = theirs + len(names)
        order = pa.array(places)
        return HeaderLists(
            offsets,
            pa.concat_arrays([names, more_names]).take(order),
            _concat(values, more_values).take(order),
        )

    def with_header(
        self, name: str, values: HeaderValues | bytes, *, lacks_nulls: bool = False
    ) -> HeaderLists:
        """Return the headers with one more behind them: a value for each record, or for all.

        A null is a null header; with `lacks_nulls`, the record gets none.
        """
        if isinstance(values, bytes):
            values = pa.repeat(pa.scalar(values, pa.binary()), len(self))
        lengths = np.ones(len(self), np.int64)
        if lacks_nulls and values.null_count:
            lengths = values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
            values = values.drop_null()
        names = pa.repeat(pa.scalar(name, pa.string()), len(values))
        return self.joined(HeaderLists(_offsets(lengths), names, values))

    def without(self, names: Sequence[str]) -> HeaderLists:
        """Return the headers that are not called by one of `names`."""
        mine, values = self._entries()
        kept = pc.invert(pc.is_in(mine, pa.array(list(names), pa.string())))
        before = _offsets(kept.to_numpy(zero_copy_only=False).astype(np.int64))
        offsets = before[self._offsets - self._offsets[0]]
        return HeaderLists(offsets, mine.filter(kept), values.filter(kept))

    def has(self, name: str) -> pa.BooleanArray:
        """Return whether each record has a header of that name."""
        names, _ = self._entries()
        found = pc.equal(names, name).to_numpy(zero_copy_only=False).astype(np.int64)
        before = _offsets(found)[self._offsets - self._offsets[0]]
        return pa.array(np.diff(before) > 0)

    def followed_by(self, other: HeaderLists) -> HeaderLists:
        """Return the headers of these records, and then of other records."""
        names, values = self._entries()
        more_names, more_values = other._entries()
        mine, theirs = self._offsets - self._offsets[0], other._offsets - other._offsets[0]
        return HeaderLists(
            np.concatenate([mine, mine[-1] + theirs[1:]]),
            pa.concat_arrays([names, more_names]),
            _concat(values, more_values),
        )

    def _entries(self) -> tuple[pa.StringArray, HeaderValues]:
        """Return names and values of these records alone."""
        first, count = int(self._offsets[0]), int(self._offsets[-1] - self._offsets[0])
        return self._names.slice(first, count), self._values.slice(first, count)


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _concat(left: HeaderValues, right: HeaderValues) -> HeaderValues:
    if left.type != right.type or left.nbytes + right.nbytes >= 2**31:
        left, right = left.cast(pa.large_binary()), right.cast(pa.large_binary())
    return pa.concat_arrays([left, right])
