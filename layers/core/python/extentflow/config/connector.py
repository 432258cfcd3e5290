"""Connectors: which objects, in which format, go to which topic, and how.

load(path) -> flat map -> parse(map) -> ConnectorConfig -> to_map -> flat map
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from extentflow.config import types
from extentflow.config.column_lists import BY_NAME, LAST_MODIFIED, MessageKey
from extentflow.config.columnar import NONE as ROWS
from extentflow.config.connector_keys import (
    BY_CONTENT,
    COMPRESSION_EXTENSIONS,
    DELETE,
    MOVE,
    OF_MEMBERS,
    ConnectorKeys,
)
from extentflow.config.specs import CONVERTERS, FORMATS, OF_COLUMNS, ConverterSpec, FormatSpec
from extentflow.errors import Misconfigured, UnsupportedFormat
from extentflow.model import Content, ObjectVersion, bucket_uri
from extentflow.wording import either

# What jobs pin where `file.compression.split` applies; seekable zstd only if it has its table.
SPLIT_COMPRESSIONS: Mapping[str, str] = {"bzip2": "bzip2-blocks", "zstd": "zstd-seekable"}
# Objects with these can be cut.
SPLITTABLE_COMPRESSIONS = frozenset({"none", "bgzf", *SPLIT_COMPRESSIONS.values()})
# No extent is smaller unless `extent.bytes` says so.
MIN_EXTENT_BYTES = 1 << 20
# Names that hold no data, such as markers and temporary files.
HIDDEN = ("_", ".")
# What content shows and nothing reads.
NOT_READ = ("xz", "legacy lz4", "zip", "tar", "xls", "xlsx")

NOTHING_FOUND = Content()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig(ConnectorKeys):
    """A connector's settings, and what follows from several of them."""

    @property
    def bucket(self) -> str:
        """What the store calls bucket: the S3 bucket, or the directory of `localfile`."""
        return self.s3_bucket or self.directory or ""

    @property
    def exactly_once(self) -> bool:
        """Whether records and progress are committed in one transaction."""
        return self.delivery_guarantee == "exactly_once"

    @property
    def ordered(self) -> bool:
        """Whether one object's extents run one after the other."""
        return self.ordering == "object"

    def moved_to(self, key: str) -> tuple[str, str]:
        """Return bucket and key of an object after `after.completion=move`."""
        moved = (self.completion_prefix or "") + key.removeprefix(self.prefix)
        return self.completion_bucket or self.bucket, moved

    def matches(self, bucket: str, key: str) -> bool:
        """Whether the object belongs to this connector; `key` is exact, never URL-encoded."""
        return bucket == self.bucket and lies_within(key, self.prefix, self.object_key)

    @property
    def removes_objects(self) -> bool:
        """Whether objects are moved or deleted after their delivery."""
        return self.after_completion in (MOVE, DELETE)

    @property
    def listed_prefix(self) -> str:
        """What every key of the connector begins with; `matches` decides about those listed."""
        return self.object_key or self.prefix

    def needs_content(self, key: str) -> bool:
        """Whether content decides the format: no setting does, nor the extension alone."""
        return self.format is None and _format_by_extension(key) in (None, "json")

    def needs_compression(self, key: str) -> bool:
        """Whether content decides the compression: a setting says so, or nothing else does."""
        if self.format is not None and not self._may_be_compressed(self.format):
            return False
        if self.compression is not None:
            return self.compression == BY_CONTENT
        by_extension = (compression_by_extension(key), _format_by_extension(key))
        return by_extension in (("none", None), ("none", "json"))

    def format_source(self, key: str) -> str:
        """Return what decides the format of the object `key`."""
        if self.format is not None:
            return "input.format"
        return BY_CONTENT if self.needs_content(key) else f"extension .{extension(key)}"

    def compression_source(self, key: str) -> str:
        """Return what decides the compression of the object `key`."""
        if self.needs_compression(key):
            return BY_CONTENT
        if self.compression not in (None, BY_CONTENT):
            return "file.compression.type"
        return f"extension .{found}" if (found := _extensions(key)[-1]) else "no extension"

    def format_for(self, key: str, recognised: str | None = None) -> str:
        """Return the format of the object `key`: the configured one, or the extension's.

        `recognised` is what its content showed at planning, where that decides. Raises
        UnsupportedFormat where there is none, or other settings exclude it.
        """
        name = self.format or _format_by_extension(key)
        if recognised in NOT_READ and self.needs_content(key):
            raise UnsupportedFormat(
                f"{self._uri(key)} begins as {recognised}, which is not read; unpack it and upload"
                " what it holds, or recompress that with gzip, zstd, bzip2 or lz4"
            )
        if recognised in FORMATS.names() and self.needs_content(key):
            name = recognised
        if name is None:
            found = extension(key)
            known = f"the extension .{found} is of no known format"
            raise UnsupportedFormat(
                f"{self._uri(key)}: {known if found else 'the name has no extension of a format'},"
                " and the content shows none (CSV and text are never guessed); set input.format in"
                f" connector {self.name} (with --topic: --set input.format=csv), or run a"
                " glob without it (PREFIX/*.csv)"
            )
        if problem := self.unfit(name):
            raise UnsupportedFormat(
                f"{self._uri(key)}: the format is {name}, and in connector {self.name} {problem}"
            )
        return name

    def unfit(self, format_name: str) -> str | None:
        """Return why values or keys cannot be made from that format, with the remedy; else None."""
        spec, converter = self.spec_of(format_name), self.value_converter
        # A package's converter states itself, by UnsupportedType, what columns it takes.
        checked = converter is not None and CONVERTERS.is_built_in(converter)
        fitting = OF_MEMBERS if self.select and spec.raw else spec.converters
        if checked and not self.steps and fitting and converter not in fitting:
            why = ", which passes them on as they are" if spec.raw else ""
            return (
                f"value.converter={converter} cannot make values of {format_name}{why}; write"
                f" {either(fitting)}, or remove it{spec.remedy}"
            )
        if checked and not self.steps and spec.raw and not self.passes_lines:
            return (
                f"value.converter.schemas.enable=true writes columns, and {format_name} passes"
                " records on as they are; remove it, or make columns by a transform"
            )
        if self.columnar and spec.raw and spec.has_columns:
            return (
                f"columnar.encoding={self.columnar_encoding} needs columns, {format_name} passes"
                f" records on as they are; write {format_name}.schema, or remove it"
            )
        if self.message_key.columns and not spec.has_columns:
            return f"message.key names columns, and {format_name} has none; write none or object"
        if self.attribute_columns and not spec.has_columns:
            names = "headers, message.headers, message.timestamp and message.partition"
            return f"{names} cannot name columns, because {format_name} has none; remove them"
        return self._unfit_selection(format_name)

    def _unfit_selection(self, format_name: str) -> str | None:
        """Return why the value cannot be what `select` names of that format."""
        spec = self.spec_of(format_name)
        if self.select and not spec.has_columns:
            return f"select names columns, and {format_name} has none; remove select{spec.remedy}"
        if spec.raw and len(self.select) > 1:
            return (
                f"select names several members of {format_name}; the value is one: name it"
                f"{spec.remedy}"
            )
        return None

    def compression_for(self, key: str, content: Content = NOTHING_FOUND) -> str:
        """Return the compression, `none` if there is none: the configured one, or the extension's.

        `content` counts where it decides. Raises UnsupportedFormat as `format_for`, and for a
        format that compresses inside.
        """
        found = self.stated_compression(key)
        if self.needs_compression(key) or content.compression in SPLIT_COMPRESSIONS.values():
            found = content.compression or "none"
        if (
            found != "none"
            and not FORMATS.get(name := self.format_for(key, content.format)).compressible
        ):
            raise UnsupportedFormat(
                f"{self._uri(key)}: {found} around {name} is not read; decompress the object, the"
                " format compresses inside"
            )
        return found

    def stated_compression(self, key: str) -> str:
        """Return the compression that the connector or the extension states, `none` for none."""
        if self.compression in (None, BY_CONTENT):
            return compression_by_extension(key)
        return self.compression or "none"

    def may_split(self, version: ObjectVersion, format_name: str) -> bool:
        """Whether a compressed object may have several extents, as far as its size says."""
        least = MIN_EXTENT_BYTES if self.extent_bytes is None else self.extent_bytes
        return self.split and version.size > least and FORMATS.get(format_name).splits_compressed

    @staticmethod
    def _may_be_compressed(format_name: str) -> bool:
        spec = FORMATS.get(format_name)
        return spec.compressible and not spec.opaque

    def value_converter_for(self, format_name: str) -> str:
        """Return the converter of values of that format: the configured one, or its default."""
        return self.value_converter or (self.spec_of(format_name).converters or ("json",))[0]

    def spec_of(self, format_name: str) -> FormatSpec:
        """Return the specification of a format under its options."""
        spec = FORMATS.get(format_name)
        return spec.under(spec, self.options_of(format_name))

    @property
    def passes_lines(self) -> bool:
        """Whether lines that no transform changed are values as they are."""
        found = CONVERTERS.get(self.value_converter or "json")
        if not isinstance(found, ConverterSpec):
            return True
        own = self.converter_options.get("value.converter")
        return found.takes_lines(found.options() if own is None else own)

    def options_of(self, format_name: str) -> Any:  # noqa: ANN401 - each format has a type of its own
        """Return the options of a format, an instance of its `FormatSpec.options`."""
        held = self.format_options.get(format_name)
        return FORMATS.get(format_name).options() if held is None else held

    @property
    def columnar(self) -> bool:
        """Whether a value holds many rows."""
        return self.columnar_encoding != ROWS

    @property
    def attribute_columns(self) -> tuple[str, ...]:
        """The columns that headers, timestamp and partition are made from."""
        named = [one.argument for one in self.headers if one.source == "column"]
        place = None if self.message_partition == BY_NAME else self.message_partition
        time = None if self.message_timestamp == LAST_MODIFIED else self.message_timestamp
        found = [*named, self.message_headers, time, place]
        return tuple(dict.fromkeys(name for name in found if name is not None))

    @property
    def extracted_columns(self) -> tuple[str, ...]:
        """The columns that keys and attributes are made from."""
        return tuple(dict.fromkeys([*self.message_key.columns, *self.attribute_columns]))

    @property
    def headers_by_transform(self) -> bool:
        """Whether the chain reads or changes headers."""
        return any(step.uses_headers for step in self.steps)

    @property
    def keyed(self) -> bool:
        """Whether records have keys, from `message.key` or from a transform."""
        return self.message_key.source != "none" or self.keys_by_transform

    @property
    def keys_by_transform(self) -> bool:
        """Whether the chain makes keys of columns."""
        return any(step.makes_key for step in self.steps)

    def key_converter_for_records(self) -> str | None:
        """Return the converter of keys; None where records have no key, or its columns decide."""
        if self.message_key.source == "none" or self.steps:
            return self.key_converter
        return self.key_converter or key_converters(self.message_key)[0]

    def topic_for(self, version: ObjectVersion) -> str:
        """Return the topic of an object's records, else raise Misconfigured."""
        known, topic = extension(version.key), self.routed(self.template_topic(version))
        written = map(types.illegal_topic, self.written_topics(topic))
        problem = types.illegal_topic(topic) or next(filter(None, written), None)
        if not known and "{extension}" in self.topic:
            problem = "the key has no extension; leave {extension} out, or narrow the prefix"
        if problem:
            raise Misconfigured(
                f"{version.uri}: topic={self.topic} of connector {self.name} makes {topic!r}:"
                f" {problem}"
            )
        return topic

    def routed(self, topic: str) -> str:
        """Return the topic to which transforms route all records of a topic."""
        for step in self.steps:
            topic = step.route(topic)
        return topic

    @property
    def reroutes(self) -> bool:
        """Whether a transform may change the topic of all records."""
        return any(step.routes for step in self.steps)

    @property
    def value_topics(self) -> tuple[str, ...]:
        """The topics that values of records may name."""
        return tuple(dict.fromkeys(topic for step in self.steps for topic in step.topics))

    def written_topics(self, topic: str | None) -> tuple[str, ...]:
        """Return the topics that records are written to, of an object with `topic`."""
        topics = dict.fromkeys((*([] if topic is None else [topic]), *self.value_topics))
        if not self.columnar_groups:
            return tuple(topics)
        return tuple(group.topic(each) for each in topics for group in self.columnar_groups)

    def template_topic(self, version: ObjectVersion) -> str:
        """Return the topic that the template names, before transforms route it."""
        known = extension(version.key)
        values = {**self.fixed_placeholders(), "key": version.key, "extension": known}
        values |= {name: found for name, found in self.named(version).items() if name == "topic"}
        return types.fill_topic(self.topic, values)

    def named(self, version: ObjectVersion) -> dict[str, str]:
        """Return what `file.name.template` finds in the key; Misconfigured where it finds none."""
        if self.name_template is None:
            return {}
        found = self.name_template.find(version.key)
        if found is None:
            raise Misconfigured(
                f"{version.uri}: file.name.template={self.name_template.text} of connector"
                f" {self.name} does not fit the key; correct it, or narrow the prefix"
            )
        return found

    def route(self, version: ObjectVersion, content: Content = NOTHING_FOUND) -> str:
        """Return `topic_for`, having checked `format_for` and `compression_for`."""
        self.format_for(version.key, content.format)
        self.compression_for(version.key, content)
        return self.topic_for(version)

    def fixed_placeholders(self) -> dict[str, str]:
        """Return the placeholders of `topic` that are the same for every object."""
        return {"bucket": self.bucket, "prefix": self.prefix}

    def _uri(self, key: str) -> str:
        return f"{bucket_uri(self.bucket)}/{key}"


