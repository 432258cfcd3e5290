"""Headers, timestamps and partitions of records, computed on the columns that were decoded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.arrays.buffers import RowErrors, corrupt_rows
from extentflow.arrays.casts import exact_cast, failing_rows, whole_units
from extentflow.arrays.encodings import is_text
from extentflow.arrays.layouts import ConvertedColumns
from extentflow.config.column_lists import LAST_MODIFIED, Header
from extentflow.converters import Converter, open_header_converter
from extentflow.delivery.headerlists import ReadHeaders, header_reader
from extentflow.errors import NotOffered, UnsupportedType
from extentflow.kafka.record_headers import HeaderColumns, HeaderLists
from extentflow.model import Extent
from extentflow.storage import ObjectProperties

_TIME, _PARTITION = "message.timestamp", "message.partition"
_PROPERTIES = ("last_modified", "content_type", "metadata")
# Of nine digits of a second at most; until 2262.
_INSTANT = pa.timestamp("ns", "UTC")
_LATEST_SECOND = (2**63 - 1) // 1000


def _nothing() -> ObjectProperties:
    raise NotOffered("this store returns no properties of objects")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a connector gives records beside key and value.

    `header_lists` is the column with all headers of a record, to which `headers` are added, with
    values by `header_converter`. `as_lists`: transforms use the headers. `timestamp` and
    `partition` are columns, or `timestamp` is LAST_MODIFIED. `partitions` returns how many the
    topic has. `properties` and `tags` read those of the object; they are called once
    per extent, and only where a header or the timestamp needs them.
    """

    headers: tuple[Header, ...] = ()
    header_lists: str | None = None
    header_converter: str | None = None
    as_lists: bool = False
    timestamp: str | None = None
    partition: str | None = None
    partitions: Callable[[], int] = lambda: 1
    properties: Callable[[], ObjectProperties] = _nothing
    tags: Callable[[], Mapping[str, str]] = dict

    def bind(self, schema: pa.Schema, extent: Extent) -> "BoundAttributes":
        """Return the attributes of an extent's batches. Raises UnsupportedType."""
        columns = [one.argument for one in self.headers if one.source == "column"]
        chosen = self.header_converter
        converters = {name: open_header_converter(schema, name, chosen) for name in columns}
        lists = None
        if self.header_lists is not None:
            lists = header_reader(_column(schema, self.header_lists), chosen)
        by_object = self.timestamp in (None, LAST_MODIFIED)
        time = None if by_object else _column(schema, str(self.timestamp))
        if time and not (
            types.is_timestamp(time.type)
            or types.is_date(time.type)
            or types.is_integer(time.type)
            or is_text(time.type)
        ):
            raise UnsupportedType(f"{_TIME}=column:{time.name}: {time.type} is no instant")
        place = None if self.partition is None else _column(schema, self.partition)
        if place and not (types.is_integer(place.type) or is_text(place.type)):
            raise UnsupportedType(f"{_PARTITION}=column:{place.name}: {place.type} is no integer")
        return BoundAttributes(self, extent, converters, lists, *self._facts(extent))

    def _facts(self, extent: Extent) -> tuple[dict[Header, bytes | None], int]:
        """Return the values of headers that all records share, and LastModified in milliseconds."""
        version = extent.version
        facts = {
            "bucket": version.bucket,
            "key": version.key,
            "version": version.version_id or version.etag,
            "etag": version.etag,
            "size": str(version.size),
            "uri": version.uri,
            "extent": f"{extent.start}-{extent.end}",
        }
        sources = {one.source for one in self.headers}
        properties, tags = None, self.tags() if "tag" in sources else {}
        milliseconds = 0
        if sources & set(_PROPERTIES) or self.timestamp == LAST_MODIFIED:
            properties = self.properties()
            milliseconds = max(1, int(properties.last_modified.timestamp() * 1000))
        found: dict[Header, bytes | None] = {}
        text: str | None
        for one in self.headers:
            match one.source, properties:
                case "text", _:
                    text = one.argument
                case "tag", _:
                    text = tags.get(one.argument)
                case "metadata", ObjectProperties(metadata=metadata):
                    text = metadata.get(one.argument.lower())
                case "content_type", ObjectProperties(content_type=kind):
                    text = kind
                case "last_modified", ObjectProperties(last_modified=instant):
                    text = _iso(instant)
                case _:
                    text = facts.get(one.source)
            found[one] = None if text is None else text.encode("utf-8", "surrogatepass")
        return found, milliseconds


def _iso(instant: datetime) -> str:
    text = instant.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _column(schema: pa.Schema, name: str) -> pa.Field:
    return ConvertedColumns.select(schema, [name]).fields[0]


def _values(batch: pa.RecordBatch, name: str) -> pa.Array:
    return ConvertedColumns.select(batch.schema, [name]).of(batch)[0]


