"""Transforms of whole records: drop them, make their key, add facts about them, route them."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from extentflow.arrays.buffers import Columns, corrupt_record, require_unique
from extentflow.arrays.encodings import decoded, is_text
from extentflow.config.column_lists import NAMES
from extentflow.config.specs import TransformSpec
from extentflow.config.table import key
from extentflow.config.types import BOOLEAN, EXACT, TEXT, Kind, illegal_topic
from extentflow.errors import UnsupportedType
from extentflow.transforms import NO_KEY, Rows
from extentflow.transforms.topic_patterns import TopicPattern
from extentflow.wording import quoted


def _dropped(rows: Rows) -> Rows:
    # Filter without a predicate is refused; with one, the chain keeps the rows that do not match.
    return rows.take(np.zeros(0, np.int64))


FILTER = TransformSpec(open=lambda _, __: _dropped, keys=False, needs_predicate=True)


# -- ValueToKey ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueToKeyOptions:
    """The keys of ValueToKey."""

    fields: tuple[str, ...] = key(NAMES, "The columns that become the key.", required=True)


def _value_to_key(options: ValueToKeyOptions, rows: Rows) -> Rows:
    chosen = Columns.select(rows.values.schema, options.fields, nested=True)
    return replace(rows, keys=chosen.batch(rows.values))


VALUE_TO_KEY = TransformSpec(
    open=lambda options, _: lambda rows: _value_to_key(options, rows),
    options=ValueToKeyOptions,
    keys=False,
    makes_key=True,
)


# -- InsertField -----------------------------------------------------------------------------------

_COLUMN = "The column for "


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertFieldOptions:
    """The keys of InsertField."""

    static_field: str | None = key(TEXT, f"{_COLUMN}`static.value`.")
    static_value: str | None = key(EXACT, "The text of `static.field`.")
    topic_field: str | None = key(TEXT, f"{_COLUMN}the topic.")
    offset_field: str | None = key(
        TEXT, f"{_COLUMN}the place in the object: byte offset, or row of Parquet."
    )
    bucket_field: str | None = key(TEXT, f"{_COLUMN}the bucket.")
    object_field: str | None = key(TEXT, f"{_COLUMN}the object's key.")
    version_field: str | None = key(TEXT, f"{_COLUMN}the version id, or else the ETag.")
    extent_field: str | None = key(TEXT, f"{_COLUMN}the extent, `start-end`.")


def _inserted(options: InsertFieldOptions, rows: Rows) -> Iterator[tuple[str, pa.Array]]:
    extent, version = rows.extent, rows.extent.version
    facts = (
        (options.static_field, options.static_value),
        (options.bucket_field, version.bucket),
        (options.object_field, version.key),
        (options.version_field, version.version_id or version.etag),
        (options.extent_field, f"{extent.start}-{extent.end}"),
    )
    if options.topic_field is not None:
        yield options.topic_field, rows.each_topic()
    for name, text in facts:
        if name is not None:
            yield name, pa.repeat(pa.scalar(text, pa.string()), rows.values.num_rows)
    if options.offset_field is not None:
        yield options.offset_field, pa.array(rows.locations, pa.int64())


def _insert_field(options: InsertFieldOptions, on_key: bool, rows: Rows) -> Rows:  # noqa: FBT001
    batch = rows.keys if on_key else rows.values
    added = list(_inserted(options, rows))
    if batch is None:
        names = [name for name, _ in added]
        return replace(rows, keys=pa.RecordBatch.from_arrays([a for _, a in added], names))
    schema, arrays = batch.schema, list(batch.columns)
    for name, array in added:
        # As Connect does: a column of that name is replaced.
        at = schema.get_field_index(name)
        column = pa.field(name, array.type, nullable=False)
        if at >= 0:
            schema, arrays[at] = schema.set(at, column), array
        else:
            require_unique([*schema.names, name], "columns")
            schema, arrays = schema.append(column), [*arrays, array]
    changed = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return replace(rows, keys=changed) if on_key else replace(rows, values=changed)


def _insert_problem(options: InsertFieldOptions) -> str | None:
    if (options.static_field is None) != (options.static_value is None):
        return "static.field and static.value go together; write both or neither"
    if all(getattr(options, one.name) is None for one in fields(options)):
        return "adds nothing; write static.field, topic.field or another of its keys"
    return None


INSERT_FIELD = TransformSpec(
    open=lambda options, on_key: lambda rows: _insert_field(options, on_key, rows),
    options=InsertFieldOptions,
    problem=_insert_problem,
)


# -- RegexRouter -----------------------------------------------------------------------------------


REGEX: Kind[TopicPattern] = Kind(TopicPattern, lambda pattern: pattern.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexRouterOptions:
    """The keys of RegexRouter."""

    regex: TopicPattern = key(REGEX, "Matches the whole topic name.", required=True)
    replacement: str = key(EXACT, "The topic instead; `$1` is the first group.", required=True)


def _routed(options: RegexRouterOptions, topic: str) -> str:
    return options.regex.replaced(topic, options.replacement)


def _route_problem(options: RegexRouterOptions) -> str | None:
    try:
        options.regex.replaced("", options.replacement)
    except ValueError as exc:
        return f"replacement: {exc}"
    return None


REGEX_ROUTER = TransformSpec(
    open=lambda options, _: lambda rows: replace(rows, topic=_routed(options, rows.topic)),
    options=RegexRouterOptions,
    keys=False,
    route=_routed,
    problem=_route_problem,
)


# -- ExtractTopic ----------------------------------------------------------------------------------


def _topics(text: str) -> tuple[str, ...]:
    names = NAMES.read(text)
    for name in names:
        if problem := illegal_topic(name):
            raise ValueError(f"{name!r}: {problem}")
    return names


TOPICS: Kind[tuple[str, ...]] = Kind(_topics, ",".join)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractTopicOptions:
    """The keys of ExtractTopic."""

    field: str = key(TEXT, "The column with the topic of each record.", required=True)
    topics: tuple[str, ...] = key(
        TOPICS,
        "The topics that values may name; a record that names another one is a bad record.",
        required=True,
    )
    skip_null: bool = key(
        BOOLEAN,
        "Whether records with a null go to the connector's topic; they are bad records otherwise.",
        default=False,
        name="skip.missing.or.null",
    )


def _extract_topic(options: ExtractTopicOptions, on_key: bool, rows: Rows) -> Rows:  # noqa: FBT001
    batch = rows.keys if on_key else rows.values
    if batch is None:
        raise UnsupportedType(NO_KEY)
    (column,) = Columns.select(batch.schema, [options.field], nested=True).of(batch)
    if pa.types.is_dictionary(column.type):
        column = decoded(column)
    if not is_text(column.type):
        raise UnsupportedType(
            f"column '{options.field}' is {column.type}; a topic is text: Cast it to string first"
        )
    topics = column.cast(pa.string())
    known = pc.is_in(topics, pa.array(options.topics), skip_nulls=True)
    if options.skip_null:
        known = pc.or_(known, topics.is_null())
    wrong = np.flatnonzero(~known.to_numpy(zero_copy_only=False))
    if len(wrong):
        # As bytes, because text need not be UTF-8.
        named = topics.take(pa.array(wrong)).cast(pa.binary()).to_pylist()
        raise corrupt_record(
            {
                int(row): "the topic is null"
                if topic is None
                else f"topics lacks {quoted(topic.decode('utf-8', 'backslashreplace'))}"
                for row, topic in zip(wrong, named, strict=True)
            }
        )
    return replace(rows, topics=topics)


EXTRACT_TOPIC = TransformSpec(
    open=lambda options, on_key: lambda rows: _extract_topic(options, on_key, rows),
    options=ExtractTopicOptions,
    topics=lambda options: options.topics,
)
