"""Decode Parquet: row groups owned by the extent that contains their first byte.

    object    PAR1 | group 0 | group 1 | group 2 | footer | PAR1
    extents   [0 ............ )[ ........................ size)     planned, or cut anywhere else
    position                   0 ... rows of group 1 ... rows of group 2

Page checksums are verified if the writer stored them. They do not cover page headers; without them,
a damaged page that still decompresses and decodes is indistinguishable from a valid one. If a page
turns out to be damaged while it is decoded, its batch is lost with the rest of the row group.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, cast

import pyarrow as pa

from extentflow.arrays.batch_rows import no_rows
from extentflow.config.specs import OF_COLUMNS, FormatCheck
from extentflow.config.table import key
from extentflow.config.types import BOOLEAN, SECRET, choice
from extentflow.errors import Conflict, CorruptObject
from extentflow.formats import (
    BadRecord,
    Chunk,
    FormatOptions,
    FormatSpec,
    StoredRows,
    cut_at_units,
    magic,
)
from extentflow.formats.parquet.column_keys import FOOTER_KEY, KEY_LIST, FileKeys
from extentflow.formats.parquet.footer import (
    ENCRYPTED_MAGIC,
    MAGIC,
    Footer,
    Footers,
    RowGroup,
    selected_leaves,
)
from extentflow.formats.parquet.prefetch import LARGEST_GAP_BYTES
from extentflow.formats.parquet.row_group_reader import (
    DecodedRows,
    MisleadingIndex,
    ReadSettings,
    RowGroupReader,
    UndecodableRows,
    row_count,
)
from extentflow.formats.parquet.stored_groups import StoredGroups, Stream
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.wording import shown_bytes

EXTENT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions:
    """The keys `parquet.*`."""

    int96_unit: str | None = key(
        choice(("ns", "us")),
        "Unit of INT96 timestamps: `ns` holds 1677 to 2262, `us` any year but no fractions of a"
        " microsecond. What the unit does not hold is a bad record. By default `us` for files of"
        " Spark, `ns` for others.",
        shown="by the file's writer",
    )
    page_index: bool = key(
        BOOLEAN,
        "Whether filters skip pages by the page index: `false` for files of a writer whose indexes"
        " are wrong.",
        default=True,
    )
    encryption_footer_key: str | None = key(
        SECRET,
        "The key of files with modular encryption whose columns all have the key of the footer:"
        " base64 of 16, 24 or 32 bytes, as a reference only.",
    )
    encryption_key_list: str | None = key(
        SECRET,
        "The master keys of files with modular encryption whose keys are wrapped by them:"
        " `id:base64, id:base64`, as a reference only.",
    )


# In the reason of lost rows.
_MOST_NAMED = 3
# A batch that fails is read again in batches of a sixteenth, until a single row fails.
NARROWING = 16
# Shared by the extents of an object that one process decodes.
_process_footers = Footers()


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet objects; a location is the ordinal of a row in the object.

    A row group that cannot be decoded ends with a chunk without rows. Its one bad record (raw None)
    stands for all rows from the first undecodable one on. Decoding continues with the next group.

    `readers` threads prefetch while an extent is decoded; with 0, the caller's thread reads every
    byte when it is needed. Ranges up to `gap_bytes` apart share a request; pages are
    skipped by the page index where that saves more.
    """

    options: FormatOptions
    footers: Footers = field(default=_process_footers, repr=False, compare=False)
    readers: int = 6
    own: ParquetOptions = field(default=ParquetOptions(), repr=False)
    gap_bytes: int = LARGEST_GAP_BYTES
    splittable: bool = field(default=True, init=False)
    location_unit: Literal["offset", "row"] = field(default="row", init=False)
    extent_bytes: int | None = field(default=EXTENT_BYTES, init=False)
    cut_version: int = field(default=1, init=False)

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive row groups up to `target_bytes`: one request, rarely two."""
        magic.require_bytes(source.version, "Parquet")
        yield from cut_at_units(self._footer(source).groups, target_bytes, source.version.size)

    def _footer(self, source: RangeSource) -> Footer:
        keys = FileKeys.of(self.own.encryption_footer_key, self.own.encryption_key_list)
        options = self.options
        return self.footers.get(
            source, keys, pruning=options.excludes is not None, select=options.select
        )

    def schema(self, source: RangeSource) -> pa.Schema:
        """Return the columns that are read, from the footer."""
        opened = RowGroupReader(source, self._footer(source), [], self._settings())
        with closing(opened) as reader:
            return reader.schema

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows of the row groups whose first byte lies in the extent.

        Raises as `Format.decode`, and Conflict if `position` exceeds the rows of the extent.
        """
        if (owned := self._owned(source, extent, position)) is not None:
            yield from self._chunks(owned, self._settings())

    def decode_stored(
        self,
        source: RangeSource,
        extent: Extent,
        position: int,
        *,
        most_bytes: int,
        codec: str | None,
    ) -> Iterator[Chunk | StoredRows]:
        """Yield row groups as they are stored where they fit; see `StoredFormat`."""
        owned = self._owned(source, extent, position)
        if owned is None:
            return
        stored = StoredGroups.of(owned.footer, self.options)
        footers: dict[RowGroup, bytes] = {}
        if stored is not None:
            # Not of a row group that is continued within.
            whole = [group for group in owned.groups if owned.row <= group.first_row]
            footers = {one: stored.footer_of(one, codec, most_bytes) for one in whole}
        for has_footer, run in groupby(owned.groups, lambda group: bool(footers.get(group))):
            part = owned.part([*run])
            if has_footer and stored is not None:
                yield from self._stored(part, stored, footers)
            else:
                yield from self._chunks(part, self._settings())

    def _stored(
        self, owned: _OwnedRows, stored: StoredGroups, footers: Mapping[RowGroup, bytes]
    ) -> Iterator[Chunk | StoredRows]:
        """Yield consecutive row groups as they are stored; decode one that is damaged."""
        start, end = owned.groups[0].start, owned.groups[-1].end
        reading = cast("Generator[bytes, None, None]", owned.source.stream(start, end))
        with closing(Stream(reading, start)) as stream:
            for group in owned.groups:
                data = stream.take(group.start, group.end)
                if stored.is_sound(group, data):
                    value = b"".join((MAGIC, data, footers[group]))
                    locations = range(group.first_row, group.end_row)
                    position = group.end_row - owned.first_row
                    yield StoredRows(value, stored.schema, locations, position)
                else:
                    yield from self._chunks(owned.part([group]), self._settings())

    def _settings(self) -> ReadSettings:
        return ReadSettings(
            self.options,
            self.readers,
            self.gap_bytes,
            self.own.int96_unit,
            self.options.batch_rows,
            by_pages=self.own.page_index,
        )

    def _owned(self, source: RangeSource, extent: Extent, position: int) -> _OwnedRows | None:
        """Return the rows of an extent from `position` on; None: there are none.

        Raises as `decode`.
        """
        if extent.start == extent.end:
            return None
        footer = self._footer(source)
        groups = footer.owned(extent.start, extent.end)
        # Planning reads only the end of the object; its start is checked once, by one extent.
        magics = (MAGIC, ENCRYPTED_MAGIC)
        if groups and extent.start == 0 and (head := source.read(0, len(MAGIC))) not in magics:
            raise CorruptObject(
                f"{source.version.uri}[0-{len(MAGIC)}) is {shown_bytes(head)}, not PAR1, although"
                " the object ends as Parquet; upload it again"
            )
        first_row, end_row = (groups[0].first_row, groups[-1].end_row) if groups else (0, 0)
        if not 0 <= position <= end_row - first_row:
            raise Conflict(
                f"{extent.uri} has {end_row - first_row} rows, decoding was to resume at"
                f" {position}; was it planned for another version?"
            )
        row = first_row + position
        todo = [group for group in groups if group.end_row > row]
        return _OwnedRows(source, footer, todo, row, first_row) if todo else None

    def _chunks(self, owned: _OwnedRows, settings: ReadSettings) -> Iterator[Chunk]:
        """Yield rows; a row group that cannot be read is read again in another way, or lost."""
        source, footer, row, first_row = owned.source, owned.footer, owned.row, owned.first_row
        with closing(RowGroupReader(source, footer, owned.groups, settings)) as reader:
            for group in owned.groups:
                row = max(row, group.first_row)
                again: ReadSettings | None
                try:
                    for rows in reader.read(group, row - group.first_row):
                        if isinstance(rows, int):
                            row += rows
                            nothing = no_rows(reader.schema)
                            yield Chunk(nothing, row - first_row, range(0), excluded=rows)
                            continue
                        yield _chunk(rows, row, first_row)
                        row += row_count(rows)
                    continue
                except UndecodableRows as exc:
                    failure = str(exc)
                    again = _narrower(settings, exc, paged=reader.plan(group) is not None)
                except MisleadingIndex as exc:
                    if footer.index is not None:
                        why = f"row group {group.ordinal}: {exc}"
                        footer.index.report_contradiction(f"{source.version.uri}: {why}")
                    failure, again = str(exc), replace(settings, by_pages=False)
                if again is not None:
                    yield from self._chunks(replace(owned, groups=[group], row=row), again)
                    continue
                named = self._undecodable_columns(replace(owned, groups=[group], row=row))
                reason = (
                    f"{source.version.uri}[{group.start}-{group.end}): rows"
                    f" {row}-{group.end_row - 1} of row group {group.ordinal} are lost:"
                    f" {failure}{named}"
                )
                # One bad record for all lost rows, without bytes: columns have none of their own.
                lost = (BadRecord(None, row, reason),)
                yield Chunk(no_rows(reader.schema), group.end_row - first_row, range(0), lost)

    def _undecodable_columns(self, owned: _OwnedRows) -> str:
        """Return which columns of a row group cannot be decoded at a row; "" where all can alone.

        Each is read again by itself, up to that row.
        """
        (group,), names = owned.groups, []
        for path in self._read_paths(owned.footer):
            one = replace(self._settings(), by_pages=False, batch_rows=1)
            one = replace(one, options=replace(self.options, select=(path,), excludes=None))
            with closing(RowGroupReader(owned.source, owned.footer, [group], one)) as reader:
                try:
                    next(reader.read(group, owned.row - group.first_row), None)
                except UndecodableRows:
                    names.append(repr(path))
            if len(names) == _MOST_NAMED:
                break
        return f" (column {', '.join(names)}; select can leave it out)" if names else ""

    def _read_paths(self, footer: Footer) -> list[str]:
        schema = footer.metadata.schema
        read = selected_leaves(footer.metadata, self.options.select)
        return [schema.column(leaf).path for leaf in read]


