"""Connectors: which objects, in which format, go to which topic, and how.

load(path) -> flat map -> parse(map) -> ConnectorConfig -> to_map -> flat map
"""

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from extentflow.config import types
from extentflow.config.column_lists import (
    BY_NAME,
    COLUMN,
    HEADERS,
    LAST_MODIFIED,
    MESSAGE_KEY,
    NAMES,
    PARTITION,
    TIMESTAMP,
    Header,
    MessageKey,
)
from extentflow.config.columnar import ARROW, COMPRESSIONS, ENCODINGS, GROUPS, PARQUET, ColumnGroup
from extentflow.config.columnar import NONE as ROWS
from extentflow.config.kafka import PRODUCER_PROPERTIES, REFUSED_PRODUCER_PROPERTIES
from extentflow.config.specs import (
    CONVERTERS,
    FORMATS,
    OF_COLUMNS,
    STORES,
    ConverterSpec,
    FormatSpec,
)
from extentflow.config.steps import ALIASES, Step
from extentflow.config.table import Alias, Family, KeyCondition, family, key
from extentflow.errors import Misconfigured, UnsupportedFormat
from extentflow.model import Content, ObjectVersion, bucket_uri
from extentflow.plugins import Registry
from extentflow.wording import either

LOCAL_FILE = "localfile"
COMPRESSION_EXTENSIONS: Mapping[str, str] = {
    "bgz": "bgzf",
    "bz2": "bzip2",
    "gz": "gzip",
    "gzip": "gzip",
    "lz4": "lz4",
    "snappy": "snappy",
    "sz": "snappy",
    "zst": "zstd",
}
# The value of `file.compression.type` with which content decides for every object.
BY_CONTENT = "content"
# What jobs pin where `file.compression.split` applies; seekable zstd only if it has its table.
SPLIT_COMPRESSIONS: Mapping[str, str] = {"bzip2": "bzip2-blocks", "zstd": "zstd-seekable"}
# Objects with these can be cut.
SPLITTABLE_COMPRESSIONS = frozenset({"none", "bgzf", *SPLIT_COMPRESSIONS.values()})
# What delivers objects of notifications and listings; the default first.
AUTO, LAMBDA, SPARK = ENGINES = ("auto", "lambda", "spark")
# No extent is smaller unless `extent.bytes` says so.
MIN_EXTENT_BYTES = 1 << 20
# What happens to an object after its job is DONE.
NONE, TAG, MOVE, DELETE = COMPLETIONS = ("none", "tag", "move", "delete")
# Names that hold no data, such as markers and temporary files.
HIDDEN = ("_", ".")

_REQUESTED = {"required": "exactly_once", "requested": "exactly_once"}
_CONNECT_CONVERTERS = {
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.json.JsonSchemaConverter": "json-schema",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
}


# What content shows and nothing reads.
NOT_READ = ("xz", "legacy lz4", "zip", "tar")
# The converters of one member of documents, and of values of headers.
OF_MEMBERS = ("string", "bytes", "base64")
_HEADER_CLASSES = _CONNECT_CONVERTERS | {
    "org.apache.kafka.connect.storage.SimpleHeaderConverter": "string"
}

NOTHING_FOUND = Content()


def _directory(text: str) -> str:
    if not text.strip().startswith("/"):
        raise ValueError("write an absolute path; workers run in other directories")
    return text.strip().rstrip("/") or "/"


