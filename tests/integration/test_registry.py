"""A real schema registry: what the client looks up, checks and registers there."""

import http.client
import json
from collections.abc import Iterator
from decimal import Decimal
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.support.protobuf import decode, message_class, plain

from extentflow.config.registry import AvroOptions, ProtobufOptions
from extentflow.converters import Destination, open_converter
from extentflow.converters.schema_registry import SettledSchemas
from extentflow.converters.subjects import open_registry
from extentflow.errors import IncompatibleSchema, RegistryUnavailable
from extentflow_local.stack.stack import Stack

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


ORDER, WIDER, BROKEN = record(ID), record(ID, NOTE), record({"name": "id", "type": "string"})


def ask(registry: Stack, method: str, path: str, body: object = None) -> object:
    """Return what the registry answers to a request that has to succeed."""
    url = urlsplit(registry.endpoint("registry"))
    connection = http.client.HTTPConnection(url.netloc, timeout=60)
    data = None if body is None else json.dumps(body)
    connection.request(method, url.path + path, data, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    assert response.status == http.HTTPStatus.OK, answer
    return json.loads(answer)


def versions(registry: Stack, subject: str) -> object:
    return ask(registry, "GET", f"/subjects/{subject}/versions")


@pytest.fixture
def strict(registry: Stack) -> Iterator[Stack]:
    """A registry that refuses what readers of a new schema could not read.

    Tests of other files share the registry; afterwards it accepts every schema, as it did before.
    """
    ask(registry, "PUT", "/config", {"compatibility": "BACKWARD"})
    yield registry
    # NONE deletes the rule; the registry answers 404 where a test deleted it already.
    ask(registry, "PUT", "/config", {"compatibility": "BACKWARD"})
    ask(registry, "PUT", "/config", {"compatibility": "NONE"})


@pytest.fixture
def subject(unique: str) -> str:
    return f"orders-{unique}-value"


def new_client(registry: Stack, **changes: bool) -> SettledSchemas:
    """Return a client that has looked nothing up, as another worker's."""
    open_registry.cache_clear()
    return open_registry(AvroOptions(urls=(registry.endpoint("registry"),), **changes))  # type: ignore[arg-type]


@pytest.mark.long
def test_all_workers_get_one_id_and_register_once(strict: Stack, subject: str) -> None:
    found = [new_client(strict).settle(subject, ORDER) for _ in range(3)]

    assert len(set(found)) == 1
    assert found[0].id
    assert versions(strict, subject) == [1]
    assert ask(strict, "GET", f"/schemas/ids/{found[0].id}") == {
        "schema": ORDER, "schemaType": "AVRO", "references": [],
    }  # fmt: skip


def test_a_compatible_schema_is_a_new_version(strict: Stack, subject: str) -> None:
    first = new_client(strict).settle(subject, ORDER)

    second = new_client(strict).settle(subject, WIDER)

    assert second.id != first.id
    assert versions(strict, subject) == [1, 2]


@pytest.mark.parametrize("preview", [False, True])
def test_an_incompatible_schema_is_refused(strict: Stack, subject: str, *, preview: bool) -> None:
    new_client(strict).settle(subject, ORDER)

    with pytest.raises(IncompatibleSchema, match=f"the latest one of the subject {subject}"):
        new_client(strict).settle(subject, BROKEN, preview=preview)

    assert versions(strict, subject) == [1]


def test_a_preview_registers_nothing(strict: Stack, subject: str) -> None:
    new_client(strict).settle(subject, ORDER)

    assert new_client(strict).settle(subject, WIDER, preview=True).id == ""
    assert versions(strict, subject) == [1]


def test_the_latest_schema_is_found(strict: Stack, subject: str) -> None:
    latest = new_client(strict)
    with pytest.raises(IncompatibleSchema, match=f"subject {subject} has no schema yet"):
        latest.registry.latest(subject)
    registered = new_client(strict).settle(subject, WIDER)

    assert latest.registry.latest(subject) == registered


def test_without_registration_an_unknown_schema_is_refused(strict: Stack, subject: str) -> None:
    with pytest.raises(IncompatibleSchema, match=f"the subject {subject} has no such schema"):
        new_client(strict, auto_register=False).settle(subject, ORDER)


def test_the_level_is_described(strict: Stack) -> None:
    assert new_client(strict).registry.describe().endswith(", compatibility BACKWARD")


@pytest.mark.outage
def test_a_killed_registry_is_an_outage_and_keeps_its_ids(strict: Stack, subject: str) -> None:
    before = new_client(strict).settle(subject, ORDER)
    after = new_client(strict)
    strict.kill("registry")
    try:
        with pytest.raises(RegistryUnavailable, match="does not answer"):
            after.settle(subject, ORDER)
    finally:
        strict.up(["registry"])

    assert after.settle(subject, ORDER) == before


def protobuf(registry: Stack, topic: str, batch: pa.RecordBatch) -> list[bytes]:
    """Return the payloads of a worker that has looked nothing up."""
    open_registry.cache_clear()
    options = ProtobufOptions(urls=(registry.endpoint("registry"),), record_name="com.acme.Order")
    convert = open_converter(
        "protobuf", batch.schema, options=options, destination=Destination(topic)
    )
    found: list[bytes] = convert(batch).to_pylist()
    return found


def test_messages_of_every_version_are_read_by_their_schema(strict: Stack, unique: str) -> None:
    first = pa.record_batch({
        "id": [1], "name": ["é"], "price": pa.array([Decimal("-1.50")], pa.decimal128(9, 2)),
        "at": pa.array([0], pa.timestamp("ms", "UTC")), "day": pa.array([0], pa.date32()),
        "tags": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), "lines": [[{"n": 1}]],
    })  # fmt: skip
    columns = dict(zip(first.schema.names, first.columns, strict=True))
    # In front, and in a member: compatible by the registry's rule.
    second = pa.record_batch({"note": ["x"], **columns, "lines": [[{"m": 5, "n": 2}]]})
    third = pa.record_batch({"last": [9], "id": [3], "note": pa.array([None], pa.string())})
    topic = f"orders-{unique}"

    payloads = [protobuf(strict, topic, one)[0] for one in (first, second, first)]
    ask(strict, "PUT", "/config", {"compatibility": "NONE"})
    payloads += protobuf(strict, topic, third)

    assert versions(strict, f"{topic}-value") == [1, 2, 3]
    numbers = [int.from_bytes(payload[1:5], "big") for payload in payloads]
    assert numbers[0] == numbers[2]
    assert len(set(numbers)) == 3
    context = SerializationContext(topic, MessageField.VALUE)
    found = []
    for number, payload in zip(numbers, payloads, strict=True):
        answer = ask(strict, "GET", f"/schemas/ids/{number}")
        assert isinstance(answer, dict)
        assert answer["schemaType"] == "PROTOBUF"
        read = ProtobufDeserializer(
            message_class(answer["schema"]), {"use.deprecated.format": False}
        )
        found.append(plain(read(payload, context)))
    assert found[0] == found[2]
    assert found[1]["lines"] == {"items": [{"value": {"n": 2, "m": 5}}]}
    assert found[1] == found[0] | {"note": "x", "lines": found[1]["lines"]}
    assert found[3] == {"id": 3, "note": None, "last": 9}
    # What was compiled for the first schema reads the columns that it has of the others.
    older = message_class(ask(strict, "GET", f"/schemas/ids/{numbers[0]}")["schema"])  # type: ignore[index]
    assert decode(older, payloads[3][6:]) == dict.fromkeys(columns) | {"id": 3}