@dataclass(frozen=True, slots=True)
class _OwnedRows:
    """The rows of row groups from the ordinal `row` on; `first_row` is the extent's first one."""

    source: RangeSource
    footer: Footer
    groups: Sequence[RowGroup]
    row: int
    first_row: int

    def part(self, groups: Sequence[RowGroup]) -> _OwnedRows:
        """Return the rows of some of the row groups."""
        return replace(self, groups=groups, row=max(self.row, groups[0].first_row))


def _narrower(settings: ReadSettings, exc: UndecodableRows, *, paged: bool) -> ReadSettings | None:
    """Return how rows are read again that could not be decoded; None: they are lost.

    What cannot be decoded of pages is lost as it is without an index.
    """
    if exc.tried > 1:
        return replace(settings, batch_rows=max(1, exc.tried // NARROWING), by_pages=paged)
    return replace(settings, by_pages=False) if paged else None


def _chunk(rows: DecodedRows, row: int, first_row: int) -> Chunk:
    batch, why = rows
    end = row + row_count(rows)
    if not why:
        return Chunk(batch, end - first_row, range(row, end))
    bad = tuple(BadRecord(None, row + at, why[at]) for at in sorted(why))
    locations = [at for at in range(row, end) if at - row not in why]
    return Chunk(batch, end - first_row, locations, bad)


def _problems(check: FormatCheck) -> Iterator[str]:
    own = check.options
    if own.encryption_footer_key is not None and own.encryption_key_list is not None:
        yield f"{KEY_LIST}: not together with {FOOTER_KEY}; a file has keys of one kind"


PARQUET = FormatSpec(
    open=lambda options, own=ParquetOptions(): Parquet(options, own=own),
    options=ParquetOptions,
    extensions=("parquet", "parq"),
    converters=(*OF_COLUMNS, "string", "bytes", "base64"),
    compressible=False,
    limits_records=True,
    problems=_problems,
)
