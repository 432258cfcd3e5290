"""Records with schemas in a real registry, as Confluent's own deserialisers read them.

A Parquet object of flat and nested columns is delivered by every engine; each key and value that a
consumer reads is compared with the one in the object.
"""

import base64
import datetime as dt
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from jsonschema import Draft7Validator
from tests.integration.faultproxy import FaultProxy, Reset
from tests.support.delivery import Delivery
from tests.support.eventpath import EventPath, Ground
from tests.support.protobuf import message_class, plain
from tests.support.protobuf_values import member, seen
from tests.support.waiting import eventually

from extentflow.model import JobState
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    pass

ROWS = 200
MAPS = {"counts", "numbered"}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
PLACE = pa.struct([("lat", pa.float64()), ("lon", pa.float64())])
LINE = pa.struct([("sku", pa.string()), ("qty", pa.uint16()), ("price", pa.decimal128(9, 3))])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int8()),
        ("wide", pa.uint32()),
        ("huge", pa.uint64()),
        ("flag", pa.bool_()),
        ("ratio", pa.float32()),
        ("price", pa.float64()),
        ("amount", pa.decimal128(25, 2)),
        ("name", pa.string()),
        ("data", pa.binary()),
        ("code", pa.binary(4)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("time", pa.time64("us")),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("numbered", pa.map_(pa.int32(), pa.string())),
        ("address", pa.struct([("street", pa.string()), ("place", PLACE)])),
        ("lines", pa.list_(LINE)),
    ]
)


