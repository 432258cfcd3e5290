"""Every producer and every consumer with and without columnar values: rows, or a clear error.

docs/columnar.md, "Compatibility", is the table; `extentflow lake` is tested in test_lake_values.py.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from confluent_kafka import DeserializingConsumer, TopicPartition
from confluent_kafka.error import ValueDeserializationError
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from tests.support.columnar_delivery import make_topics, numbers, parquet
from tests.support.delivery import Delivery
from tests.support.real import run_here
from tests.support.registry import RegistryDouble, registry_double

from extentflow.cli import app, run_command_line
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import variable
from extentflow.consumer import TopicConsumer
from extentflow.errors import AccessDenied
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ROWS = 400
KEYS = f"texts: {base64.b64encode(b'a key of 16 byte').decode()}"
PARQUET = {"columnar.encoding": "parquet"}
ARROW = {"columnar.encoding": "arrow"}
GROUPS = {**ARROW, "columnar.groups": "ids: id, x; texts: id, text, flag"}
ENCRYPTED = {
    **PARQUET,
    "columnar.encryption.columns": "text",
    "columnar.encryption.key": "texts",
    "columnar.encryption.key.list": "${env:COMPATIBILITY_KEYS}",
}
AVRO = {"value.converter": "avro"}
REGISTRY_URL = "value.converter.schema.registry.url"
# What the connector is for the first half of the rows, and for the second one.
PRODUCERS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "json": ({}, {}),
    "parquet": (PARQUET, PARQUET),
    "arrow": (ARROW, ARROW),
    "groups": (GROUPS, GROUPS),
    "encrypted": (ENCRYPTED, ENCRYPTED),
    "json, then parquet": ({}, PARQUET),
    "json, then arrow": ({}, ARROW),
    "avro, then arrow": (AVRO, ARROW),
}
# Of what tests of one consumer or command cover, too.
pytestmark = pytest.mark.variant
ALONE = ("json", "parquet", "arrow", "groups", "encrypted")
MIXED = ("json, then parquet", "json, then arrow")
OLD = [*range(ROWS // 2)]
NEW = [*range(ROWS // 2, ROWS)]
ALL = [*range(ROWS)]


@dataclass(frozen=True)
class Produced:
    """What a producer has written: all rows are in each topic, in a group its columns."""

    delivery: Delivery
    topics: Sequence[str]
    registry: RegistryDouble

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.delivery.settings.bootstrap_servers}

    def read(self, *topics: str, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return the rows that TopicConsumer yields, by id."""
        group = f"reads-{uuid4().hex}"
        names = topics or self.topics
        with TopicConsumer(
            self.kafka, names, group=group, join=len(names) > 1, **options
        ) as consumer:
            return sorted(consumer.rows(until_end=True), key=lambda row: row["id"])

    def deserialised(self, topic: str, deserialise: Any) -> tuple[list[Any], list[str]]:  # noqa: ANN401
        """Return values and errors of confluent-kafka's consumer: for each record, one of both."""
        settings = {
            **self.kafka,
            "group.id": f"deserialises-{uuid4().hex}",
            "value.deserializer": deserialise,
        }
        count = len(self.delivery.read(topic))
        consumer = DeserializingConsumer(settings)
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[Any] = []
        errors: list[str] = []
        try:
            while len(values) + len(errors) < count:
                try:
                    message = consumer.poll(30)
                except ValueDeserializationError as exc:
                    errors.append(str(exc))
                    continue
                assert message is not None, f"{len(values)} values, {len(errors)} of {count}"
                values.append(message.value())
        finally:
            consumer.close()
        return values, errors


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COMPATIBILITY_KEYS", KEYS)
        yield


