"""Decode ORC: stripes owned by the extent that contains their first byte.

    object    ORC | stripe 0 | stripe 1 | stripe 2 | metadata | footer | postscript | length
    extents   [0 ............. )[ ......................................... size)
    decoded   ORC |          | stripe 1 | footer of one stripe | postscript | length

Arrow reads an ORC file as a whole, or a stripe as one batch of any size. So each stripe is given to
it as a file of one stripe, with a footer made from the object's, and read in bounded batches.

ORC has no checksums: a damaged stripe that still decodes is indistinguishable from a valid one.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Literal

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import orc

from extentflow.arrays.batch_rows import no_rows
from extentflow.config.specs import OF_COLUMNS
from extentflow.errors import Conflict, UnsupportedFormat, UnsupportedType
from extentflow.formats import BadRecord, Chunk, FormatOptions, FormatSpec, cut_at_units
from extentflow.formats.damage import corrupt_object, one_line
from extentflow.formats.magic import HEAD_BYTES, require_bytes, require_signature
from extentflow.formats.object_file import ObjectFile
from extentflow.formats.orc.orc_metadata import (
    LARGEST_BLOCK_BYTES,
    OTHER_CODECS,
    READ_CODECS,
    Fields,
    check_chunks,
    check_stripe,
    check_types,
    is_struct,
    messages_of,
    number_of,
    pack_message,
    parse_fields,
    unpack_message,
    with_shorter_streams,
    write_fields,
)
from extentflow.formats.readable_schemas import require_columns
from extentflow.formats.version_cache import VersionCache
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource
from extentflow.wording import shown_bytes

EXTENT_BYTES = 32 << 20
MAGIC = b"ORC"
# What Arrow reads first of a file's end; larger footers take a second request.
TAIL_BYTES = 64 << 10
# A larger stripe is read in blocks when Arrow needs them, not ahead.
LARGEST_HELD_BYTES = 64 << 20
# Arrow takes a number of rows, however wide they are: few at a time, joined to larger batches.
SCAN_ROWS = 1024
# The columns that Hive writes for transactional tables; the last one holds the table's own.
_CHANGES = ("operation", "originaltransaction", "bucket", "rowid", "currenttransaction", "row")
_ERRORS = (pa.ArrowException, OSError, ValueError)

# Numbers of fields in ORC's protocol buffers (orc_proto.proto).
_POSTSCRIPT, _FOOTER = 1, 2
_FOOTER_LENGTH, _COMPRESSION, _BLOCK_SIZE, _METADATA_LENGTH, _STATISTICS_LENGTH = 1, 2, 3, 5, 7
_STRIPES, _ROWS, _STATISTICS, _ENCRYPTION = 3, 6, 7, 10
_STRIPE_FOOTER_LENGTH, _STRIPE_ROWS = 4, 5
_DEFAULT_BLOCK_BYTES = 256 << 10


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
    map_keys: frozenset[int]
    stripes: tuple[Stripe, ...]

    def owned(self, start: int, end: int) -> tuple[Stripe, ...]:
        """Return the stripes whose first byte lies in `[start, end)`."""
        by_start = attrgetter("start")
        first = bisect_left(self.stripes, start, key=by_start)
        return self.stripes[first : bisect_left(self.stripes, end, key=by_start)]

    def of_one(self, stripe: Stripe, rows: int, stripe_footer: bytes = b"") -> bytes:
        """Return the end of a file that holds the first `rows` rows of this stripe only.

        With a `stripe_footer`, that is in place of the stripe's own and a part of the end.
        """
        message = [field for field in parse_fields(stripe.message) if field[0] != _STRIPE_ROWS]
        if stripe_footer:
            message = [field for field in message if field[0] != _STRIPE_FOOTER_LENGTH]
            message.append((_STRIPE_FOOTER_LENGTH, len(stripe_footer)))
        footer = write_fields(
            [
                *((key, value) for key, value in self.footer if key not in _PER_STRIPE),
                (_STRIPES, write_fields([*message, (_STRIPE_ROWS, rows)])),
                (_ROWS, rows),
            ]
        )
        footer = self.packed(footer)
        kept = [(key, value) for key, value in self.postscript if key not in _LENGTHS]
        postscript = write_fields([(_FOOTER_LENGTH, len(footer)), (_METADATA_LENGTH, 0), *kept])
        return stripe_footer + footer + postscript + bytes([len(postscript)])

    def packed(self, message: bytes) -> bytes:
        """Return a message as the file stores it."""
        codec, size = (number_of(self.postscript, each) for each in (_COMPRESSION, _BLOCK_SIZE))
        return pack_message(message, codec, size)


_PER_STRIPE = frozenset({_STRIPES, _ROWS, _STATISTICS})
_LENGTHS = frozenset({_FOOTER_LENGTH, _METADATA_LENGTH, _STATISTICS_LENGTH})


def read_tail(source: RangeSource) -> Tail:
    """Read and check the footer: one request, more where it is large.

    Raises:
        UnsupportedFormat: not ORC, or encrypted.
        UnsupportedType: a column without an exact Arrow type, or a `uniontype`.
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
            f"{version.uri} is not an ORC file (it begins with {shown_bytes(head[:3])}, not with"
            " ORC); set input.format to its format"
        )
    file = ObjectFile(source, version.size, b"", start, held)
    try:
        postscript_fields = parse_fields(held[-1 - held[-1] : -1])
        _require_codec(version, number_of(postscript_fields, _COMPRESSION))
        block_bytes = number_of(postscript_fields, _BLOCK_SIZE)
        if block_bytes > LARGEST_BLOCK_BYTES:
            raise ValueError(f"it claims chunks of {block_bytes} bytes")
        reader = orc.ORCFile(pa.PythonFile(file, mode="r"))
        parts = parse_fields(reader.reader.serialized_file_tail())
        (postscript,) = messages_of(parts, _POSTSCRIPT)
        (message,) = messages_of(parts, _FOOTER)
        footer = parse_fields(message)
        _require_not_encrypted(version, footer)
        map_keys = check_types(footer)
        _require_struct(version, footer)
        schema = reader.schema
        _require_columns(version, schema)
        _require_rows(version, schema)
        stripes = tuple(_stripes(version, footer))
    except pa.ArrowNotImplementedError as exc:
        raise UnsupportedType(f"{version.uri}: {one_line(exc)}; remove that column") from exc
    except _ERRORS as exc:
        file.check()
        raise corrupt_object(version, f"has an unreadable footer: {one_line(exc)}") from exc
    return Tail(schema, parse_fields(postscript), footer, map_keys, stripes)


