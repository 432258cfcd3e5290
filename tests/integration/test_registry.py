"""A real schema registry: what the client looks up, checks and registers there."""

import http.client
import json
from urllib.parse import urlsplit

import pytest

from extentflow.config.registry import AvroOptions
from extentflow.converters.registry import SchemaRegistry, open_registry
from extentflow.errors import IncompatibleSchema, RegistryUnavailable
from extentflow_local.stack import Stack

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
def strict(registry: Stack) -> Stack:
    """A registry that refuses what readers of a new schema could not read."""
    ask(registry, "PUT", "/config", {"compatibility": "BACKWARD"})
    return registry


@pytest.fixture
def subject(unique: str) -> str:
    return f"orders-{unique}-value"


def new_client(registry: Stack, **changes: bool) -> SchemaRegistry:
    """Return a client that has looked nothing up, as another worker's."""
    open_registry.cache_clear()
    return open_registry(AvroOptions(urls=(registry.endpoint("registry"),), **changes))  # type: ignore[arg-type]


def test_all_workers_get_one_id_and_register_once(strict: Stack, subject: str) -> None:
    found = [new_client(strict).settle(subject, ORDER) for _ in range(3)]

    assert len(set(found)) == 1
    assert found[0].id > 0
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

    assert new_client(strict).settle(subject, WIDER, preview=True).id == 0
    assert versions(strict, subject) == [1]


def test_the_latest_schema_is_found(strict: Stack, subject: str) -> None:
    latest = new_client(strict)
    with pytest.raises(IncompatibleSchema, match=f"subject {subject} has no schema yet"):
        latest.latest(subject)
    registered = new_client(strict).settle(subject, WIDER)

    assert latest.latest(subject) == registered


def test_without_registration_an_unknown_schema_is_refused(strict: Stack, subject: str) -> None:
    with pytest.raises(IncompatibleSchema, match=f"the subject {subject} has no such schema"):
        new_client(strict, auto_register=False).settle(subject, ORDER)


def test_the_level_is_described(strict: Stack) -> None:
    assert new_client(strict).describe().endswith(", compatibility BACKWARD")


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
