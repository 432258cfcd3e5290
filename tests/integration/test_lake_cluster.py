"""`jobs/spark_lake.py` on a standalone cluster, the library in a zip, the catalog by --conf."""

import base64
import io
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.delivery import Delivery
from tests.support.submitting import (
    LAYER,
    ROOT,
    SPECULATION,
    await_,
    clean_python,
    submitted,
    surroundings,
)
from tests.support.waiting import AWAITED_SECONDS

from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.spark_cluster import SparkCluster
from extentflow_local.stack.spark_submit import Submitter, library_zip
from extentflow_local.stack.stack import Stack
from extentflow_local.stack.toolbox import toolbox

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

JOB = ROOT / "jobs" / "spark_lake.py"
ROWS = 2_000
SECRET = base64.b64encode(b"a master key, 16").decode()
CATALOG = {
    "spark.sql.catalog.shop": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.shop.type": "hadoop",
    "spark.sql.catalog.shop.cache-enabled": "false",
}


@pytest.fixture
def delivery(
    stack: Stack, s3: "S3Client", bucket: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Delivery:
    monkeypatch.setenv("CARD_KEYS", f"cards: {SECRET}")
    return Delivery(stack, s3, bucket, unique)


@pytest.fixture
def submitter(delivery: Delivery, spark_cluster: SparkCluster, tmp_path: Path) -> Submitter:
    tools = toolbox(LocalSettings.from_environment())
    conf = {
        **SPECULATION,
        **CATALOG,
        "spark.jars": ",".join(str(jar) for jar in tools.library("spark-lake").glob("*.jar")),
        "spark.sql.catalog.shop.warehouse": (tmp_path / "warehouse").as_uri(),
    }
    environment = {**delivery.environment, **surroundings(clean_python(tmp_path))}
    return Submitter(spark_cluster.master_url, library_zip(LAYER, tmp_path), environment, conf)


@dataclass(frozen=True)
class Place:
    """A target: the words that name it, and the folder of its files."""

    words: Sequence[str]
    files: Path

    def rows(self) -> list[dict[str, Any]]:
        # A killed executor leaves the file that it had begun: empty, and in no commit.
        written = [path for path in self.files.rglob("*.parquet") if path.stat().st_size]
        found = [pq.ParquetFile(path).read() for path in written]
        plain = [table.replace_schema_metadata() for table in found]
        whole = pa.concat_tables(plain, promote_options="permissive")
        return sorted(whole.to_pylist(), key=lambda row: row["id"])


@pytest.fixture(params=["iceberg", pytest.param("parquet", marks=pytest.mark.soak)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "iceberg":
        words = ("--catalog", "shop", "--table", "sales.orders", "--partition-by", "bucket(2,id)")
        return Place(words, tmp_path / "warehouse" / "sales" / "orders" / "data")
    return Place(("--to", str(tmp_path / "lake")), tmp_path / "lake")


def orders(first: int, **more: Sequence[object]) -> pa.Table:
    numbers = range(first, first + ROWS)
    return pa.table({"id": numbers, "card": [f"card number {one}" for one in numbers], **more})


def send(delivery: Delivery, label: str, table: pa.Table) -> None:
    """Deliver rows whose column `card` is encrypted."""
    delivery.connector(
        {
            "columnar.encoding": "parquet",
            "columnar.encryption.columns": "card",
            "columnar.encryption.key": "cards",
            "columnar.encryption.key.list": "${env:CARD_KEYS}",
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=100)
    key = delivery.put(f"{label}.parquet", sink.getvalue())
    assert delivery.run(keys=[key]).ok


def test_a_submitted_query_writes_every_row_once_despite_the_loss_of_an_executor(
    delivery: Delivery,
    spark_cluster: SparkCluster,
    submitter: Submitter,
    place: Place,
    tmp_path: Path,
) -> None:
    """Executors read the keys from a file; the driver ends by a signal, and a second one starts."""
    keys = tmp_path / "keys.properties"
    keys.write_text(f"cards=cards:{SECRET}\n")
    late = orders(ROWS, note=["late"] * ROWS)
    words = [delivery.topic, *place.words, "--json", "--keys", f"${{file:{keys}:cards}}"]
    log = tmp_path / "first.log"
    send(delivery, "first", orders(0))

    with submitted(submitter, JOB, *words, "--every", "1", log=log) as first:
        await_("a batch is written", lambda: f'"rows":{ROWS}' in log.read_text(), first)
        os.kill(spark_cluster.executor_pids()[0], signal.SIGKILL)
        send(delivery, "late", late)
        await_("both are", lambda: log.read_text().count('"rows":') > 1, first)
        driver = first.driver()
        assert driver is not None
        driver.send_signal(signal.SIGTERM)
        code = first.process.wait(timeout=AWAITED_SECONDS)
    with submitted(submitter, JOB, *words, "--once", log=tmp_path / "second.log") as second:
        again = second.process.wait(timeout=AWAITED_SECONDS)

    logs = log.read_text() + (tmp_path / "second.log").read_text()
    assert (code, again) == (0, 0), logs
    whole = pa.concat_tables([orders(0), late], promote_options="default")
    assert place.rows() == whole.to_pylist()
    assert SECRET not in logs
