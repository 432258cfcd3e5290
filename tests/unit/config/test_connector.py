"""Connector configuration: what is accepted, what is refused and in which words, what follows."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden

from extentflow import plugins
from extentflow.config import specs
from extentflow.config.column_lists import MEMBER_PATH, MessageKey, arrow_type, written_type
from extentflow.config.connector import SPLIT_COMPRESSIONS, ConnectorConfig
from extentflow.config.envelope import JsonOptions
from extentflow.config.parsing import connector_table, parse, to_map
from extentflow.config.specs import FORMATS, FormatSpec
from extentflow.config.table import key
from extentflow.config.types import CHARACTER, DELIMITER, PREFIX, whole
from extentflow.errors import Misconfigured, UnsupportedFormat
from extentflow.formats.csv.csv_format import CsvOptions
from extentflow.model import Content, ObjectVersion
from extentflow.plugins import EntryPoint
from extentflow.wording import quoted

ORDERS = {"name": "orders", "topic": "orders", "aws.s3.bucket.name": "lake"}
LOCAL = {"name": "orders", "topic": "orders", "endpoint.type": "localfile", "directory": "/data"}
CONVERTERS = specs.CONVERTERS.names()
# What a converter needs beside its name.
REGISTRY = {"schema.registry.url": "http://registry:8081"}
JSON_LINES = {**ORDERS, "input.format": "jsonl"}
NEEDED = {"avro": REGISTRY, "json-schema": REGISTRY, "protobuf": REGISTRY}
TOLERANT = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "orders.dead"}

CHARACTERS = st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"])
COLUMN_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TOPICS = st.from_regex(r"[a-z][a-z0-9._-]{0,20}", fullmatch=True)
TYPES = st.sampled_from(
    ["string", "bool", "int64", "uint8", "float64", "date", "decimal(15,2)", "timestamp(us,UTC)"]
)


def connector(config: Mapping[str, str] | None = None, **changes: str) -> ConnectorConfig:
    """Parse ORDERS (or `config`) with changes; `__` in a name stands for a dot."""
    return parse({**(ORDERS if config is None else config), **dotted(changes)})


def with_needed(key: str, converter: str) -> dict[str, str]:
    """Name a converter, with the keys that it needs."""
    return {
        key: converter,
        **{f"{key}.{name}": text for name, text in NEEDED.get(converter, {}).items()},
    }


def problems(config: Mapping[str, str]) -> tuple[str, ...]:
    with pytest.raises(Misconfigured) as caught:
        parse(config)
    assert all("\n" not in problem for problem in caught.value.problems)
    return caught.value.problems


def dotted(changes: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in changes.items()}


def version(key: str) -> ObjectVersion:
    return ObjectVersion("lake", key, None, "etag", 1)


# -- reading ----------------------------------------


def test_three_keys_make_a_connector() -> None:
    config = parse(ORDERS)

    assert config == ConnectorConfig(name="orders", topic="orders", s3_bucket="lake")
    assert config.bucket == "lake"
    assert config.exactly_once
    assert not config.ordered


def test_every_key_reaches_its_field() -> None:
    config = connector(
        {
            "name": "orders",
            "topic": "orders-{extension}",
            "input.format": "csv",
            "file.compression.type": "gzip",
            "character.set": "UTF-16LE",
            "record.max.bytes": "1MiB",
            "endpoint.type": "storagegrids3",
            "aws.s3.bucket.name": "lake",
            "aws.s3.prefix": "in/",
            "aws.s3.region": "grid-1",
            "aws.s3.endpoint": "https://grid:10443",
            "aws.s3.path.style.access.enabled": "false",
            "aws.s3.ca.bundle": "/etc/grid.pem",
            "aws.access.key.id": "AKIA",
            "aws.secret.access.key": "${env:SECRET}",
            "aws.sts.role.arn": "arn:aws:iam::1:role/r",
            "aws.sts.role.external.id": "${file:/run/s3.properties:id}",
            "csv.separator.char": r"\t",
            "csv.quote.char": "'",
            "csv.escape.char": "\\",
            "csv.header": "false",
            "csv.null": r"\N",
            "csv.schema": 'id:int64, "a, b":string, price:decimal(15, 2)',
            "extent.bytes": "64MiB",
            "value.converter": "json",
            "message.key": "column:id",
            "key.converter": "bytes",
            "delivery.guarantee": "at_least_once",
            "ordering": "object",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "orders.dead",
            "errors.deadletterqueue.context.headers.enable": "false",
            "tasks.max": "3",
            "producer.linger.ms": "50",
            "producer.sasl.password": "${env:KAFKA}",
        }
    )

    assert config == ConnectorConfig(
        name="orders",
        topic="orders-{extension}",
        format="csv",
        compression="gzip",
        charset="utf-16-le",
        record_max_bytes=1 << 20,
        endpoint_type="storagegrids3",
        s3_bucket="lake",
        prefix="in/",
        region="grid-1",
        endpoint="https://grid:10443",
        path_style=False,
        ca_bundle="/etc/grid.pem",
        access_key_id="AKIA",
        secret_access_key="${env:SECRET}",
        role_arn="arn:aws:iam::1:role/r",
        role_external_id="${file:/run/s3.properties:id}",
        converter_options={"value.converter": JsonOptions()},
        format_options={
            "csv": CsvOptions(
                separator="\t",
                quote="'",
                escape="\\",
                header=False,
                null=r"\N",
                schema=(("id", "int64"), ("a, b", "string"), ("price", "decimal(15,2)")),
            )
        },
        extent_bytes=64 << 20,
        value_converter="json",
        message_key=MessageKey("column", ("id",)),
        key_converter="bytes",
        delivery_guarantee="at_least_once",
        ordering="object",
        errors_tolerance="all",
        dead_letter_topic="orders.dead",
        dead_letter_headers=False,
        max_tasks=3,
        producer={"linger.ms": "50", "sasl.password": "${env:KAFKA}"},
    )


def test_a_local_directory_takes_the_buckets_place() -> None:
    config = parse(LOCAL)

    assert config.bucket == "/data"
    assert config.prefix == ""


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("in/a.csv", True),
        ("in/a.csv/part-0", True),
        ("in/a.csv.bak", False),
        ("in/a", False),
        ("in/", False),
    ],
)
def test_a_single_object_is_all_that_its_connector_reads(key: str, *, ours: bool) -> None:
    config = parse({**ORDERS, "aws.s3.prefix": "in/", "object.key": "in/a.csv"})

    assert config.matches("lake", key) is ours
    assert config.listed_prefix == "in/a.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyOptions:
    width: int = key(whole(1), "Bytes per record.", default=5)


TOY = FormatSpec(open=NotImplemented, options=ToyOptions, extensions=("toy",), compressible=False)


def broken_plugin(monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    """Install a package, for this test, whose adapter `broken` cannot be imported."""
    entry = EntryPoint("broken", "no_such_module:MADE", "extentflow-broken 2.1")
    registry = {one.group: one for one in (FORMATS, specs.CONVERTERS, specs.STORES)}[group]
    monkeypatch.setitem(registry._declared, "broken", entry)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS._loaded, "toy", TOY)
    monkeypatch.setitem(specs.CONVERTERS._loaded, "morse", NotImplemented)
    monkeypatch.setitem(specs.STORES._loaded, "tape", NotImplemented)


@pytest.mark.usefixtures("plugin")
def test_plug_ins_may_bring_their_own_names() -> None:
    own = {**ORDERS, "input.format": "toy", "value.converter": "morse", "endpoint.type": "tape"}

    config = parse(own)

    assert (config.format, config.value_converter, config.endpoint_type) == ("toy", "morse", "tape")
    assert config.format_for("x") == "toy"
    assert config.value_converter_for("toy") == "morse"
    assert config.options_of("toy") == ToyOptions()


@pytest.mark.parametrize(
    ("key", "group", "noun"),
    [
        ("input.format", plugins.FORMATS, "format"),
        ("value.converter", plugins.CONVERTERS, "converter"),
        ("key.converter", plugins.CONVERTERS, "converter"),
        ("endpoint.type", plugins.STORES, "object store"),
    ],
)
def test_a_package_that_cannot_be_imported_is_a_problem_of_the_connector(
    key: str, group: str, noun: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    broken_plugin(monkeypatch, group)

    (problem,) = problems({**ORDERS, "message.key": "column:id", key: "broken"})

    golden(problem)
    assert noun in problem
    assert "extentflow-broken" in problem
    parse(ORDERS)  # connectors that do not use it


def test_a_package_that_cannot_be_imported_is_one_problem_among_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken_plugin(monkeypatch, plugins.CONVERTERS)
    keyed = {"message.key": "column:id", "key.converter": "broken"}

    found = problems({**ORDERS, **keyed, "value.converter": "broken", "tasks.max": "none"})

    assert len(found) == 2
    assert sum("extentflow-broken" in problem for problem in found) == 1


@pytest.mark.usefixtures("plugin")
def test_a_plug_ins_options_are_keys_like_any_other(golden: Golden) -> None:
    own = {**ORDERS, "input.format": "toy", "toy.width": "7"}

    config = parse(own)

    assert config.options_of("toy") == ToyOptions(width=7)
    assert to_map(config)["toy.width"] == "7"
    assert parse(to_map(config)) == config
    assert parse({**ORDERS, "toy.width": "7"}).format_for("in/a.toy") == "toy"
    golden(*problems({**own, "toy.width": "0", "toy.widht": "1"}))
    (elsewhere,) = problems({**own, "input.format": "csv"})
    golden(elsewhere)
    assert "toy.width" in elsewhere
    (packed,) = problems({**own, "file.compression.type": "gzip"})
    golden(packed)
    assert "file.compression.type" in packed


def test_a_connector_travels_between_processes() -> None:
    config = connector(producer__linger__ms="5", csv__schema="a:int64")

    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own bytes
    assert hash(config) == hash(connector(producer__linger__ms="5", csv__schema="a:int64"))


# -- all problems at once ----------------------------------------


def test_all_problems_are_reported_at_once() -> None:
    reference = (
        "a secret is not written down; name where it is kept: ${env:NAME}, ${file:/path:key} or"
        " ${secretsmanager:name:key}"
    )

    found = problems(
        {
            "name": "our orders",
            "topic": "orders/{kye}",
            "aws.s3.bucket.nam": "lake",
            "aws.s3.endpoint": "minio:9000",
            "aws.secret.access.key": "hunter2",
            "input.format": "paruqet",
            "csv.separator.char": ";;",
            "extent.bytes": "64M",
            "tasks.max": "0",
            "csv.header": "yes",
            "errors.deadletterqueue.topic.name": "dead",
            "producer.acks": "0",
            "producer.liner.ms": "5",
        }
    )

    assert found == (
        "name='our orders': write letters, digits, . _ - (100 at most), a letter or digit first",
        (
            "topic='orders/{kye}': no placeholder {kye}; did you mean key? there are {bucket},"
            " {prefix}, {key}, {extension}, {topic}"
        ),
        "aws.s3.bucket.nam: no such key; did you mean aws.s3.bucket.name?",
        "aws.s3.endpoint='minio:9000': write http://host:port or https://host:port",
        f"aws.secret.access.key=(not shown): {reference}",
        (
            "input.format='paruqet': write arrow, avro, bytes, csv, json, jsonl, orc, parquet or"
            " text, or install the package that declares it (entry-point group extentflow.formats)"
        ),
        (
            "csv.separator.char=';;': write auto or one ASCII character"
            r" (also \t, \0, \x01, \001), no line break"
        ),
        "extent.bytes='64M': write auto, a number of bytes, 1 or more, or a size such as 64MiB",
        "tasks.max='0': write a whole number, 1 or more",
        "csv.header='yes': write true or false",
        "producer.acks: fixed here, exactly once depends on it; remove the key",
        "producer.liner.ms: no such property of the Kafka client; did you mean producer.linger.ms?",
        (
            "errors.deadletterqueue.topic.name: applies only where errors.tolerance is all;"
            " errors.tolerance is none: remove errors.deadletterqueue.topic.name"
        ),
        "aws.s3.bucket.name: missing; write the name of the bucket to read",
    )


def test_an_empty_configuration_names_what_is_required(golden: Golden) -> None:
    golden(*problems({}))


def test_one_mistake_is_not_reported_twice(golden: Golden) -> None:
    several = problems({**ORDERS, "aws.s3.bucket.name": "lake,pond"})
    tolerance = problems({**ORDERS, **TOLERANT, "errors.tolerance": "some"})
    format_ = problems({**ORDERS, "input.format": "avor", "csv.header": "true"})

    golden(*several)
    golden(*tolerance)
    (misspelt,) = format_
    golden(misspelt)
    assert "input.format='avor'" in misspelt


@pytest.mark.parametrize(
    ("written", "nearest"),
    [
        ("topci", "topic"),
        ("aws.s3.prefx", "aws.s3.prefix"),
        ("csv.seperator.char", "csv.separator.char"),
        ("value.convertor", "value.converter"),
        ("extent.strid", "extent.stride"),
        ("errors.tolerence", "errors.tolerance"),
        ("producer.compresion.type", "producer.compression.type"),
    ],
)
def test_trap_t23_an_unknown_key_is_an_error_with_the_nearest_name(
    written: str, nearest: str
) -> None:
    """Trap: a misspelt option was accepted and ignored."""
    (problem,) = problems({**ORDERS, written: "hunter2"})

    assert problem.startswith(f"{written}: no such ")
    assert problem.endswith(f"did you mean {nearest}?")


def test_two_kinds_of_keys_of_encrypted_files_are_refused(golden: Golden) -> None:
    kinds = {f"parquet.encryption.{kind}": "${env:KEY}" for kind in ("footer.key", "key.list")}

    (problem,) = problems({**ORDERS, "input.format": "parquet", **kinds})

    golden(problem)
    assert "parquet.encryption.key.list" in problem


def test_trap_t23_an_unknown_key_without_a_similar_one_names_the_docs(golden: Golden) -> None:
    (problem,) = problems({**ORDERS, "zzzz": "1"})

    golden(problem)
    assert "docs/configuration.md" in problem


@pytest.mark.parametrize("name", ["headers.source", "csv.multiline", "file.names", "files"])
def test_trap_t23_a_key_that_does_nothing_yet_is_unknown(name: str) -> None:
    (problem,) = problems({**ORDERS, name: "x"})

    assert problem.startswith(f"{name}: no such key")


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({**ORDERS, "input.format": "parquet", "csv.header": "true"}, "csv.header"),
        ({**ORDERS, "input.format": "jsonl", "csv.schema": "a:int64"}, "csv.schema"),
        ({**ORDERS, "input.format": "text", "jsonl.validate": "true"}, "jsonl.validate"),
        (
            {**ORDERS, "input.format": "parquet", "file.compression.split": "false"},
            "file.compression.split",
        ),
        (
            {**ORDERS, "input.format": "parquet", "file.compression.type": "none"},
            "file.compression.type",
        ),
        ({**ORDERS, "input.format": "parquet", "character.set": "UTF-8"}, "character.set"),
        ({**ORDERS, "input.format": "orc", "record.max.bytes": "1MiB"}, "record.max.bytes"),
        ({**ORDERS, "input.format": "csv", "bytes.chunk.bytes": "1KiB"}, "bytes.chunk.bytes"),
        ({**ORDERS, "input.format": "csv", "parquet.int96.unit": "us"}, "parquet.int96.unit"),
        ({**ORDERS, "input.format": "csv", "parquet.page.index": "false"}, "parquet.page.index"),
        (
            {**ORDERS, "input.format": "csv", "parquet.encryption.footer.key": "${env:KEY}"},
            "parquet.encryption.footer.key",
        ),
        (
            {**ORDERS, "input.format": "csv", "parquet.encryption.key.list": "${env:KEYS}"},
            "parquet.encryption.key.list",
        ),
        ({**ORDERS, "input.format": "csv", "text.delimiter": ";"}, "text.delimiter"),
        ({**ORDERS, "input.format": "csv", "json.elements": "true"}, "json.elements"),
        ({**ORDERS, "input.format": "csv", "text.header.lines": "1"}, "text.header.lines"),
        ({**ORDERS, "errors.deadletterqueue.topic.name": "d"}, "errors.deadletterqueue.topic.name"),
        (
            {**ORDERS, "errors.deadletterqueue.context.headers.enable": "true"},
            "errors.deadletterqueue.context.headers.enable",
        ),
        ({**ORDERS, "errors.max.records": "5"}, "errors.max.records"),
        ({**ORDERS, "errors.log.include.messages": "true"}, "errors.log.include.messages"),
        ({**LOCAL, "after.completion": "delete"}, "after.completion"),
        ({**ORDERS, "after.completion.tag": "a=b"}, "after.completion.tag"),
        ({**ORDERS, "after.completion.move.prefix": "d/"}, "after.completion.move.prefix"),
        ({**ORDERS, "after.completion.move.bucket": "dd"}, "after.completion.move.bucket"),
        ({**ORDERS, "key.converter": "string"}, "key.converter"),
        ({**ORDERS, "message.key": "none", "key.converter": "string"}, "key.converter"),
        ({**ORDERS, "columnar.encoding.compression": "lz4"}, "columnar.encoding.compression"),
        ({**ORDERS, "columnar.batch.bytes": "1MiB"}, "columnar.batch.bytes"),
        ({**ORDERS, "columnar.groups": "a: id; b: *"}, "columnar.groups"),
        (
            {**ORDERS, "columnar.encoding": "arrow", "columnar.passthrough": "false"},
            "columnar.passthrough",
        ),
        (
            {**ORDERS, "columnar.encoding": "arrow", "columnar.encryption.columns": "card"},
            "columnar.encryption.columns",
        ),
        ({**ORDERS, "columnar.encryption.key": "k"}, "columnar.encryption.key"),
        ({**ORDERS, "columnar.encryption.key.list": "${env:K}"}, "columnar.encryption.key.list"),
        ({**ORDERS, "predicates": "a"}, "predicates"),
        ({**ORDERS, "aws.sts.role.external.id": "x"}, "aws.sts.role.external.id"),
        ({**LOCAL, "aws.s3.bucket.name": "lake"}, "aws.s3.bucket.name"),
        ({**LOCAL, "aws.s3.prefix": "in/"}, "aws.s3.prefix"),
        ({**LOCAL, "s3.region": "eu-1"}, "s3.region"),
        ({**LOCAL, "aws.s3.endpoint": "http://a:1"}, "aws.s3.endpoint"),
        ({**LOCAL, "aws.s3.path.style.access.enabled": "true"}, "aws.s3.path.style.access.enabled"),
        ({**LOCAL, "aws.s3.ca.bundle": "/a.pem"}, "aws.s3.ca.bundle"),
        ({**LOCAL, "aws.access.key.id": "a"}, "aws.access.key.id"),
        ({**LOCAL, "aws.secret.access.key": "${env:A}"}, "aws.secret.access.key"),
        ({**LOCAL, "aws.sts.role.arn": "arn:a"}, "aws.sts.role.arn"),
        ({**LOCAL, "aws.sts.role.external.id": "x"}, "aws.sts.role.external.id"),
    ],
)
def test_trap_t23_a_key_that_does_not_apply_is_an_error(config: dict[str, str], name: str) -> None:
    (problem,) = problems(config)

    assert problem.startswith(f"{name}: applies only where ")
    assert problem.endswith(f": remove {name}")


def test_trap_t23_every_key_that_applies_conditionally_is_in_that_test() -> None:
    conditional = {key.name for key in connector_table() if key.only}
    csv = {key.name for key in connector_table() if key.name.startswith("csv.")}
    # test_registry.py tries these.
    converters = {name for name in conditional if ".converter." in name}

    for name in sorted(csv):
        samples = {
            "csv.schema": "a:int64",
            "csv.header": "true",
            "csv.multiline.max.bytes": "1MiB",
            "csv.lenient.quotes": "true",
            "csv.header.duplicates": "rename",
            "csv.line.end": "cr",
            "csv.trailing.separator": "true",
            "csv.header.skip.lines": "2",
            "csv.escape.mode": "c",
        }
        sample = samples.get(name, "|")
        (problem,) = problems({**ORDERS, "input.format": "text", name: sample})
        assert problem.startswith(f"{name}: applies only where input.format is csv")
    assert conditional - csv - converters == {
        "bytes.chunk.bytes",
        "character.set",
        "columnar.batch.bytes",
        "columnar.encoding.compression",
        "columnar.encryption.columns",
        "columnar.encryption.key",
        "columnar.encryption.key.list",
        "columnar.groups",
        "columnar.passthrough",
        "parquet.encryption.footer.key",
        "parquet.encryption.key.list",
        "parquet.int96.unit",
        "parquet.page.index",
        "record.max.bytes",
        "json.elements",
        "json.records.around",
        "json.records.path",
        "json.schema",
        "json.unknown.members",
        "jsonl.schema",
        "jsonl.unknown.members",
        "text.delimiter",
        "text.header.lines",
        "file.compression.split",
        "file.compression.type",
        "aws.s3.bucket.name",
        "aws.s3.prefix",
        "aws.s3.region",
        "aws.s3.endpoint",
        "aws.s3.path.style.access.enabled",
        "aws.s3.ca.bundle",
        "aws.access.key.id",
        "aws.secret.access.key",
        "aws.sts.role.arn",
        "aws.sts.role.external.id",
        "directory",
        "jsonl.validate",
        "predicates",
        "errors.deadletterqueue.topic.name",
        "errors.deadletterqueue.context.headers.enable",
        "errors.max.records",
        "errors.log.include.messages",
        "after.completion",
        "after.completion.tag",
        "after.completion.move.prefix",
        "after.completion.move.bucket",
    }


@pytest.mark.parametrize("name", ["csv.header", "csv.null", "jsonl.validate"])
def test_keys_of_a_format_apply_while_the_extension_decides(name: str) -> None:
    config = parse({**ORDERS, name: "false"})

    assert config.format is None
    assert to_map(config)[name] == "false"


@pytest.mark.parametrize(
    "name",
    [
        "connector.class",
        "topics",
        "value.converter.schemas.cache.size",
        "key.converter.replace.null.with.default",
        "transaction.max.seconds",
        "producer.sasl.jaas.config",
    ],
)
def test_keys_of_other_systems_are_explained(name: str) -> None:
    (problem,) = problems({**ORDERS, name: "org.example.Thing"})

    assert problem.startswith(f"{name}: ")
    assert "did you mean" not in problem


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\x01", "\x01"),
        (r"\u0001", "\x01"),
        (r"\001", "\x01"),
        (r"\0", "\0"),
        (r"\t", "\t"),
        ("\t", "\t"),
        ("\\", "\\"),
        (r"\\", "\\"),
    ],
)
def test_a_character_may_be_written_as_an_escape(written: str, meant: str) -> None:
    assert CHARACTER.read(written) == meant
    assert CHARACTER.read(CHARACTER.write(meant)) == meant
    assert "\0" not in CHARACTER.write(meant)


def test_escapes_of_texts_are_octal_only_with_three_digits() -> None:
    assert DELIMITER.read(r"\036") == "\x1e"
    assert PREFIX.read(r"\x23") == "#"
    with pytest.raises(ValueError, match="write one of the escapes"):
        DELIMITER.read(r"\02")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("csv.skip.lines", "csv.header.skip.lines"),
        ("skip.header.line.count", "csv.header.skip.lines"),
        ("csv.comment.char", "csv.comment.prefix"),
    ],
)
def test_names_of_other_products_lead_to_the_key(name: str, key: str) -> None:
    (problem,) = problems({**ORDERS, name: "1"})

    assert problem.startswith(f"{name}: ")
    assert f"write {key}" in problem


# -- aliases ----------------------------------------


@pytest.mark.parametrize(
    ("alias", "canonical", "text", "config"),
    [
        ("decoder.type", "input.format", "Parquet", ORDERS),
        ("extent.stride", "extent.bytes", "1048576", ORDERS),
        ("directory", "aws.s3.prefix", "in/", ORDERS),
        ("s3.bucket.name", "aws.s3.bucket.name", "lake", {"name": "orders", "topic": "orders"}),
        ("s3.region", "aws.s3.region", "eu-central-1", ORDERS),
        ("s3.url", "aws.s3.endpoint", "https://grid:10443", ORDERS),
        ("access.key.id", "aws.access.key.id", "AKIA", {**ORDERS, "access.key": "${env:S}"}),
        ("access.key", "aws.secret.access.key", "${env:S}", {**ORDERS, "access.key.id": "AKIA"}),
    ],
)
def test_an_alias_means_its_key_and_excludes_it(
    alias: str, canonical: str, text: str, config: dict[str, str]
) -> None:
    assert parse({**config, alias: text}) == parse({**config, canonical: text})
    assert problems({**config, canonical: text, alias: text}) == (
        f"{alias}: says the same as {canonical}; keep one of the two",
    )


@pytest.mark.parametrize("text", ["required", "REQUESTED"])
def test_connects_exactly_once_support_means_exactly_once(text: str, golden: Golden) -> None:
    config = connector(exactly__once__support=text)

    assert config.exactly_once
    golden(
        *problems({**ORDERS, "exactly.once.support": text, "delivery.guarantee": "at_least_once"})
    )


def test_exactly_once_support_takes_connects_values_only(golden: Golden) -> None:
    golden(*problems({**ORDERS, "exactly.once.support": "exactly_once"}))


def test_every_alias_is_in_these_tests() -> None:
    aliases = {alias.name for key in connector_table() for alias in key.aliases}

    assert aliases == {
        "decoder.type",
        "extent.stride",
        "s3.bucket.name",
        "s3.region",
        "s3.url",
        "access.key.id",
        "access.key",
        "exactly.once.support",
        "value.converter.value.subject.name.strategy",
        "key.converter.key.subject.name.strategy",
        "value.converter.schemaAutoRegistrationEnabled",
        "key.converter.schemaAutoRegistrationEnabled",
    }


@pytest.mark.parametrize(
    ("written", "converter"),
    [
        ("org.apache.kafka.connect.storage.StringConverter", "string"),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", "bytes"),
        ("org.apache.kafka.connect.json.JsonConverter", "json"),
        ("JSON", "json"),
    ],
)
def test_connects_converter_classes_are_mapped(written: str, converter: str) -> None:
    config = connector(value__converter=written, message__key="column:id", key__converter=written)

    assert (config.value_converter, config.key_converter) == (converter, converter)


def test_a_converter_that_is_not_built_is_rejected(golden: Golden) -> None:
    (problem,) = problems({**ORDERS, "value.converter": "io.confluent.connect.protobuf.X"})

    golden(problem)
    assert "base64" in problem


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("input.format", "extentflow.formats"),
        ("key.converter", "extentflow.converters"),
        ("endpoint.type", "extentflow.stores"),
    ],
)
def test_an_unknown_name_may_be_that_of_a_missing_package(name: str, group: str) -> None:
    (problem,) = problems({**ORDERS, "message.key": "column:id", name: "acme"})

    assert f"entry-point group {group}" in problem
    assert "install the package that declares it" in problem


def test_an_only_choice_is_not_called_one_of_several(golden: Golden) -> None:
    (value,) = problems({**ORDERS, "input.format": "bytes", "value.converter": "json"})
    (key,) = problems({**ORDERS, "message.key": "object", "key.converter": "json"})

    golden(value)
    golden(key)
    assert "message.key" in key


# -- values ----------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("topic", "bad topic", "' ' is no character of a topic name"),
        ("topic", "..", "no topic name"),
        ("topic", "{key", "'{' is no character"),
        ("topic", "extentflow.jobs", "names that begin with extentflow. are extentflow's own"),
        ("topic", "extentflow.{key}", "names that begin with extentflow. are extentflow's own"),
        ("topic", "x" * 250, "250 characters; a topic name has 249 at most"),
        ("aws.s3.bucket.name", "s3://lake", "write the bare name"),
        ("aws.s3.bucket.name", "lake/in", "write the bare name"),
        ("aws.s3.region", " ", "write a value, or remove the key"),
        ("aws.s3.endpoint", "ftp://a", "write http://host:port"),
        ("aws.s3.endpoint", "http://a:99999", "write http://host:port"),
        ("aws.s3.endpoint", "http://me:secret@a", "an address must not contain credentials"),
        ("csv.quote.char", "", "write none or one ASCII character"),
        ("csv.quote.char", "\n", "write none or one ASCII character"),
        ("csv.separator.char", r"\n", "write auto or one ASCII character"),
        ("csv.separator.char", r"\x80", "write auto or one ASCII character"),
        ("csv.separator.char", r"\q", r"write auto or one of the escapes \n \r \t \0 \\ \x1e"),
        ("csv.escape.char", "é", "write none or one ASCII character"),
        ("csv.schema", "a", "column 'a' has no type; write a:type, where type is string, bool"),
        ("csv.schema", 'b:date,"x, y":', """column 'x, y' has no type; write "x, y":type, where"""),
        ("csv.schema", "a:int64,", "write infer, name:type,name:type"),
        ("csv.schema", "", "write infer, name:type,name:type"),
        ("csv.schema", "a:int65", "no type 'int65'; did you mean int64? write string, bool"),
        ("csv.schema", "a:int64,b:int", "no type 'int'; did you mean int32? write string, bool"),
        ("csv.schema", "a:VARCHAR(20)", "no type 'VARCHAR(20)'; did you mean string? write string"),
        ("csv.schema", "a:double precision", "did you mean float64? write string, bool"),
        ("csv.schema", "a:timestamp", "did you mean timestamp(us)? write string, bool"),
        ("csv.schema", "a:list<string>,b:date", "no type 'list<string>'; write string, bool"),
        ("csv.schema", "a:x", "with unit s, ms, us or ns; or write infer"),
        ("csv.schema", "a:decimal(39,2)", "decimal(39,2) cannot be"),
        ("csv.schema", "a:decimal(5,6)", "decimal(5,6) cannot be"),
        ("csv.schema", "a:timestamp(us,Mars/Olympus)", "time zone 'Mars/Olympus' is unknown"),
        ("csv.schema", "a:int64,a:string", "names 'a' more than once"),
        ("message.key", "colum:a", "write none, object, column:name[,name], path:"),
        ("message.key", "column", "write none, object, column:name[,name], path:"),
        ("message.key", "column:", "write column:name,name"),
        ("message.key", "column:a,a", "names 'a' more than once"),
        ("delivery.guarantee", "exactly-once", "write at_least_once or exactly_once"),
        ("tasks.max", "1.5", "write a whole number"),
        ("aws.access.key.id", "${env:}", "write ${env:NAME}"),
        ("producer.client.id", "a-${env:A}", "a reference is the whole value"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_remedy(name: str, text: str, remedy: str) -> None:
    extra = {
        "aws.access.key.id": {"aws.secret.access.key": "${env:A}"},
    }.get(name, {})

    (problem,) = problems({**ORDERS, **extra, name: text})

    assert problem.startswith(f"{name}={quoted(text)}: ")
    assert remedy in problem


@pytest.mark.parametrize(
    "name",
    ["aws.secret.access.key", "access.key", "producer.sasl.password", "producer.ssl.key.pem"],
)
@pytest.mark.parametrize(
    "text", ["hunter2", "$(env:hunter2)", "${env:hunter2}x", "${vault:hunter2:x}"]
)
def test_a_literal_secret_is_rejected_and_never_shown(name: str, text: str) -> None:
    (problem,) = problems(
        {**ORDERS, "aws.access.key.id": "AKIA", name: text}
        if "access" in name
        else {**ORDERS, name: text}
    )

    assert problem.startswith(f"{name}=(not shown): ")
    assert "hunter2" not in problem
    assert "${env:NAME}" in problem


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({**LOCAL, "directory": "data"}, "directory='data': write an absolute path"),
        ({"name": "a", "topic": "t", "endpoint.type": "localfile"}, "directory: missing"),
        ({**ORDERS, "endpoint.type": "ontaps3"}, "aws.s3.endpoint: missing; endpoint.type=ontaps3"),
        ({**ORDERS, "aws.access.key.id": "A"}, "aws.secret.access.key: missing"),
        ({**ORDERS, "aws.secret.access.key": "${env:A}"}, "aws.access.key.id: missing"),
        (
            {**ORDERS, "aws.s3.endpoint": "http://a:1", "aws.s3.ca.bundle": "/a"},
            "aws.s3.ca.bundle='/a': aws.s3.endpoint is not https",
        ),
        ({**ORDERS, "csv.quote.char": ","}, "csv.separator.char, csv.quote.char"),
        ({**ORDERS, "csv.escape.char": '"'}, "csv.separator.char, csv.quote.char"),
        ({**ORDERS, "csv.comment.prefix": '"#'}, "csv.comment.prefix"),
        ({**ORDERS, "csv.escape.mode": "c"}, "csv.escape.mode=c: set csv.escape.char"),
        (
            {**ORDERS, "input.format": "csv", "csv.schema": "a:int64", "message.key": "column:b"},
            "message.key: csv.schema has no column 'b'",
        ),
        (
            {**ORDERS, "jsonl.validate": "false", "message.key": "column:b"},
            "jsonl.validate=false: lines pass through unread",
        ),
        (
            {**JSON_LINES, "jsonl.schema": "a:int64", "message.key": "column:a.b,c"},
            "message.key: jsonl.schema has no column 'c'",
        ),
        (
            {**JSON_LINES, "jsonl.schema": "infer", "jsonl.validate": "false"},
            "jsonl.validate=false: lines pass through unread, and jsonl.schema makes columns",
        ),
        (
            {**JSON_LINES, "jsonl.unknown.members": "ignore"},
            "jsonl.unknown.members needs jsonl.schema",
        ),
        ({**ORDERS, "json.schema": "infer"}, "json.schema needs input.format=json"),
        ({**ORDERS, "json.records.path": "a"}, "json.records.path needs input.format=json"),
        ({**ORDERS, "json.records.around": "a"}, "json.records.around needs json.records.path"),
        (
            {
                **ORDERS,
                "input.format": "json",
                "json.records.path": "data.items",
                "json.records.around": "n,data",
            },
            "json.records.around: 'data' holds the records; write members beside them",
        ),
        (
            {**ORDERS, "input.format": "json", "json.records.path": "a", "json.elements": "false"},
            "json.elements=false delivers whole documents, and json.records.path their records",
        ),
        ({**ORDERS, "jsonl.schema": "a:json"}, "jsonl.schema needs input.format=jsonl"),
        (
            {**JSON_LINES, **with_needed("value.converter", "avro")},
            "value.converter=avro cannot make values of jsonl, which passes them on as they are; ",
        ),
        (
            {**JSON_LINES, "select": "a,b"},
            "select names several members of jsonl; the value is one: name it; for columns",
        ),
        (
            {**ORDERS, "aws.s3.prefix": "in/", "object.key": "out/a.csv"},
            "object.key='out/a.csv': does not begin with aws.s3.prefix='in/'; write the whole key",
        ),
        (
            {**ORDERS, "object.key": "in/"},
            "object.key='in/': names no object; for all below a folder write it as aws.s3.prefix",
        ),
        ({**LOCAL, "object.key": ""}, "object.key='': names no object; for all below a folder"),
        ({**ORDERS, "errors.tolerance": "all"}, "errors.deadletterqueue.topic.name: missing"),
        (
            {**ORDERS, **TOLERANT, "errors.deadletterqueue.topic.name": "orders"},
            "errors.deadletterqueue.topic.name='orders': is a topic of the good records",
        ),
        (
            {**ORDERS, "topic": "t-{prefix}", "aws.s3.prefix": "in put/"},
            "topic='t-{prefix}': makes 't-in put': ' ' is no character of a topic name",
        ),
        (
            {**ORDERS, "input.format": "text", "message.key": "column:a"},
            "message.key names columns",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_reported(config: dict[str, str], problem: str) -> None:
    (found,) = problems(config)

    assert found.startswith(problem)


# -- formats, converters, keys ----------------------------------------


@pytest.mark.parametrize("converter", CONVERTERS)
@pytest.mark.parametrize(
    "name", ["arrow", "avro", "bytes", "csv", "json", "jsonl", "orc", "parquet", "text"]
)
def test_every_pair_of_format_and_converter_works_or_is_rejected(name: str, converter: str) -> None:
    pair = {**ORDERS, "input.format": name, **with_needed("value.converter", converter)}

    if converter in FORMATS.get(name).converters:
        assert parse(pair).value_converter_for(name) == converter
    else:
        (problem,) = problems(pair)
        assert problem.startswith(f"value.converter={converter} cannot make values of {name}")


@pytest.mark.parametrize("name", ["json", "jsonl"])
@pytest.mark.parametrize("schema", ["infer", "a:int64,b:struct<c:list<string>>"])
@pytest.mark.parametrize("converter", CONVERTERS)
def test_documents_with_a_schema_take_the_converters_of_columns(
    name: str, schema: str, converter: str
) -> None:
    pair = {**ORDERS, "input.format": name, **with_needed("value.converter", converter)}
    typed = {**pair, f"{name}.schema": schema, "select": "a"}

    if converter in FORMATS.get("csv").converters:
        assert parse(typed).value_converter_for(name) == converter
        assert to_map(parse(typed))[f"{name}.schema"] == schema
    else:
        (problem,) = problems(typed)
        assert problem.startswith(f"value.converter={converter} cannot make values of {name}; ")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("a", "column 'a' has no type; write a:type, where type is string, bool"),
        ("a:", "a type is missing"),
        ("a:int64,a:int64", "names 'a' more than once"),
        ("a:struct<b:int64,b:int64>", "names 'b' more than once"),
        ("a:text", "no type 'text'; did you mean string? write string, bool"),
        ("a:struct<b:long>", "no type 'long'; did you mean int64? write string, bool"),
        ("a:list<jsn>", "did you mean json? write string, bool"),
        ("a:array<int64>", "did you mean list<type>? write string, bool"),
        ("a:struct<b>", "cannot read 'b>'"),
        ("a:list<int64", "list< has no >"),
        ("a:map<int64,string>", "write map<string,type>"),
        ("a:list<int64>>", "cannot read '>'"),
        ("a:" + "list<" * 40 + "bool" + ">" * 40, "nested deeper than 32 levels"),
    ],
)
def test_schemas_of_documents_are_checked(schema: str, problem: str) -> None:
    (found,) = problems({**JSON_LINES, "jsonl.schema": schema})

    assert found.startswith("jsonl.schema=")
    assert problem in found


@pytest.mark.parametrize("of", ["list<int64>", "struct<b:int64>", "json", "binary"])
def test_csv_has_no_nested_types(of: str) -> None:
    (found,) = problems({**ORDERS, "input.format": "csv", "csv.schema": f"a:{of}"})

    assert found.startswith("csv.schema=")


def test_the_pairs_that_work_are_these() -> None:
    assert {
        name: set(spec.converters) for name, spec in FORMATS.items() if FORMATS.is_built_in(name)
    } == {
        "text": {"string", "bytes", "base64"},
        "csv": {"json", *NEEDED, "string", "bytes", "base64"},
        "json": {"json", "string", "bytes"},
        "jsonl": {"json", "string", "bytes"},
        "arrow": {"json", *NEEDED, "string", "bytes", "base64"},
        "bytes": {"bytes"},
        "avro": {"json", *NEEDED, "string", "bytes", "base64"},
        "orc": {"json", *NEEDED, "string", "bytes", "base64"},
        "parquet": {"json", *NEEDED, "string", "bytes", "base64"},
    }


@pytest.mark.parametrize(
    ("name", "converter"),
    [
        ("text", "string"),
        ("csv", "json"),
        ("json", "json"),
        ("jsonl", "json"),
        ("parquet", "json"),
        ("avro", "json"),
        ("orc", "json"),
    ],
)
def test_values_have_a_converter_by_format(name: str, converter: str) -> None:
    assert parse(ORDERS).value_converter_for(name) == converter


@pytest.mark.parametrize(
    ("message_key", "default", "others"),
    [
        ("object", "string", set()),
        ("column:id", "string", {"bytes", "base64", "json", *NEEDED}),
        ("column:id,line", "json", {*NEEDED}),
    ],
)
def test_keys_have_a_converter_by_message_key(
    message_key: str, default: str, others: set[str]
) -> None:
    assert connector(message__key=message_key).key_converter_for_records() == default
    for converter in CONVERTERS:
        keyed = with_needed("key.converter", converter)
        written = {**ORDERS, "message.key": message_key, **keyed}
        if converter in {default} | others:
            assert parse(written).key_converter_for_records() == converter
        else:
            (problem,) = problems(written)
            assert problem.startswith(f"key.converter={converter!r}: cannot make this message.key")


ENVELOPE = {"value.converter": "json", "value.converter.schemas.enable": "true"}


@pytest.mark.parametrize("part", ["value.converter", "key.converter"])
def test_json_has_its_schema_where_connects_keys_say_so(part: str) -> None:
    own = {part: "org.apache.kafka.connect.json.JsonConverter", f"{part}.schemas.enable": "true"}
    written = {**ORDERS, "message.key": "column:id", **own, f"{part}.decimal.format": "numeric"}

    config = parse(written)

    assert config.converter_options[part] == JsonOptions(schemas=True, decimals="NUMERIC")
    assert parse(to_map(config)) == config


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"value.converter": "json", "value.converter.decimal.format": "NUMERIC"},
            "value.converter.decimal.format: applies only where value.converter.schemas.enable is",
        ),
        (
            {"value.converter.schemas.enable": "true"},
            "value.converter.schemas.enable: applies only where value.converter is json",
        ),
        (
            {"value.converter": "string", "value.converter.schemas.enable": "false"},
            "value.converter.schemas.enable: applies only where value.converter is json",
        ),
        (
            {**ENVELOPE, "value.converter.decimal.format": "PLAIN"},
            "value.converter.decimal.format='PLAIN': write",
        ),
        (
            {**ENVELOPE, "input.format": "jsonl"},
            "value.converter.schemas.enable=true writes columns, and jsonl passes records on",
        ),
        (
            {**ENVELOPE, "input.format": "json"},
            "value.converter.schemas.enable=true writes columns, and json passes records on",
        ),
    ],
)
def test_an_envelope_that_cannot_be_written_is_refused(
    config: dict[str, str], problem: str
) -> None:
    (found,) = problems({**ORDERS, **config})

    assert found.startswith(problem)


def test_an_envelope_of_lines_is_refused_by_the_extension_too(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat):
        parse({**ORDERS, **ENVELOPE}).format_for("in/orders.jsonl")


def test_records_have_no_key_by_default() -> None:
    assert parse(ORDERS).key_converter_for_records() is None


@pytest.mark.parametrize(
    ("key", "name", "compression"),
    [
        ("in/orders.csv", "csv", "none"),
        ("in/ORDERS.CSV.GZ", "csv", "gzip"),
        ("in/orders.tsv", "csv", "none"),
        ("a.b/orders.jsonl.zst", "jsonl", "zstd"),
        ("orders.ndjson", "jsonl", "none"),
        ("app.log", "text", "none"),
        ("app.txt.gzip", "text", "gzip"),
        ("part-0.gz.parquet", "parquet", "none"),
        ("part-0.snappy.parquet", "parquet", "none"),
        ("v1.2/orders.2024.csv", "csv", "none"),
        (".csv", "csv", "none"),
    ],
)
def test_the_extension_determines_format_and_compression(
    key: str, name: str, compression: str
) -> None:
    config = parse(ORDERS)

    assert config.format_for(key) == name
    assert config.compression_for(key) == compression


@pytest.mark.parametrize(
    "key", ["orders", "orders.dat", "a.csv/orders", "orders.gz", "x.csv.xz", "in/"]
)
def test_an_unknown_extension_names_the_object_and_the_remedy(key: str) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        parse(ORDERS).format_for(key)

    assert str(caught.value).startswith(f"s3://lake/{key}: ")
    assert "set input.format in connector orders" in str(caught.value)


def test_the_configured_format_and_compression_win_over_the_extension() -> None:
    config = connector(input__format="text", file__compression__type="zstd")

    assert config.format_for("orders.csv.gz") == "text"
    assert config.compression_for("orders.csv.gz") == "zstd"


def test_what_a_job_pins_of_a_compression_counts_where_it_is_cut() -> None:
    config = connector(input__format="text")

    for name, codec in (("a.zst", "zstd"), ("a.bz2", "bzip2")):
        pinned = SPLIT_COMPRESSIONS[codec]
        assert config.compression_for(name) == codec
        assert config.compression_for(name, Content(compression=pinned)) == pinned
        assert config.compression_for(name, Content(compression="gzip")) == codec


def test_small_objects_and_those_of_other_formats_are_not_cut() -> None:
    config = connector(extent__bytes="100")

    def version(size: int) -> ObjectVersion:
        return ObjectVersion("lake", "a", None, "e", size)

    assert config.may_split(version(101), "csv")
    assert not config.may_split(version(100), "csv")
    assert not config.may_split(version(101), "json")
    assert not replace(config, split=False).may_split(version(101), "csv")
    assert not replace(config, extent_bytes=None).may_split(version(1 << 20), "csv")


def test_a_configured_format_reads_the_compression_of_the_extension() -> None:
    assert connector(input__format="text").compression_for("orders.gz") == "gzip"


def test_a_compression_around_parquet_is_rejected(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat, match=r"a\.parquet\.gz"):
        parse(ORDERS).compression_for("a.parquet.gz")


def test_a_format_by_extension_is_checked_against_the_other_keys(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat, match=r"a\.txt.*value\.converter=json"):
        connector(value__converter="json").format_for("a.txt")
    with golden.raises(UnsupportedFormat, match=r"a\.txt.*message\.key"):
        connector(message__key="column:id").format_for("a.txt")


# -- objects and topics ----------------------------------------


ODD_KEYS = ["in/a,b.csv", "in/a b.csv", "in/a+b.csv", "in/a%20b.csv", "in/ä.csv", "in/{key}.csv"]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_trap_t20_keys_and_prefixes_are_compared_exactly(key: str) -> None:
    exact = {**ORDERS, "aws.s3.prefix": key[:5]}

    assert parse(exact).matches("lake", key)
    assert not parse(exact).matches("pond", key)
    assert parse(ORDERS).format_for(key) == "csv"


@pytest.mark.parametrize(
    ("prefix", "key"),
    [
        ("in/a%2", "in/a b.csv"),
        ("in/a ", "in/a+b.csv"),
        ("in/", "In/a.csv"),
        ("in/\u00e4", "in/a\u0308.csv"),
        ("in/", "/in/a.csv"),
    ],
)
def test_trap_t20_prefixes_that_only_look_alike_do_not_match(prefix: str, key: str) -> None:
    assert not parse({**ORDERS, "aws.s3.prefix": prefix}).matches("lake", key)


@given(st.text(), st.text())
def test_trap_t20_every_key_below_a_prefix_matches(prefix: str, rest: str) -> None:
    config = parse({**ORDERS, "aws.s3.prefix": prefix})

    assert config.matches("lake", prefix + rest)
    assert config.matches("lake", rest) == rest.startswith(prefix)


@pytest.mark.parametrize(
    ("template", "prefix", "key", "topic"),
    [
        ("orders", "", "any thing", "orders"),
        ("{bucket}.orders", "", "a.csv", "lake.orders"),
        ("in-{prefix}", "raw/2024/", "raw/2024/a.csv", "in-raw.2024"),
        ("{key}", "", "/raw/a-1_b.csv", "raw.a-1_b.csv"),
        ("o-{extension}", "", "a.CSV.gz", "o-csv"),
        ("{bucket}{extension}", "", "a.csv", "lakecsv"),
    ],
)
def test_a_topic_is_made_from_its_template(
    template: str, prefix: str, key: str, topic: str
) -> None:
    config = parse({**ORDERS, "topic": template, "aws.s3.prefix": prefix})

    assert config.topic_for(version(key)) == topic


@pytest.mark.parametrize(
    ("template", "key", "reason"),
    [
        ("{key}", "a b.csv", "' ' is no character of a topic name"),
        ("{key}", "x" * 250, "250 characters"),
        ("{key}", "..", "no topic name"),
        ("{key}", "extentflow.jobs", "names that begin with extentflow. are extentflow's own"),
        ("{key}", "extentflow/progress", "names that begin with extentflow. are extentflow's own"),
        ("o{extension}", "data", "the key has no extension"),
    ],
)
def test_a_topic_that_kafka_would_not_take_names_the_object(
    template: str, key: str, reason: str
) -> None:
    config = connector(topic=template)

    with pytest.raises(Misconfigured) as caught:
        config.topic_for(version(key))

    assert str(caught.value).startswith(f"s3://lake/{key}: topic={template} of connector orders")
    assert reason in str(caught.value)


@given(st.text(min_size=1))
def test_a_topic_made_from_any_key_is_legal_or_rejected(key: str) -> None:
    try:
        topic = connector(topic="t-{key}").topic_for(version(key))
    except Misconfigured:
        return

    assert topic.isascii()
    assert all(character.isalnum() or character in "._-" for character in topic)


# -- columns ----------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", pa.string()),
        ("uint16", pa.uint16()),
        ("float32", pa.float32()),
        ("date", pa.date32()),
        ("decimal(38, 38)", pa.decimal128(38, 38)),
        ("timestamp(ms)", pa.timestamp("ms")),
        ("timestamp(ns, +02:00)", pa.timestamp("ns", tz="+02:00")),
        ("timestamp(s,UTC)", pa.timestamp("s", tz="UTC")),
    ],
)
def test_csv_types_are_arrow_types(text: str, expected: pa.DataType) -> None:
    assert arrow_type(text) == expected
    assert written_type(expected) == text.replace(" ", "")


@pytest.mark.parametrize("found", [pa.large_string(), pa.decimal256(50, 2), pa.list_(pa.int8())])
def test_a_type_that_csv_cannot_name_is_written_as_arrow_does(found: pa.DataType) -> None:
    assert written_type(found) == str(found)


def test_column_names_may_hold_anything_in_quotes() -> None:
    config = connector(csv__schema='"a:b,""c""":int64,net price (EUR):decimal(9,2)')

    assert config.options_of("csv").schema == (
        ('a:b,"c"', "int64"),
        ("net price (EUR)", "decimal(9,2)"),
    )