class Producers:
    """Lets each producer write once."""

    def __init__(self, open_delivery: Callable[[str], Delivery], registry: RegistryDouble) -> None:
        self._open = open_delivery
        self._registry = registry
        self._written: dict[str, Produced] = {}

    def __call__(self, name: str) -> Produced:
        if name not in self._written:
            self._written[name] = self._write(*PRODUCERS[name])
        return self._written[name]

    def _write(self, first: Mapping[str, str], second: Mapping[str, str]) -> Produced:
        delivery = self._open(f"compatible-{uuid4().hex[:8]}")
        if "columnar.groups" in first:
            topics = make_topics(delivery, ["ids", "texts"], partitions=1)
            delivery.topic = topics[0].removesuffix(".ids")
        else:
            delivery.topic = delivery.make_topic("records", partitions=1)
            topics = [delivery.topic]
        halves = [(0, first), (ROWS // 2, second)]
        for number, (start, config) in enumerate(halves):
            delivery.put(f"{start}.parquet", parquet(numbers(start, start + ROWS // 2), 100))
            if config == AVRO:
                delivery.connector({**AVRO, REGISTRY_URL: self._registry.url})
            else:
                delivery.connector(config)
            # One run delivers both where the connector stays the same.
            if number or first != second:
                assert run_here(delivery).ok
        return Produced(delivery, topics, self._registry)


@pytest.fixture(scope="module")
def producers(
    stack: Stack,
    s3: "S3Client",
    bucket: str,
    registry: RegistryDouble,
    tmp_path_factory: pytest.TempPathFactory,
) -> Producers:
    home = tmp_path_factory.mktemp("compatible")
    ledger = LedgerAddress.parse(f"sqlite:///{home}/ledger.db")
    open_delivery = partial(Delivery, stack, s3, bucket, changes={"ledger_url": ledger})
    return Producers(open_delivery, registry)


def ids_of(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


# -- TopicConsumer --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *ALONE,
        *MIXED,
        "avro, then arrow",
    ],
)
def test_our_consumer_reads_every_row(producers: Producers, name: str) -> None:
    produced = producers(name)
    find = {number: text for text, number in produced.registry.ids.items()}

    rows = produced.read(keys=KEYS, find_schema=lambda number: ("AVRO", find[number]))

    expected = numbers(0, ROWS).to_pylist()
    assert [{key: row[key] for key in expected[0]} for row in rows] == expected


def test_our_consumer_reads_a_group_alone(producers: Producers) -> None:
    produced = producers("groups")

    for topic, columns in zip(produced.topics, (["id", "x"], ["id", "text", "flag"]), strict=True):
        assert produced.read(topic) == numbers(0, ROWS).select(columns).to_pylist()


def test_without_keys_encrypted_columns_are_denied_and_others_read(producers: Producers) -> None:
    produced = producers("encrypted")

    with pytest.raises(AccessDenied, match=r"offset \d+: encrypted columns: text "):
        produced.read()
    assert ids_of(produced.read(columns=["id", "x"])) == ALL


# -- consumers without columns --------------------------------------------------------------------


def as_json(value: bytes, _: object) -> Any:  # noqa: ANN401
    return json.loads(value)


@pytest.mark.parametrize("name", ["parquet", "arrow", "groups", "encrypted"])
def test_deserialisers_of_rows_refuse_every_columnar_value(producers: Producers, name: str) -> None:
    produced = producers(name)
    registered = AvroDeserializer(SchemaRegistryClient({"url": produced.registry.url}))

    for topic in produced.topics:
        for deserialise in (as_json, registered, JSONDeserializer('{"type":"object"}')):
            values, errors = produced.deserialised(topic, deserialise)
            assert values == []
            assert errors


@pytest.mark.parametrize("name", ["json", *MIXED])
def test_a_json_deserialiser_reads_the_rows_of_json_and_no_others(
    producers: Producers, name: str
) -> None:
    produced = producers(name)

    values, errors = produced.deserialised(produced.topics[0], as_json)

    assert ids_of(values) == (ALL if name == "json" else OLD)
    assert bool(errors) == (name != "json")


def test_a_deserialiser_of_a_registry_reads_its_own_values_and_no_others(
    producers: Producers,
) -> None:
    produced = producers("avro, then arrow")
    registered = AvroDeserializer(SchemaRegistryClient({"url": produced.registry.url}))

    values, errors = produced.deserialised(produced.topics[0], registered)
    of_json, refused = producers("json").deserialised(producers("json").topics[0], registered)

    assert ids_of(values) == OLD
    assert errors
    assert (of_json, len(refused)) == ([], ROWS)


# -- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommandLine:
    """Commands of this process."""

    monkeypatch: pytest.MonkeyPatch
    captured: pytest.CaptureFixture[str]

    def __call__(self, produced: Produced, *words: str) -> tuple[int, str]:
        """Return exit code and what was printed, errors included."""
        with self.monkeypatch.context() as patch:
            for name, text in produced.delivery.settings.to_map().items():
                patch.setenv(variable(name), text)
            self.captured.readouterr()
            code = run_command_line(app, words)
        printed = self.captured.readouterr()
        return code, printed.out + printed.err


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.mark.parametrize("name", [*ALONE, *MIXED])
def test_tail_and_count_read_every_row(producers: Producers, line: CommandLine, name: str) -> None:
    produced = producers(name)
    keys = ("--keys", "${env:COMPATIBILITY_KEYS}") if name == "encrypted" else ()

    for topic in produced.topics:
        shown, text = line(produced, "tail", topic, "-n", "1000", *keys)
        counted, report = line(produced, "count", topic, "--json")
        assert (shown, counted) == (0, 0)
        assert ids_of([json.loads(one) for one in text.splitlines()]) == ALL
        assert json.loads(report)["rows"] == ROWS


@pytest.mark.parametrize("name", ["parquet", "groups"])
def test_export_writes_every_row(
    producers: Producers, line: CommandLine, tmp_path: Path, name: str
) -> None:
    produced = producers(name)

    for topic in produced.topics:
        code, said = line(produced, "export", topic, "--to", str(tmp_path), "--once")
        assert code == 0, said
        files = [*(tmp_path / topic / "0").iterdir()]
        assert files
        if name == "parquet":
            assert ids_of(pq.read_table(tmp_path / topic).to_pylist()) == ALL


@pytest.mark.parametrize("name", ["json", *MIXED])
def test_export_refuses_rows_with_their_place(
    producers: Producers, line: CommandLine, tmp_path: Path, name: str
) -> None:
    produced = producers(name)
    (topic,) = produced.topics

    code, said = line(produced, "export", topic, "--to", str(tmp_path), "--once")

    assert code == 2
    assert f"topic {topic}[0] offset 0: " in " ".join(said.split())
    assert not [*tmp_path.glob("*/*/*.parquet")]


def test_other_programs_take_rows_of_a_registry_for_bytes(
    producers: Producers, line: CommandLine, tmp_path: Path
) -> None:
    produced = producers("avro, then arrow")
    (topic,) = produced.topics

    values, _ = produced.deserialised(topic, as_json)
    shown, text = line(produced, "tail", topic, "-n", "1000")
    _, report = line(produced, "count", topic, "--json")
    code, said = line(produced, "export", topic, "--to", str(tmp_path), "--once")

    assert values == []
    assert (shown, json.loads(report)["rows"]) == (0, ROWS)
    assert ids_of([json.loads(one) for one in text.split("\n") if one.startswith('{"id"')]) == NEW
    assert code == 2
    assert f"topic {topic}[0] offset 0: " in " ".join(said.split())
