"""Decode ORC: stripes owned by the extent that contains their first byte.

    object    ORC | stripe 0 | stripe 1 | stripe 2 | metadata | footer | postscript | length
    extents   [0 ............. )[ ......................................... size)
    decoded   ORC |          | stripe 1 | footer of one stripe | postscript | length

Arrow reads an ORC file as a whole, or a stripe as one batch of any size. So each stripe is given to
it as a file of one stripe, with a footer made from the object's, and read in bounded batches.

ORC has no checksums: a damaged stripe that still decodes is indistinguishable from a valid one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import orc

from extentflow.errors import Conflict, CorruptObject, UnsupportedFormat, UnsupportedType
from extentflow.formats import BadRecord, Chunk, FormatOptions, FormatSpec, cut_at_units, no_rows
from extentflow.formats.arrow_ipc import require_columns
from extentflow.formats.magic import HEAD_BYTES, require_signature
from extentflow.formats.parquet_prefetch import ObjectFile
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource

EXTENT_BYTES = 32 << 20
MAGIC = b"ORC"
# What Arrow reads first of a file's end; larger footers take a second request.
TAIL_BYTES = 64 << 10
# A larger stripe is read in blocks when Arrow needs them, not ahead.
LARGEST_HELD_BYTES = 64 << 20
BATCH_BYTES = 4 << 20
# Arrow takes a number of rows, however wide they are: few at a time, joined to larger batches.
SCAN_ROWS = 1024
_CACHED_TAILS = 64
_ERRORS = (pa.ArrowException, OSError, ValueError)

# Numbers of fields and types in ORC's protocol buffers (orc_proto.proto).
_POSTSCRIPT, _FOOTER = 1, 2
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE, _METADATA_LENGTH, _STATISTICS_LENGTH = 1, 2, 3, 5, 7
_STRIPES, _ROWS, _STATISTICS, _ENCRYPTION = 3, 6, 7, 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Fields: TypeAlias = list[tuple[int, int | bytes]]


def parse_fields(data: bytes) -> Fields:
    """Return numbers and values of a protocol buffer's fields; ValueError for other bytes."""
    fields: Fields = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            fields.append((number, value))
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if length is None:
            if kind != _BYTES:
                raise ValueError(f"a field of the wire type {kind}")
            length, at = _varint(data, at)
        if at + length > len(data):
            raise ValueError("a field that is longer than its message")
        fields.append((number, data[at : at + length]))
        at += length
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:  # noqa: PLR2004 - ten bytes of seven bits
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:  # noqa: PLR2004 - the bit that says that more bytes follow
            return value, at
        shift += 7
    raise ValueError("a number that does not end")


