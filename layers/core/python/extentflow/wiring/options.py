"""Translates a connector's settings to the options of formats, converters, stores and the sink."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.aws.kms import AwsKms
from extentflow.aws.secrets_manager import SecretsManager
from extentflow.columnar.encryption import ColumnEncryption
from extentflow.config.column_lists import LAST_MODIFIED, MessageKey
from extentflow.config.columnar import DEFAULT_COMPRESSION, PARQUET
from extentflow.config.connector import NOTHING_FOUND, ConnectorConfig
from extentflow.config.connector_keys import CONVERTER_PARTS, TAG
from extentflow.config.ledgers import DYNAMODB, LedgerAddress
from extentflow.config.registry import RegistryOptions, registries
from extentflow.config.secrets import absent_variables, environments, resolve
from extentflow.config.store_access import StoreAccess
from extentflow.config.table import Key, declared
from extentflow.config.trust import Trust
from extentflow.config.types import SECRET
from extentflow.config.worker import WorkerSettings
from extentflow.converters import CONVERTERS, Converter, Destination, open_converter
from extentflow.converters.confluent_registry import ConfluentRegistry, open_confluent
from extentflow.converters.schema_registry import AVRO
from extentflow.converters.subjects import open_registry
from extentflow.delivery.attributes import Attributes
from extentflow.delivery.columnvalues import ColumnValues
from extentflow.errors import AccessDenied, Misconfigured, UnsupportedFormat, reason
from extentflow.formats import BATCH_BYTES, FormatOptions
from extentflow.formats.parquet.column_keys import KeyService, MasterKeys
from extentflow.jobs.planner import UNKNOWN_FORMAT, JobRequest
from extentflow.kafka.settings import Timeouts
from extentflow.ledger import LedgerOptions
from extentflow.model import Content, ObjectVersion
from extentflow.storage import StoreOptions, described, untaggable
from extentflow.transforms import Chain, RangeExclusion, open_chain

RAW_COLUMN = "value"
# What usually compresses to somewhat less than the 1 MiB of a value; more rows in one cost less.
COLUMN_BATCH_BYTES = 6 << 20
MASTER_KEYS = "columnar.encryption.key.list"
# Stands for a reference where readers name their keys.
AWS_KMS = "aws-kms"
LEDGER_PASSWORD = "ledger.password"  # noqa: S105 - the key's name
CREDENTIALS = {
    "access_key_id": "aws.access.key.id",
    "secret_access_key": "aws.secret.access.key",
    "role_arn": "aws.sts.role.arn",
    "role_external_id": "aws.sts.role.external.id",
}
# What calls of a healthy broker may take, whatever time is allowed for retries.
LEAST_SINK_SECONDS = 10.0
LEAST_REQUEST_SECONDS = 4.0
BRIEF_SECONDS = 1.5
# For calls that hold up the end of a command: it ends within the 5 s that a stop may take.
BRIEF_TIMEOUTS = Timeouts(
    request_seconds=BRIEF_SECONDS,
    fence_seconds=BRIEF_SECONDS,
    read_seconds=BRIEF_SECONDS,
    commit_seconds=BRIEF_SECONDS,
    abort_seconds=BRIEF_SECONDS,
)
# Short, because a sweep publishes later what is not published in time.
JOB_EVENT_TIMEOUTS = Timeouts(request_seconds=4.0, commit_seconds=8.0)


@dataclass(frozen=True, slots=True)
class SecretResolver:
    """Resolves references to secrets in this process; a `sink.broker.SecretLookup`.

    `trust` says which files the settings of connectors may refer to; None: they are the owner's.
    """

    secrets: SecretsManager
    trust: Trust | None = None

    def __call__(self, written: Mapping[str, str], *, refresh: bool = False) -> dict[str, str]:
        """Return settings with what they refer to, as `resolve`; `refresh` bypasses the cache."""
        return resolve(
            written,
            environ=os.environ,
            read_text=self.trust.read_text if self.trust else _read_text,
            read_secret=partial(self.secrets.read, refresh=refresh),
        )


def _read_text(path: str) -> str:
    return Path(path).read_text("utf-8")


def absent_here(settings: Mapping[str, str]) -> list[str]:
    """Return which settings refer to variables that this process lacks."""
    return absent_variables(settings, os.environ)


def absent_elsewhere(config: ConnectorConfig) -> str | None:
    """Return which variables a remote run lacks, with the remedy; None: it has all."""
    producer = {f"producer.{name}": text for name, text in config.producer.items()}
    formats: dict[str, str] = {}
    for name, own in config.format_options.items():
        formats |= {key: text for key, (_, text) in _secrets(f"{name}.", own).items()}
    others = {**producer, **formats, **converter_secrets(config), **_master_keys(config)}
    if not (found := environments({**_credentials(config), **others})):
        return None
    return (
        f"connector {config.name}: {', '.join(found)}: a run of Spark elsewhere has none of these "
        "variables; refer to a secret by ${secretsmanager:name:key}"
    )


def _credentials(config: ConnectorConfig | StoreAccess) -> dict[str, str]:
    written = {name: getattr(config, field) for field, name in CREDENTIALS.items()}
    return {name: text for name, text in written.items() if text}


def store_options(
    config: ConnectorConfig | StoreAccess,
    look_up: SecretResolver,
    *,
    retry_seconds: float | None,
    refresh: bool = False,
) -> StoreOptions:
    """Return the options of a store, with its current secrets; `refresh` bypasses their cache."""
    found = look_up(_credentials(config), refresh=refresh)
    return StoreOptions(
        endpoint=config.endpoint,
        region=config.region,
        path_style=config.path_style,
        verify=config.ca_bundle,
        retry_seconds=retry_seconds,
        trust=look_up.trust,
        **{field: found.get(name) for field, name in CREDENTIALS.items()},
    )


def ledger_address(settings: WorkerSettings) -> LedgerAddress:
    """Return where the ledger is: what the settings say, else the user's own."""
    return settings.ledger or LedgerAddress.in_state_folder(os.environ)


