"""Encodes a batch of rows as one value, and decodes it.

parquet   a Parquet file with one row group, from PAR1 to PAR1
arrow     a stream in Arrow's IPC format: the schema, one record batch, the end
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from extentflow.arrays.buffers import OffsetOverflowError, RowErrors, corrupt_rows
from extentflow.arrays.casts import failing_rows
from extentflow.arrays.layouts import laid_out
from extentflow.arrays.valid_batches import valid_batch
from extentflow.columnar import BatchFacts
from extentflow.columnar.encryption import ColumnEncryption, encrypted_paths, locked
from extentflow.columnar.schemas import plain
from extentflow.config.columnar import PARQUET
from extentflow.errors import CorruptRecord, Misconfigured, UnsupportedType
from extentflow.formats.parquet.column_keys import (
    KeyService,
    KeyUnavailableError,
    decryption_properties,
)

# What Arrow raises for a type that it cannot write, and for values that it cannot read.
_WRITE_ERRORS = (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError, OSError)
_READ_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, IndexError)
# The fastest; higher levels take several times the CPU for some percent of the size.
_LEVELS = {"zstd": 1, "gzip": 6}
# What Arrow says of encrypted columns where it has no keys.
_LOCKED = "Cannot decrypt ColumnMetadata"

# Of rows that show which columns repeat their values: how many, and at most such a share of
# different values. For Arrow, the first rows of an extent, of which there may be few.
_PARQUET_ROWS, _PARQUET_DISTINCT = 2_048, 0.34
_ARROW_ROWS, _ARROW_DISTINCT = 256, 0.25
# Of a value when it is decoded. Those that the bounds of their texts put above LARGE_BYTES are read
# in steps.
_MOST_DECODED_BYTES, _LARGE_BYTES, _STEP_BYTES = 1 << 30, 2 << 30, 256 << 20
_TEXTS = frozenset({pa.string(), pa.large_string(), pa.binary(), pa.large_binary()})
# How many entries of a dictionary indices of 8 bits can tell apart.
_MOST_SHORT_INDICES = 128
SHOWN_COLUMNS = 20
_TOO_LARGE = "its views, runs or codes have more than 2 GiB where each row has its own values"


class Encoder(Protocol):
    """Makes values of batches of one plain schema."""

    def observe(self, rows: pa.RecordBatch) -> None:
        """Look at rows, of which some are encoded next, for columns that repeat their values."""
        ...

    def __call__(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return the value of a batch."""
        ...


def encoder(
    encoding: str,
    compression: str,
    schema: pa.Schema,
    encryption: ColumnEncryption | None = None,
) -> Encoder:
    """Return the encoder of batches of a plain `schema`.

    `encryption` of columns of the schema, in Parquet. Raises UnsupportedType for a column that the
    encoding cannot hold, and as `ColumnEncryption.properties`.
    """
    require_distinct(schema)
    level = _LEVELS.get(compression)
    codec = None if compression == "none" else compression
    # Not of texts: least and greatest ones of up to 4 KiB are stored twice.
    ranged = [each.name for each in schema if _is_short(each.type)]
    if encoding == PARQUET:
        encode: Encoder = _ParquetEncoder(compression, level, ranged)
    else:
        compressed = None if codec is None else pa.Codec(codec, compression_level=level)
        options = pa.ipc.IpcWriteOptions(compression=compressed, use_threads=False)
        encode = _ArrowEncoder(options)
    leaves: dict[str, list[str]] = {}
    for column in schema:
        try:
            value = encode(
                pa.RecordBatch.from_arrays([pa.nulls(1, column.type)], schema=pa.schema([column]))
            )
            if encryption is not None:
                leaves[column.name] = _leaf_paths(value)
        except _WRITE_ERRORS as exc:
            raise UnsupportedType(
                f"column {column.name}: {encoding} cannot hold {column.type} ({exc}); use a"
                " Cast transform, or leave it out by select"
            ) from exc
    if encryption is None or not encryption.columns:
        return encode
    protect = partial(encryption.properties, encrypted_paths(encryption, leaves))
    # Finds a missing key, or permission, before the first row.
    protect()
    return _ParquetEncoder(compression, level, ranged, protect)


def _leaf_paths(value: pa.Buffer) -> list[str]:
    with pq.ParquetFile(pa.BufferReader(value)) as file:
        return [file.schema.column(at).path for at in range(len(file.schema))]


