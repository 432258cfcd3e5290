"""Keys of other connectors for S3 and files, and what they are here.

Sources: the public documentation of each product. Keys that have the same name and meaning here are
left out; `docs/migrate.md` is written from these tables.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from extentflow.config.connector_keys import CONVERTER_PARTS
from extentflow.config.worker import TABLE as SETTINGS
from extentflow.config.worker import variable

_ROLE = (
    "the role of the process is used: set the SDK's AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE"
)
_RETRIES = "requests are repeated for retry.timeout.seconds; remove the key"
_LISTING = "objects are found by address, notification or reconciler; remove the key"
_STATE = "the ledger records what was delivered; remove the key"
_BATCHES = "transactions follow time and bytes by themselves; remove the key"
_TASKS = "extents are shared by all workers; remove the key"
_SKIPPED = "counts the header, too: write csv.header.skip.lines, one less"
_FILTERS = "write transforms, and json.records.path for explode.array"
_CONNECT = "a setting of Kafka Connect's worker; remove the key"


@dataclass(frozen=True, slots=True)
class Product:
    """Another product: its name, and what each of its keys is here.

    `begins` says what all other keys that begin so are.
    """

    name: str
    keys: Mapping[str, str]
    begins: Mapping[str, str] = field(default_factory=dict)


PRODUCTS = (
    Product(
        "Kafka Connect",
        {
            "connector.class": (
                "names a class of Kafka Connect, which extentflow does not use; remove it"
            ),
            "topics": "a key of Connect's sinks; a connector writes to one topic: write topic",
            "topics.regex": "a key of Connect's sinks; write topic",
            "config.action.reload": _CONNECT,
            "topic.creation.groups": "connectors create no topics; `run --create-topic` does",
            "offsets.storage.topic": _STATE,
            "errors.deadletterqueue.topic.replication.factor": (
                "connectors create no topics; create the topic and remove the key"
            ),
            **{
                f"{part}{name}": why
                for part in CONVERTER_PARTS.values()
                for name, why in (
                    (
                        "replace.null.with.default",
                        "columns have no defaults, nulls stay; remove the key",
                    ),
                    ("schemas.cache.size", "a schema is written once per extent; remove the key"),
                )
            },
        },
        {"topic.creation.": "connectors create no topics; `run --create-topic` does"},
    ),
    Product(
        "Aiven S3 source",
        {
            "native.start.key": "write an address or aws.s3.prefix that begins there",
            "max.poll.records": _BATCHES,
            "distribution.type": _TASKS,
            "topic.partitions": "the topic's own partitions are used; remove the key",
            "transformer.max.buffer.size": "windows of a fixed size are read; remove the key",
            "expected.max.message.bytes": "the topic's max.message.bytes counts; remove the key",
            "ring.buffer.size": _STATE,
            "aws.s3.fetch.page.size": _LISTING,
            "aws.s3.fetch.buffer.size": "windows of a fixed size are read; remove the key",
            "aws.s3.backoff.delay.ms": _RETRIES,
            "aws.s3.backoff.max.delay.ms": _RETRIES,
            "aws.s3.backoff.max.retries": _RETRIES,
            "aws.credentials.provider": "write aws.access.key.id, or leave it to the SDK's chain",
            "aws.sts.config.endpoint": _ROLE,
            "schemas.enable": "write value.converter.schemas.enable",
            "value.subject.name.strategy": "write value.converter.value.subject.name.strategy",
            "errors.max.retries": _RETRIES,
        },
    ),
    Product(
        "Lenses Stream Reactor S3 source",
        {
            "connect.s3.kcql": (
                "holds topic, bucket, prefix and format: write topic, aws.s3.bucket.name,"
                " aws.s3.prefix and input.format; PARTITIONBY is key.converter and message.key"
            ),
            "connect.s3.aws.auth.mode": "write aws.access.key.id, or leave it to the SDK's chain",
            "connect.s3.aws.access.key": "write aws.access.key.id",
            "connect.s3.aws.secret.key": "write aws.secret.access.key, as a reference",
            "connect.s3.aws.region": "write aws.s3.region",
            "connect.s3.custom.endpoint": "write aws.s3.endpoint",
            "connect.s3.vhost.bucket": "endpoints are addressed by path; remove the key",
            "connect.s3.error.policy": "write errors.tolerance",
            "connect.s3.max.retries": _RETRIES,
            "connect.s3.retry.interval": _RETRIES,
            "connect.s3.http.max.retries": _RETRIES,
            "connect.s3.http.retry.interval": _RETRIES,
            "connect.s3.http.socket.timeout": _RETRIES,
            "connect.s3.http.connection.timeout": _RETRIES,
            "connect.s3.pool.max.connections": _TASKS,
            "connect.s3.source.extension.includes": "not available; use a prefix or an address",
            "connect.s3.source.extension.excludes": "not available; use a prefix or an address",
            "connect.s3.source.partition.extractor.type": "write file.name.template",
            "connect.s3.source.partition.extractor.regex": "write file.name.template",
            "connect.s3.ordering.type": "objects are delivered in any order; remove the key",
            "connect.s3.source.write.watermark.header": "write headers=NAME=location",
            "connect.progress.enabled": "`extentflow status` shows progress; remove the key",
        },
        {"connect.s3.": "a key of Lenses that is not needed here; remove it (docs/migrate.md)"},
    ),
    Product(
        "Confluent S3 source",
        {
            "store.url": "write aws.s3.endpoint",
            "topics.dir": "write aws.s3.prefix",
            "mode": "write topic and input.format; backups are read by file.name.template",
            "format.class": "write input.format",
            "topic.regex.list": "write one connector per topic, or topic with placeholders",
            "behavior.on.error": "write errors.tolerance",
            "s3.poll.interval.ms": _LISTING,
            "s3.credentials.provider.class": (
                "write aws.access.key.id, or leave it to the SDK's chain"
            ),
            "s3.part.retries": _RETRIES,
            "s3.retry.backoff.ms": _RETRIES,
            "s3.http.send.expect.continue": "not sent; remove the key",
            "s3.proxy.url": "set HTTPS_PROXY for the process, and remove the key",
            "record.batch.max.size": _BATCHES,
            "partitioner.class": "write file.name.template",
            "path.format": "write file.name.template",
            "partition.field.name": "write file.name.template",
            "filename.regex": "write file.name.template",
            "directory.delim": "keys are separated by slashes; remove the key",
            "file.delim": "write file.name.template",
            "folders": "write aws.s3.prefix",
            "parse.error.topic.prefix": "write errors.deadletterqueue.topic.name",
            "schema.cache.size": "a schema is written once per extent; remove the key",
        },
        {
            "confluent.topic.": "a licence of Confluent is not needed; remove the key",
            "confluent.license": "a licence of Confluent is not needed; remove the key",
        },
    ),
    Product(
        "FilePulse, SpoolDir",
        {
            "input.path": "write directory, with endpoint.type=localfile",
            "input.file.pattern": "not available; use a folder or an address",
            "finished.path": "write after.completion=move (stores of S3)",
            "error.path": "`extentflow dead-letters` shows bad records; remove the key",
            "cleanup.policy": "write after.completion (stores of S3)",
            "halt.on.error": "write errors.tolerance",
            "empty.poll.wait.ms": _LISTING,
            "file.buffer.size.bytes": "windows of a fixed size are read; remove the key",
            "schema.generation.enabled": "write csv.schema=infer",
            "csv.first.row.as.header": "write csv.header",
            "skip.headers": _SKIPPED,
            "csv.skip.lines": "write csv.header.skip.lines",
            "fs.listing.directory.path": "write directory, with endpoint.type=localfile",
            "filters": _FILTERS,
            "offset.attributes.string": _STATE,
            "file.filter.regex.pattern": "not available; use a prefix or an address",
        },
        {
            "fs.": f"a key of FilePulse: {_LISTING}",
            "tasks.file.status.": _STATE,
            "tasks.reader.": "write input.format",
            "filters.": _FILTERS,
        },
    ),
    Product(
        "other readers of CSV",
        {
            **dict.fromkeys(
                (
                    *("csv.skip.rows", "csv.skip.header.lines", "csv.header.lines"),
                    *("csv.header.line.count", "skip.header.line.count"),
                ),
                _SKIPPED,
            ),
            **dict.fromkeys(
                ("csv.comment", "csv.comment.char", "csv.comment.character"),
                "a key of other products; write csv.comment.prefix",
            ),
        },
    ),
)

_KEYS = {
    **{
        key.name: f"a setting of commands and workers: set {variable(key.name)}, and remove the key"
        for key in SETTINGS
    },
    **{key: says for product in PRODUCTS for key, says in product.keys.items()},
}
_BEGINS = {begin: says for product in PRODUCTS for begin, says in product.begins.items()}


NOTE = "<!-- Written by `make docs` from extentflow.config.foreign_keys. -->"
INTRODUCTION = """\
`extentflow connectors validate FILE` reads a connector of Kafka Connect, as JSON or properties. It
says what to do with every key that extentflow does not have. Keys of the same
name and meaning are left out: those of S3, converters, transforms, `errors.tolerance`,
`tasks.max` and others of [configuration.md](configuration.md).

There is no cluster: `extentflow run`, `stream` or functions deliver, and `status`, `replay` and
`pause` do what Connect's REST API does. The ledger does not know what other connectors delivered:
a first run delivers every object below the address.
"""


class ForeignKeys(Mapping[str, str]):
    """What a key of another product is here, by its name; a map to all that is known of them."""

    def __getitem__(self, name: str) -> str:
        """Return what to do with a key; KeyError where no product has it."""
        if name in _KEYS:
            return _KEYS[name]
        for begin, says in _BEGINS.items():
            if name.startswith(begin):
                return says
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)


def page() -> str:
    """Return docs/migrate.md."""
    lines = ["# Coming from another connector", "", NOTE, "", INTRODUCTION]
    for product in PRODUCTS:
        lines += [f"## {product.name}", "", "| key there | here |", "|---|---|"]
        alike: dict[str, list[str]] = {}
        for key, says in product.keys.items():
            alike.setdefault(says, []).append(f"`{key}`")
        for begin, says in product.begins.items():
            alike.setdefault(says, []).append(f"`{begin}*`")
        lines += [f"| {', '.join(keys)} | {says} |" for says, keys in alike.items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