@pytest.mark.parametrize("wrong", [".", "a.", "a..b", '"a', '"a"b', "$."])
def test_a_path_of_members_has_no_empty_names(wrong: str) -> None:
    (found,) = problems({**ORDERS, "input.format": "json", "json.records.path": wrong})

    assert "write names with dots between them, as in data.items" in found


@pytest.mark.parametrize(
    ("text", "path", "written"),
    [
        ("Records", ("Records",), "Records"),
        ("$.data.items", ("data", "items"), "data.items"),
        ('"a.b"."c""d".""', ("a.b", 'c"d', ""), '"a.b"."c""d".""'),
        ("$ref.net price", ("$ref", "net price"), "$ref.net price"),
    ],
)
def test_paths_of_members_are_names_with_dots(
    text: str, path: tuple[str, ...], written: str
) -> None:
    assert MEMBER_PATH.read(text) == path
    assert MEMBER_PATH.write(path) == written
    assert MEMBER_PATH.read(written) == path


# -- round trips ----------------------------------------

SCHEMAS = st.lists(
    st.tuples(COLUMN_NAMES, TYPES), min_size=1, max_size=4, unique_by=lambda column: column[0]
).map(tuple)


@st.composite
def connectors(draw: st.DrawFn) -> ConnectorConfig:
    tolerant = draw(st.booleans())
    keyed = draw(st.sampled_from(["none", "object", "column"]))
    columns = draw(st.lists(COLUMN_NAMES, min_size=1, max_size=3, unique=True))
    csv = CsvOptions(
        null=draw(st.text(max_size=4)),
        escape=draw(st.none() | st.sampled_from("\\/|")),
        separator=draw(st.sampled_from(";\t, ")),
        schema=draw(st.just(()) | SCHEMAS),
    )
    return ConnectorConfig(
        name=draw(st.from_regex(r"[a-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)),
        topic=draw(TOPICS.map(lambda topic: f"t{topic}-{{key}}")),
        s3_bucket=draw(st.from_regex(r"[a-z0-9][a-z0-9.-]{2,20}", fullmatch=True)),
        prefix=draw(st.text(max_size=8)),
        endpoint=draw(st.none() | st.just("https://grid:10443")),
        path_style=draw(st.none() | st.booleans()),
        format_options={} if csv == CsvOptions() else {"csv": csv},
        extent_bytes=draw(st.none() | st.integers(1, 1 << 50)),
        message_key=MessageKey(keyed, tuple(columns) if keyed == "column" else ()),
        delivery_guarantee=draw(st.sampled_from(["exactly_once", "at_least_once"])),
        ordering=draw(st.sampled_from(["partitioned", "object"])),
        errors_tolerance="all" if tolerant else "none",
        dead_letter_topic=draw(TOPICS) if tolerant else None,
        dead_letter_headers=draw(st.booleans()) if tolerant else True,
        max_tasks=draw(st.none() | st.integers(1, 1000)),
        producer=draw(
            st.dictionaries(
                st.sampled_from(["linger.ms", "compression.type"]), st.text(CHARACTERS, min_size=1)
            ).filter(lambda found: not any("${" in text for text in found.values()))
        ),
    )


@given(connectors())
def test_a_connector_survives_writing_and_reading(config: ConnectorConfig) -> None:
    assert parse(to_map(config)) == config


@given(
    st.dictionaries(
        st.text(max_size=20) | st.sampled_from(connector_table().names()),
        st.text(max_size=20) | st.sampled_from(["true", "none", "all", "csv", "localfile"]),
        max_size=8,
    )
)
def test_any_map_is_a_connector_or_misconfigured_one_line_per_problem(
    config: dict[str, str],
) -> None:
    found = problems({**config, "aws.s3.bucket.name": "a,b"})

    assert len(found) == len(set(found)) >= 1


@pytest.mark.parametrize("key", ["data", "data.json", "a/data.json.gz", "part-0001.dat"])
def test_where_content_decides_the_format_of_the_job_counts(key: str) -> None:
    config = connector()

    assert config.needs_content(key)
    assert config.format_source(key) == "content"
    assert config.format_for(key, "jsonl") == "jsonl"
    assert config.format_for(key, "parquet") == "parquet"


def test_content_never_overrides_a_setting_or_an_extension() -> None:
    chosen = connector(input__format="text")

    assert connector().format_for("a.csv", "jsonl") == "csv"
    assert connector().format_source("a.csv.gz") == "extension .csv"
    assert chosen.format_for("a.json", "jsonl") == "text"
    assert chosen.format_source("a") == "input.format"
    assert connector().format_for("a.json") == "json"


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("a", "the name has no extension of a format"),
        ("a.b/c", "the name has no extension of a format"),
        ("a.gz", "the name has no extension of a format"),
        (".profile", "the extension .profile is of no known format"),
        ("a.xyz", "the extension .xyz is of no known format"),
        ("a.xyz.gz", "the extension .xyz is of no known format"),
    ],
)
def test_what_leaves_the_format_open_is_said(key: str, why: str) -> None:
    with pytest.raises(UnsupportedFormat) as caught:
        connector().format_for(key, "unknown")

    assert f"{key}: {why}, and the content shows none (CSV and" in str(caught.value)
    assert "; set input.format in connector " in str(caught.value)