def require_distinct(schema: pa.Schema) -> None:
    """Raise UnsupportedType for columns of one name, and where there are no columns."""
    names = schema.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UnsupportedType(
            f"several columns {', '.join(twice)}: a columnar value has each name once; rename them"
        )
    if not names:
        raise UnsupportedType("there are no columns; a columnar value has one or more")


@dataclass(slots=True)
class _ParquetEncoder:
    """Encodes batches as Parquet; columns with few different values get a dictionary.

    The first enough rows decide which: a dictionary of mostly different values costs a third of the
    time, and compresses worse. `ranged` columns have statistics; `protect` returns the
    properties of encryption, for one file only: the next one has other data keys.
    """

    compression: str
    level: int | None
    ranged: list[str]
    protect: Callable[[], Any] | None = None
    _repeated: list[str] | None = None

    def observe(self, rows: pa.RecordBatch) -> None:
        """See `Encoder`."""
        if self._repeated is None and rows.num_rows >= _PARQUET_ROWS:
            sample = rows.slice(0, _PARQUET_ROWS)
            names = sample.schema.names
            self._repeated = [one for one in names if _repeats(sample[one], _PARQUET_DISTINCT)]

    def __call__(self, batch: pa.RecordBatch) -> pa.Buffer:
        """See `Encoder`."""
        sink = pa.BufferOutputStream()
        pq.write_table(
            pa.Table.from_batches([batch]),
            sink,
            compression=self.compression,
            compression_level=self.level,
            use_dictionary=True if self._repeated is None else self._repeated,
            write_statistics=self.ranged,
            row_group_size=max(1, batch.num_rows),
            encryption_properties=None if self.protect is None else self.protect(),
            # Of 64 bits, where these suffice: a sixth less time than arrays of bytes.
            store_decimal_as_integer=True,
        )
        return sink.getvalue()


def _repeats(sample: pa.Array, most_distinct: float) -> bool:
    plain_kind = types.is_nested(sample.type) or types.is_boolean(sample.type)
    if plain_kind or types.is_null(sample.type):
        return False
    if isinstance(sample.type, pa.BaseExtensionType):
        sample = sample.storage
    return bool(pc.count_distinct(sample).as_py() <= len(sample) * most_distinct)


def _is_short(kind: pa.DataType) -> bool:
    return bool(types.is_primitive(kind) or types.is_decimal(kind))


@dataclass(slots=True)
class _ArrowEncoder:
    """Encodes batches as streams of Arrow; wide columns with few different values get a dictionary.

    The first rows of an extent decide which columns: values should keep one schema, because files
    that join values are split where it changes. So indices that had to become wider stay so.
    """

    options: pa.ipc.IpcWriteOptions
    _indices: dict[str, pa.DataType] | None = None

    def observe(self, rows: pa.RecordBatch) -> None:
        """See `Encoder`."""
        if self._indices is None:
            sample = rows.slice(0, _ARROW_ROWS)
            self._indices = {
                each.name: pa.int8()
                for each in sample.schema
                if _is_wide(each.type) and _repeats(sample[each.name], _ARROW_DISTINCT)
            }

    def __call__(self, batch: pa.RecordBatch) -> pa.Buffer:
        """See `Encoder`."""
        if self._indices:
            batch = self._with_dictionaries(batch, self._indices)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=self.options) as writer:
            writer.write_batch(batch)
        return sink.getvalue()

    @staticmethod
    def _with_dictionaries(
        batch: pa.RecordBatch, indices: dict[str, pa.DataType]
    ) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, kind in list(indices.items()):
            encoded = columns[name].dictionary_encode()
            is_short = len(encoded.dictionary) <= _MOST_SHORT_INDICES
            indices[name] = kind if is_short else encoded.indices.type
            columns[name] = pa.DictionaryArray.from_arrays(
                encoded.indices.cast(indices[name]), encoded.dictionary
            )
        return pa.RecordBatch.from_pydict(columns)


def _is_wide(kind: pa.DataType) -> bool:
    """Whether an index is shorter than most values; zstd and lz4 shorten numbers as well."""
    is_text = types.is_string(kind) or types.is_large_string(kind)
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(
        is_text or is_bytes or types.is_fixed_size_binary(kind) or types.is_decimal128(kind)
    )