def _require_codec(version: ObjectVersion, compression: int) -> None:
    if compression not in READ_CODECS:
        name = OTHER_CODECS.get(compression, f"codec {compression}")
        raise UnsupportedFormat(
            f"{version.uri} is compressed as {name}, which extentflow does not read; write it with"
            " zlib, snappy, lz4 or zstd, or without compression"
        )


def _require_struct(version: ObjectVersion, footer: Fields) -> None:
    if not is_struct(footer):
        raise UnsupportedType(
            f"{version.uri} has no columns: its root type is no struct; write its values as a"
            " member of a struct"
        )


def _require_not_encrypted(version: ObjectVersion, footer: Fields) -> None:
    if messages_of(footer, _ENCRYPTION):
        raise UnsupportedFormat(
            f"{version.uri} has encrypted columns; decrypt it with its writer's tools first"
        )


def _require_rows(version: ObjectVersion, schema: pa.Schema) -> None:
    """Refuse changes of a transactional table of Hive: deletes, and rows that may be deleted.

    A compaction leaves none of them in a folder `base_<n>`.
    """
    # Of the address: the connector of a local folder has keys without it.
    is_base = PurePosixPath(version.bucket, version.key).parent.name.startswith("base_")
    if tuple(name.lower() for name in schema.names) == _CHANGES and not is_base:
        raise UnsupportedFormat(
            f"{version.uri} holds changes of a transactional table of Hive (ACID), and deletes are"
            " no records; export the table, or compact it and deliver its last folder base_*"
        )


def _require_columns(version: ObjectVersion, schema: pa.Schema) -> None:
    require_columns(version, schema)
    for column in schema:
        if _holds_union(column.type):
            raise UnsupportedType(
                f"{version.uri}: the column {column.name!r} holds a uniontype. Arrow's reader of"
                " ORC reads other memory where a union is null, which ends the process; remove"
                " that column"
            )


def _holds_union(kind: pa.DataType) -> bool:
    members = (kind.field(index).type for index in range(kind.num_fields))
    return pa.types.is_union(kind) or any(map(_holds_union, members))


def _stripes(version: ObjectVersion, footer: Fields) -> Iterator[Stripe]:
    row, reached = 0, len(MAGIC)
    for ordinal, message in enumerate(messages_of(footer, _STRIPES)):
        fields = parse_fields(message)
        start, index, data, end, rows = (number_of(fields, number) for number in range(1, 6))
        end += start + index + data
        if not rows:
            continue
        if not reached <= start < end <= version.size:
            raise corrupt_object(version, f"has stripe {ordinal} at [{start}-{end})")
        yield Stripe(ordinal, start, end, row, rows, message)
        row, reached = row + rows, end
    if row != number_of(footer, _ROWS):
        raise corrupt_object(
            version, f"states {number_of(footer, _ROWS)} rows, its stripes hold {row}"
        )


class _UndecodableError(Exception):
    """Arrow cannot decode a stripe."""