@dataclass(frozen=True, slots=True)
class BoundAttributes:
    """Attributes for batches of one schema, of one extent."""

    of: Attributes
    extent: Extent
    converters: dict[str, Converter]
    lists: ReadHeaders | None
    facts: dict[Header, bytes | None]
    last_modified: int

    def headers(
        self, batch: pa.RecordBatch, locations: Sequence[int]
    ) -> HeaderColumns | HeaderLists | None:
        """Return the headers of the rows; None where none are set.

        Raises CorruptRecord for all rows of which one cannot be made.
        """
        lists: HeaderLists | None = None
        columns: HeaderColumns | None = None
        with RowErrors() as errors:
            if self.lists is not None:
                with errors.collect("message.headers: "):
                    lists = self.lists(_values(batch, str(self.of.header_lists)))
            if self.of.headers:
                with errors.collect("headers: "):
                    columns = HeaderColumns(list(self._headers(batch, locations)), batch.num_rows)
        if lists is not None:
            return lists if columns is None else lists.joined(columns.lists())
        if not self.of.as_lists:
            return columns
        return HeaderLists.none(batch.num_rows) if columns is None else columns.lists()

    def lists_for_chain(
        self, batch: pa.RecordBatch, locations: Sequence[int]
    ) -> HeaderLists | None:
        """Return the headers that transforms begin with; None where they use none."""
        headers = self.headers(batch, locations) if self.of.as_lists else None
        return headers if isinstance(headers, HeaderLists) else None

    def __call__(
        self, batch: pa.RecordBatch, locations: Sequence[int]
    ) -> tuple[HeaderColumns | HeaderLists | None, pa.Int64Array | None, pa.Int32Array | None]:
        """Return headers, timestamps and partitions of the rows; None for what is not set.

        Without headers where transforms use them: these got them before. Raises CorruptRecord for
        all rows of which one of these cannot be made.
        """
        headers: HeaderColumns | HeaderLists | None = None
        times = places = None
        with RowErrors() as errors:
            if not self.of.as_lists:
                with errors.collect():
                    headers = self.headers(batch, locations)
            if self.of.timestamp == LAST_MODIFIED:
                times = pa.repeat(pa.scalar(self.last_modified, pa.int64()), batch.num_rows)
            elif self.of.timestamp is not None:
                with errors.collect(f"{_TIME}: "):
                    times = _milliseconds(_values(batch, self.of.timestamp))
            if self.of.partition is not None:
                with errors.collect(f"{_PARTITION}: "):
                    places = _checked(_values(batch, self.of.partition), self.of.partitions())
        return headers, times, places

    def _headers(
        self, batch: pa.RecordBatch, locations: Sequence[int]
    ) -> Iterator[tuple[str, pa.BinaryArray | bytes]]:
        for one in self.of.headers:
            if one.source == "column":
                yield one.name, self.converters[one.argument](batch)
            elif one.source == "location":
                places = pa.array(np.asarray(locations, np.int64))
                yield one.name, places.cast(pa.string()).cast(pa.binary())
            elif (fact := self.facts[one]) is not None:
                yield one.name, fact


def _milliseconds(array: pa.Array) -> pa.Int64Array:
    """Return instants in milliseconds, rounded down; 0 for a null."""
    if is_text(array.type):
        array = _instants(array.cast(pa.string()))
    if types.is_date(array.type):
        array = array.cast(pa.timestamp("ms"))
    if types.is_timestamp(array.type):
        # Instants are the same in every zone, also in one that Arrow does not have.
        array = _floored(array.view(pa.timestamp(array.type.unit)))
    times = _whole(array)
    # The client takes 0 for "now".
    early = np.flatnonzero(pc.less_equal(times, 0).fill_null(False).to_numpy(zero_copy_only=False))  # noqa: FBT003
    if len(early):
        raise corrupt_rows(
            early, "an instant not after the beginning of 1970, which Kafka cannot store"
        )
    return times.fill_null(0)


def _instants(text: pa.StringArray) -> pa.Array:
    """Return what texts state: whole numbers, or instants of ISO 8601 with Z or an offset."""
    numbers = pc.match_substring_regex(text, "^-?[0-9]+$").fill_null(True)  # noqa: FBT003
    if pc.all(numbers).as_py():
        return _whole(text)
    times, bad = pc.if_else(numbers, pa.scalar(None, pa.string()), text), []
    try:
        instants = times.cast(_INSTANT)
    except pa.ArrowInvalid:
        bad = failing_rows(times, lambda part: part.cast(_INSTANT))
    with RowErrors() as errors:
        with errors.collect():
            if bad:
                raise corrupt_rows(bad, "neither a whole number nor an instant with Z or an offset")
        with errors.collect():
            whole = _whole(pc.if_else(numbers, text, pa.scalar(None, pa.string())))
    return pc.coalesce(whole, _floored(instants.view(pa.timestamp(_INSTANT.unit))))


def _floored(array: pa.TimestampArray) -> pa.Int64Array:
    """Return milliseconds since 1970, rounded down."""
    if array.type.unit != "s":
        return whole_units(array, "ms")
    seconds = array.view(pa.int64())
    late = pc.greater(seconds, _LATEST_SECOND).fill_null(False)  # noqa: FBT003
    if beyond := np.flatnonzero(late.to_numpy(zero_copy_only=False)).tolist():
        raise corrupt_rows(beyond, "an instant that has no number of milliseconds in 64 bits")
    # Where that overflows, it is before 1970 and refused for that.
    return pc.multiply(pc.max_element_wise(seconds, -1, skip_nulls=False), 1000)


def _checked(array: pa.Array, partitions: int) -> pa.Int32Array:
    """Return partitions that exist; -1 for a null."""
    places = _whole(array)
    outside = pc.or_(pc.less(places, 0), pc.greater_equal(places, partitions)).fill_null(False)  # noqa: FBT003
    wrong = np.flatnonzero(outside.to_numpy(zero_copy_only=False))
    if len(wrong):
        raise corrupt_rows(wrong, f"the topic has the partitions 0 to {partitions - 1} only")
    return places.fill_null(-1).cast(pa.int32())


def _whole(array: pa.Array) -> pa.Int64Array:
    """Return whole numbers; text that is none, and numbers beyond int64, are bad rows."""
    cast = exact_cast(array.type, pa.int64())
    try:
        return cast(array)
    except pa.ArrowInvalid:
        # By the same cast: Python takes ` 12`, `+5` and `1_000` for numbers, Arrow does not.
        bad = failing_rows(array, cast)
    raise corrupt_rows(bad, "no whole number")
