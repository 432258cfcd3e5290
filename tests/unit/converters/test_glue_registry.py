"""AWS Glue Schema Registry: what is registered, and payloads that another reader understands."""

import json
import socket
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import boto3
import pyarrow as pa
import pytest
from botocore.stub import Stubber
from confluent_kafka.schema_registry.common.protobuf import protobuf_to_decimal
from moto import mock_aws
from tests.support.golden import Golden
from tests.support.memory_delivery import Ticker
from tests.support.protobuf import decode, message_class
from tests.support.registry import decoded

from extentflow.aws.glue import connect
from extentflow.config.hosts import OF_FUNCTIONS, HostRule
from extentflow.config.registry import AvroOptions, JsonSchemaOptions, ProtobufOptions
from extentflow.converters import Converter, Destination, open_converter
from extentflow.converters.avro_converter import avro_converter
from extentflow.converters.glue_registry import GlueRegistry, open_glue
from extentflow.converters.schema_registry import RegisteredSchema, SettledSchemas
from extentflow.converters.subjects import open_registry
from extentflow.errors import IncompatibleSchema, Misconfigured, RegistryUnavailable
from extentflow.retry import RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

REGION = "eu-west-1"
GLUE: dict[str, Any] = {"registry_type": "glue", "registry_name": "shop", "region": REGION}
ORDER = json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]})
BATCH = pa.record_batch({"id": [1, -2], "name": ["é", None]})


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture
def glue() -> Iterator["GlueClient"]:
    open_registry.cache_clear()
    with mock_aws():
        client = boto3.session.Session().client("glue", region_name=REGION)
        client.create_registry(RegistryName="shop")
        yield client
    open_registry.cache_clear()


def opened(name: str, schema: pa.Schema, *, preview: bool = False, **changes: object) -> Converter:
    """Return the converter of a worker that has looked nothing up."""
    open_registry.cache_clear()
    kinds = {"avro": AvroOptions, "json-schema": JsonSchemaOptions, "protobuf": ProtobufOptions}
    options = kinds[name](**(GLUE | changes))
    destination = Destination("orders", preview=preview)
    return open_converter(name, schema, options=options, destination=destination)


def taken_apart(glue: "GlueClient", payload: bytes, kind: str) -> tuple[str, bytes]:
    """Return the text of the schema that a payload names, and the record."""
    assert payload[:1] == b"\3"
    version = glue.get_schema_version(SchemaVersionId=str(UUID(bytes=payload[2:18])))
    assert version["DataFormat"] == kind
    record = payload[18:]
    return version["SchemaDefinition"], zlib.decompress(record) if payload[1] == 5 else record


def count(glue: "GlueClient", name: str) -> int:
    found = glue.get_schema(SchemaId={"RegistryName": "shop", "SchemaName": name})
    return found["LatestSchemaVersion"]


# -- payloads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("compression", "byte"), [("NONE", 0), ("ZLIB", 5)])
def test_avro_has_the_wire_format_of_awss_serializers(
    glue: "GlueClient", compression: str, byte: int
) -> None:
    payloads = opened("avro", BATCH.schema, compression=compression)(BATCH).to_pylist()

    found = []
    for payload in payloads:
        assert payload[1] == byte
        text, record = taken_apart(glue, payload, "AVRO")
        found.append(decoded(record, json.loads(text)))
    assert found == BATCH.to_pylist()
    assert count(glue, "orders-value") == 1


def test_json_has_the_wire_format_of_awss_serializers(glue: "GlueClient") -> None:
    payloads = opened("json-schema", BATCH.schema)(BATCH).to_pylist()

    parts = [taken_apart(glue, payload, "JSON") for payload in payloads]
    assert [json.loads(record) for _, record in parts] == BATCH.to_pylist()
    assert json.loads(parts[0][0])["properties"].keys() == {"id", "name"}


def test_a_message_stands_behind_its_index(glue: "GlueClient") -> None:
    """The index counts all messages of the file by full name; the outermost one is the first."""
    prices = pa.array([Decimal("-1.50"), None], pa.decimal128(9, 2))
    batch = pa.record_batch({"id": [1, 2], "price": prices, "l": [[{"a": 1}], []]})

    payloads = opened("protobuf", batch.schema)(batch).to_pylist()

    parts = [taken_apart(glue, payload, "PROTOBUF") for payload in payloads]
    assert [record[:1] for _, record in parts] == [b"\0", b"\0"]
    kind = message_class(parts[0][0])
    # AWS's deserialiser has no file of Confluent's.
    assert [one.name for one in kind.DESCRIPTOR.file.dependencies] == []
    first = kind.FromString(parts[0][1][1:])
    assert protobuf_to_decimal(first.price) == Decimal("-1.50")
    assert decode(kind, parts[1][1][1:]) == {"id": 2, "price": None, "l": {"items": []}}


