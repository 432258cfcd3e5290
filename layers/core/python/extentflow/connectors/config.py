"""ConnectorConfig: one checked connector, and what it says about one object."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from extentflow.connectors import topics
from extentflow.connectors.columns import MessageKey, Schema
from extentflow.errors import Misconfigured, UnsupportedFormat
from extentflow.model import ObjectVersion, bucket_uri

EXTENSIONS: Mapping[str, str] = {
    "txt": "text",
    "text": "text",
    "log": "text",
    "csv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
}
COMPRESSION_EXTENSIONS: Mapping[str, str] = {"gz": "gzip", "gzip": "gzip", "zst": "zstd"}

# By format, the default first. Formats of plug-ins are not listed: any converter is allowed.
VALUE_CONVERTERS: Mapping[str, tuple[str, ...]] = {
    "text": ("string", "bytes"),
    "csv": ("json",),
    "jsonl": ("json", "string", "bytes"),
    "parquet": ("json", "string", "bytes"),
}
# Who delivers objects that are announced; the default first.
AUTO, LAMBDA, SPARK = ENGINES = ("auto", "lambda", "spark")
WITHOUT_COLUMNS = frozenset({"text"})
COMPRESSED_INSIDE = frozenset({"parquet"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """A connector's settings; docs/configuration.md says what each means.

    None: left to the SDK, the object's extension or the format, as the reference says. Credentials
    may be references (`${env:NAME}`), never secrets: `keys.resolve` looks them up where they are
    used. Safe to pickle.
    """

    name: str
    topic: str
    format: str | None = None
    compression: str | None = None
    endpoint_type: str = "awss3"
    s3_bucket: str | None = None
    prefix: str = ""
    directory: str | None = None
    region: str | None = None
    endpoint: str | None = None
    path_style: bool | None = None
    ca_bundle: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    role_arn: str | None = None
    role_external_id: str | None = None
    csv_separator: str = ","
    csv_quote: str = '"'
    csv_escape: str | None = None
    csv_header: bool = True
    csv_null: str = ""
    csv_schema: Schema = ()
    jsonl_validate: bool = True
    extent_bytes: int | None = None
    value_converter: str | None = None
    message_key: MessageKey = field(default_factory=MessageKey)
    key_converter: str | None = None
    delivery_guarantee: str = "exactly_once"
    ordering: str = "partitioned"
    errors_tolerance: str = "none"
    dead_letter_topic: str | None = None
    dead_letter_headers: bool = True
    engine: str = AUTO
    max_tasks: int | None = None
    producer: Mapping[str, str] = field(default_factory=dict, hash=False)

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

    def matches(self, bucket: str, key: str) -> bool:
        """Whether the object belongs to this connector; `key` is exact, never URL-encoded."""
        return bucket == self.bucket and key.startswith(self.prefix)

    def format_for(self, key: str) -> str:
        """Return the format of the object `key`: the configured one, or the extension's.

        Raises:
            UnsupportedFormat: the extension says nothing, or a format that other settings of the
                connector exclude.
        """
        name = self.format or EXTENSIONS.get(extension(key))
        if name is None:
            raise UnsupportedFormat(
                f"{self._uri(key)}: the extension tells no format; set input.format in connector"
                f" {self.name}, narrow its prefix, or run a glob (s3://BUCKET/PREFIX*.csv)"
            )
        problem = unfit(name, value_converter=self.value_converter, message_key=self.message_key)
        if problem:
            raise UnsupportedFormat(
                f"{self._uri(key)}: the format is {name}, and in connector {self.name} {problem}"
            )
        return name

    def compression_for(self, key: str) -> str:
        """Return `none`, `gzip` or `zstd`: the configured one, or the extension's.

        Raises:
            UnsupportedFormat: as `format_for`; or a compression around a format that compresses
                inside.
        """
        if self.compression is not None:
            found = self.compression
        else:
            found = COMPRESSION_EXTENSIONS.get(_extensions(key)[-1], "none")
        if found != "none" and self.format_for(key) in COMPRESSED_INSIDE:
            raise UnsupportedFormat(
                f"{self._uri(key)}: {found} around {self.format_for(key)} is not read; decompress"
                " the object, the format compresses inside"
            )
        return found

    def value_converter_for(self, format_name: str) -> str:
        """Return the converter of values of that format: the configured one, or its default."""
        if self.value_converter is not None:
            return self.value_converter
        return VALUE_CONVERTERS.get(format_name, ("json",))[0]

    def key_converter_for_records(self) -> str | None:
        """Return the converter of keys; None where records have no key."""
        if self.message_key.source == "none":
            return None
        return self.key_converter or key_converters(self.message_key)[0]

    def topic_for(self, version: ObjectVersion) -> str:
        """Return the topic of an object's records.

        Raises:
            Misconfigured: the template makes no legal topic name of this object's key.
        """
        known = extension(version.key)
        values = {**self.fixed_placeholders(), "key": version.key, "extension": known}
        topic = topics.fill(self.topic, values)
        problem = topics.illegal(topic)
        if not known and "{extension}" in self.topic:
            problem = "the key has no extension; leave {extension} out, or narrow the prefix"
        if problem:
            raise Misconfigured(
                f"{version.uri}: topic={self.topic} of connector {self.name} makes {topic!r}:"
                f" {problem}"
            )
        return topic

    def route(self, version: ObjectVersion) -> str:
        """Return the topic of an object whose name says that jobs can deliver it.

        Raises:
            UnsupportedFormat: as `format_for` and `compression_for`.
            Misconfigured: as `topic_for`.
        """
        self.format_for(version.key)
        self.compression_for(version.key)
        return self.topic_for(version)

    def fixed_placeholders(self) -> dict[str, str]:
        """Return the placeholders of `topic` that are the same for every object."""
        return {"bucket": self.bucket, "prefix": self.prefix}

    def _uri(self, key: str) -> str:
        return f"{bucket_uri(self.bucket)}/{key}"


def extension(key: str) -> str:
    """Return the key's extension, lower case, before the one of a compression; "" for none."""
    found = _extensions(key)
    return found[-2] if found[-1] in COMPRESSION_EXTENSIONS else found[-1]


def _extensions(key: str) -> list[str]:
    """Return the last two extensions of the key's last segment, padded with ""."""
    segments = key.rpartition("/")[2].lower().split(".")[1:]
    return ["", "", *segments][-2:]


def unfit(format_name: str, *, value_converter: str | None, message_key: MessageKey) -> str | None:
    """Return why values or keys cannot be made from that format, with the remedy; else None."""
    fitting = VALUE_CONVERTERS.get(format_name)
    if value_converter is not None and fitting is not None and value_converter not in fitting:
        return (
            f"value.converter={value_converter} cannot make values of {format_name}; write one of"
            f" {', '.join(fitting)}, or remove it"
        )
    if message_key.columns and format_name in WITHOUT_COLUMNS:
        return f"message.key names columns, and {format_name} has none; write none or object"
    return None


def key_converters(message_key: MessageKey) -> tuple[str, ...]:
    """Return the converters that make keys of `message_key`, the default first."""
    match message_key.source, len(message_key.columns):
        case "column", 1:
            return ("string", "bytes", "json")
        case "column", _:
            return ("json",)
        case _:
            return ("string",)