def to_plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the types of its plain `schema`.

    Raises CorruptRecord for rows whose values the types cannot hold, UnsupportedType where Arrow
    cannot convert a column.
    """
    arrays = []
    with RowErrors() as errors:
        for column, field in zip(batch.columns, schema, strict=True):
            with errors.collect(f"{field.name}: "):
                arrays.append(_sound(_cast(column, field)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    def convert(part: pa.Array) -> pa.Array:
        return laid_out(part, field.type, pc.cast)

    try:
        return convert(column)
    except OffsetOverflowError as exc:
        raise corrupt_rows(range(len(column)), _TOO_LARGE) from exc
    except pa.ArrowInvalid:
        rows = failing_rows(column, convert)
        if not rows:  # together they are too large
            raise
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as exc:
        raise UnsupportedType(
            f"column {field.name}: {column.type} cannot become {field.type} ({exc}); leave it out"
            " by select"
        ) from exc
    raise corrupt_rows(rows, f"has no exact value as {field.type}")


def _sound(column: pa.Array) -> pa.Array:
    """Return a column whose texts are UTF-8: Arrow's readers of values refuse others.

    Raises CorruptRecord for the rows with other texts.
    """
    if not has_text(column.type):
        return column
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:

        def check(part: pa.Array) -> pa.Array:
            # Taken: of a slice of lists, all items would be checked.
            taken = part.take(pa.array(range(len(part))))
            taken.validate(full=True)
            return taken

        if rows := failing_rows(column, check):
            raise corrupt_rows(rows, "is no UTF-8 text") from None
        return check(column)  # what was invalid belongs to other rows
    return column


def has_text(kind: pa.DataType) -> bool:
    """Whether a plain type is text, or has members that are."""
    if types.is_string(kind) or types.is_large_string(kind):
        return True
    return any(has_text(kind.field(at).type) for at in range(kind.num_fields))


def decode(
    value: bytes | pa.Buffer,
    facts: BatchFacts,
    columns: Sequence[str] | None = None,
    *,
    lenient: bool = False,
    keys: KeyService | None = None,
) -> pa.RecordBatch:
    """Return the rows of a value, or only some of its columns, in the order of these.

    `lenient`: of these, those that it has; otherwise one that it lacks is an error. `keys` unwrap
    the keys of encrypted columns; others are read without.

    Raises CorruptRecord where the value is no such batch, or has other rows than its headers state.
    Raises Misconfigured for a column that it lacks, AccessDenied for encrypted columns without
    their keys, and as the key service.
    """
    is_parquet = facts.encoding == PARQUET
    wanted = [name for name in facts.encrypted if columns is None or name in columns]
    if wanted and keys is None:
        # Arrow aborts the process where it is asked for the metadata of such a column.
        raise locked(wanted, value, "no keys are given")
    if columns is not None and facts.encrypted and not wanted:
        # With keys that are not those of the value, not even the other columns could be read.
        keys = None
    try:
        if is_parquet:
            table, rows = _parquet_table(value, columns, lenient=lenient, keys=keys)
        else:
            table, rows = _arrow_table(value, columns, lenient=lenient)
        table = _in_plain_types(table).combine_chunks()
        table.validate()
        for column in table.columns:
            if is_parquet and has_text(column.type):
                column.validate(full=True)
    except KeyUnavailableError as exc:
        raise locked(wanted, value, str(exc)) from exc
    except _READ_ERRORS as exc:
        if _LOCKED in str(exc) and keys is None:
            raise locked(wanted, value, "no keys are given") from exc
        raise CorruptRecord(
            f"batch {facts.batch} cannot be read as {facts.encoding}: {exc}"
        ) from exc
    return _whole(table, rows, facts)


def _in_plain_types(table: pa.Table) -> pa.Table:
    """Return a table in plain types, of which readers of Parquet and Arrow make others."""
    schema = plain(table.schema)
    try:
        columns = [
            pa.chunked_array(
                [laid_out(each, field.type, pc.cast) for each in column.chunks], field.type
            )
            for column, field in zip(table.columns, schema, strict=True)
        ]
    except OffsetOverflowError as exc:
        raise ValueError(_TOO_LARGE) from exc
    return pa.Table.from_arrays(columns, schema=schema)


def _whole(table: pa.Table, rows: int, facts: BatchFacts) -> pa.RecordBatch:
    """Return a table with so many rows as one batch."""
    if rows != facts.rows:
        raise CorruptRecord(
            f"batch {facts.batch} has {rows} rows, and its header states {facts.rows}"
        )
    batches = table.to_batches() if table.num_columns else [_no_columns(rows)]
    if len(batches) != 1:
        raise CorruptRecord(
            f"batch {facts.batch} has columns of more than 2 GiB, which are not decoded; name other"
            " columns, or fill the topic with columnar.passthrough=false"
        )
    return batches[0]


def _parquet_table(
    value: bytes | pa.Buffer,
    columns: Sequence[str] | None,
    *,
    lenient: bool,
    keys: KeyService | None,
) -> tuple[pa.Table, int]:
    decryption = None if keys is None else decryption_properties(keys)
    with pq.ParquetFile(pa.BufferReader(value), decryption_properties=decryption) as file:
        rows = file.metadata.num_rows
        wanted = None
        if columns is not None:
            wanted = _wanted(file.schema_arrow, columns, lenient=lenient)
        footer_bytes = int.from_bytes(memoryview(value)[-8:-4], "little")
        # The footer of encrypted columns has a signature behind it. Arrow must not be asked for
        # their metadata.
        is_plain = file.metadata.serialized_size == footer_bytes
        row_bytes = _largest_texts(file.metadata) if is_plain else 0
        if rows * row_bytes <= _LARGE_BYTES:
            table = file.read(columns=wanted, use_threads=False)
        else:
            table = _read_in_steps(file, wanted, max(1, _STEP_BYTES // row_bytes))
        # It also reads members of structs whose path is such a name.
        return table if wanted is None else table.select(wanted), rows


def _largest_texts(metadata: pq.FileMetaData) -> int:
    """Return a bound of the bytes of a row: an entry of a dictionary may stand in each."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    return sum(
        one.total_uncompressed_size
        for one in chunks
        if one.has_dictionary_page and one.physical_type == "BYTE_ARRAY"
    )