def test_fields_of_messages_keep_their_numbers(glue: "GlueClient") -> None:
    columns = pa.record_batch({"a": [1], "b": [2]})
    opened("protobuf", columns.schema)
    changed = pa.record_batch({"c": [3], "b": [2]})

    (payload,) = opened("protobuf", changed.schema)(changed).to_pylist()

    assert payload[18:] == b"\0\x10\2\x18\3"
    assert count(glue, "orders-value") == 2


def test_a_compressed_batch_beyond_32_bit_offsets_is_converted_in_halves(
    glue: "GlueClient",
) -> None:
    batch = pa.record_batch({"v": [bytes([n]) * 3_000 for n in range(64)]})
    options = AvroOptions(**GLUE, compression="ZLIB")
    small = avro_converter(batch.schema, None, options, Destination("orders"), limit_bytes=9_000)

    found = [taken_apart(glue, one, "AVRO")[1] for one in small(batch).to_pylist()]
    assert [one[-3_000:] for one in found] == batch["v"].to_pylist()


# -- registration ---------------------------------------------------------------------------------


def test_all_workers_name_one_version(glue: "GlueClient") -> None:
    found = {opened("avro", BATCH.schema)(BATCH)[0].as_py()[:18] for _ in range(3)}

    assert len(found) == 1
    assert count(glue, "orders-value") == 1


def test_schemas_have_the_name_and_the_compatibility_that_the_keys_say(glue: "GlueClient") -> None:
    opened("avro", BATCH.schema, schema_name="order", compatibility="FULL_ALL")

    made = glue.get_schema(SchemaId={"RegistryName": "shop", "SchemaName": "order"})
    assert (made["Compatibility"], made["DataFormat"]) == ("FULL_ALL", "AVRO")


def test_without_a_name_the_registry_is_glues_own(glue: "GlueClient") -> None:
    opened("avro", BATCH.schema, registry_name="default-registry")

    names = [one["RegistryName"] for one in glue.list_registries()["Registries"]]
    assert "default-registry" in names


@pytest.mark.usefixtures("glue")
def test_a_registry_that_does_not_exist_is_a_mistake(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="registry nowhere"):
        opened("avro", BATCH.schema, registry_name="nowhere")


def test_a_preview_registers_nothing(glue: "GlueClient") -> None:
    opened("avro", BATCH.schema, preview=True)

    with pytest.raises(glue.exceptions.EntityNotFoundException):
        count(glue, "orders-value")


def test_without_registration_a_new_schema_is_refused(glue: "GlueClient", golden: Golden) -> None:
    with golden.raises(IncompatibleSchema, match="subject orders-value"):
        opened("avro", BATCH.schema, auto_register=False)
    with pytest.raises(glue.exceptions.EntityNotFoundException):
        count(glue, "orders-value")


def test_a_schema_that_glue_refuses_is_incompatible(glue: "GlueClient", golden: Golden) -> None:
    opened("avro", BATCH.schema, compatibility="DISABLED")

    with golden.raises(IncompatibleSchema, match="orders-value"):
        opened("avro", pa.schema([("id", pa.int64())]))
    assert count(glue, "orders-value") == 1


def test_columns_are_written_by_the_latest_version(glue: "GlueClient", golden: Golden) -> None:
    latest = {"auto_register": False, "use_latest": True}
    with golden.raises(IncompatibleSchema, match="schema orders-value"):
        opened("avro", BATCH.schema, **latest)
    opened("avro", pa.schema([("id", pa.int64()), ("name", pa.string()), ("x", pa.int8())]))

    payload = opened("avro", BATCH.schema, **latest)(BATCH)[0].as_py()

    text, record = taken_apart(glue, payload, "AVRO")
    assert decoded(record, json.loads(text)) == {"id": 1, "name": "é", "x": None}


@pytest.mark.usefixtures("glue")
def test_the_registry_is_described() -> None:
    assert GlueRegistry(AvroOptions(**GLUE)).describe().endswith("registry/shop")


# -- what moto does not do ------------------------------------------------------------------------


class SlowGlue:
    """A client whose answers about versions have these statuses, the last one for ever."""

    def __init__(self, client: "GlueClient", *statuses: str) -> None:
        self._client, self._statuses = client, deque(statuses)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as boto3's
        call = getattr(self._client, name)
        if name not in {
            "create_schema", "register_schema_version", "get_schema_by_definition",
        }:  # fmt: skip
            return call

        def answer(**arguments: object) -> Mapping[str, object]:
            found = call(**arguments)
            status = self._statuses[0]
            if len(self._statuses) > 1:
                self._statuses.popleft()
            named = {"SchemaVersionStatus" if name == "create_schema" else "Status": status}
            return {**found, **named}

        return answer