def row(n: int) -> dict[str, Any]:
    """Return the values of row `n`; each column is null in some rows, and so are items."""
    sign = -1 if n % 2 else 1
    instant = EPOCH + dt.timedelta(days=n * sign * 7, microseconds=n * 1_001)
    line = {"sku": f"é{n}", "qty": n * 31 % 65_536, "price": Decimal(n * sign).scaleb(-3)}
    values = {
        "small": n % 256 - 128,
        "wide": (1 << 32) - 1 - n,
        "huge": (1 << 64) - 1 - n,
        "flag": n % 2 == 0,
        "ratio": n / 8 * sign,
        "price": n / 7 * sign,
        "amount": Decimal(10**24 // (n + 1) * sign).scaleb(-2),
        "name": f"naïve \x00 {n} 😀",
        "data": bytes([n % 256, 0, 255]) * (n % 5),
        "code": n.to_bytes(4, "big"),
        "day": instant.date(),
        "at": instant,
        "local": (instant - dt.timedelta(microseconds=instant.microsecond % 1000)).replace(
            tzinfo=None
        ),
        "time": instant.time(),
        "kind": ("red", "green", "blue")[n % 3],
        "tags": [f"t{tag}" if tag % 3 else None for tag in range(n % 4)],
        "counts": {f"k{key}": (n * key if key % 2 else None) for key in range(n % 3)},
        "numbered": {key - 1: f"v{n}" for key in range(n % 3)},
        "address": {"street": "", "place": {"lat": n / 3, "lon": None} if n % 5 else None},
        "lines": [line, None, {**line, "price": None}][: n % 4],
    }
    nulls = {name: None for i, name in enumerate(values) if (n + i) % 11 == 0}
    return {"id": n, **values, **nulls}


def body(rows: Sequence[dict[str, Any]] = (), schema: pa.Schema = SCHEMA) -> bytes:
    """Return a Parquet object with several row groups."""
    listed = rows or [row(number) for number in range(ROWS)]
    for each in listed:
        # Arrow makes maps of pairs.
        each.update({name: each[name] and list(each[name].items()) for name in MAPS & each.keys()})
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(listed, schema), made, row_group_size=ROWS // 4)
    return made.getvalue()


def as_avro(name: str, value: Any) -> Any:  # noqa: ANN401 - any value
    """Return what Confluent's deserialiser of Avro makes of a value, by docs/registry.md."""
    if value is not None and name == "huge":
        return Decimal(value)
    if value is not None and name == "numbered":
        return [{"key": key, "value": item} for key, item in value.items()]
    return value


def as_json(name: str, value: Any) -> Any:  # noqa: ANN401, PLR0911 - any value; a case per type
    """Return what Confluent's deserialiser of JSON makes of a value, by docs/registry.md."""
    match value:
        case float():
            return int(value) if value.is_integer() else Decimal(repr(value))
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime() if value.tzinfo:
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case dt.datetime():
            return value.isoformat(timespec="milliseconds")
        case dt.time():
            return value.isoformat(timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case dict() if name == "numbered":
            return [{"key": key, "value": item} for key, item in value.items()]
        case dict():
            return {key: as_json(key, item) for key, item in value.items()}
        case list():
            return [as_json("", item) for item in value]
    return value


@dataclass(frozen=True)
class Reader:
    """A deserialiser of Confluent's, and what it makes of a value of the object by its name."""

    read: Callable[[bytes, SerializationContext], Any]
    form: Callable[[str, Any], Any]


# Without it, the registry is asked for associations, which is an extension of Confluent's.
BY_TOPIC = {"subject.name.strategy.type": "TOPIC"}


def avro_reader(client: SchemaRegistryClient) -> Reader:
    return Reader(AvroDeserializer(client, conf=BY_TOPIC), as_avro)


def json_reader(client: SchemaRegistryClient) -> Reader:
    """Return the deserialiser, which validates by the schema, with numbers kept exact."""
    exact = partial(json.loads, parse_float=Decimal)
    read = JSONDeserializer(None, schema_registry_client=client, conf=BY_TOPIC, json_decode=exact)
    return Reader(read, as_json)


def as_protobuf(name: str, value: Any) -> Any:  # noqa: ANN401 - any value
    """Return what Google's library makes of a value, by docs/registry.md."""
    column = SCHEMA.field(name)
    return member(column.type, value, nullable=column.nullable)


def protobuf_reader(client: SchemaRegistryClient) -> Reader:
    """Return the deserialiser of the class that a payload's schema declares."""

    @lru_cache
    def by_schema(number: int) -> ProtobufDeserializer:
        kind = message_class(client.get_schema(number).schema_str or "")
        made: ProtobufDeserializer = ProtobufDeserializer(kind, {"use.deprecated.format": False})
        return made

    def read(payload: bytes, context: SerializationContext) -> Any:  # noqa: ANN401 - any value
        message = by_schema(int.from_bytes(payload[1:5], "big"))(payload, context)
        return seen(plain(message))

    return Reader(read, as_protobuf)


READERS: Mapping[str, Callable[[SchemaRegistryClient], Reader]] = {
    "avro": avro_reader,
    "json-schema": json_reader,
    "protobuf": protobuf_reader,
}
# The converter of values, and that of keys.
PAIRS = [("avro", "protobuf"), ("json-schema", "avro"), ("protobuf", "json-schema")]


def pairs(*first: str) -> pytest.MarkDecorator:
    """Run these values; `soak` runs the others. Each of values and keys has a test of every way."""
    listed = [
        pytest.param(value, key, marks=() if value in first else pytest.mark.soak)
        for value, key in PAIRS
    ]
    return pytest.mark.parametrize(("value", "key"), listed)


KEY = ("id", "name")


@pytest.fixture
def client(registry: Stack) -> Iterator[SchemaRegistryClient]:
    """Confluent's client, which shares nothing with the library's."""
    with SchemaRegistryClient({"url": registry.endpoint("registry")}) as opened:
        yield opened


@pytest.fixture
def proxy(registry: Stack) -> Iterator[FaultProxy]:
    with FaultProxy(registry.endpoint("registry")) as opened:
        yield opened


def converters(value: str, key: str, url: str) -> dict[str, str]:
    """Return the keys of a connector with these converters, and extents of one row group."""
    return {
        "value.converter": value,
        "value.converter.schema.registry.url": url,
        "message.key": f"column:{','.join(KEY)}",
        "key.converter": key,
        "key.converter.schema.registry.url": url,
        "extent.bytes": "1KiB",
    }


def check(value: str, key: str, delivery: Delivery, client: SchemaRegistryClient) -> None:
    """Compare every record with the object's, field by field; the subjects have one version."""
    values, keys, topic = READERS[value](client), READERS[key](client), delivery.topic
    of_value = SerializationContext(topic, MessageField.VALUE)
    of_key = SerializationContext(topic, MessageField.KEY)
    found = {}
    for record in delivery.read():
        read = values.read(record.value or b"", of_value)
        assert read["id"] not in found
        found[read["id"]] = (keys.read(record.key or b"", of_key), read)
    assert found.keys() == set(range(ROWS))
    for number, (read_key, read) in found.items():
        truth = row(number)
        require_equal(read, {name: values.form(name, one) for name, one in truth.items()})
        require_equal(read_key, {name: keys.form(name, truth[name]) for name in KEY})
    for subject in (f"{topic}-value", f"{topic}-key"):
        assert client.get_versions(subject) == [1]


def require_equal(found: dict[str, Any], truth: dict[str, Any]) -> None:
    assert found == truth
    # True is 1, and a float may be equal to a decimal.
    assert {name: type(one) for name, one in found.items()} == {
        name: type(one) for name, one in truth.items()
    }


def through(proxy: FaultProxy, registry: Stack) -> str:
    """Return the address of Confluent's API behind the proxy."""
    path = registry.endpoint("registry").split("/", 3)[3]
    return f"{proxy.endpoint}/{path}"


@pytest.mark.parametrize(
    ("engine", "value", "key"),
    [
        ("inline", "protobuf", "json-schema"),
        pytest.param("spark", "avro", "protobuf", marks=pytest.mark.spark),
        *(pytest.param("inline", *pair, marks=pytest.mark.soak) for pair in PAIRS[:2]),
        *(
            pytest.param("spark", *pair, marks=[pytest.mark.spark, pytest.mark.soak])
            for pair in PAIRS[1:]
        ),
    ],
)
@pytest.mark.long
def test_consumers_read_every_value_of_the_object(  # noqa: PLR0917 - fixtures
    delivery: Delivery,
    registry: Stack,
    client: SchemaRegistryClient,
    engine: str,
    value: str,
    key: str,
) -> None:
    delivery.put("rows.parquet", body())
    delivery.connector(converters(value, key, registry.endpoint("registry")))

    report = delivery.finish(engine)

    assert report["ok"], report
    assert report["jobs"][0]["extents"] > 1
    check(value, key, delivery, client)


@pairs("protobuf")
@pytest.mark.long
def test_an_incompatible_schema_is_refused_before_the_first_record(
    delivery: Delivery, registry: Stack, client: SchemaRegistryClient, value: str, key: str
) -> None:
    delivery.connector(converters(value, key, registry.endpoint("registry")))
    delivery.put("a.parquet", body())
    assert delivery.run().ok
    client.set_compatibility(f"{delivery.topic}-value", "BACKWARD")
    changed = pa.schema([pa.field("id", pa.string(), nullable=False), ("name", pa.string())])
    delivery.put("b.parquet", body([{"id": "1"}], changed))

    report = delivery.run()

    (failed,) = (item for item in delivery.items() if item.error)
    assert not report.ok
    assert f"the latest one of the subject {delivery.topic}-value" in failed.error
    check(value, key, delivery, client)


@pytest.mark.long
def test_values_conform_to_the_schema_by_another_validator(
    delivery: Delivery, registry: Stack, client: SchemaRegistryClient
) -> None:
    delivery.connector(converters("json-schema", "avro", registry.endpoint("registry")))
    delivery.put("rows.parquet", body())
    assert delivery.run().ok

    latest = client.get_latest_version(f"{delivery.topic}-value")
    schema = json.loads(latest.schema.schema_str or "")
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema, format_checker=Draft7Validator.FORMAT_CHECKER)
    values = delivery.values()
    assert len(values) == ROWS
    for value in values:
        validator.validate(json.loads(value[5:]))


@pytest.mark.long
def test_one_run_registers_a_schema_once(
    delivery: Delivery, registry: Stack, proxy: FaultProxy, client: SchemaRegistryClient
) -> None:
    delivery.connector(converters("avro", "avro", through(proxy, registry)))
    delivery.put("rows.parquet", body())
    delivery.put("more.parquet", body([row(ROWS + more) for more in range(4)]))

    assert delivery.run(cores=1).ok

    made = [one.target.rpartition("/subjects/")[2] for one in proxy.exchanges]
    registered = [one for one in made if one.endswith("/versions")]
    assert sorted(registered) == [f"{delivery.topic}-{part}/versions" for part in ("key", "value")]
    assert client.get_versions(f"{delivery.topic}-value") == [1]


@pytest.fixture(scope="module")
def path(ground: Ground) -> Iterator[EventPath]:
    with ground.open() as opened:
        yield opened


@pairs("json-schema")
@pytest.mark.long
def test_functions_deliver_after_an_outage_that_costs_no_attempt(  # noqa: PLR0917 - fixtures
    path: EventPath,
    registry: Stack,
    proxy: FaultProxy,
    client: SchemaRegistryClient,
    value: str,
    key: str,
) -> None:
    keys = converters(value, key, through(proxy, registry))
    feed = path.feed(**{name.replace(".", "_"): text for name, text in keys.items()})
    rule = proxy.inject(Reset(), times=None)

    upload = feed.upload("rows.parquet", body())
    rule.await_hits(2)
    eventually("an extent was handed back", lambda: any(feed.items()))
    attempts = {item.attempts for item in feed.items() if item.claim is None}
    proxy.withdraw(rule)

    feed.await_state(upload, JobState.DONE)
    assert attempts <= {0}
    check(value, key, feed.delivery, client)