def write_fields(fields: Iterable[tuple[int, int | bytes]]) -> bytes:
    """Return the protocol buffer of fields that are numbers or bytes."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += _written(number << 3 | _VARINT) + _written(value)
        else:
            out += _written(number << 3 | _BYTES) + _written(len(value)) + value
    return bytes(out)


def _written(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:  # noqa: PLR2004 - as in _varint
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(fields: Fields, number: int) -> int:
    values = [value for key, value in fields if key == number and isinstance(value, int)]
    return values[-1] if values else 0


def _messages(fields: Fields, number: int) -> list[bytes]:
    return [value for key, value in fields if key == number and isinstance(value, bytes)]


@dataclass(frozen=True, slots=True)
class Stripe:
    """A stripe with rows: bytes `[start, end)`, rows `[first_row, first_row + rows)`.

    `message` describes it in the footer.
    """

    ordinal: int
    start: int
    end: int
    first_row: int
    rows: int
    message: bytes

    @property
    def end_row(self) -> int:
        """The ordinal after the last row, counted in the object."""
        return self.first_row + self.rows


@dataclass(frozen=True, slots=True)
class Tail:
    """A checked footer and postscript. `stripes` are in file order and have at least one row."""

    schema: pa.Schema
    postscript: Fields
    footer: Fields
    stripes: tuple[Stripe, ...]

    def owned(self, start: int, end: int) -> tuple[Stripe, ...]:
        """Return the stripes whose first byte lies in `[start, end)`."""
        by_start = attrgetter("start")
        first = bisect_left(self.stripes, start, key=by_start)
        return self.stripes[first : bisect_left(self.stripes, end, key=by_start)]

    def of_one(self, stripe: Stripe) -> bytes:
        """Return the end of a file whose only stripe this is."""
        footer = write_fields(
            [
                *((key, value) for key, value in self.footer if key not in _PER_STRIPE),
                (_STRIPES, stripe.message),
                (_ROWS, stripe.rows),
            ]
        )
        if _number(self.postscript, _COMPRESSION):
            # Chunks that are not compressed, each after its length.
            size = _number(self.postscript, _BLOCK_SIZE) or 1
            chunks = (footer[at : at + size] for at in range(0, len(footer), size))
            footer = b"".join(
                (len(chunk) << 1 | 1).to_bytes(3, "little") + chunk for chunk in chunks
            )
        kept = [(key, value) for key, value in self.postscript if key not in _LENGTHS]
        postscript = write_fields([(_FOOTER_LENGTH, len(footer)), (_METADATA_LENGTH, 0), *kept])
        return footer + postscript + bytes([len(postscript)])


_PER_STRIPE = frozenset({_STRIPES, _ROWS, _STATISTICS})
_LENGTHS = frozenset({_FOOTER_LENGTH, _METADATA_LENGTH, _STATISTICS_LENGTH})


def read_tail(source: RangeSource) -> Tail:
    """Read and check the footer: one request, more where it is large.

    Raises:
        UnsupportedFormat: not ORC, or encrypted.
        UnsupportedType: a column without an exact Arrow type.
        CorruptObject: the footer is truncated, unreadable or contradicts itself.
    """
    version = source.version
    start = max(0, version.size - TAIL_BYTES)
    held = source.read(start, version.size)
    head = held if not start else source.read(0, HEAD_BYTES)
    require_signature(version, head[:HEAD_BYTES], held, expected="orc")
    # The postscript ends with the magic; files of Hive 0.11 and earlier begin with it only.
    if not head.startswith(MAGIC):
        raise UnsupportedFormat(
            f"{version.uri} is not an ORC file (it begins with {head[:3]!r}, not with ORC); set"
            " input.format to its format"
        )
    file = ObjectFile(source, version.size, b"", start, held)
    try:
        reader = orc.ORCFile(pa.PythonFile(file, mode="r"))
        schema = reader.schema
        parts = parse_fields(reader.reader.serialized_file_tail())
        (postscript,) = _messages(parts, _POSTSCRIPT)
        (footer,) = _messages(parts, _FOOTER)
        tail = Tail(schema, parse_fields(postscript), parse_fields(footer), ())
        _require_supported(version, tail)
        stripes = tuple(_stripes(version, tail.footer))
    except pa.ArrowNotImplementedError as exc:
        raise UnsupportedType(f"{version.uri}: {_one_line(exc)}; remove that column") from exc
    except _ERRORS as exc:
        file.check()
        raise _corrupt(version, f"has an unreadable footer: {_one_line(exc)}") from exc
    return Tail(schema, tail.postscript, tail.footer, stripes)


def _require_supported(version: ObjectVersion, tail: Tail) -> None:
    if _messages(tail.footer, _ENCRYPTION):
        raise UnsupportedFormat(
            f"{version.uri} has encrypted columns; decrypt it with its writer's tools first"
        )
    require_columns(version, tail.schema)


def _stripes(version: ObjectVersion, footer: Fields) -> Iterator[Stripe]:
    row, reached = 0, len(MAGIC)
    for ordinal, message in enumerate(_messages(footer, _STRIPES)):
        fields = parse_fields(message)
        start, index, data, end, rows = (_number(fields, number) for number in range(1, 6))
        end += start + index + data
        if not rows:
            continue
        if not reached <= start < end <= version.size:
            raise _corrupt(version, f"has stripe {ordinal} at [{start}-{end})")
        yield Stripe(ordinal, start, end, row, rows, message)
        row, reached = row + rows, end
    if row != _number(footer, _ROWS):
        raise _corrupt(version, f"states {_number(footer, _ROWS)} rows, its stripes hold {row}")


def _corrupt(version: ObjectVersion, what: str) -> CorruptObject:
    return CorruptObject(f"{version.uri}[0-{version.size}) {what}; upload it again, or remove it")


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())


class _UndecodableError(Exception):
    """Arrow cannot decode a stripe."""


def _read_rows(
    source: RangeSource, tail: Tail, stripe: Stripe, *, batch_rows: int, window_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a stripe in batches; _UndecodableError if Arrow fails."""
    held = b""
    if stripe.end - stripe.start <= LARGEST_HELD_BYTES:
        held = b"".join(source.stream(stripe.start, stripe.end, window_bytes=window_bytes))
    file = ObjectFile(source, stripe.end, tail.of_one(stripe), stripe.start, held)

    left, failure = stripe.rows, ""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in _scan(file, min(batch_rows, SCAN_ROWS)):
            if batch.num_rows > left or batch.schema.names != tail.schema.names:
                break
            batch.validate()
            left -= batch.num_rows
            if pending and (size >= BATCH_BYTES or rows + batch.num_rows > batch_rows):
                yield pa.concat_batches(pending)
                pending, rows, size = [], 0, 0
            pending.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    except _ERRORS as exc:
        file.check()
        failure = _one_line(exc)
    if pending:
        yield pa.concat_batches(pending)
    if left:
        raise _UndecodableError(failure or "its streams hold other rows than the footer says")


