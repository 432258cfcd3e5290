"""The client of schema registries: what it looks up, checks and registers, and how it fails."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.support.golden import Golden
from tests.support.registry import RegistryDouble, registry_double

from extentflow.config.hosts import OF_FUNCTIONS, HostRule
from extentflow.config.registry import AvroOptions
from extentflow.converters import Destination, open_converter
from extentflow.converters.schema_registry import SettledSchemas
from extentflow.converters.subjects import open_registry
from extentflow.errors import (
    AccessDenied,
    IncompatibleSchema,
    Misconfigured,
    RegistryUnavailable,
)

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
WIDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
BROKEN = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
)


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double(first_id=70_000) as double:
        yield double


def client(registry: RegistryDouble, **changes: object) -> SettledSchemas:
    return open_registry(AvroOptions(urls=(registry.url,), **changes))  # type: ignore[arg-type]


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


# -- which schema ----------------------------------------------------------------------------------


def test_a_first_schema_is_registered_once_per_process(registry: RegistryDouble) -> None:
    first = client(registry).settle("orders-value", ORDER)
    again = client(registry).settle("orders-value", ORDER)

    assert first == again
    assert first.prefix == b"\0" + (70_000).to_bytes(4, "big")
    assert registry.subjects == {"orders-value": [ORDER]}
    assert registry.requests == [
        ("POST", "/subjects/orders-value"),
        ("POST", "/compatibility/subjects/orders-value/versions/latest?verbose=true"),
        ("POST", "/subjects/orders-value/versions"),
    ]


def test_a_schema_that_is_there_is_only_looked_up(registry: RegistryDouble) -> None:
    registry.add("orders-value", ORDER)
    known = registry.add("orders-value", WIDER)

    assert client(registry).settle("orders-value", WIDER).id == str(known)
    assert registry.requests == [("POST", "/subjects/orders-value")]


def test_a_preview_checks_a_schema_and_registers_nothing(registry: RegistryDouble) -> None:
    registry.add("orders-value", ORDER)
    preview = client(registry)

    assert preview.settle("orders-value", WIDER, preview=True).id == ""
    with pytest.raises(IncompatibleSchema, match="TYPE_MISMATCH"):
        preview.settle("orders-value", BROKEN, preview=True)
    assert registry.subjects == {"orders-value": [ORDER]}
    assert preview.settle("orders-value", WIDER).id
    assert registry.subjects == {"orders-value": [ORDER, WIDER]}


def test_a_compatible_change_is_a_version_of_its_own(registry: RegistryDouble) -> None:
    first = client(registry).settle("orders-value", ORDER)
    second = client(registry).settle("orders-value", WIDER)

    assert int(second.id) == int(first.id) + 1
    assert registry.subjects["orders-value"] == [ORDER, WIDER]


def test_an_incompatible_change_is_refused_with_the_registrys_reason(
    registry: RegistryDouble,
    golden: Golden,
) -> None:
    registry.add("orders-value", ORDER)

    with golden.raises(
        IncompatibleSchema,
        match="subject orders-value.*TYPE_MISMATCH.*/id",
    ):
        client(registry).settle("orders-value", BROKEN)
    assert registry.subjects["orders-value"] == [ORDER]


def test_without_registration_an_unknown_schema_is_refused(
    registry: RegistryDouble, golden: Golden
) -> None:
    with golden.raises(IncompatibleSchema, match="orders-value"):
        client(registry, auto_register=False).settle("orders-value", ORDER)
    assert registry.subjects == {}


def test_the_latest_schema_is_asked_for_each_time(registry: RegistryDouble, golden: Golden) -> None:
    latest = client(registry)

    with golden.raises(IncompatibleSchema, match="orders-value"):
        latest.registry.latest("orders-value")
    registry.add("orders-value", ORDER)
    assert latest.registry.latest("orders-value").text == ORDER
    registry.add("orders-value", WIDER)
    assert latest.registry.latest("orders-value").text == WIDER


def test_a_schema_of_another_kind_is_not_read(registry: RegistryDouble, golden: Golden) -> None:
    registry.add("orders-value", "{}", kind="JSON")

    with golden.raises(IncompatibleSchema):
        client(registry).registry.latest("orders-value")


def test_a_schema_with_references_is_not_read(registry: RegistryDouble) -> None:
    registry.fail.append((200, {"id": 1, "schema": ORDER, "references": [{"name": "x"}]}))

    with pytest.raises(IncompatibleSchema, match="refers to other subjects"):
        client(registry).registry.latest("orders-value")


def test_subjects_are_quoted_in_paths(registry: RegistryDouble) -> None:
    client(registry).settle("a/b c-value", ORDER)

    assert registry.requests[0] == ("POST", "/subjects/a%2Fb%20c-value")
    assert list(registry.subjects) == ["a/b c-value"]


@pytest.mark.parametrize(
    ("strategy", "is_key", "subject"),
    [
        ("TopicNameStrategy", False, "orders-value"),
        ("TopicNameStrategy", True, "orders-key"),
        ("RecordNameStrategy", True, "com.acme.Order"),
        ("TopicRecordNameStrategy", False, "orders-com.acme.Order"),
    ],
)
def test_the_strategy_makes_the_subject(strategy: str, is_key: bool, subject: str) -> None:  # noqa: FBT001 - a parameter
    options = AvroOptions(strategy=strategy, record_name="com.acme.Order")

    assert options.subject("orders", is_key=is_key) == subject


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((500, {"message": "no leader"}), RegistryUnavailable, "answered 500: no leader"),
        ((503, None), RegistryUnavailable, "answered 503: no message"),
        ((429, {"message": "slow down"}), RegistryUnavailable, "slow down"),
        ((401, {"message": "Unauthorized"}), AccessDenied, "correct basic.auth.user.info"),
        ((403, {"message": "denied"}), AccessDenied, "give that user rights on orders-value"),
        ((409, {"message": "not so"}), IncompatibleSchema, "orders-value: not so; change"),
        ((422, {"message": "Invalid schema"}), IncompatibleSchema, "Invalid schema"),
        ((404, {"error_code": 404, "message": "x"}), Misconfigured, "address of Confluent's API"),
        ((200, []), Misconfigured, "address of Confluent's API"),
        ((200, {"id": "7"}), Misconfigured, "with the id '7'"),
        ((200, {"id": -1}), Misconfigured, "with the id -1"),
        ((302, {"location": "http://127.0.0.1:1/"}), Misconfigured, "answered 302"),
    ],
)
def test_an_answer_has_a_typed_outcome(
    registry: RegistryDouble, answer: tuple[int, object], error: type[Exception], message: str
) -> None:
    registry.fail.append(answer)

    with pytest.raises(error, match=message):
        client(registry).settle("orders-value", ORDER)


def test_what_failed_is_tried_again(registry: RegistryDouble) -> None:
    registry.fail.append((503, None))
    with pytest.raises(RegistryUnavailable):
        client(registry).settle("orders-value", ORDER)

    assert client(registry).settle("orders-value", ORDER).id == "70000"


def test_a_registry_that_does_not_answer_is_unavailable(golden: Golden) -> None:
    url = f"http://127.0.0.1:{free_port()}"

    with golden.raises(RegistryUnavailable, match=f"schema registry.*{url}"):
        open_registry(AvroOptions(urls=(url,))).settle("orders-value", ORDER)


def test_the_next_address_is_tried(registry: RegistryDouble) -> None:
    options = AvroOptions(urls=(f"http://127.0.0.1:{free_port()}", registry.url))

    assert open_registry(options).settle("orders-value", ORDER).id == "70000"


def test_user_and_password_are_sent_and_never_shown(registry: RegistryDouble) -> None:
    registry.user_info = "app:s3cret"

    assert client(registry, user_info="app:s3cret").settle("orders-value", ORDER).id == "70000"
    with pytest.raises(AccessDenied) as caught:
        client(registry, user_info="app:wr0ng").settle("orders-value", ORDER)
    assert "wr0ng" not in str(caught.value)


def test_a_ca_that_is_not_there_is_named(golden: Golden) -> None:
    options = AvroOptions(urls=("https://127.0.0.1:1",), ca_location="/no/such.pem")

    with golden.raises(Misconfigured, match=r"ssl\.ca\.location=/no/such\.pem"):
        open_registry(options).settle("orders-value", ORDER)


def test_a_check_reports_the_compatibility_level(registry: RegistryDouble) -> None:
    assert client(registry).registry.describe() == f"{registry.url}, compatibility BACKWARD"

    registry.fail.append((200, {}))
    with pytest.raises(Misconfigured, match="names no compatibility level"):
        client(registry).registry.describe()


def test_no_request_is_sent_to_an_address_that_connectors_may_not_name(
    registry: RegistryDouble, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")
    named = AvroOptions(urls=(registry.url.replace("127.0.0.1", "localhost"),))

    with golden.raises(Misconfigured, match="localhost leads to (127.0.0.1|::1)"):
        open_registry(replace(named, hosts=HostRule())).registry.describe()
    assert registry.requests == []

    for rule in (None, HostRule(("localhost",)), HostRule(("127.*",))):
        assert open_registry(replace(named, hosts=rule)).registry.describe()


def test_no_handshake_is_begun_with_such_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"https://localhost:{listening.getsockname()[1]}"

        with pytest.raises(Misconfigured, match=r"leads to 127\.0\.0\.1"):
            open_registry(AvroOptions(urls=(url,), hosts=HostRule())).registry.describe()

        accepted, _ = listening.accept()
        with accepted:
            assert accepted.recv(1) == b""


def test_a_proxy_of_the_owner_looks_up_names(
    registry: RegistryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")
    monkeypatch.setenv("http_proxy", registry.url)
    monkeypatch.delenv("no_proxy", raising=False)
    options = AvroOptions(urls=("http://registry.example.com",), hosts=HostRule())

    open_registry(options).registry.describe()

    assert registry.requests == [("GET", "http://registry.example.com/config")]


# -- the converter ---------------------------------------------------------------------------------


def test_the_converter_writes_by_the_latest_schema(registry: RegistryDouble) -> None:
    registry.add("orders-value", WIDER)
    options = AvroOptions(urls=(registry.url,), auto_register=False, use_latest=True)
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int32())})

    convert = open_converter(
        "avro", batch.schema, options=options, destination=Destination("orders")
    )

    payloads = convert(batch).to_pylist()
    assert [registry.decode(one) for one in payloads] == [
        {"id": 1, "note": None},
        {"id": 2, "note": None},
    ]


def test_columns_that_the_latest_schema_does_not_fit_are_refused(
    registry: RegistryDouble, golden: Golden
) -> None:
    number = registry.add("orders-value", ORDER)
    options = AvroOptions(urls=(registry.url,), auto_register=False, use_latest=True)

    with golden.raises(IncompatibleSchema, match=f"subject orders-value.*schema {number}.*'id'"):
        open_converter(
            "avro",
            pa.schema([("id", pa.string())]),
            options=options,
            destination=Destination("orders"),
        )
