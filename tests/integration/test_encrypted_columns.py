"""Encrypted columns on a real broker: delivered once, read with their keys, denied without."""

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.delivery import Delivery
from tests.support.real import run_here

from extentflow.cli import app, run_command_line
from extentflow.columnar import BatchFacts
from extentflow.config.worker import variable
from extentflow.consumer import TopicConsumer
from extentflow.errors import AccessDenied
from extentflow.formats.parquet.column_keys import MasterKeys, decryption_properties
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.variant

COUNT = 900
SECRET = base64.b64encode(b"a master key, 16"[:16]).decode()
KEYS = f"cards: {SECRET}"
ENCRYPTED = {
    "columnar.encoding": "parquet",
    "columnar.encryption.columns": "card,person",
    "columnar.encryption.key": "cards",
    "columnar.encryption.key.list": "${env:CARD_MASTER_KEYS}",
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
    monkeypatch.setenv("CARD_MASTER_KEYS", KEYS)
    made = Delivery(stack, s3, bucket, unique)
    for name, value in made.settings.to_map().items():
        monkeypatch.setenv(variable(name), value)
    return made


def in_parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(ROWS, file, row_group_size=300)
    return file.getvalue()


def delivered(delivery: Delivery, **more: str) -> None:
    delivery.put("rows.parquet", in_parquet())
    delivery.connector({**ENCRYPTED, **{name.replace("__", "."): v for name, v in more.items()}})
    report = run_here(delivery)
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


@pytest.mark.parametrize(
    "keys",
    [None, f"other: {SECRET}"],
    ids=["none", "other"],
)
def test_without_the_keys_the_place_and_the_way_out_are_named(
    delivery: Delivery, keys: str | None
) -> None:
    delivered(delivery)

    with pytest.raises(AccessDenied) as caught:
        read(delivery, delivery.topic, keys=keys)

    message = str(caught.value)
    assert message.startswith(f"topic {delivery.topic}[")
    assert "] offset 0: encrypted columns: card, person (master key cards): " in message
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


def test_exported_files_stay_encrypted_and_are_read_with_keys(
    delivery: Delivery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delivered(delivery)
    export = ["export", delivery.topic, "--to", str(tmp_path), "--once"]

    assert run_command_line(app, export) == 0, capsys.readouterr().err
    assert run_command_line(app, export) == 0

    files = sorted(tmp_path.rglob("*.parquet"))
    assert len(files) == len(delivery.read())
    assert not any(b"card number" in file.read_bytes() for file in files)
    service = MasterKeys.of(KEYS, "keys")
    whole = [
        pq.read_table(file, decryption_properties=decryption_properties(service)) for file in files
    ]
    assert pa.concat_tables(whole).sort_by("id").to_pylist() == ROWS.to_pylist()
    plain = [pq.read_table(file, columns=["id", "text"]) for file in files]
    assert pa.concat_tables(plain).sort_by("id").equals(ROWS.select(["id", "text"]))
    with pytest.raises(OSError, match="Cannot decrypt ColumnMetadata"):
        pq.read_table(files[0], columns=["card"])


def test_tail_and_count_show_what_keys_allow(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    delivered(delivery)
    topic, keys = delivery.topic, ("--keys", "${env:CARD_MASTER_KEYS}")

    def shown(*words: str, works: bool = True) -> str:
        capsys.readouterr()
        assert (run_command_line(app, [words[0], topic, *words[1:]]) == 0) is works
        printed = capsys.readouterr()
        return printed.out if works else printed.err

    plain = shown("tail", "--column", "id", "--column", "text", "-n", "1")
    assert {*json.loads(plain)} == {"id", "text"}
    whole = json.loads(shown("tail", "-n", "3", *keys).splitlines()[0])
    assert whole["card"] == f"card number {whole['id']}"
    denied = shown("tail", works=False)
    assert "encrypted columns: card, person (master key cards): " in denied
    assert "name only other columns" in denied
    written = shown("tail", "--keys", KEYS, works=False)
    assert "--keys: a secret is not written down" in written
    assert SECRET not in written
    counted = shown("count", "--key", "card", *keys)
    assert f"different keys: {COUNT}; rows beyond the first: 0" in counted
    verified = ("count", "--verify", f"{delivery.address}*", "-c", delivery.connector_name)
    assert shown(*verified, *keys).startswith("equal: ")
    assert "encrypted columns" in shown(*verified, works=False)
    monkeypatch.delenv("CARD_MASTER_KEYS")
    assert "CARD_MASTER_KEYS" in shown("tail", *keys, works=False)
