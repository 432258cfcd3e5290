"""Joins columnar values to files, unread: row groups and record batches are copied as they are.

    values    PAR1 | group | footer | PAR1      PAR1 | group | footer | PAR1
    file      PAR1 | group | group | footer with the places of both | PAR1

    values    schema | dictionaries | batch | end      schema | dictionaries | batch | end
    file      schema | dictionaries | batch | dictionaries | batch | end

Only footers and the metadata of messages are read. Equal values in the same order make equal bytes.
A value with encrypted columns is a file of its own, byte for byte: its pages are authenticated with
a number of the file, and its footer is signed.
"""

import struct
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from extentflow.columnar import ENCODING, ENCRYPTED, BatchFacts
from extentflow.config.columnar import ARROW, PARQUET
from extentflow.consumer.row_batches import place
from extentflow.errors import CorruptRecord, Misconfigured
from extentflow.formats.arrow_messages import (
    expected_dictionaries,
    stated_dictionary,
    stated_rows,
)
from extentflow.formats.parquet.footer import MAGIC
from extentflow.formats.parquet.stored_groups import StoredFooter, move, written_group
from extentflow.kafka.reading import ConsumedRecord

# Of damaged footers and messages; also where a field has another type.
_DAMAGED = (
    *(ValueError, IndexError, struct.error, pa.ArrowException, OSError),
    *(EOFError, TypeError, AttributeError),
)
# Ordinals of row groups have 16 bits.
MOST_GROUPS: Final = 2**15 - 1
# Readers hold a footer in memory as a whole, and Arrow reads up to 100 MB.
MOST_FOOTER_BYTES: Final = 16 << 20
# Of a stream in Arrow's IPC format: the mark of a message, and no length.
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
_WAY_OUT = (
    "nothing of its partition is written from there on; correct its producer, or delete the records"
    " up to it (kafka-delete-records.sh) and go on with --accept-gap"
)


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A columnar value: `data` is what a file takes of it, and `schema` what values must share.

    `data` begins at `start` of the value. `footer` is that of a Parquet file to which row groups of
    others can be joined; None for a stream of Arrow, and for a Parquet file that stays whole.
    """

    encoding: str
    rows: int
    schema: bytes
    data: memoryview
    start: int
    footer: StoredFooter | None = None


def stored_value(topic: str, record: ConsumedRecord) -> StoredValue | None:
    """Return the columnar value of a record; None for a tombstone, which has no rows.

    Raises CorruptRecord where the value contradicts its headers or itself;
    Misconfigured for a value that is a row. Both name topic, partition and offset.
    """
    where = place(topic, record.partition, record.offset)
    if not any(name == ENCODING for name, _ in record.headers):
        if record.value is None:
            return None
        raise Misconfigured(
            f"{where}: the value is one row (it has no header {ENCODING}), and columnar values are"
            " written unread; `extentflow lake` writes rows, or let the connector write columnar"
            " values by columnar.encoding=parquet"
        )
    try:
        return _checked(record)
    except CorruptRecord as exc:
        raise CorruptRecord(f"{where}: {exc}; {_WAY_OUT}") from exc


def _checked(record: ConsumedRecord) -> StoredValue:
    facts = BatchFacts.of(record.headers)
    if facts is None or record.value is None:
        raise CorruptRecord(f"the header {ENCODING} or the value is null")
    read = _parquet_value if facts.encoding == PARQUET else _arrow_value
    try:
        found = read(record.value, is_encrypted=bool(facts.encrypted))
    except _DAMAGED as exc:
        why = str(exc) or type(exc).__name__
        raise CorruptRecord(f"the value cannot be read as {facts.encoding}: {why}") from exc
    if found.rows != facts.rows:
        raise CorruptRecord(f"the value has {found.rows} rows, and its header states {facts.rows}")
    return found


def _parquet_value(value: bytes, *, is_encrypted: bool) -> StoredValue:
    if value[: len(MAGIC)] != MAGIC:
        raise ValueError("no Parquet file")
    footer = StoredFooter.of_value(value)
    if is_encrypted:
        if not footer.is_encrypted:
            raise ValueError(f"no column is encrypted, and the header {ENCRYPTED} names some")
        return StoredValue(PARQUET, footer.rows, b"", memoryview(value), 0)
    behind = len(value) - 8 - int.from_bytes(value[-8:-4], "little")
    start, end = footer.data_range(behind)
    return StoredValue(
        PARQUET,
        footer.rows,
        footer.description,
        memoryview(value)[start:end],
        start,
        footer,
    )


def _arrow_value(value: bytes, *, is_encrypted: bool) -> StoredValue:
    if is_encrypted:
        raise ValueError(f"it has no encrypted columns, and the header {ENCRYPTED} names some")
    source = pa.BufferReader(value)
    schema = pa.ipc.read_message(source)
    if schema.type != "schema":
        raise ValueError("no stream in Arrow's IPC format")
    start, end, rows = source.tell(), source.tell(), 0
    # In a joined stream, readers would take those of the value before in their place.
    lacking = expected_dictionaries(memoryview(schema.metadata))
    while True:
        try:
            message = pa.ipc.read_message(source)
        except EOFError:
            break
        if message.type == "record batch":
            if lacking:
                raise ValueError("a batch without all of its dictionaries")
            rows += stated_rows(memoryview(message.metadata))
        elif message.type == "dictionary":
            number, adds = stated_dictionary(memoryview(message.metadata))
            if adds and number in lacking:
                raise ValueError("a dictionary that adds to one which the value does not have")
            lacking.discard(number)
        else:
            raise ValueError(f"a message of type {message.type}")
        end = source.tell()
    if value[end:] not in (_STREAM_END, b""):
        raise ValueError(f"bytes behind the end of the stream, at {end}")
    data = memoryview(value)
    return StoredValue(ARROW, rows, bytes(data[:start]), data[start:end], start)


class FileJoiner(Protocol):
    """A file that is being joined; its bytes are those that its calls return, in order."""

    extension: str

    def begin(self) -> bytes:
        """Return the first bytes."""
        ...

    def takes(self, value: StoredValue) -> bool:
        """Whether a value can be in this file, whatever its size."""
        ...

    def append(self, value: StoredValue) -> memoryview:
        """Return the bytes of a value that `takes` accepts."""
        ...

    def end(self) -> bytes:
        """Return the last bytes."""
        ...


def join_from(value: StoredValue) -> FileJoiner:
    """Return the file that begins with a value, which is not appended yet."""
    if value.footer is not None:
        return JoinedParquet(value.footer, value.schema)
    if value.encoding == PARQUET:
        return WholeParquet()
    return JoinedArrow(value.schema)


@dataclass(slots=True)
class JoinedParquet:
    """Row groups of values in one Parquet file; a group is kept as the bytes of its footer."""

    footer: StoredFooter
    schema: bytes
    extension: str = "parquet"
    _at: int = len(MAGIC)
    _rows: int = 0
    _groups: list[bytes] = field(default_factory=list)
    _footer_bytes: int = 0

    def begin(self) -> bytes:
        """See `FileJoiner`."""
        return MAGIC

    def takes(self, value: StoredValue) -> bool:
        """See `FileJoiner`; codecs may differ, as they belong to column chunks."""
        if value.footer is None or value.schema != self.schema:
            return False
        more = len(value.footer.groups)
        return len(self._groups) + more <= MOST_GROUPS and self._footer_bytes < MOST_FOOTER_BYTES

    def append(self, value: StoredValue) -> memoryview:
        """See `FileJoiner`."""
        groups = () if value.footer is None else value.footer.groups
        for group in groups:
            written = written_group(move(group, self._at - value.start), len(self._groups))
            self._groups.append(written)
            self._footer_bytes += len(written)
        self._at += len(value.data)
        self._rows += value.rows
        return value.data

    def end(self) -> bytes:
        """See `FileJoiner`."""
        return self.footer.with_written(self._groups, self._rows)


@dataclass(slots=True)
class WholeParquet:
    """A Parquet file that is one value."""

    extension: str = "parquet"

    def begin(self) -> bytes:
        """See `FileJoiner`."""
        return b""

    def takes(self, value: StoredValue) -> bool:  # noqa: ARG002 - see `FileJoiner`
        """See `FileJoiner`; called for a second value only."""
        return False

    def append(self, value: StoredValue) -> memoryview:
        """See `FileJoiner`."""
        return value.data

    def end(self) -> bytes:
        """See `FileJoiner`."""
        return b""


@dataclass(slots=True)
class JoinedArrow:
    """Record batches of values in one stream; dictionaries replace those of the value before."""

    schema: bytes
    extension: str = "arrows"

    def begin(self) -> bytes:
        """See `FileJoiner`."""
        return self.schema

    def takes(self, value: StoredValue) -> bool:
        """See `FileJoiner`."""
        return value.encoding == ARROW and value.schema == self.schema

    def append(self, value: StoredValue) -> memoryview:
        """See `FileJoiner`."""
        return value.data

    def end(self) -> bytes:
        """See `FileJoiner`."""
        return _STREAM_END
