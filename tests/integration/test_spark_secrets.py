"""A secret that a delivery on Spark uses is on no page of Spark's UI, and in none of its files."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit
from urllib.request import ProxyHandler, build_opener

import pyarrow as pa
import pytest
from pyarrow.parquet.encryption import create_encryption_properties
from pyspark import SparkContext
from pyspark.sql import SparkSession
from tests.laws.parquet_cases import written
from tests.support.delivery import Delivery, joined, numbered_lines
from tests.support.spark import MARKS
from tests.support.waiting import eventually

from extentflow.engines import spark as engine
from extentflow.spark import register
from extentflow_local.stack.servers import ACCESS_KEY, SECRET_KEY
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

pytestmark = MARKS

LINES = numbered_lines("line-", 2_000)
KAFKA_PASSWORD = "planted-9f2c-of-kafka"
FILE_KEY = base64.b64encode(b"planted-of-files").decode()
# A Java process numbers its SQL executions, whichever session starts them.
EXPECTED = (
    r"/jobs/job/\?id=0",
    r"/stages/stage/\?id=0",
    r"/SQL/execution/\?id=\d",
    r"sql\?details",
)
PAGES = ("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/")


@pytest.fixture
def events(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


@pytest.fixture
def session(events: Path) -> Iterator[SparkSession]:
    """A session with a UI and an event log."""
    shown = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "LOCAL", {**engine.LOCAL, **shown})
        session = SparkSession(engine.local_context(2))
    register(session)
    yield session
    session.stop()


@pytest.fixture
def delivery(tmp_path: Path, stack: Stack, s3: "S3Client", bucket: str, unique: str) -> Delivery:
    """A delivery with references to a password and a key, which a file of the workers has."""
    secrets = tmp_path / "planted.properties"
    secrets.write_text(f"store={SECRET_KEY}\nkafka={KAFKA_PASSWORD}\nrows={FILE_KEY}\n")
    # The broker wants no password; the client and its settings have it nevertheless.
    kafka = {"sasl.username": "user", "sasl.password": f"${{file:{secrets}:kafka}}"}
    delivery = Delivery(stack, s3, bucket, unique, {"kafka": kafka})
    delivery.put("lines.txt", joined(LINES))
    keys = create_encryption_properties(base64.b64decode(FILE_KEY))
    delivery.put("rows.parquet", written(pa.table({"n": range(50)}), encryption_properties=keys))
    delivery.connector(
        {
            "aws.access.key.id": ACCESS_KEY,
            "aws.secret.access.key": f"${{file:{secrets}:store}}",
            "parquet.encryption.footer.key": f"${{file:{secrets}:rows}}",
            "extent.bytes": "8KiB",
        }
    )
    return delivery


@pytest.mark.long
def test_no_page_and_no_file_of_spark_has_a_secret(
    session: SparkSession,
    events: Path,
    delivery: Delivery,
    capfd: pytest.CaptureFixture[str],
) -> None:
    read = session.read.format("extentflow").option("connector", delivery.connector_name)

    receipts = read.options(**delivery.settings.to_map()).load(delivery.address).collect()

    pages: dict[str, str] = eventually(
        "the pages of the job", lambda: complete(crawled(session.sparkContext))
    )
    session.stop()
    out, err = capfd.readouterr()
    files = {str(file): file.read_text() for file in events.rglob("*") if file.is_file()}
    ledger = repr((delivery.jobs(), delivery.items(), delivery.slots()))
    seen = {**pages, **files, "output": out, "errors": err, "ledger": ledger}
    assert sum(row.records for row in receipts) == len(LINES) + 50
    assert "lines.txt" in ledger
    assert any("SparkListenerTaskEnd" in text for text in files.values())
    for secret in (SECRET_KEY, KAFKA_PASSWORD, FILE_KEY):
        assert [place for place, text in seen.items() if secret in text] == []


def complete(pages: dict[str, str]) -> dict[str, str]:
    """Return the pages, or none before Spark's UI shows the job: it does so after a while."""
    shown = all(any(re.search(part, address) for address in pages) for part in EXPECTED)
    return pages if shown else {}


def crawled(context: SparkContext) -> dict[str, str]:
    """Return every page of the UI, and of its REST interface, by address."""
    base = f"{context.uiWebUrl}/"
    rest = f"api/v1/applications/{context.applicationId}"
    kinds = ("jobs", "stages", "allexecutors", "environment", "sql?details=true")
    waiting = [urljoin(base, page) for page in PAGES]
    waiting += [urljoin(base, f"{rest}/{kind}") for kind in kinds]
    opener = build_opener(ProxyHandler({}))
    found: dict[str, str] = {}
    while waiting:
        address = waiting.pop()
        if address in found:
            continue
        with opener.open(address, timeout=60) as answer:
            found[address] = answer.read().decode()
        links = (urljoin(address, link) for link in re.findall(r'href="([^"#]+)"', found[address]))
        waiting += [
            link.replace("&amp;", "&")
            for link in links
            if urlsplit(link).netloc == urlsplit(base).netloc
            and not re.search(r"/(static|kill)/|/threadDump|\.(js|css)$", link)
        ]
    return found