def require_shared_ledger(settings: WorkerSettings, who: str, instead: str = "") -> None:
    """Raise Misconfigured where `who`, on several machines, cannot use the ledger."""
    where = ledger_address(settings)
    if where.of_one_machine:
        raise Misconfigured(
            f"{who} may run on other machines than this one, whose file {where.path} is the ledger;"
            f" set ledger.url=postgresql://user@host/database or dynamodb://TABLE{instead}"
        )


def require_password_elsewhere(settings: WorkerSettings, who: str) -> None:
    """Raise Misconfigured where `who` has not the variable that the ledger's password is in."""
    written = {LEDGER_PASSWORD: settings.ledger_password or ""}
    if found := environments(written):
        raise Misconfigured(
            f"{', '.join(found)}: {who} has no such variable; refer to a secret by"
            " ${secretsmanager:name:key}"
        )


def ledger_options(
    settings: WorkerSettings, look_up: SecretResolver, *, brief: bool = False
) -> LedgerOptions:
    """Return how the ledger is reached; `brief` for calls that hold up the end of a command."""
    where, secret = ledger_address(settings), settings.ledger_password

    def password(*, refresh: bool = False) -> str:
        return look_up({LEDGER_PASSWORD: secret or ""}, refresh=refresh)[LEDGER_PASSWORD]

    usual = LedgerOptions(
        where.table,
        where.endpoint,
        where.region,
        url="" if where.scheme == DYNAMODB else where.url,
        password=password if secret else None,
    )
    if brief:
        usual = replace(usual, connect_seconds=1.0, read_seconds=BRIEF_SECONDS)
    most = BRIEF_SECONDS if brief else settings.retry_timeout_seconds
    return replace(usual, retry_seconds=min(usual.retry_seconds, most))


def sink_timeouts(retry_seconds: float) -> Timeouts:
    """Return the timeouts of broker calls, never below what a healthy broker needs."""
    usual, most = Timeouts(), max(retry_seconds, LEAST_SINK_SECONDS)
    request_seconds = min(usual.request_seconds, max(retry_seconds, LEAST_REQUEST_SECONDS))
    names = ("fence_seconds", "read_seconds", "commit_seconds")
    bounded = {name: min(getattr(usual, name), most) for name in names}
    return replace(usual, request_seconds=request_seconds, **bounded)


def format_options(
    config: ConnectorConfig, name: str, compression: str, facts: str = ""
) -> FormatOptions:
    """Return how objects of that format and compression, with these facts, are decoded."""
    return FormatOptions(
        compression=compression,
        facts=facts,
        batch_bytes=COLUMN_BATCH_BYTES if config.columnar else BATCH_BYTES,
        validate_text=config.value_converter_for(name) != "bytes",
        columns=config.extracted_columns,
        select=(*config.select, *config.extracted_columns) if config.select else (),
        charset=config.charset,
        max_record_bytes=config.record_max_bytes,
        excludes=RangeExclusion.of(config.steps),
    )