def _read_in_steps(file: pq.ParquetFile, columns: Sequence[str] | None, step_rows: int) -> pa.Table:
    """Read a file of which a few bytes may be many. Raises ValueError for too many."""
    batches, held = [], 0
    for batch in file.iter_batches(step_rows, columns=columns, use_threads=False):
        batches.append(batch)
        held += batch.nbytes
        _require_size(held)
    return pa.Table.from_batches(batches)


def _require_size(size: int) -> None:
    if size > _MOST_DECODED_BYTES:
        raise ValueError(
            f"its columns have more than {_MOST_DECODED_BYTES:,} bytes when they are decoded; name"
            " other columns"
        )


def _arrow_table(
    value: bytes | pa.Buffer, columns: Sequence[str] | None, *, lenient: bool
) -> tuple[pa.Table, int]:
    with pa.ipc.open_stream(pa.BufferReader(value)) as stream:
        schema = stream.schema
        # Arrow's reader takes offsets, indices, views and texts as they are, and casts follow them.
        table = pa.Table.from_batches([valid_batch(each) for each in stream], schema)
    rows = table.num_rows
    if columns is not None:
        table = table.select(_wanted(schema, columns, lenient=lenient))
    _require_size(sum(_decoded_bytes(each) for one in table.columns for each in one.chunks))
    return table, rows


def _decoded_bytes(array: pa.Array) -> int:
    """Return how many bytes the texts of dictionaries have, where each row has its own."""
    kind = array.type
    if types.is_struct(kind):
        return sum(_decoded_bytes(array.field(at)) for at in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return _decoded_bytes(array.values)
    if not types.is_dictionary(kind) or not len(array.dictionary):
        return 0
    if kind.value_type in _TEXTS:
        lengths = pc.binary_length(array.dictionary)
        return pc.sum(lengths.take(array.indices)).as_py() or 0
    return int(array.dictionary.nbytes / len(array.dictionary) * len(array))


def no_column(lacking: Sequence[str], names: Sequence[str]) -> str:
    """Return that a value lacks columns, and which ones it has."""
    there = ", ".join(names[:SHOWN_COLUMNS])
    more = f" and {len(names) - SHOWN_COLUMNS} more" if len(names) > SHOWN_COLUMNS else ""
    return f"no column {', '.join(lacking)}; the value has only {there}{more}"


def _wanted(schema: pa.Schema, columns: Sequence[str], *, lenient: bool) -> list[str]:
    lacking = [name for name in columns if name not in schema.names]
    if lacking and not lenient:
        raise Misconfigured(no_column(lacking, schema.names))
    return [name for name in columns if name not in lacking]


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
