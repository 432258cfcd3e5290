"""Targets `connectors`, `settings` and `addresses`: what users write."""

import json
from pathlib import Path
from random import Random
from typing import Any

import yaml
from tests.fuzz.mutations import (
    TEXTS,
    any_value,
    change_bytes,
    change_document,
    pack,
    plain_json,
    unpack,
    write_json,
)
from tests.fuzz.targets import Target

from extentflow.config.connector import ConnectorConfig
from extentflow.config.files import parse_text
from extentflow.config.parsing import connector_table, parse, to_map
from extentflow.config.secrets import resolve
from extentflow.config.trust import Trust
from extentflow.config.worker import TABLE, WorkerSettings, load, variable
from extentflow.discovery.sources import declared
from extentflow.errors import ExtentflowError, Misconfigured
from extentflow.jobs.addresses import KeyScope, select
from extentflow.model import ObjectVersion
from extentflow.testing.stores import MemoryStore
from extentflow.wiring import check_connector
from extentflow.wording import without_credentials

_ORDERS = Path(__file__).parents[2] / "connectors" / "orders.yaml"
_CONNECTORS: list[dict[str, str]] = [
    dict(yaml.safe_load(_ORDERS.read_text())),
    {
        "name": "hostile",
        "topic": "t",
        "aws.s3.bucket.name": "b",
        "aws.s3.endpoint": "http://127.0.0.1:9000",
        "aws.access.key.id": "${env:AWS_SECRET_ACCESS_KEY}",
        "aws.secret.access.key": "${file:/proc/self/environ:HOME}",
    },
    {
        "name": "grid",
        "topic": "grid.{bucket}.{extension}",
        "endpoint.type": "storagegrids3",
        "aws.s3.endpoint": "https://grid.example:10443",
        "aws.s3.bucket.name": "landing",
        "aws.s3.prefix": "in/",
        "aws.access.key.id": "${env:GRID_ID}",
        "aws.secret.access.key": "${file:/etc/grid.properties:secret}",
        "input.format": "csv",
        "csv.schema": 'id:int64,"a, b":string,price:decimal(15,2),seen:timestamp(ms,UTC)',
        "csv.separator.char": ";",
        "csv.escape.char": "\\",
        "message.key": 'column:id,"a, b"',
        "key.converter": "json",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
        "extent.bytes": "64MiB",
        "tasks.max": "8",
        "producer.compression.type": "zstd",
        "producer.linger.ms": "20",
    },
    {
        "name": "local",
        "topic": "lines",
        "endpoint.type": "localfile",
        "directory": "/data/in",
        "input.format": "jsonl",
        "jsonl.validate": "true",
        "message.key": "column:id",
        "delivery.guarantee": "at_least_once",
        "ordering": "object",
        "file.compression.type": "gzip",
        "engine": "lambda",
    },
]
_NAMES = connector_table().names()
_SUFFIXES = (".yaml", ".json", ".properties")


def _changed_map(random: Random, flat: dict[str, str], names: list[str]) -> dict[str, str]:
    changed = dict(flat)
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        name = random.choice([*changed, random.choice(names), random.choice(TEXTS)])
        if random.random() < 0.2:
            changed.pop(name, None)
        elif random.random() < 0.5:
            changed[name] = random.choice([*TEXTS, *changed.values()])
        else:
            value = plain_json(change_document(random, changed.get(name, "x")))
            changed[name] = value if isinstance(value, str) else json.dumps(value)
    return changed


def _file(random: Random, flat: dict[str, str]) -> tuple[str, bytes]:
    """Return a flat map as a file of some syntax, sometimes damaged."""
    suffix = random.choice(_SUFFIXES)
    document: Any = flat
    if random.random() < 0.2:
        document = {"name": flat.get("name", "x"), "config": flat}
    if random.random() < 0.3:
        document = change_document(random, document)
    if suffix == ".json":
        text = write_json(document)
    elif suffix == ".yaml":
        lines = [f"{name}: {json.dumps(text)}" for name, text in flat.items()]
        odd = ("a: &x [*x]", "? [a]\n: b", "<<: {a: b}", "!!binary x: y", "x: |\n  y", "---", "'")
        lines += [random.choice(odd)] if random.random() < 0.2 else []
        text = "\n".join(lines) if document is flat else write_json(document)
    else:
        join = random.choice(("=", " = ", ":", " "))
        text = "\n".join(f"{name}{join}{value}" for name, value in flat.items())
    data = text.encode("utf-8", "surrogatepass")
    return suffix, change_bytes(random, data) if random.random() < 0.4 else data


def _connector(random: Random) -> bytes:
    flat = _changed_map(random, random.choice(_CONNECTORS), _NAMES)
    suffix, data = _file(random, flat)
    return pack({"suffix": suffix}, data)


# References that no connector may hold; other texts may resemble them.
_OF_OWNERS = ("'${env:AWS_SECRET_ACCESS_KEY}'", "'${file:/proc/self/environ:HOME}'")
_KEYS = ("in/a.csv", "in/", "in/x.JSONL.gz", "orders/ü/*[a.parquet", "a.b.c.txt.zst", "")