def own_options(config: ConnectorConfig, name: str, look_up: SecretResolver) -> Any:  # noqa: ANN401 - each format has a type of its own
    """Return the options of a format, with the secrets that they refer to."""
    return _resolved(f"{name}.", config.options_of(name), look_up)


def format_checks(
    config: ConnectorConfig, look_up: SecretResolver
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the formats whose options refer to secrets, and how these are read."""
    for name, own in config.format_options.items():
        written = {key: text for key, (_, text) in _secrets(f"{name}.", own).items()}
        if written:
            yield name, partial(_check_secrets, written, look_up)


def _check_secrets(written: Mapping[str, str], look_up: SecretResolver) -> str:
    look_up(written)
    return f"this machine can read what {', '.join(written)} refers to"


def _resolved(part: str, own: Any, look_up: SecretResolver, *, refresh: bool = False) -> Any:  # noqa: ANN401 - as `own_options`
    if isinstance(own, RegistryOptions) and look_up.trust is not None:
        own = replace(own, hosts=look_up.trust.host_rule)
    secrets = _secrets(part, own)
    if not secrets:
        return own
    found = look_up({key: text for key, (_, text) in secrets.items()}, refresh=refresh)
    return replace(own, **{field: found[key] for key, (field, _) in secrets.items()})


def _secrets(part: str, own: object) -> dict[str, tuple[str, str]]:
    """Return the field and the reference of each secret among options, by its key."""
    keys = (each for each in declared(type(own), part=part) if isinstance(each, Key))
    secret = (each for each in keys if each.kind is SECRET)
    written = ((each.name, each.field, getattr(own, each.field)) for each in secret)
    return {name: (field, text) for name, field, text in written if text}


def _master_keys(config: ConnectorConfig) -> dict[str, str]:
    written = config.columnar_encryption_key_list
    return {} if written is None else {MASTER_KEYS: written}


def encryption(config: ConnectorConfig, look_up: SecretResolver) -> ColumnEncryption | None:
    """Return how columns of columnar values are encrypted; None: they are not.

    Raises Misconfigured without the master key in the list, and as `look_up`. AWS KMS is not asked.
    """
    columns, key = config.columnar_encryption_columns, config.columnar_encryption_key
    if not columns or key is None:
        return None
    if not (written := _master_keys(config)):
        return ColumnEncryption(columns, key, aws_kms())
    keys = MasterKeys.of(look_up(written)[MASTER_KEYS], MASTER_KEYS)
    if key not in keys.ids:
        raise Misconfigured(
            f"columnar.encryption.key={key}: {MASTER_KEYS} has no key of that id; add it to the"
            " secret, or correct the id"
        )
    return ColumnEncryption(columns, key, keys)


@lru_cache(maxsize=1)
def aws_kms() -> KeyService:
    """Return this process's client of AWS KMS: Arrow has one factory of keys for each."""
    return AwsKms()


def reading_keys(written: str, look_up: SecretResolver) -> KeyService:
    """Return what decrypts columns: `aws-kms`, or a reference to `id:base64, id:base64`.

    Raises Misconfigured, without the text: it may be the secret itself.
    """
    if written == AWS_KMS:
        return aws_kms()
    try:
        SECRET.read(written)
    except ValueError as exc:
        raise Misconfigured(f"--keys: {exc}; or {AWS_KMS}") from exc
    return MasterKeys.of(look_up({"--keys": written})["--keys"], "--keys")


def reading_registry(
    options: RegistryOptions, look_up: SecretResolver, *, refresh: bool = False
) -> ConfluentRegistry:
    """Return a client that finds schemas by their ids; `refresh` bypasses the cache of secrets."""
    return open_confluent(_resolved("", options, look_up, refresh=refresh), AVRO)


def encryption_checks(
    config: ConnectorConfig, look_up: SecretResolver
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the key that names a master key, and how this is checked: it wraps a key."""
    if config.columnar_encryption_columns:
        yield "columnar.encryption.key", partial(_check_encryption, config, look_up)


def _check_encryption(config: ConnectorConfig, look_up: SecretResolver) -> str:
    found = encryption(config, look_up)
    if found is None:
        return "no column is encrypted"
    found.service.wrap(bytes(16), found.key)
    return f"this machine encrypts with {found.key}"


def converter_secrets(config: ConnectorConfig) -> dict[str, str]:
    """Return the references to secrets of a connector's converters, by key."""
    found: dict[str, str] = {}
    for name, own in config.converter_options.items():
        secrets = _secrets(CONVERTER_PARTS[name], own)
        found |= {key: text for key, (_, text) in secrets.items()}
    return found


class OpenConverter(Protocol):
    """Opens a converter by its name, as `open_converter`."""

    def __call__(
        self, name: str, schema: pa.Schema, columns: Sequence[str] | None = None
    ) -> Converter:
        """Return the converter of `columns` (None: all)."""


def converter_opener(
    config: ConnectorConfig, key: str, topic: str, look_up: SecretResolver, *, preview: bool = False
) -> OpenConverter:
    """Return how the converter that `key` names is opened for records of `topic`.

    `preview`: see `Destination`.
    """
    own = config.converter_options.get(key)
    if own is None:
        return open_converter
    destination = Destination(topic, is_key=key == "key.converter", preview=preview)
    part = CONVERTER_PARTS[key]

    def opened(name: str, schema: pa.Schema, columns: Sequence[str] | None = None) -> Converter:
        current = _resolved(part, own, look_up)
        open_with = partial(open_converter, name, schema, columns, destination=destination)
        try:
            return open_with(options=current)
        except AccessDenied:
            # The secret may have been rotated since it was cached.
            again = _resolved(part, own, look_up, refresh=True)
            if again == current:
                raise
            return open_with(options=again)

    return opened


def registry_checks(
    config: ConnectorConfig, look_up: SecretResolver
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the keys that name converters with a registry, and how the registry is checked."""
    for key, own in registries(config.converter_options):
        yield key, partial(_check_registry, CONVERTER_PARTS[key], own, look_up)


def _check_registry(part: str, own: RegistryOptions, look_up: SecretResolver) -> str:
    return open_registry(_resolved(part, own, look_up)).registry.describe()


def value(
    config: ConnectorConfig, name: str, opener: OpenConverter = open_converter
) -> Callable[[pa.Schema], Converter]:
    """Return how values are made; lines pass through unless something changes them."""
    converter = config.value_converter_for(name)
    if not config.spec_of(name).raw or not CONVERTERS.is_built_in(converter):
        return partial(opener, converter)
    if config.select:
        return partial(_member_converter, config.value_converter, config.select[0], opener)
    if not config.steps:
        return lambda schema: opener(_of_line(config), schema, [RAW_COLUMN])
    return partial(_line_converter, config, opener)


def _of_line(config: ConnectorConfig) -> str:
    return "base64" if config.value_converter == "base64" else "bytes"


def _line_converter(config: ConnectorConfig, opener: OpenConverter, schema: pa.Schema) -> Converter:
    """Return the converter of lines that transforms may have changed."""
    kept = [name for name in schema.names if name not in config.extracted_columns]
    line = kept == [RAW_COLUMN] and schema.field(RAW_COLUMN).type in (pa.string(), pa.binary())
    # A line is text or JSON already, and never what a converter with a schema makes.
    if line and config.passes_lines:
        return opener(_of_line(config), schema, [RAW_COLUMN])
    return opener(config.value_converter or "json", schema)


def _member_converter(
    chosen: str | None, member: str, opener: OpenConverter, schema: pa.Schema
) -> Converter:
    """Return the converter of one member of documents, or of what transforms made of it."""
    kept = schema.names == [member]
    return opener(chosen or ("bytes" if kept else "json"), schema)


def chain(config: ConnectorConfig) -> Callable[[], Chain] | None:
    """Return how the transforms of one extent are opened; None where there are none."""
    if not config.steps and not config.select:
        return None
    return partial(open_chain, config.steps)


def attributes(
    config: ConnectorConfig, partitions: Callable[[], int], store: object, version: ObjectVersion
) -> Attributes | None:
    """Return what records have beside key and value; None: nothing."""
    by_object = config.message_timestamp == LAST_MODIFIED
    in_chain = config.headers_by_transform
    if not (config.headers or config.attribute_columns or by_object or in_chain):
        return None
    what = f"{version.uri}: headers and message.timestamp of connector {config.name}"
    return Attributes(
        properties=lambda: described(store, what).properties(version),
        tags=lambda: described(store, what).tags(version),
        headers=config.headers,
        header_lists=config.message_headers,
        header_converter=config.header_converter,
        as_lists=in_chain,
        timestamp=config.message_timestamp,
        partition=config.message_partition or None,
        partitions=partitions,
    )


def producer(config: ConnectorConfig) -> Mapping[str, str]:
    """Return the settings of a connector's producers; columnar values are compressed already."""
    if config.columnar and config.columnar_compression != "none":
        return {"compression.type": "none", **config.producer}
    return config.producer


def columns(
    config: ConnectorConfig,
    limit_bytes: int,
    partitions: Callable[[str], int],
    settle: Callable[[str, pa.Schema], None],
    look_up: SecretResolver,
) -> ColumnValues | None:
    """Return how columnar values are made; None where a value is a row. Raises as `encryption`."""
    if not config.columnar:
        return None
    return ColumnValues(
        encoding=config.columnar_encoding,
        compression=config.columnar_compression or DEFAULT_COMPRESSION,
        batch_bytes=config.columnar_batch_bytes,
        groups=config.columnar_groups,
        limit_bytes=limit_bytes,
        partitions=partitions,
        passes=config.columnar_encoding == PARQUET and config.columnar_passthrough,
        codec=config.columnar_compression,
        encryption=encryption(config, look_up),
        settle=settle,
    )


def key(
    config: ConnectorConfig, version: ObjectVersion, opener: OpenConverter = open_converter
) -> Callable[[pa.Schema], Converter]:
    """Return how keys are made: from columns, or the object's key for every record.

    With a chain, the schema is that of the key's columns, which the chain chose.
    """
    if config.message_key.source == "template":
        return partial(_template_converter, config.message_key, version)
    if chain(config) is not None:
        return partial(_key_converter, config.key_converter, opener)
    if config.message_key.source == "object":
        return _object_key(version)
    name = config.key_converter_for_records() or "string"
    columns = list(config.message_key.columns)
    return lambda schema: opener(name, schema, columns)


def _key_converter(chosen: str | None, opener: OpenConverter, schema: pa.Schema) -> Converter:
    return opener(chosen or ("string" if len(schema) == 1 else "json"), schema)


def fixed_key(
    config: ConnectorConfig, version: ObjectVersion
) -> Callable[[pa.Schema], Converter] | None:
    """Return how keys are made that need no column; None where they need one."""
    if config.message_key.source == "object":
        return _object_key(version)
    return None if config.message_key.columns or not config.keyed else key(config, version)


def _object_key(version: ObjectVersion) -> Callable[[pa.Schema], Converter]:
    return lambda _schema: _objectkey(version.key.encode())


def _template_converter(
    message_key: MessageKey, version: ObjectVersion, schema: pa.Schema
) -> Converter:
    """Return the converter of a template: texts as `string` writes them, null if one is null."""
    facts = asdict(version) | {
        "version": version.version_id or version.etag,
        "uri": version.uri,
    }
    parts: list[str | Converter] = []
    for kind, text in message_key.parts():
        if kind == "column":
            parts.append(open_converter("string", schema, [text]))
        else:
            parts.append(text if kind == "text" else str(facts[text]))

    def convert(batch: pa.RecordBatch) -> pa.LargeBinaryArray:
        texts = [
            pa.repeat(pa.scalar(part.encode(), pa.large_binary()), batch.num_rows)
            if isinstance(part, str)
            else part(batch).cast(pa.large_binary())
            for part in parts
        ]
        nothing = pa.scalar(b"", pa.large_binary())
        return pc.binary_join_element_wise(*texts, nothing)

    return convert


@lru_cache(maxsize=16)
def _objectkey(key: bytes) -> Converter:
    return lambda batch: pa.repeat(pa.scalar(key, pa.binary()), batch.num_rows)


def job_request(
    config: ConnectorConfig,
    revision: int,
    version: ObjectVersion,
    cluster: str,
    cores: int,
    *,
    content: Content = NOTHING_FOUND,
) -> JobRequest:
    """Return the request for a job that delivers an object version to a Kafka cluster."""
    fmt, unfit = UNKNOWN_FORMAT, ""
    try:
        fmt = config.format_for(version.key, content.format)
        config.route(version, content)
    except (UnsupportedFormat, Misconfigured) as exc:
        unfit = reason(exc)
    if config.after_completion == TAG and version.version_id is None:
        unfit = unfit or untaggable(version)
    return JobRequest(
        connector=config.name,
        revision=revision,
        version=version,
        format=fmt,
        cluster=cluster,
        ordered=config.ordered,
        extent_bytes=config.extent_bytes,
        cores=cores,
        unfit=unfit,
        compression=content.compression,
        removed=config.removes_objects,
        most_bad=-1 if config.errors_max_records is None else config.errors_max_records,
    )
