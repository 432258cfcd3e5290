"""The connector keys for identity, format, object store and credentials."""

from collections.abc import Collection

from extentflow.config import Alias, Group, Key, Only
from extentflow.config.types import (
    BOOLEAN,
    EXACT,
    REFERABLE,
    SECRET,
    TEXT,
    URL,
    Kind,
    choice,
    matching,
)
from extentflow.connectors import topics

LOCAL_FILE = "localfile"

_COMPRESSIONS = frozenset({"none", "gzip", "zstd"})
_S3 = Only("endpoint.type", lambda value: value != LOCAL_FILE, "endpoint.type is an S3 service")
_LOCAL = Only("endpoint.type", lambda value: value == LOCAL_FILE, "endpoint.type is localfile")
_LINES = Only("input.format", lambda value: value != "parquet", "input.format is not parquet")
_ROLE = Only("aws.sts.role.arn", lambda value: value is not None, "aws.sts.role.arn is set")


def _directory(text: str) -> str:
    if not text.strip().startswith("/"):
        raise ValueError("write an absolute path; workers run in other directories")
    return text.strip().rstrip("/") or "/"


def _bucket(text: str) -> str:
    if "," in text:
        raise ValueError("one bucket per connector; make a connector for each of them")
    return _BUCKET_NAME.read(text)


_BUCKET_NAME = matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", "write the bare name, without s3://, slashes or spaces"
)
_NAME = matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "write letters, digits, . _ - (100 at most), a letter or digit first",
)


def identity(formats: Collection[str]) -> Group:
    """Return the keys of name, topic and format."""
    return Group(
        "From where to where",
        (
            Key(
                name="name",
                field="name",
                kind=_NAME,
                required=True,
                doc="the connector's unique name. Letters, digits, `.`, `_`, `-`.",
            ),
            Key(
                name="topic",
                field="topic",
                kind=Kind(topics.template),
                required=True,
                doc=(
                    "the topic to write to. May hold `{bucket}`, `{prefix}` (`aws.s3.prefix`),"
                    " `{key}` (the whole key) and `{extension}`; slashes become dots, any other"
                    " character that Kafka does not allow is an error for that object."
                ),
            ),
            Key(
                name="input.format",
                field="format",
                kind=choice(formats),
                shown="from the extension",
                aliases=(Alias("decoder.type", "NetApp"),),
                doc=(
                    "`text`, `csv`, `jsonl` or `parquet`. By extension: .txt .text .log, .csv,"
                    " .jsonl .ndjson, .parquet; before a compression's extension too (.csv.gz)."
                ),
            ),
            Key(
                name="file.compression.type",
                field="compression",
                kind=choice(_COMPRESSIONS),
                shown="from the extension",
                only=(_LINES,),
                doc=(
                    "`none`, `gzip` (.gz) or `zstd` (.zst), around the whole object. Such an object"
                    " is one extent. Parquet compresses inside and needs no key for it."
                ),
            ),
        ),
    )


def store(endpoint_types: Collection[str]) -> Group:
    """Return the keys of the object store."""
    return Group(
        "Object store",
        (
            Key(
                name="endpoint.type",
                field="endpoint_type",
                kind=choice(endpoint_types),
                default="awss3",
                doc="`awss3`, `ontaps3`, `storagegrids3` or `localfile`.",
            ),
            Key(
                name="aws.s3.bucket.name",
                field="s3_bucket",
                kind=Kind(_bucket),
                shown="required",
                only=(_S3,),
                aliases=(Alias("s3.bucket.name", "NetApp"),),
                doc="The bucket; several are several connectors.",
            ),
            Key(
                name="aws.s3.prefix",
                field="prefix",
                kind=EXACT,
                default="",
                only=(_S3,),
                doc=(
                    "Keys that begin with it belong to the connector, nested ones too. Exact text."
                    " Left out are names that begin with `_` or `.` below it (`_SUCCESS`)."
                ),
            ),
            Key(
                name="directory",
                field="directory",
                kind=Kind(_directory),
                shown="required",
                only=(_LOCAL,),
                doc=(
                    "The absolute path that takes the bucket's place, nested directories included."
                    " With S3 services it is NetApp's name for `aws.s3.prefix`."
                ),
            ),
            Key(
                name="aws.s3.region",
                field="region",
                kind=TEXT,
                shown="SDK's own",
                only=(_S3,),
                aliases=(Alias("s3.region", "NetApp"),),
                doc="The region that requests are signed for.",
            ),
            Key(
                name="aws.s3.endpoint",
                field="endpoint",
                kind=URL,
                shown="SDK's own",
                only=(_S3,),
                aliases=(Alias("s3.url", "NetApp"),),
                doc="http(s)://host:port. Required for `ontaps3` and `storagegrids3`.",
            ),
            Key(
                name="aws.s3.path.style.access.enabled",
                field="path_style",
                kind=BOOLEAN,
                shown="true with an endpoint",
                only=(_S3,),
                doc="Whether the bucket stands in the path rather than in the host name.",
            ),
            Key(
                name="aws.s3.ca.bundle",
                field="ca_bundle",
                kind=TEXT,
                shown="SDK's own",
                only=(_S3,),
                doc="A PEM file, on every worker, with the authorities to trust for the endpoint.",
            ),
            *_credentials(),
        ),
    )


def _credentials() -> tuple[Key, ...]:
    return (
        Key(
            name="aws.access.key.id",
            field="access_key_id",
            kind=REFERABLE,
            shown="SDK's chain",
            only=(_S3,),
            aliases=(Alias("access.key.id", "NetApp"),),
            doc="The access key's id, or a reference to it.",
        ),
        Key(
            name="aws.secret.access.key",
            field="secret_access_key",
            kind=SECRET,
            shown="SDK's chain",
            only=(_S3,),
            aliases=(Alias("access.key", "NetApp"),),
            doc="The secret, as a reference only.",
        ),
        Key(
            name="aws.sts.role.arn",
            field="role_arn",
            kind=REFERABLE,
            shown="none",
            only=(_S3,),
            doc="A role to assume with the credentials above.",
        ),
        Key(
            name="aws.sts.role.external.id",
            field="role_external_id",
            kind=REFERABLE,
            shown="none",
            only=(_S3, _ROLE),
            doc="The external id that the role asks for.",
        ),
    )
