"""Write JSON text of structs, lists, maps, dictionaries and run-end-encoded arrays.

Children are written first, as whole columns; offset arithmetic assembles them. Rows are never
iterated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.converters.buffers import offsets_from_lengths, require_limit, text_bytes
from extentflow.converters.concat import Piece, concat_pieces, constant_piece, enclose
from extentflow.converters.encodings import checked_text
from extentflow.converters.row_errors import (
    RowErrors,
    attribute_to_rows,
    corrupt_record,
    corrupt_rows,
)
from extentflow.converters.text_cache import run_indices, take_texts
from extentflow.errors import CorruptRecord


class Writer(Protocol):
    """Writes the values of one type as JSON."""

    def __call__(self, array: pa.Array, lead: str) -> Sequence[Piece]:
        """Return pieces that together read `lead` and the value's JSON, row by row.

        Raises:
            CorruptRecord: values without a JSON form, by their ordinals in `array`.
            OffsetOverflowError: too much text for one array.
        """
        ...


@dataclass(frozen=True, slots=True)
class Members:
    """The members of JSON objects: one name and one writer per column."""

    names: tuple[str, ...]
    writers: tuple[Writer, ...]

    def pieces(self, columns: Sequence[pa.Array], lead: str, rows: int) -> list[Piece]:
        """Return the pieces of one object per row; every member is there, null or not.

        Raises:
            CorruptRecord: of all columns together, named by their members.
        """
        if not columns:
            return [constant_piece(lead, "{}", rows)]
        pieces: list[Piece] = []
        errors = RowErrors()
        before = lead + "{"
        for name, write, column in zip(self.names, self.writers, columns, strict=True):
            with errors.collect(f"{name}: "):
                pieces += write(column, f"{before}{orjson.dumps(name).decode()}:")
            before = ","
        errors.raise_collected()
        pieces[-1] = replace(pieces[-1], tail=pieces[-1].tail + "}")
        return pieces


@dataclass(frozen=True, slots=True)
class StructWriter:
    """Writes structs as objects."""

    members: Members
    limit_bytes: int

    def __call__(self, array: pa.StructArray, lead: str) -> Sequence[Piece]:
        """See Writer."""
        columns = array.flatten()
        if array.null_count == 0:
            return self.members.pieces(columns, lead, len(array))
        text = concat_pieces(self.members.pieces(columns, "", len(array)), self.limit_bytes)
        return (Piece(lead, pc.if_else(pc.is_valid(array), text, None)),)


@dataclass(frozen=True, slots=True)
class ListWriter:
    """Writes lists of every layout as arrays, or as objects where items are pairs."""

    items: Writer
    limit_bytes: int
    brackets: tuple[str, str] = ("[", "]")

    def __call__(self, array: pa.Array, lead: str) -> Sequence[Piece]:
        """See Writer."""
        # Flattening leaves out what null slots and gaps between views may hide.
        values = pc.list_flatten(array)
        require_limit(len(values), self.limit_bytes)
        bounds = bounds_of(array)
        with attribute_to_rows(lambda items: _rows_of(items, bounds), "item: "):
            text = concat_pieces(self.items(values, ""), self.limit_bytes)
        require_limit(text_bytes(text) + len(values), self.limit_bytes)
        offsets = pa.array(bounds.astype(np.int32))
        lists = pa.ListArray.from_arrays(offsets, text, mask=_null_mask(array))
        opening, closing = self.brackets
        return (enclose(lead, opening, pc.binary_join(lists, ","), closing),)


def bounds_of(array: pa.Array) -> NDArray[np.int64]:
    """Return where each list of any layout begins among its flattened values, and the end."""
    return offsets_from_lengths(pc.fill_null(pc.list_value_length(array), 0).to_numpy())


def _rows_of(items: NDArray[np.int64], bounds: NDArray[np.int64]) -> NDArray[Any]:
    return np.searchsorted(bounds, items, side="right") - 1


@dataclass(frozen=True, slots=True)
class EntryWriter:
    """Writes key and value of a map's entry as a member."""

    key: Writer
    value: Writer

    def __call__(self, array: pa.StructArray, lead: str) -> Sequence[Piece]:
        """See Writer."""
        keys, values = array.flatten()
        errors = RowErrors()
        pieces: list[Piece] = []
        for write, column, before in ((self.key, keys, lead), (self.value, values, ":")):
            with errors.collect():
                pieces += write(column, before)
        errors.raise_collected()
        return pieces