def _scan(file: ObjectFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, so many at a time; nothing is read ahead."""
    fragment = ds.OrcFileFormat().make_fragment(pa.PythonFile(file, mode="r"))
    scanner = fragment.scanner(
        batch_size=rows, use_threads=False, batch_readahead=0, fragment_readahead=0
    )
    return iter(scanner.to_batches())


@dataclass(frozen=True, slots=True)
class Orc:
    """ORC objects; a location is the ordinal of a row in the object.

    A stripe that cannot be decoded ends with one bad record for all rows from the first batch on
    that fails; decoding continues with the next stripe. `tails` are those of the latest objects.
    """

    options: FormatOptions
    tails: OrderedDict[ObjectVersion, Tail] = field(
        default_factory=OrderedDict, repr=False, compare=False
    )
    splittable: bool = field(default=True, init=False)
    location_unit: Literal["offset", "row"] = field(default="row", init=False)
    extent_bytes: int | None = field(default=EXTENT_BYTES, init=False)
    cut_version: int = field(default=1, init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive stripes up to `target_bytes`: two requests, rarely more."""
        if source.version.size == 0:
            return
        yield from cut_at_units(self._tail(source).stripes, target_bytes, source.version.size)

    def schema(self, source: RangeSource) -> pa.Schema:
        """Return the columns, from the footer."""
        return self._tail(source).schema

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows of the stripes whose first byte lies in the extent.

        Raises as `Format.decode`, and Conflict if `position` exceeds the rows of the extent.
        """
        if extent.start == extent.end:
            return
        tail = self._tail(source)
        stripes = tail.owned(extent.start, extent.end)
        first_row, end_row = (stripes[0].first_row, stripes[-1].end_row) if stripes else (0, 0)
        if not 0 <= position <= end_row - first_row:
            raise Conflict(
                f"{extent.uri} has {end_row - first_row} rows, decoding was to resume at"
                f" {position}; was it planned for another version?"
            )
        for stripe in stripes:
            if stripe.end_row > first_row + position:
                yield from self._chunks(source, tail, stripe, first_row, first_row + position)

    def _chunks(
        self, source: RangeSource, tail: Tail, stripe: Stripe, first_row: int, from_row: int
    ) -> Iterator[Chunk]:
        """Yield the rows of a stripe from `from_row` on."""
        row = stripe.first_row
        sizes = {
            "batch_rows": self.options.batch_rows,
            "window_bytes": self.options.window_bytes,
        }
        try:
            for batch in _read_rows(source, tail, stripe, **sizes):
                start, row = row, row + batch.num_rows
                if row > from_row:
                    skip = max(0, from_row - start)
                    yield Chunk(batch.slice(skip), row - first_row, range(start + skip, row))
        except _UndecodableError as exc:
            row = max(row, from_row)
            reason = (
                f"{source.version.uri}[{stripe.start}-{stripe.end}): rows {row}-"
                f"{stripe.end_row - 1} of stripe {stripe.ordinal} are lost: {exc}"
            )
            lost = (BadRecord(None, row, reason),)
            yield Chunk(no_rows(tail.schema), stripe.end_row - first_row, range(0), lost)

    def _tail(self, source: RangeSource) -> Tail:
        known = self.tails.get(source.version)
        if known is None:
            known = self.tails[source.version] = read_tail(source)
            while len(self.tails) > _CACHED_TAILS:
                self.tails.popitem(last=False)
        return known


ORC = FormatSpec(
    open=lambda options, _: Orc(options),
    extensions=("orc",),
    converters=("json", "avro", "string", "bytes"),
    compressible=False,
)