def _bucket(text: str) -> str:
    if "," in text:
        raise ValueError("one bucket per connector; make a connector for each of them")
    remedy = "write the bare name, without s3://, slashes or spaces, 2 to 255 characters"
    return types.matching(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", remedy).read(text)


def _tag(text: str) -> str:
    name, equals, value = text.strip().partition("=")
    legal = r"[\w +\-.:/@]"
    if (
        not equals
        or not re.fullmatch(legal + "{1,128}", name)
        or not re.fullmatch(legal + "{0,256}", value)
    ):
        raise ValueError(
            "write name=value: letters, digits, spaces and + - . _ : / @, as S3 allows"
        )
    if name.lower().startswith("aws:"):
        raise ValueError("S3 keeps names of tags that begin with aws: for itself; choose another")
    return text.strip()


def _topic_name(text: str) -> str:
    if problem := types.illegal_topic(text.strip()):
        raise ValueError(problem)
    return text.strip()


def _adapter(registry: Registry[Any], also: Mapping[str, str] | None = None) -> types.Kind[str]:
    """Return the kind of names of adapters, which may be those of packages."""
    hint = f", or install the package that declares it (entry-point group {registry.group})"
    return types.choice(registry.names, also, hint=hint)


CONVERTER = _adapter(CONVERTERS, _CONNECT_CONVERTERS)
# What precedes the keys of converters, by the key that names the converter.
CONVERTER_PARTS: Mapping[str, str] = {
    name: f"{name}." for name in ("value.converter", "key.converter")
}

_S3 = KeyCondition(
    "endpoint.type", lambda value: value != LOCAL_FILE, "endpoint.type is an S3 service"
)
_LOCAL = KeyCondition(
    "endpoint.type", lambda value: value == LOCAL_FILE, "endpoint.type is localfile"
)
_ROLE = KeyCondition("aws.sts.role.arn", lambda value: value is not None, "aws.sts.role.arn is set")
_TAGS, _MOVES = (
    KeyCondition("after.completion", partial(operator.eq, each), f"after.completion is {each}")
    for each in (TAG, MOVE)
)
_NOT_EMPTY = KeyCondition("transforms", bool, "transforms is set")
_TOLERANT = KeyCondition(
    "errors.tolerance", lambda value: value == "all", "errors.tolerance is all"
)
_LOGGED = KeyCondition("errors.log.enable", bool, "errors.log.enable is true")
_COLUMNAR, _AS_PARQUET = (
    KeyCondition(
        "columnar.encoding", frozenset(each).__contains__, f"columnar.encoding is {either(each)}"
    )
    for each in ((PARQUET, ARROW), (PARQUET,))
)
_columnar = partial(key, only=(_COLUMNAR,))
_LINES = KeyCondition(
    "input.format",
    lambda value: value is None or FORMATS.get(value).compressible,
    "input.format does not compress inside",
)


def _limits_records(spec: FormatSpec) -> bool:
    return spec.compressible or spec.limits_records


_LIMITED = KeyCondition(
    "input.format",
    lambda value: value is None or _limits_records(FORMATS.get(value)),
    "input.format does not compress inside, or is parquet",
)
_s3 = partial(key, name="aws.s3.", shown="SDK's own", only=(_S3,))
_aws = partial(key, name="aws.", shown="SDK's chain", only=(_S3,))
_sts = partial(key, name="aws.sts.", only=(_S3,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorConfig:
    """A connector's settings; docs/configuration.md says what each means.

    None: left to the SDK, the object's extension or the format, as the reference says. Credentials
    may be references (`${env:NAME}`), never secrets: `secrets.resolve` looks them up where they are
    used. `format_options` holds what differs from a format's defaults, `converter_options` those of
    `value.converter` and `key.converter` where these have keys of their own, `steps` the chain that
    `transforms` and the keys below it describe. Safe to pickle.
    """

    name: str = key(
        types.NAME,
        "the connector's unique name. Letters, digits, `.`, `_`, `-`.",
        required=True,
        section="From where to where",
    )
    topic: str = key(
        types.TOPIC_TEMPLATE,
        "the topic to write to. May hold `{bucket}`, `{prefix}` (`aws.s3.prefix`),"
        " `{key}` (the whole key) and `{extension}`; slashes become dots, any other"
        " character that Kafka does not allow is an error for that object.",
        required=True,
    )
    name_template: types.NameTemplate | None = key(
        types.NAME_TEMPLATE,
        "How objects are named, as Aiven's connectors write them:"
        " `{{topic}}-{{partition}}-{{start_offset}}.gz`; also `{{timestamp}}`, `{{key}}`, and any"
        " folder before it. Its `{{topic}}` fills `{topic}` of `topic`, its `{{partition}}` is"
        " `message.partition=name`; other objects are errors.",
        name="file.name.template",
        shown="none",
    )
    format: str | None = key(
        _adapter(FORMATS),
        "One of the formats below. By extension; before a compression's extension too (.csv.gz).",
        name="input.format",
        shown="from the extension",
        aliases=(Alias("decoder.type"),),
    )
    compression: str | None = key(
        types.choice({"none", BY_CONTENT, *COMPRESSION_EXTENSIONS.values()}),
        "`none`, or around the whole object, which is one extent: `gzip` (.gz), `zstd` (.zst),"
        " `bzip2` (.bz2), `lz4` (.lz4, frames), `snappy` (.sz, .snappy, frames). `bgzf` (.bgz), as"
        " bgzip writes it, is cut into extents, and so are `zstd` with a seek table and `bzip2`,"
        " see `file.compression.split`. `content`: the first bytes of every object decide,"
        " whatever its extension; planning reads them.",
        name="file.compression.type",
        shown="from the extension, or from content where it is of no known format",
        only=(_LINES,),
    )
    split: bool = key(
        types.BOOLEAN,
        "Cut objects of `text`, `csv` and `jsonl` in `bzip2` and seekable `zstd` into extents."
        " `false`: one extent, and the seek table is not used.",
        default=True,
        name="file.compression.split",
        only=(_LINES,),
    )
    charset: str | None = key(
        types.or_word("auto", types.CHARSET),
        "The character set of lines: any of Python's codecs. `auto`: UTF-8, or UTF-16 or UTF-32"
        " where the object begins with its byte order mark.",
        name="character.set",
        shown="auto",
        only=(_LINES,),
    )
    record_max_bytes: int = key(
        types.SIZE,
        "The longest record; a longer one is a bad record. At most 512 MiB.",
        default=64 << 20,
        only=(_LIMITED,),
    )
    endpoint_type: str = key(
        _adapter(STORES),
        "`awss3`, `ontaps3`, `storagegrids3` or `localfile`.",
        default="awss3",
        section="Object store",
    )
    s3_bucket: str | None = _s3(
        types.Kind(_bucket),
        "The bucket; several are several connectors.",
        name="aws.s3.bucket.name",
        shown="required",
        aliases=(Alias("s3.bucket.name"),),
    )
    prefix: str = _s3(
        types.EXACT,
        "Keys that begin with it belong to the connector, nested ones too. Exact text."
        " Left out are names that begin with `_` or `.` below it (`_SUCCESS`).",
        default="",
        shown=None,
    )
    directory: str | None = key(
        types.Kind(_directory),
        "The absolute path that takes the bucket's place, nested directories included."
        " With S3 services it is NetApp's name for `aws.s3.prefix`.",
        shown="required",
        only=(_LOCAL,),
    )
    object_key: str | None = key(
        types.EXACT,
        "Only this object, or file: its whole key. Where nothing has that key, what is below it, as"
        " below a folder. Exact text that begins with `aws.s3.prefix`.",
        name="object.key",
        shown="all below the prefix or directory",
    )
    region: str | None = _s3(
        types.TEXT, "The region that requests are signed for.", aliases=(Alias("s3.region"),)
    )
    endpoint: str | None = _s3(
        types.URL,
        "http(s)://host:port. `ontaps3` and `storagegrids3` need it.",
        aliases=(Alias("s3.url"),),
    )
    path_style: bool | None = _s3(
        types.BOOLEAN,
        "Whether the bucket stands in the path rather than in the host name.",
        name="aws.s3.path.style.access.enabled",
        shown="true with an endpoint",
    )
    ca_bundle: str | None = _s3(
        types.TEXT, "A PEM file, on every worker, with the authorities to trust for the endpoint."
    )
    access_key_id: str | None = _aws(
        types.REFERABLE, "The access key's id, or a reference.", aliases=(Alias("access.key.id"),)
    )
    secret_access_key: str | None = _aws(
        types.SECRET, "The secret, as a reference only.", aliases=(Alias("access.key"),)
    )
    role_arn: str | None = _sts(types.REFERABLE, "A role to assume with the credentials above.")
    role_external_id: str | None = _sts(
        types.REFERABLE, "The external id that the role asks for.", only=(_S3, _ROLE)
    )
    value_converter: str | None = key(
        CONVERTER,
        "`string`, `bytes`, `base64` (the bytes that text states), `json`, `avro`, `json-schema` or"
        " `protobuf`, or Connect's class names for them, or a plug-in's; the formats below list"
        " those that they allow.",
        shown="by format",
        section="Records",
    )
    message_key: MessageKey = key(
        MESSAGE_KEY,
        "`none`, `object` (the object's key), `column:name[,name]`, or `path:$.a.b`, which is"
        " `column:a.b`: where there is no column `a.b`, the member `b` of `a`. Or"
        " `template:${key}-{id}` of columns and of `${bucket}`, `${key}`, `${version}`, `${etag}`,"
        " `${size}`, `${uri}`, null where a column is. One column's null is a null key; a JSON line"
        " without such a member is a bad record.",
        default=MessageKey(),
        shown="none",
    )
    key_converter: str | None = key(
        CONVERTER,
        "The object's key: string. One column: string (default), bytes, base64, json, avro,"
        " json-schema, protobuf."
        " Several: json, avro, json-schema or protobuf, one object with these members. Needs"
        " message.key or ValueToKey.",
        shown="by message.key",
    )
    headers: tuple[Header, ...] = key(
        HEADERS,
        "Headers of every record: `name=source,name=source`. Sources: `column:NAME`, `text:...` and"
        " `bucket`, `key`, `version`, `etag`, `size`, `uri`, `extent`, `location`, `last_modified`,"
        " `content_type`, `metadata:NAME`, `tag:NAME` of the object."
        " Values as `header.converter` makes them; a null column gives no header.",
        default=(),
        shown="none",
    )
    message_headers: str | None = key(
        COLUMN,
        "`column:NAME`: all headers of a record from one column, before those of `headers`: a list"
        " of structs of key and value, a map, a struct, or text"
        " ([formats.md](formats.md#backups)). `none`: only those of `headers`.",
        shown="none",
    )
    header_converter: str | None = key(
        types.choice(OF_MEMBERS, _HEADER_CLASSES),
        "How values of headers are made of columns: `string`, `bytes` or `base64`, or Connect's"
        " class names for the first two. By default, binary columns are passed on as they are, and"
        " others are text.",
        shown="by type",
    )
    message_timestamp: str | None = key(
        TIMESTAMP,
        "`none`: the time at which the record is sent. `last_modified`: the object's."
        " `column:NAME`: a timestamp, a date, or"
        " milliseconds since 1970; a null is `none`, an instant not"
        " after the beginning of 1970 a bad record.",
        shown="none",
    )
    message_partition: str | None = key(
        PARTITION,
        "`none`: by the key, or any. `name`: that of `file.name.template`."
        " `column:NAME`: a whole number; a null is `none`, a partition"
        " that the topic lacks makes a bad record.",
        shown="none",
    )
    select: tuple[str, ...] = key(
        NAMES,
        'The columns that become the value, in this order: `id,"a, b"`. All others are not'
        " decoded where the format allows, and are there for `message.key` only. Of JSON documents:"
        " one member, whose text or JSON is the value.",
        default=(),
        shown="all",
    )
    columnar_encoding: str = key(
        types.choice(ENCODINGS),
        "`none`: a value per row. `parquet`, `arrow` (IPC stream): a value holds many rows as"
        " columns, for consumers that read columns ([columnar.md](columnar.md)). Takes the place of"
        " `value.converter`.",
        default=ROWS,
        section="Columnar values",
    )
    columnar_compression: str | None = _columnar(
        types.choice(COMPRESSIONS),
        "How the columns are compressed. `gzip` and `snappy` only with `parquet`. Kafka's own"
        " compression is then `none`, unless this is `none`, or `producer.compression.type` set.",
        shown="zstd; where row groups are passed through, theirs",
        name="columnar.encoding.compression",
    )
    columnar_batch_bytes: int = _columnar(
        types.SIZE,
        "The size to aim at for a value; never above what its topic takes. A batch holds rows of"
        " one extent only.",
        default=1 << 20,
    )
    columnar_groups: tuple[ColumnGroup, ...] = _columnar(
        GROUPS,
        "`group: column, column; group: *`: each group of columns goes to a topic of its own,"
        " `TOPIC.group`, batch for batch, in the same transaction. `*`: the columns of no other"
        " group; without it, each column belongs to a group.",
        default=(),
        shown="none: all columns go to the topic",
    )
    columnar_passthrough: bool = _columnar(
        types.BOOLEAN,
        "Whether row groups of Parquet objects are sent as they are, without decoding, where they"
        " fit into a value and nothing changes them.",
        default=True,
        only=(_AS_PARQUET,),
    )
    columnar_encryption_columns: tuple[str, ...] = key(
        NAMES,
        "Columns that are encrypted, with all of their members"
        " ([columnar.md](columnar.md#encrypted-columns)). Row groups are then not passed through.",
        default=(),
        shown="none",
        only=(_AS_PARQUET,),
    )
    columnar_encryption_key: str | None = key(
        types.matching("[A-Za-z0-9._/:+=@-]{1,2048}", "write letters, digits and . _ / : + = @ -"),
        "The id of the master key that wraps the keys of these columns: one of"
        " `columnar.encryption.key.list`, or in AWS KMS an ARN, an id or `alias/NAME`.",
        only=(_AS_PARQUET,),
    )
    columnar_encryption_key_list: str | None = key(
        types.SECRET,
        "The master keys `id:base64, id:base64`, of 16, 24 or 32 bytes, as a reference only.",
        shown="none: AWS KMS wraps",
        only=(_AS_PARQUET,),
    )
    transforms: tuple[str, ...] = key(
        ALIASES,
        "Names of transforms, applied in this order between decode and convert"
        " ([transforms.md](transforms.md)).",
        default=(),
        shown="none",
        section="Transforms",
    )
    predicates: tuple[str, ...] = key(
        ALIASES,
        "Names of the predicates that transforms refer to.",
        default=(),
        shown="none",
        only=(_NOT_EMPTY,),
    )
    delivery_guarantee: str = key(
        types.choice({"exactly_once", "at_least_once"}),
        "`exactly_once` (consumers need `isolation.level=read_committed`) or `at_least_once`.",
        default="exactly_once",
        aliases=(Alias("exactly.once.support", "Connect", _REQUESTED),),
        section="Delivery",
    )
    ordering: str = key(
        types.choice({"partitioned", "object"}),
        "`partitioned`: file order within an extent, extents in parallel. `object`:"
        " one object's records in file order, one extent after the other.",
        default="partitioned",
    )
    errors_tolerance: str = key(
        types.choice({"none", "all"}),
        "`none`: a bad record fails its extent. `all`: bad records go to the dead letter queue.",
        default="none",
    )
    dead_letter_topic: str | None = key(
        types.Kind(_topic_name),
        "The dead letter queue; another topic than `topic`.",
        name="errors.deadletterqueue.topic.name",
        shown="required with `all`",
        only=(_TOLERANT,),
    )
    dead_letter_headers: bool = key(
        types.BOOLEAN,
        "Whether dead letters carry object, version, extent, place and reason.",
        default=True,
        name="errors.deadletterqueue.context.headers.enable",
        only=(_TOLERANT,),
    )
    errors_max_records: int | None = key(
        types.whole(0),
        "The most bad records of one job. With more of them the job is FAILED"
        " ([formats.md](formats.md#bad-records)).",
        shown="any number",
        only=(_TOLERANT,),
    )
    errors_log: bool = key(
        types.BOOLEAN,
        "Whether each bad record is a line of the workers' log: object, version, extent, place and"
        " reason as JSON. At most 100 lines a minute and process.",
        default=False,
        name="errors.log.enable",
    )
    errors_log_messages: bool = key(
        types.BOOLEAN,
        "Whether these lines have the first 1,024 bytes of the record.",
        default=False,
        name="errors.log.include.messages",
        only=(_LOGGED,),
    )
    after_completion: str = key(
        types.choice(COMPLETIONS),
        "What happens to an object after its job is DONE: `none`, `tag`, `move` or `delete`, always"
        " to the version that was read ([operations.md](operations.md#objects-after-delivery)).",
        default=NONE,
        only=(_S3,),
    )
    completion_tag: str | None = key(
        types.Kind(_tag),
        "The tag, `name=value`; other tags of the object stay. The bucket needs versions.",
        name="after.completion.tag",
        shown="required with `tag`",
        only=(_TAGS,),
    )
    completion_prefix: str | None = key(
        types.EXACT,
        "Takes the place of `aws.s3.prefix` in the keys of moved objects; outside of that prefix.",
        name="after.completion.move.prefix",
        shown="required with `move`",
        only=(_MOVES,),
    )
    completion_bucket: str | None = key(
        types.Kind(_bucket),
        "The bucket of moved objects, in the same store.",
        name="after.completion.move.bucket",
        shown="the same",
        only=(_MOVES,),
    )
    engine: str = key(
        types.choice(ENGINES),
        "What delivers objects of notifications and listings. `lambda`: functions. `spark`: a run"
        " of EMR Serverless for each. `auto`: Spark for those of more than"
        " `spark.threshold.bytes`. Where no run can be started, functions deliver the object.",
        default=AUTO,
    )
    max_tasks: int | None = key(
        types.whole(1), "The most extents at once in one run.", name="tasks.max", shown="engine's"
    )
    extent_bytes: int | None = key(
        types.or_word("auto", types.SIZE),
        "The size to aim at for an extent. `auto`: max(64 MiB, size / 10,000) for line"
        " formats, row groups up to 32 MiB for Parquet, and at least one extent per"
        " core where the object allows it. Line formats: at most 1,000,000 extents.",
        shown="auto",
        aliases=(Alias("extent.stride"),),
    )
    producer: Mapping[str, str] = family(
        Family(
            "producer.",
            "Passed to this connector's Kafka producers, over the worker's `kafka.*`.",
            PRODUCER_PROPERTIES,
            REFUSED_PRODUCER_PROPERTIES,
        )
    )
    transform_settings: Mapping[str, str] = family(
        Family(
            "transforms.",
            "`transforms.NAME.type` is the transform of that name, `transforms.NAME.predicate` and"
            " `.negate` say for which records it is applied; its other keys stand in"
            " [transforms.md](transforms.md).",
            None,
        )
    )
    predicate_settings: Mapping[str, str] = family(
        Family("predicates.", "`predicates.NAME.type`, and the keys of that predicate.", None)
    )
    format_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    converter_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    steps: tuple[Step, ...] = field(default=(), hash=False)

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
                f" connector {self.name} (with --topic: --set input.format=csv), or run a glob that"
                " leaves it out (PREFIX/*.csv)"
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