@dataclass(frozen=True, slots=True)
class _StripeReader:
    """Reads the rows of a stripe, whose bytes are held if it is not large."""

    source: RangeSource
    tail: Tail
    stripe: Stripe
    options: FormatOptions
    held: bytes
    footer: bytes = b""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in batches; _UndecodableError behind the last batch that Arrow decodes."""
        sound = replace(self, footer=self._sound_footer())
        row = 0
        try:
            for batch in sound.scan(self.stripe.rows):
                yield batch
                row += batch.num_rows
        except _UndecodableError as exc:
            failure = exc
        else:
            return
        # Arrow reads ahead and drops, with the batch that fails, any number of those before it.
        failures = [failure]

        def decodes(rows: int) -> bool:
            try:
                for _ in sound.scan(rows):
                    pass
            except _UndecodableError as exc:
                failures.append(exc)
                return False
            return True

        decoded = last_decodable(row, self.stripe.rows, self._step, decodes)
        if decoded > row:
            yield from sound.scan(decoded, skip=row)
        raise failures[-1]

    def _sound_footer(self) -> bytes:
        """Return the footer that Arrow must read in place of the stripe's own; "" if none.

        Raises _UndecodableError for a stripe that it must not read.
        """
        tail, stripe = self.tail, self.stripe
        _, index, data, stored = (
            number_of(parse_fields(stripe.message), number) for number in range(1, 5)
        )
        file = ObjectFile(self.source, stripe.end, b"", stripe.start, self.held)
        file.seek(stripe.end - stored)
        packed = file.read(stored)
        block_bytes = number_of(tail.postscript, _BLOCK_SIZE) or _DEFAULT_BLOCK_BYTES
        try:
            compression = number_of(tail.postscript, _COMPRESSION)
            footer = unpack_message(packed, compression, block_bytes)
            lengths = check_stripe(footer, tail.map_keys, index + data)
        except (*_ERRORS, zlib.error) as exc:
            raise _UndecodableError(f"its footer is damaged: {one_line(exc)}") from exc
        if not self.held:
            return b""
        try:
            used = check_chunks(self.held, lengths, compression)
        except ValueError as exc:
            raise _UndecodableError(one_line(exc)) from exc
        return b"" if used == lengths else tail.packed(with_shorter_streams(footer, used))

    @property
    def _step(self) -> int:
        return min(self.options.batch_rows, SCAN_ROWS)

    def scan(self, rows: int, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield the first `rows` rows without the first `skip`, in batches of `batch_bytes`."""
        end = self.tail.of_one(self.stripe, rows, self.footer)
        stored = number_of(parse_fields(self.stripe.message), _STRIPE_FOOTER_LENGTH)
        behind = self.stripe.end - (stored if self.footer else 0)
        held = self.held[: behind - self.stripe.start]
        file = ObjectFile(self.source, behind, end, self.stripe.start, held)
        at, failure = 0, ""
        pending: list[pa.RecordBatch] = []
        count = size = 0
        try:
            for batch in _batches(file, self._step):
                at += batch.num_rows
                if at > rows or batch.schema.names != self.tail.schema.names:
                    break
                batch.validate()
                if at <= skip:
                    continue
                is_full = (
                    size >= self.options.batch_bytes
                    or count + batch.num_rows > self.options.batch_rows
                )
                if pending and is_full:
                    yield pa.concat_batches(pending)
                    pending, count, size = [], 0, 0
                pending.append(batch)
                count, size = count + batch.num_rows, size + batch.nbytes
        except _ERRORS as exc:
            file.check()
            failure = one_line(exc)
        if pending:
            yield pa.concat_batches(pending)
        if failure or at != rows:
            raise _UndecodableError(failure or "its streams hold other rows than the footer says")


def last_decodable(decoded: int, end: int, step: int, decodes: Callable[[int], bool]) -> int:
    """Return how many of the first rows can be decoded, up to `step` rows too few.

    `decoded` rows can be, `end` rows cannot; `decodes` returns it for a number between them. Each
    call removes `step` rows or more from the search, so that it ends whatever `decodes` returns.
    """
    while end - decoded > step:
        middle = decoded + max(1, (end - decoded) // step // 2) * step
        if decodes(middle):
            decoded = middle
        else:
            end = middle
    return decoded


def _batches(file: ObjectFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, so many at a time."""
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
    tails: VersionCache[Tail] = field(
        default_factory=lambda: VersionCache(read_tail), repr=False, compare=False
    )
    splittable: bool = field(default=True, init=False)
    location_unit: Literal["offset", "row"] = field(default="row", init=False)
    extent_bytes: int | None = field(default=EXTENT_BYTES, init=False)
    cut_version: int = field(default=1, init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive stripes up to `target_bytes`: two requests, rarely more."""
        require_bytes(source.version, "ORC")
        yield from cut_at_units(self.tails.get(source).stripes, target_bytes, source.version.size)

    def schema(self, source: RangeSource) -> pa.Schema:
        """Return the columns, from the footer."""
        return self.tails.get(source).schema

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows of the stripes whose first byte lies in the extent.

        Raises as `Format.decode`, and Conflict if `position` exceeds the rows of the extent.
        """
        if extent.start == extent.end:
            return
        tail = self.tails.get(source)
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
        held = b""
        if stripe.end - stripe.start <= LARGEST_HELD_BYTES:
            window_bytes = self.options.window_bytes
            held = b"".join(source.stream(stripe.start, stripe.end, window_bytes=window_bytes))
        reader = _StripeReader(source, tail, stripe, self.options, held)
        try:
            for batch in reader.rows():
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


ORC = FormatSpec(
    open=lambda options, _: Orc(options),
    extensions=("orc",),
    converters=(*OF_COLUMNS, "string", "bytes", "base64"),
    compressible=False,
)
