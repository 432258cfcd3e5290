"""Access columns as numpy buffers, stay within 32-bit offsets, and name the rows that fail.

Each step that creates text computes its size before it allocates. If the size exceeds 32-bit
offsets, the batch is converted in halves, which are returned as one array with 64-bit offsets.

A converter that raises has checked every column and row: the batch without the reported rows
converts. `delivery` translates row ordinals into locations.

Tests: unit/converters/test_limits.py, unit/converters/test_json_encoding.py
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.errors import CorruptRecord, UnsupportedType

# A string view is 16 bytes: the length, then either the text or a prefix, buffer and offset.
VIEW_WORDS = 4
# Arrow's 32-bit offsets are signed.
MAX_TEXT_BYTES = 2**31 - 1

Payloads: TypeAlias = pa.BinaryArray | pa.LargeBinaryArray


def value_offsets(array: pa.Array) -> NDArray[np.integer[Any]]:
    """Return the `len(array) + 1` offsets of a string or binary array, zero copy."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    # An empty array may come without an offsets buffer.
    if len(array) == 0:
        return np.zeros(1, dtype)
    return _window(array, dtype, len(array) + 1)


def value_bytes(array: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes from the first value's start to the last value's end, zero copy."""
    offsets, data = value_offsets(array), array.buffers()[2]
    if data is None or offsets[-1] == 0:
        return np.zeros(0, np.uint8)
    # The first offset of a slice is not 0.
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def fixed_width(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values of a fixed-width array as `dtype`, zero copy; null slots are undefined."""
    return _window(array, dtype, len(array)) if len(array) else np.zeros(0, dtype)


def _window(array: pa.Array, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    # Counted, as a buffer may be padded to a length that is not a multiple of the item's.
    return np.frombuffer(array.buffers()[1], dtype, array.offset + count)[array.offset :]


def held_bytes(rows: pa.RecordBatch | pa.Array) -> int:
    """Return the bytes of rows; where dense unions hold dense unions, of all rows of their buffers.

    Arrow's `nbytes` reads beyond a dense union of which another one takes no row, and the process
    ends.
    """
    kinds = rows.schema.types if isinstance(rows, pa.RecordBatch) else [rows.type]
    nested = any(str(kind).count("dense_union") > 1 for kind in kinds)
    return int(rows.get_total_buffer_size() if nested else rows.nbytes)


def text_bytes(array: pa.Array) -> int:
    """Return how many bytes of text a string, binary or view array holds."""
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        lengths = fixed_width(array, np.dtype((np.int32, VIEW_WORDS)))[:, 0]
        # The length in a null slot is undefined.
        return int(lengths.sum(dtype=np.int64, where=validity(array)))
    offsets = value_offsets(array)
    return int(offsets[-1]) - int(offsets[0])


def validity(array: pa.Array) -> Any:  # noqa: ANN401 - numpy's `where` takes True or a mask
    """Return True if nothing is null, else the mask of valid rows."""
    if array.null_count == 0:
        return True
    return pc.is_valid(array).to_numpy(zero_copy_only=False)


def null_mask(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return the mask of null rows for `pa.array`; None if nothing is null."""
    return None if array.null_count == 0 else ~validity(array)


def reinterpreted(array: pa.Array, as_type: pa.DataType) -> pa.Array:
    """Return the same fixed-width values under another type, zero copy."""
    return pa.Array.from_buffers(as_type, len(array), array.buffers()[:2], offset=array.offset)


def text_array(
    offsets: NDArray[np.integer[Any]], data: NDArray[np.uint8], like: pa.Array
) -> pa.StringArray:
    """Return text over new buffers, null where `like` is null. Offsets start at 0."""
    bitmap = None
    if like.null_count:
        # Packed again, as the bitmap of a slice may start within a byte.
        bitmap = pa.py_buffer(np.packbits(validity(like), bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(like), buffers)


def offsets_from_lengths(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the offsets of consecutive values: one more than there are values."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


class OffsetOverflowError(Exception):
    """Text exceeds 32-bit offsets; never leaves a converter."""


def require_limit(text_bytes: int, limit_bytes: int) -> None:
    """Raise OffsetOverflowError if text of `text_bytes` exceeds the limit."""
    if text_bytes > limit_bytes:
        raise OffsetOverflowError


def convert_in_halves(
    convert: Callable[[pa.RecordBatch], pa.BinaryArray], batch: pa.RecordBatch
) -> Payloads:
    """Convert a batch, in halves (recursively) if its text exceeds the limit.

    Large if one array with 32-bit offsets cannot contain the text of all rows. Raises CorruptRecord
    as `convert`, over all halves, and for a single row that exceeds the limit.
    """
    try:
        return convert(batch)
    except OffsetOverflowError as exc:
        if batch.num_rows == 1:
            reason = "its text is longer than 2 GiB; no Kafka record can be"
            raise corrupt_record({0: reason}) from exc
    # Both halves are converted even if the first fails, so that every bad row is reported.
    middle = batch.num_rows // 2
    halves: list[pa.LargeBinaryArray] = []
    with RowErrors() as errors:
        for start, half in ((0, batch.slice(0, middle)), (middle, batch.slice(middle))):
            with errors.collect(rows_of=partial(np.add, start)):
                halves.append(convert_in_halves(convert, half).cast(pa.large_binary()))
    return pa.concat_arrays(halves)


@dataclass(frozen=True, slots=True)
class Columns:
    """Selected fields of a schema with their indices, and the way from a struct to its member."""

    fields: tuple[pa.Field, ...]
    indices: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]

    @classmethod
    def select(
        cls, schema: pa.Schema, names: Sequence[str] | None, *, nested: bool = False
    ) -> Self:
        """Return the columns called `names` in that order; all columns if None.

        `nested`: where there is no column `a.b`, it is the member `b` of the struct `a`, null where
        the struct is. UnsupportedType if a column does not exist, or a name is not unique.
        """
        wanted = schema.names if names is None else list(names)
        require_unique(wanted, "columns")
        fields: list[pa.Field] = []
        indices: list[int] = []
        members: list[tuple[int, ...]] = []
        for name in wanted:
            found = schema.get_all_field_indices(name)
            inner = _member(schema, name) if nested and not found else None
            if inner is not None:
                field, index, path = inner
                fields.append(field)
                indices.append(index)
                members.append(path)
                continue
            if not found:
                known = ", ".join(f"'{known}'" for known in schema.names)
                raise UnsupportedType(
                    f"there is no column '{name}'; name one of {known or '(none)'}"
                )
            require_unique([name] * len(found), "columns")
            fields += [schema.field(index) for index in found]
            indices += found
            members += [()] * len(found)
        return cls(tuple(fields), tuple(indices), tuple(members))

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the columns. Raises as `of`."""
        return pa.RecordBatch.from_arrays(self.of(batch), schema=pa.schema(self.fields))

    def of(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the arrays of the batch; UnsupportedType if it has another schema."""
        # By index, as a name may occur twice among the columns that are not selected.
        arrays = [batch.column(index) for index in self.indices]
        for at, path in enumerate(self.members):
            for member in path:
                # Unlike `field`, flattening makes a member null where its struct is.
                arrays[at] = arrays[at].flatten()[member]
        for field, array in zip(self.fields, arrays, strict=True):
            if array.type != field.type:
                raise UnsupportedType(
                    f"column '{field.name}' changed from type {field.type} to {array.type} within "
                    "an object; write such data to objects of their own"
                )
        return arrays


def _member(schema: pa.Schema, name: str) -> tuple[pa.Field, int, tuple[int, ...]] | None:
    """Return the field that a dotted name leads to, the index of its column, and the way to it."""
    first, *rest = name.split(".")
    if schema.names.count(first) != 1:
        return None
    index = schema.get_field_index(first)
    found, path = schema.field(index), []
    for member in rest:
        is_open = pa.types.is_struct(found.type) and not extension_name(found)
        at = found.type.get_field_index(member) if is_open else -1
        if at < 0:
            return None
        found = found.type.field(at)
        path.append(at)
    # Nullable, because a struct around it may be null.
    return found.with_name(name).with_nullable(True), index, tuple(path)  # noqa: FBT003 - Arrow's


def extension_name(one: pa.Field) -> str:
    """Return the name of the extension type of a field; "" for other types.

    A process that has not registered the type sees its storage, and the name beside the field.
    """
    if isinstance(one.type, pa.BaseExtensionType):
        return str(one.type.extension_name)
    stored: bytes = (one.metadata or {}).get(b"ARROW:extension:name", b"")
    return stored.decode(errors="replace")


def require_unique(names: Sequence[str], kind: str) -> None:
    """Raise UnsupportedType if a name occurs more than once."""
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise UnsupportedType(
            f"several {kind} are called '{repeated[0]}'; names must be unique: rename all but one"
        )


def corrupt_record(reasons: Mapping[int, str]) -> CorruptRecord:
    """Return the error for rows (or nested values) by ordinal, with one reason each."""
    rows = dict(sorted(reasons.items()))
    first, reason = next(iter(rows.items()))
    return CorruptRecord(f"{len(rows)} row(s) cannot be converted; row {first}: {reason}", rows)


def corrupt_rows(rows: Iterable[Any], reason: str) -> CorruptRecord:
    """Return the error for rows that share a reason."""
    return corrupt_record({int(row): reason for row in rows})


class RowErrors:
    """Collects the errors of several columns, so that one pass finds every bad row.

    A context manager: its exit raises what was collected as one CorruptRecord.
    """

    def __init__(self) -> None:
        self._reasons: dict[int, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        if raised is None and self._reasons:
            raise corrupt_record(self._reasons)

    @contextmanager
    def collect(
        self,
        label: str = "",
        rows_of: Callable[[NDArray[np.int64]], NDArray[np.integer[Any]]] | None = None,
    ) -> Iterator[None]:
        """Collect a CorruptRecord raised inside; the first reason of a row wins.

        `label` precedes its reasons. For errors of nested values, `rows_of` maps their ordinals to
        those of the rows that contain them, one to one.
        """
        try:
            yield
        except CorruptRecord as exc:
            rows = list(exc.rows)
            if rows_of is not None:
                rows = rows_of(np.asarray(rows, np.int64)).tolist()
            for row, reason in zip(rows, exc.rows.values(), strict=True):
                # A row is one bad record, however many of its values are bad.
                self._reasons.setdefault(row, label + reason)