def settled(glue: "GlueClient", *statuses: str) -> tuple[RegisteredSchema, Ticker]:
    ticker = Ticker()
    registry = GlueRegistry(
        AvroOptions(**GLUE),
        open_client=lambda *_: SlowGlue(glue, *statuses),  # type: ignore[arg-type]
        patience=RetryPolicy(total_seconds=60, clock=ticker.clock),
    )
    return SettledSchemas(registry, may_register=True).settle("orders-value", ORDER), ticker


def test_a_version_is_used_once_glue_has_checked_it(glue: "GlueClient") -> None:
    found, _ = settled(glue, "PENDING", "PENDING", "PENDING", "AVAILABLE")

    assert found == settled(glue, "PENDING", "AVAILABLE")[0] == settled(glue, "AVAILABLE")[0]


@pytest.mark.parametrize("statuses", [("FAILURE",), ("PENDING", "PENDING", "FAILURE")])
def test_a_version_that_failed_is_never_used(
    glue: "GlueClient", statuses: tuple[str], golden: Golden
) -> None:
    with golden.raises(IncompatibleSchema, match="orders-value"):
        settled(glue, *statuses)


def test_a_version_that_stays_pending_is_an_outage(glue: "GlueClient") -> None:
    with pytest.raises(RegistryUnavailable, match=r"is PENDING; gave up after"):
        settled(glue, "PENDING")


def test_of_two_workers_that_create_a_schema_both_get_its_version(glue: "GlueClient") -> None:
    class Racing(SlowGlue):
        def register_schema_version(self, **arguments: Any) -> Any:  # noqa: ANN401 - as boto3's
            try:
                return self._client.register_schema_version(**arguments)
            except self._client.exceptions.EntityNotFoundException:
                opened("avro", BATCH.schema)
                raise

    registry = GlueRegistry(
        AvroOptions(**GLUE),
        open_client=lambda *_: Racing(glue, "AVAILABLE"),  # type: ignore[arg-type]
    )

    assert registry.register("orders-value", ORDER).id
    assert count(glue, "orders-value") == 2


@pytest.mark.parametrize(
    ("code", "status", "raised"),
    [
        ("ThrottlingException", 400, RegistryUnavailable),
        ("InternalServiceException", 500, RegistryUnavailable),
        ("ConcurrentModificationException", 400, RegistryUnavailable),
        ("AccessDeniedException", 400, Misconfigured),
        ("ResourceNumberLimitExceededException", 400, Misconfigured),
    ],
)
def test_errors_of_the_service_are_typed(code: str, status: int, raised: type[Exception]) -> None:
    client = connect(REGION, None)
    registry = GlueRegistry(AvroOptions(**GLUE), open_client=lambda *_: client)

    with Stubber(client) as stub:
        stub.add_client_error("get_schema_by_definition", code, http_status_code=status)
        with pytest.raises(raised, match=f"registry shop, schema orders-value: .*{code}"):
            registry.find("orders-value", ORDER)


def test_an_endpoint_of_another_service_is_a_mistake() -> None:
    client = connect(REGION, None)
    registry = GlueRegistry(AvroOptions(**GLUE), open_client=lambda *_: client)

    with Stubber(client) as stub:
        stub.add_response(
            "get_schema_by_definition", {"SchemaVersionId": "x" * 36, "Status": "AVAILABLE"}
        )
        with pytest.raises(Misconfigured, match="version id 'xxx"):
            registry.find("orders-value", ORDER)


def test_a_registry_that_is_not_there_is_described_or_a_mistake(golden: Golden) -> None:
    client = connect(REGION, None)

    def described(name: str) -> str:
        options = AvroOptions(**(GLUE | {"registry_name": name}))
        with Stubber(client) as stub:
            stub.add_client_error("get_registry", "EntityNotFoundException", http_status_code=400)
            return GlueRegistry(options, open_client=lambda *_: client).describe()

    assert described("default-registry").endswith("the first schema creates")
    with golden.raises(Misconfigured, match="registry nowhere"):
        described("nowhere")


def test_no_request_is_sent_to_an_address_that_connectors_may_not_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        named = GLUE | {"endpoint": f"http://localhost:{listening.getsockname()[1]}"}

        with pytest.raises(Misconfigured, match=r"orders-value: localhost leads to 127\.0\.0\.1"):
            open_glue(AvroOptions(**named, hosts=HostRule()), "AVRO").find("orders-value", ORDER)

        accepted, _ = listening.accept()
        with accepted:
            assert accepted.recv(1) == b""


def test_nothing_listens_at_the_endpoint() -> None:
    registry = GlueRegistry(AvroOptions(**(GLUE | {"endpoint": "http://127.0.0.1:9"})))

    with pytest.raises(RegistryUnavailable, match="registry shop, schema orders-value"):
        registry.find("orders-value", ORDER)
