"""The keys of a connector, each declared at the field that holds its value.

Tests: unit/config/test_connector.py
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from extentflow.config import types
from extentflow.config.column_lists import (
    COLUMN,
    HEADERS,
    MESSAGE_KEY,
    NAMES,
    PARTITION,
    TIMESTAMP,
    Header,
    MessageKey,
)
from extentflow.config.columnar import ARROW, COMPRESSIONS, ENCODINGS, GROUPS, PARQUET, ColumnGroup
from extentflow.config.columnar import NONE as ROWS
from extentflow.config.kafka_properties import PRODUCER_PROPERTIES, REFUSED_PRODUCER_PROPERTIES
from extentflow.config.specs import CONVERTERS, FORMATS, STORES, FormatSpec
from extentflow.config.steps import ALIASES, Step
from extentflow.config.table import Alias, Family, KeyCondition, family, key
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
# What delivers objects of notifications and listings; the default first.
AUTO, LAMBDA, SPARK = ENGINES = ("auto", "lambda", "spark")
# What happens to an object after its job is DONE.
NONE, TAG, MOVE, DELETE = COMPLETIONS = ("none", "tag", "move", "delete")

_REQUESTED = {"required": "exactly_once", "requested": "exactly_once"}
_CONNECT_CONVERTERS = {
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "org.apache.kafka.connect.converters.ByteArrayConverter": "bytes",
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.json.JsonSchemaConverter": "json-schema",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
}

# The converters of one member of documents, and of values of headers.
OF_MEMBERS = ("string", "bytes", "base64")
_HEADER_CLASSES = _CONNECT_CONVERTERS | {
    "org.apache.kafka.connect.storage.SimpleHeaderConverter": "string"
}


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
class ConnectorKeys:
    """The settings of a connector; docs/configuration.md says what each means.

    None: left to the SDK, the object's extension or the format, as the reference says. Credentials
    may be references (`${env:NAME}`), never secrets: `secrets.resolve` reads them at each use.
    `format_options` and `converter_options` hold what differs from the defaults of a format, or of
    `value.converter` and `key.converter`. `steps` is the chain of `transforms`. Safe to pickle.
    """

    name: str = key(
        types.NAME,
        "the connector's unique name. Letters, digits, `.`, `_`, `-`.",
        required=True,
        section="From where to where",
    )
    topic: str = key(
        types.TOPIC_TEMPLATE,
        "the topic to write to. May hold `{bucket}`, `{prefix}` (`aws.s3.prefix`), `{key}` (the"
        " whole key) and `{extension}`. Slashes become dots; any other character that Kafka does"
        " not allow is an error.",
        required=True,
    )
    name_template: types.NameTemplate | None = key(
        types.NAME_TEMPLATE,
        "How objects are named, as Aiven's connectors write them:"
        " `{{topic}}-{{partition}}-{{start_offset}}.gz`, also `{{timestamp}}`, `{{key}}`, and"
        " folders before it. `{{topic}}` fills `{topic}` of `topic`, `{{partition}}` is"
        " `message.partition=name`. Other objects are errors.",
        name="file.name.template",
        shown="none",
    )
    format: str | None = key(
        _adapter(FORMATS),
        "One of the formats below. The extension counts also before that of a compression"
        " (.csv.gz).",
        name="input.format",
        shown="from the extension",
        aliases=(Alias("decoder.type"),),
    )
    compression: str | None = key(
        types.choice({"none", BY_CONTENT, *COMPRESSION_EXTENSIONS.values()}),
        "`none`, or around the whole object: `gzip` (.gz), `zstd` (.zst), `bzip2` (.bz2), `lz4`"
        " (.lz4, frames), `snappy` (.sz, .snappy, frames). Such an object is one extent; `bgzf`"
        " (.bgz) and those of `file.compression.split` are cut. `content`: planning reads the"
        " first bytes of every object.",
        name="file.compression.type",
        shown="from the extension, or from content where it is of no known format",
        only=(_LINES,),
    )
    split: bool = key(
        types.BOOLEAN,
        "Cut objects of `text`, `csv` and `jsonl` in `bzip2`, or in `zstd` with a seek table,"
        " into extents.",
        default=True,
        name="file.compression.split",
        only=(_LINES,),
    )
    charset: str | None = key(
        types.or_word("auto", types.CHARSET),
        "The character set of lines, any of Python's codecs. `auto`: by the byte order mark"
        " UTF-16 or UTF-32, else UTF-8.",
        name="character.set",
        shown="auto",
        only=(_LINES,),
    )
    record_max_bytes: int = key(
        types.SIZE,
        "The longest record, at most 512 MiB; a longer one is a bad record.",
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
        types.BUCKET,
        "The bucket; each needs a connector.",
        name="aws.s3.bucket.name",
        shown="required",
        aliases=(Alias("s3.bucket.name"),),
    )
    prefix: str = _s3(
        types.EXACT,
        "Keys that begin with this exact text belong to the connector. Names below it that begin"
        " with `_` or `.` are left out (`_SUCCESS`).",
        default="",
        shown=None,
    )
    directory: str | None = key(
        types.DIRECTORY,
        "The absolute path in place of a bucket, with all nested directories. With S3 services it"
        " is NetApp's name for `aws.s3.prefix`.",
        shown="required",
        only=(_LOCAL,),
    )
    object_key: str | None = key(
        types.EXACT,
        "Only the object or file with exactly this key, else all below it as a folder. Begins"
        " with `aws.s3.prefix`.",
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
        "Whether the bucket stands in the path, not in the host name.",
        name="aws.s3.path.style.access.enabled",
        shown="true with an endpoint",
    )
    ca_bundle: str | None = _s3(
        types.TEXT, "A PEM file on every worker: the authorities to trust for the endpoint."
    )
    access_key_id: str | None = _aws(
        types.REFERABLE, "The access key's id, or a reference.", aliases=(Alias("access.key.id"),)
    )
    secret_access_key: str | None = _aws(
        types.SECRET, "The secret, as a reference only.", aliases=(Alias("access.key"),)
    )
    role_arn: str | None = _sts(types.REFERABLE, "A role to assume with these credentials.")
    role_external_id: str | None = _sts(
        types.REFERABLE, "The external id that the role asks for.", only=(_S3, _ROLE)
    )
    value_converter: str | None = key(
        CONVERTER,
        "`string`, `bytes`, `base64` (the bytes that text states), `json`, `avro`, `json-schema`,"
        " `protobuf`, Connect's class names for them, or a plug-in's.",
        shown="by format",
        section="Records",
    )
    message_key: MessageKey = key(
        MESSAGE_KEY,
        "`none`, `object` (the object's key), `column:name[,name]`, `path:$.a.b`: column `a.b`,"
        " else member `b` of `a`. `template:${key}-{id}`: columns, and `${bucket}`, `${key}`,"
        " `${version}`, `${etag}`, `${size}`, `${uri}`. A null of the only column, or in a"
        " template, is a null key. A JSON line without the member is a bad record.",
        default=MessageKey(),
        shown="none",
    )
    key_converter: str | None = key(
        CONVERTER,
        "Of the object's key: string. Of one column: string (default), bytes, base64, json, avro,"
        " json-schema, protobuf. Of several, as members of one object: json, avro, json-schema,"
        " protobuf. Needs `message.key` or ValueToKey.",
        shown="by message.key",
    )
    headers: tuple[Header, ...] = key(
        HEADERS,
        "Headers of every record: `name=source,name=source`. Sources: `column:NAME`, `text:...`,"
        " and of the object `bucket`, `key`, `version`, `etag`, `size`, `uri`, `extent`,"
        " `location`, `last_modified`, `content_type`, `metadata:NAME`, `tag:NAME`. A null column"
        " gives no header.",
        default=(),
        shown="none",
    )
    message_headers: str | None = key(
        COLUMN,
        "`column:NAME`: more headers, from one column, before those of `headers`. The column"
        " holds a map, a struct, text, or a list of structs of key and value"
        " ([backups.md](backups.md)).",
        shown="none",
    )
    header_converter: str | None = key(
        types.choice(OF_MEMBERS, _HEADER_CLASSES),
        "How columns become values of headers: `string`, `bytes` or `base64`, or Connect's class"
        " names for the first two. By default binary columns stay as they are, others become text.",
        shown="by type",
    )
    message_timestamp: str | None = key(
        TIMESTAMP,
        "`none`: when the record is sent. `last_modified`: the object's. `column:NAME`: a"
        " timestamp, a date, or milliseconds since 1970. A null is `none`; an instant not after"
        " the beginning of 1970 is a bad record.",
        shown="none",
    )
    message_partition: str | None = key(
        PARTITION,
        "`none`: by the key, or any. `name`: that of `file.name.template`. `column:NAME`: a whole"
        " number. A null is `none`; a partition that the topic lacks makes a bad record.",
        shown="none",
    )
    select: tuple[str, ...] = key(
        NAMES,
        'The columns of the value, in this order: `id,"a, b"`. Others are decoded for'
        " `message.key` only, where the format allows. Of JSON documents: one member, whose text"
        " or JSON is the value.",
        default=(),
        shown="all",
    )
    columnar_encoding: str = key(
        types.choice(ENCODINGS),
        "`none`: a value per row. `parquet`, `arrow` (IPC stream): a value holds many rows as"
        " columns ([columnar.md](columnar.md)), in place of `value.converter`.",
        default=ROWS,
        section="Columnar values",
    )
    columnar_compression: str | None = _columnar(
        types.choice(COMPRESSIONS),
        "How columns are compressed; `gzip` and `snappy` only with `parquet`. Kafka's own"
        " compression is then `none`, unless this is `none` or `producer.compression.type` is set.",
        shown="zstd; where row groups are passed through, theirs",
        name="columnar.encoding.compression",
    )
    columnar_batch_bytes: int = _columnar(
        types.SIZE,
        "The size to aim at for a value, within what its topic takes. A batch holds rows of one"
        " extent only.",
        default=1 << 20,
    )
    columnar_groups: tuple[ColumnGroup, ...] = _columnar(
        GROUPS,
        "`group: column, column; group: *`: each group of columns goes to its own topic"
        " `TOPIC.group`, batch for batch, in the same transaction. `*` holds all other columns;"
        " without it every column needs a group.",
        default=(),
        shown="none: all columns go to the topic",
    )
    columnar_passthrough: bool = _columnar(
        types.BOOLEAN,
        "Send row groups of Parquet objects without decoding where they fit into a value and"
        " nothing changes them.",
        default=True,
        only=(_AS_PARQUET,),
    )
    columnar_encryption_columns: tuple[str, ...] = key(
        NAMES,
        "Columns to encrypt, with all members ([columnar.md](columnar.md#encrypted-columns))."
        " Nothing is then passed through.",
        default=(),
        shown="none",
        only=(_AS_PARQUET,),
    )
    columnar_encryption_key: str | None = key(
        types.matching("[A-Za-z0-9._/:+=@-]{1,2048}", "write letters, digits and . _ / : + = @ -"),
        "The id of the master key that wraps the keys of these columns: one of"
        " `columnar.encryption.key.list`, or for AWS KMS an ARN, an id or `alias/NAME`.",
        only=(_AS_PARQUET,),
    )
    columnar_encryption_key_list: str | None = key(
        types.SECRET,
        "Master keys `id:base64, id:base64` of 16, 24 or 32 bytes, as a reference only.",
        shown="none: AWS KMS wraps",
        only=(_AS_PARQUET,),
    )
    transforms: tuple[str, ...] = key(
        ALIASES,
        "Names of transforms, in the order in which they are applied between decode and convert.",
        default=(),
        shown="none",
        section="Transforms",
    )
    predicates: tuple[str, ...] = key(
        ALIASES,
        "Names of the predicates of transforms.",
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
        "`partitioned`: file order within an extent, extents in parallel. `object`: all records"
        " of an object in file order.",
        default="partitioned",
    )
    errors_tolerance: str = key(
        types.choice({"none", "all"}),
        "`none`: a bad record fails its extent. `all`: it goes to the dead letter queue.",
        default="none",
    )
    dead_letter_topic: str | None = key(
        types.TOPIC,
        "The dead letter queue; another topic than `topic`.",
        name="errors.deadletterqueue.topic.name",
        shown="required with `all`",
        only=(_TOLERANT,),
    )
    dead_letter_headers: bool = key(
        types.BOOLEAN,
        "Whether dead letters have object, version, extent, place and reason as headers.",
        default=True,
        name="errors.deadletterqueue.context.headers.enable",
        only=(_TOLERANT,),
    )
    errors_max_records: int | None = key(
        types.whole(0),
        "A job with more bad records is FAILED ([formats.md](formats.md#bad-records)).",
        shown="any number",
        only=(_TOLERANT,),
    )
    errors_log: bool = key(
        types.BOOLEAN,
        "Log each bad record as JSON: object, version, extent, place, reason. At most 100 lines a"
        " minute and process.",
        default=False,
        name="errors.log.enable",
    )
    errors_log_messages: bool = key(
        types.BOOLEAN,
        "Add the first 1,024 bytes of the record to these lines.",
        default=False,
        name="errors.log.include.messages",
        only=(_LOGGED,),
    )
    after_completion: str = key(
        types.choice(COMPLETIONS),
        "What happens to the delivered version of an object after its job is DONE: `none`, `tag`,"
        " `move` or `delete` ([operations.md](operations.md#objects-after-delivery)).",
        default=NONE,
        only=(_S3,),
    )
    completion_tag: str | None = key(
        types.TAG,
        "The tag, `name=value`, beside the object's other tags. The bucket needs versions.",
        name="after.completion.tag",
        shown="required with `tag`",
        only=(_TAGS,),
    )
    completion_prefix: str | None = key(
        types.EXACT,
        "Replaces `aws.s3.prefix` in the keys of moved objects, and lies outside of that prefix.",
        name="after.completion.move.prefix",
        shown="required with `move`",
        only=(_MOVES,),
    )
    completion_bucket: str | None = key(
        types.BUCKET,
        "The bucket of moved objects, in the same store.",
        name="after.completion.move.bucket",
        shown="the same",
        only=(_MOVES,),
    )
    engine: str = key(
        types.choice(ENGINES),
        "What delivers objects of notifications and listings. `lambda`: functions. `spark`: a run"
        " of Spark for each. `auto`: Spark above `spark.threshold.bytes`. Functions deliver where"
        " no run can be started.",
        default=AUTO,
    )
    max_tasks: int | None = key(
        types.whole(1), "The most extents at once in one run.", name="tasks.max", shown="engine's"
    )
    extent_bytes: int | None = key(
        types.or_word("auto", types.SIZE),
        "The size to aim at for an extent. `auto`: max(64 MiB, size / 10,000) for line formats,"
        " row groups up to 32 MiB for Parquet, at least one extent per core if possible. Line"
        " formats: at most 1,000,000 extents.",
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
            "`transforms.NAME.type` is the transform of that name. `transforms.NAME.predicate`"
            " and `.negate` say to which records it applies. [transforms.md](transforms.md) lists"
            " its other keys.",
            None,
        )
    )
    predicate_settings: Mapping[str, str] = family(
        Family("predicates.", "`predicates.NAME.type`, and the keys of that predicate.", None)
    )
    format_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    converter_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    steps: tuple[Step, ...] = field(default=(), hash=False)
