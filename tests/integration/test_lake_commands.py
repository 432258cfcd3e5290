"""`extentflow lake` as a program: killed and signalled, with keys, in a bucket."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.support.delivery import Delivery
from tests.support.lakes import (
    ROWS,
    SECRET,
    Lake,
    as_parquet,
    expected,
    lake_session,
    library,
    rows_of,
    send,
    send_cards,
    soak,
)
from tests.support.spark import MARKS
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.errors import AccessDenied
from extentflow.wiring.options import aws_kms
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = MARKS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with lake_session() as session:
        yield session


@pytest.fixture(scope="module")
def jars() -> str:
    return library("spark-lake")


def completed(delivery: Delivery, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a module of Python to its end."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        env=delivery.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=AWAITED_SECONDS,
    )


@pytest.mark.long
def test_keys_of_kms_decrypt_what_they_encrypted(  # noqa: PLR0917 - fixtures
    delivery: Delivery,
    spark: SparkSession,
    aws: Stack,
    jars: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", aws.endpoint("aws"))
    kms: Any = boto3.client("kms", endpoint_url=aws.endpoint("aws"))
    arn = kms.create_key()["KeyMetadata"]["Arn"]
    aws_kms.cache_clear()
    keys = {"columns": "name", "key": arn}
    own = {f"columnar.encryption.{name}": value for name, value in keys.items()}
    delivery.connector({"columnar.encoding": "parquet", **own})
    key = delivery.put("cards.parquet", as_parquet(rows_of(0, 100)))
    assert delivery.run(keys=[key]).ok
    lake = Lake(delivery, spark, "parquet", tmp_path)
    denied = rf"encrypted columns: name \(master key {arn}\)"
    with pytest.raises(AccessDenied, match=denied):
        lake.run(checkpoint=(tmp_path / "denied").as_uri())

    words = [*lake.words(jars), "--once", "--keys", "aws-kms"]
    read = completed(delivery, "extentflow", "lake", *words)

    assert read.returncode == 0, read.stderr
    assert lake.rows() == expected(rows_of(0, 100))


@pytest.mark.long
@pytest.mark.parametrize(
    "lake", ["iceberg-workers", soak("iceberg"), soak("parquet")], indirect=True
)
def test_no_file_of_spark_has_a_key(lake: Lake, jars: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a command with an event log, which the environment's variables give the keys."""
    monkeypatch.setenv("CARD_KEYS", f"cards: {SECRET}")
    cards = send_cards(lake.delivery)
    events = lake.home / "events"
    events.mkdir()
    shown = {"enabled": "true", "dir": events.as_uri(), "compress": "false"}
    logged = [f"--conf=spark.eventLog.{name}={value}" for name, value in shown.items()]
    words = [*lake.words(jars), "--once", "--keys", "${env:CARD_KEYS}", *logged]

    ended = completed(lake.delivery, "extentflow", "lake", *words)

    assert ended.returncode == 0, ended.stderr
    assert '"rows":500' in ended.stdout
    if lake.kind != "parquet":
        lake.target.open(())  # the session has the catalog then
    assert lake.rows() == expected(cards)
    files = [path for path in lake.home.rglob("*") if path.is_file()]
    assert any("events" in str(path) for path in files)
    assert any("checkpoint" in str(path) for path in files)
    assert [str(path) for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in ended.stdout + ended.stderr


@pytest.mark.archive
def test_an_iceberg_table_in_a_bucket_holds_the_same_rows(
    delivery: Delivery, stack: Stack, s3: "S3Client", monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option gives the endpoint of the first command, a variable that of the second."""
    endpoint = ("--endpoint", stack.endpoint("s3"))
    warehouse = f"s3a://{delivery.bucket}/{delivery.name}-lake"
    words = [
        *("lake", delivery.topic, "--to", warehouse, "--table", "shop.orders", "--once", "--json"),
        *("--jars", library("spark-lake", "spark-s3a")),
    ]
    send(delivery, "first", rows_of(0))
    first = completed(delivery, "extentflow", *words, *endpoint)
    send(delivery, "second", rows_of(ROWS))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", stack.endpoint("s3"))

    second = completed(delivery, "extentflow", *words)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    listed = s3.list_objects_v2(Bucket=delivery.bucket, Prefix=f"{delivery.name}-lake/")
    keys = [each["Key"] for each in listed["Contents"] if each["Key"].endswith(".parquet")]
    bodies = [s3.get_object(Bucket=delivery.bucket, Key=key)["Body"].read() for key in keys]
    tables = [pq.ParquetFile(pa.BufferReader(body)).read() for body in bodies]
    plain = [table.replace_schema_metadata() for table in tables]
    rows = pa.concat_tables(plain, promote_options="permissive").to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == expected(rows_of(0, 2 * ROWS))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "point"),
    # Each kind and each point once.
    [
        ("iceberg", "committed"),
        soak("iceberg-workers", "staged"),
        ("parquet", "logged"),
        soak("iceberg-workers", "committed"),
        soak("parquet", "staged"),
        soak("parquet", "committed"),
    ],
)
def test_a_killed_driver_loses_and_doubles_nothing(  # noqa: PLR0917 - fixtures
    delivery: Delivery, spark: SparkSession, tmp_path: Path, jars: str, kind: str, point: str
) -> None:
    lake = Lake(delivery, spark, kind, tmp_path)
    send(delivery, "first", rows_of(0))
    words = [*lake.words(jars), "--once"]

    died = completed(delivery, "tests.support.lake_deaths", point, *words)
    killed = [name for name in (tmp_path / "checkpoint" / "offsets").iterdir() if name.suffix == ""]
    send(delivery, "second", rows_of(ROWS))
    again = completed(delivery, "extentflow", "lake", *words)

    assert died.returncode == -signal.SIGKILL, died.stderr
    assert killed  # Spark had begun the batch
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]"))[2:]
    assert again.returncode == 0, again.stderr
    assert lake.target.open(()).columns is not None  # the session has the catalog then
    assert lake.rows() == expected(rows_of(0), rows_of(ROWS))


@pytest.mark.long
def test_a_running_query_ends_at_a_signal(
    delivery: Delivery, spark: SparkSession, tmp_path: Path, jars: str
) -> None:
    lake = Lake(delivery, spark, "parquet", tmp_path)
    send(delivery, "first", rows_of(0))
    output = tmp_path / "output"

    with output.open("w") as file:
        words = [sys.executable, "-m", "extentflow", "lake", *lake.words(jars), "--every", "0.5"]
        process = subprocess.Popen(
            words, env=delivery.environment, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            eventually("a batch is written", lambda: '"rows":3000' in output.read_text())
            send(delivery, "second", rows_of(ROWS))
            eventually("two are", lambda: output.read_text().count('"rows":') >= 2)
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=60)
        finally:
            process.kill()

    assert code == 0, output.read_text()
    assert lake.run() >= 0
    assert lake.rows() == expected(rows_of(0), rows_of(ROWS))