def _run_connector(data: bytes) -> str:
    given, body = unpack(data)
    try:
        text = body.decode()
    except UnicodeDecodeError:  # as `read_if_present`, which reports it
        return "refused: not UTF-8"
    try:
        flat = parse_text(text, f"c{given['suffix']}")
        config = parse(flat)
    except Misconfigured as exc:
        assert exc.problems, "a refusal has a reason"
        assert not any("\n" in problem for problem in exc.problems), "one line each"
        return "refused: Misconfigured"
    assert parse(to_map(config)) == config, "what is written is read back"
    allowed = not list(Trust().problems(config, flat))
    assert not allowed or not any(one in str(flat.values()) for one in _OF_OWNERS)
    if any(name.startswith("producer.") for name in flat):
        check_connector(flat)
    for key in _KEYS:
        _route(config, key)
    return "accepted"


def _route(config: ConnectorConfig, key: str) -> None:
    try:
        config.route(ObjectVersion(config.bucket, config.prefix + key, None, "e", 1))
    except ExtentflowError as exc:
        assert str(exc)


CONNECTORS = Target("connectors", 5, _connector, _run_connector)

# -- settings --------------------------------------------------------------------------------------

_SETTINGS = {
    "bootstrap.servers": "localhost:9092",
    "kafka.bootstrap.servers": "localhost:9092,[::1]:9093",
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.password": "${secretsmanager:kafka:password}",
    "app.id": "shop",
    "ledger.url": "dynamodb://ledger?endpoint=http://127.0.0.1:8000",
    "lease.seconds": "60",
    "transaction.max.bytes": "64MiB",
    "transaction.max.seconds": "10",
}
_WORKER_NAMES = TABLE.names()
_SOURCES: list[dict[str, Any]] = [
    {"endpoint": "https://grid", "access_key_id": "a", "secret_access_key": "b"},
    {"secret_path": "0123456789abcdef"},
    {"open": True},
]


def _setting(random: Random) -> bytes:
    flat = _changed_map(random, _SETTINGS, _WORKER_NAMES)
    environ = {
        name: text
        for name, text in _changed_map(random, _SETTINGS, _WORKER_NAMES).items()
        if random.random() < 0.4
    }
    suffix, data = _file(random, flat)
    found = change_document(random, [random.choice(_SOURCES)])
    written = write_json(found)
    if random.random() < 0.3:
        text = written.encode("utf-8", "surrogatepass")
        written = change_bytes(random, text).decode("utf-8", "replace")
    secret = write_json(any_value(random) if random.random() < 0.5 else {"password": "p"})
    parameters = {"environ": environ, "suffix": suffix, "sources": written, "secret": secret}
    return pack(parameters, data)


def _run_setting(data: bytes) -> str:
    given, body = unpack(data)
    text = body.decode("utf-8", "replace")
    environ = {variable(name): value for name, value in given["environ"].items()}
    environ["EXTENTFLOW_CONFIG"] = f"c{given['suffix']}"
    outcomes: list[str] = []
    try:
        settings = load(environ, read_text=lambda _: text)
        assert WorkerSettings.from_map(settings.to_map()) == settings
        outcomes.append("accepted")
    except Misconfigured as exc:
        assert not any("\n" in problem for problem in exc.problems), "one line each"
    try:
        sources = declared(given["sources"], open_allowed=True)
        assert sources
        outcomes.append("sources")
    except Misconfigured as exc:
        assert exc.problems
    try:
        resolve(
            {**_SETTINGS, **given["environ"]},
            environ={"X": "x"},
            read_text=lambda _: text,
            read_secret=lambda _: str(given["secret"]),
        )
        outcomes.append("resolved")
    except Misconfigured as exc:
        assert exc.problems
    return ", ".join(outcomes) or "refused: Misconfigured"


SETTINGS = Target("settings", 4, _setting, _run_setting)

# -- addresses -------------------------------------------------------------------------------------

_STORED = ("in/a.csv", "in/b*.csv", "in/[x].csv", "in/_SUCCESS", "in/d/", "in/d/e.csv", "in/ü/🙂")
_ADDRESSES = (
    *("s3://landing/in/a.csv", "s3://landing/in/", "s3a://landing/in/*.csv", "s3://landing"),
    *("s3://landing/in/[!a]*?.csv", "s3://other/x", "in/a.csv", "https://k:s@h/landing/in/a?X=1"),
    *("s3://landing/in/" + "*a" * 60, "s3://landing/in/" + "[a-z]*" * 30, "s3://landing/in/[[]"),
)


def _address(random: Random) -> bytes:
    address = random.choice(_ADDRESSES).encode()
    if random.random() < 0.8:
        address = change_bytes(random, address, [one.encode() for one in _ADDRESSES])
    keys = [*_STORED]
    names = (random.choice([*TEXTS, "a" * 900]) for _ in range(random.randrange(3)))
    keys.extend(f"in/{name}" for name in names)
    keys = [key[:1_000].encode("utf-8", "replace").decode() for key in keys]
    return pack({"keys": keys, "prefix": random.choice(("", "in/", "in"))}, address)


def _run_address(data: bytes) -> str:
    given, body = unpack(data)
    address = body.decode("utf-8", "surrogateescape")
    store = MemoryStore()
    for key in given["keys"]:
        store.put("landing", key, b"x")
    scope = KeyScope("orders", "landing", given["prefix"])
    assert without_credentials(address) is not None
    pattern = scope.key(address)
    found = [version.key for version in select(store, scope, pattern)]
    assert all(key.startswith(scope.prefix) for key in found), "within its scope"
    assert len(found) == len(set(found)), "once each"
    return "selected" if found else "nothing"


ADDRESSES = Target("addresses", 10, _address, _run_address)