@dataclass(frozen=True, slots=True)
class MapWriter:
    """Writes maps as the list of their entries; with `named`, keys are unique member names."""

    entries: ListWriter
    named: bool

    def __call__(self, array: pa.MapArray, lead: str) -> Sequence[Piece]:
        """See Writer."""
        lists = _entries_of(array)
        if self.named:
            _require_unique(lists, self.entries.limit_bytes)
        return self.entries(lists, lead)


def _entries_of(array: pa.MapArray) -> pa.ListArray:
    """Return a map's entries as a list of structs, zero copy."""
    # Not by a cast: Arrow's yields invalid arrays where a value is a list of the null type.
    fields = [array.type.key_field, array.type.item_field]
    return pa.ListArray.from_arrays(
        pa.array(array.offsets.to_numpy()),
        pa.StructArray.from_arrays([array.keys, array.items], fields=fields),
        mask=_null_mask(array),
    )


def _null_mask(array: pa.Array) -> pa.BooleanArray | None:
    return pc.is_null(array) if array.null_count else None


def _require_unique(lists: pa.ListArray, limit_bytes: int) -> None:
    bounds = bounds_of(lists)
    counts = np.diff(bounds)
    keys = pc.list_flatten(lists).flatten()[0]
    if keys.null_count:
        raise corrupt_rows(_rows_of(np.flatnonzero(pc.is_null(keys)), bounds), "a key is null")
    if len(counts) == 0 or counts.max() <= 1:
        return
    rows = np.repeat(np.arange(len(counts)), counts)
    with attribute_to_rows(lambda items: _rows_of(items, bounds), "key: "):
        codes = _plain(keys, limit_bytes).dictionary_encode()
    both = np.sort(rows * len(codes.dictionary) + codes.indices.to_numpy())
    twice = both[1:][both[1:] == both[:-1]]
    if len(twice):
        raise corrupt_rows(np.unique(twice // len(codes.dictionary)), "a key is there twice")


def _plain(keys: pa.Array, limit_bytes: int) -> pa.StringArray:
    if pa.types.is_dictionary(keys.type):
        return _plain(keys.dictionary, limit_bytes).take(keys.indices)
    return checked_text(keys, limit_bytes)


@dataclass(frozen=True, slots=True)
class EncodedWriter:
    """Writes dictionary and run-end-encoded arrays: each distinct value once."""

    values: Writer
    limit_bytes: int

    def __call__(self, array: pa.Array, lead: str) -> Sequence[Piece]:
        """See Writer."""
        if pa.types.is_dictionary(array.type):
            values, indices = array.dictionary, array.indices
        else:
            values, indices = array.values, pa.array(run_indices(array))
        entries = self._entries(values, indices, lead)
        return (take_texts(entries, lead, indices, self.limit_bytes),)

    def _entries(self, values: pa.Array, indices: pa.Array, lead: str) -> Sequence[Piece]:
        try:
            return self.values(values, lead)
        except CorruptRecord as exc:
            bad = exc
        used = pc.fill_null(indices.cast(pa.int64()), -1).to_numpy()
        reasons = {int(row): bad.rows[int(used[row])] for row in _among(used, list(bad.rows))}
        if reasons:
            raise corrupt_record(reasons) from bad
        return self.values(_without(values, list(bad.rows)), lead)


def _among(used: NDArray[np.int64], entries: Sequence[int]) -> NDArray[np.int64]:
    return np.flatnonzero(np.isin(used, np.asarray(entries)))


def _without(values: pa.Array, entries: Sequence[int]) -> pa.Array:
    """Return values with null at entries that no row refers to."""
    parts = []
    start = 0
    for entry in entries:
        parts += [values.slice(start, entry - start), pa.nulls(1, values.type)]
        start = entry + 1
    return pa.concat_arrays([*parts, values.slice(start)])
