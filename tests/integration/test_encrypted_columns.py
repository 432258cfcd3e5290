"""Encrypted columns on a real broker: delivered once, read with their keys, denied without."""

import base64
import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.delivery import Delivery
from typer.testing import CliRunner, Result

from extentflow.cli import app
from extentflow.columnar import BatchFacts
from extentflow.config.worker import variable
from extentflow.consumer import TopicConsumer
from extentflow.errors import AccessDenied
from extentflow_local.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

COUNT = 900
SECRET = base64.b64encode(b"a master key, 16"[:16]).decode()
KEYS = f"cards: {SECRET}"
ENCRYPTED = {
    "columnar.encoding": "parquet",
    "columnar.encryption.columns": "card,person",
    "columnar.encryption.key": "cards",
    "columnar.encryption.key.list": "${env:EXTENTFLOW_TEST_CARDS}",
    "extent.bytes": "16KiB",
}
ROWS = pa.table(
    {
        "id": range(COUNT),
        "card": [f"card number {n}" for n in range(COUNT)],
        "person": [{"name": f"person {n}"} for n in range(COUNT)],
        "text": [f"text {n}" for n in range(COUNT)],
    }
)


@pytest.fixture
def delivery(
    stack: Stack, s3: "S3Client", bucket: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Delivery:
    monkeypatch.setenv("EXTENTFLOW_TEST_CARDS", KEYS)
    made = Delivery(stack, s3, bucket, unique)
    for name, value in made.settings.to_map().items():
        monkeypatch.setenv(variable(name), value)
    return made


def in_parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(ROWS, file, row_group_size=300)
    return file.getvalue()


def delivered(delivery: Delivery, **more: str) -> None:
    key = delivery.put("rows.parquet", in_parquet())
    delivery.connector({**ENCRYPTED, **{name.replace("__", "."): v for name, v in more.items()}})
    report = delivery.run(keys=[key])
    assert report.ok
    assert report.records_this_run == COUNT


def read(delivery: Delivery, *topics: str, **options: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401
    kafka = {"bootstrap.servers": delivery.settings.bootstrap_servers}
    group = f"reads-{delivery.name}-{len(options)}"
    with TopicConsumer(kafka, topics, group=group, **options) as consumer:
        rows = list(consumer.rows(until_end=True))
    return sorted(rows, key=lambda row: row["id"])


def _create(delivery: Delivery, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": delivery.settings.bootstrap_servers})
    admin.create_topics([NewTopic(name, 3)])[name].result(60)
    return name


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_row_groups_are_not_passed_through_in_plain_text(delivery: Delivery) -> None:
    delivered(delivery)

    records = delivery.read()

    assert records
    for record in records:
        facts = BatchFacts.of(record.headers)
        assert facts is not None
        assert facts.encrypted == ("card", "person")
        assert b"card number" not in (record.value or b"")
        assert b"person 1" not in (record.value or b"")
    assert read(delivery, delivery.topic, keys=KEYS) == ROWS.to_pylist()
    plain = read(delivery, delivery.topic, columns=["id", "text"])
    assert plain == ROWS.select(["id", "text"]).to_pylist()


@pytest.mark.parametrize("keys", [None, f"other: {SECRET}"], ids=["none", "other"])
def test_without_the_keys_the_place_and_the_way_out_are_named(
    delivery: Delivery, keys: str | None
) -> None:
    delivered(delivery)

    with pytest.raises(AccessDenied) as caught:
        read(delivery, delivery.topic, keys=keys)

    message = str(caught.value)
    assert message.startswith(f"topic {delivery.topic}[")
    assert "] offset 0: columns card, person are encrypted with the master key cards: " in message
    assert SECRET not in message


def test_each_group_encrypts_its_columns(delivery: Delivery) -> None:
    base = f"grouped-{delivery.name}"
    topics = [_create(delivery, f"{base}.{name}") for name in ("cards", "rest")]
    delivered(delivery, topic=base, columnar__groups="cards: id, card; rest: *")

    shown = [BatchFacts.of(delivery.read(topic)[0].headers) for topic in topics]

    assert [None if one is None else one.encrypted for one in shown] == [("card",), ("person",)]
    joined = read(delivery, *topics, join=True, keys=KEYS)
    assert joined == ROWS.select(["id", "card", "person", "text"]).to_pylist()
    plain = read(delivery, *topics, join=True, columns=["id", "text"])
    assert plain == ROWS.select(["id", "text"]).to_pylist()


def test_tail_and_count_show_what_keys_allow(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered(delivery)
    topic = delivery.topic

    plain = command("tail", topic, "--column", "id", "--column", "text", "-n", "1")
    whole = command("tail", topic, "-n", "3", "--keys", "${env:EXTENTFLOW_TEST_CARDS}")
    denied = command("tail", topic)
    written = command("tail", topic, "--keys", KEYS)
    counted = command("count", topic, "--key", "card", "--keys", "${env:EXTENTFLOW_TEST_CARDS}")

    assert {*json.loads(plain.stdout)} == {"id", "text"}
    assert json.loads(whole.stdout.splitlines()[0])["card"].startswith("card number ")
    assert isinstance(denied.exception, AccessDenied)
    assert "name only other columns" in str(denied.exception)
    assert "--keys: a secret is not written down" in str(written.exception)
    assert SECRET not in str(written.exception)
    assert f"different keys: {COUNT}; rows beyond the first: 0" in counted.stdout
    monkeypatch.delenv("EXTENTFLOW_TEST_CARDS")
    absent = command("tail", topic, "--keys", "${env:EXTENTFLOW_TEST_CARDS}")
    assert "EXTENTFLOW_TEST_CARDS" in str(absent.exception)