def lies_within(key: str, prefix: str, only: str | None) -> bool:
    """Whether `key` begins with `prefix`, or with `only` is that key or, as in a folder, below."""
    return key.startswith(prefix) if not only else f"{key}/".startswith(f"{only}/")


def extension(key: str) -> str:
    """Return the key's extension, lower case, before the one of a compression; "" for none."""
    found = _extensions(key)
    return found[-2] if found[-1] in COMPRESSION_EXTENSIONS else found[-1]


def _format_by_extension(key: str) -> str | None:
    found = extension(key)
    # Built-in formats win, then the order of names decides.
    return next((name for name, spec in FORMATS.items() if found in spec.extensions), None)


def compression_by_extension(key: str) -> str:
    """Return the compression that the key's last extension names, `none` if it names none."""
    return COMPRESSION_EXTENSIONS.get(_extensions(key)[-1], "none")


def _extensions(key: str) -> list[str]:
    """Return the last two extensions of the key's last segment, padded with ""."""
    segments = key.rpartition("/")[2].lower().split(".")[1:]
    return ["", "", *segments][-2:]


def key_converters(message_key: MessageKey) -> tuple[str, ...]:
    """Return the converters that make keys of `message_key`, the default first."""
    if message_key.source != "column":
        return ("string",)
    several = len(message_key.columns) > 1
    return OF_COLUMNS if several else ("string", "bytes", "base64", *OF_COLUMNS)


def hidden(key: str, prefix: str) -> bool:
    """Whether a name in `key` after `prefix` hides the object; a folder `_year=2026/` does not."""
    begin = prefix.rfind("/") + 1
    # A name that begins within the prefix is written out.
    names = key[begin:].split("/")[begin < len(prefix) :]
    return any(name.startswith(HIDDEN) and "=" not in name for name in names)