@pytest.mark.parametrize(
    ("key", "settings", "source"),
    [
        ("data", {}, "content"),
        ("data.dat", {"input__format": "csv"}, "content"),
        ("data.json", {}, "content"),
        ("data.csv", {"file__compression__type": "content"}, "content"),
        ("data.csv.gz", {"file__compression__type": "content"}, "content"),
        ("data.gz", {}, "extension .gz"),
        ("data.csv", {}, "extension .csv"),
        ("data", {"file__compression__type": "zstd"}, "file.compression.type"),
        ("data", {"file__compression__type": "none"}, "file.compression.type"),
        # A record is the object as it is.
        ("data", {"input__format": "bytes"}, "no extension"),
        ("data", {"input__format": "parquet"}, "no extension"),
    ],
)
def test_content_decides_the_compression_where_nothing_else_does(
    key: str, settings: dict[str, str], source: str
) -> None:
    config = connector(None, **settings)

    assert config.compression_source(key) == source
    assert config.needs_compression(key) == (source == "content")


def test_the_compression_of_the_job_counts_where_content_decides(golden: Golden) -> None:
    config = connector(input__format="csv")

    assert config.compression_for("data", Content(compression="zstd")) == "zstd"
    assert config.compression_for("data") == "none"  # a job of an earlier version
    assert config.compression_for("data.csv", Content(compression="zstd")) == "none"
    with golden.raises(UnsupportedFormat):
        connector().compression_for("data", Content("parquet", "gzip"))
