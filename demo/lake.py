"""`make demo-lake`: an object in S3 through Kafka into an Iceberg table, as columns and as rows.

object in S3 ──extentflow run──> topic ──extentflow lake──> Iceberg table ──DuckDB──> compared

Once with columnar values, once with JSON rows; every field of every row is compared.
"""

import argparse
import io
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb
import fastavro
import psutil
import pyarrow.parquet as pq
from rich.table import Table

from demo import tpch
from demo.frame import ROOT, console, ended
from demo.rig import Rig, broker_seconds
from extentflow.config.column_lists import SCHEMA, written_type
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.toolbox import toolbox

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET, WAREHOUSE = "demo", "demo-lake"
SCALE = 0.25
SAMPLE_SECONDS = 0.2
COLUMNAR = {"columnar.encoding": "parquet"}
# By way: what the connector has, and what the lake needs to know.
WAYS: dict[str, dict[str, str]] = {"columns": COLUMNAR, "rows": {}}


def main() -> int:
    """Run both ways; return 0 only if each table holds every row of the object once, exactly."""
    scale = SCALE * _arguments().scale
    started = time.monotonic()
    run = time.strftime("%Y%m%d-%H%M%S")
    console.rule("stack, object")
    rig = Rig.start(ROOT, console.print)
    data = tpch.lineitem(ROOT / "var" / "demo" / "data", scale)
    rig.upload(data.path, BUCKET, f"{run}/{data.path.name}")
    s3 = rig.s3_client()
    if WAREHOUSE not in {found["Name"] for found in s3.list_buckets()["Buckets"]}:
        s3.create_bucket(Bucket=WAREHOUSE)
    results = [_through(rig, s3, data, run, way) for way in WAYS]
    path = ROOT / "var" / "demo" / "lake.json"
    path.write_text(json.dumps({"ways": results}, indent=2) + "\n")
    _show(results)
    ok = all(not (one["missing"] or one["unexpected"]) for one in results)
    word = "every row once, every field equal" if ok else "[red]tables differ, see above[/red]"
    seconds = time.monotonic() - started
    console.print(f"make demo-lake: {word}; {seconds:.0f} s; {path.relative_to(ROOT)}")
    console.print(
        "the stack is still running; `.venv/bin/extentflow down` (or `make clean`) stops it"
    )
    return 0 if ok else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo-lake", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help=f"times TPC-H scale {SCALE}")
    return parser.parse_args()


def _through(rig: Rig, s3: "S3Client", data: tpch.DataSet, run: str, way: str) -> dict[str, Any]:
    """Deliver the object, write the table, compare both; return a row of the summary."""
    console.rule(f"as {way}")
    topic = f"demo-lake-{way}-{run}"
    rig.create_topic(topic)
    options = [f"--set={name}={text}" for name, text in WAYS[way].items()]
    delivered = _Cost(
        rig, "run", f"s3://{BUCKET}/{run}/{data.path.name}", "--topic", topic, *options, "--json"
    )
    logged = rig.logged_bytes(topic)
    schema = [] if WAYS[way] else ["--schema", _schema(data.path)]
    place = f"{run}-{way}"
    written = _Cost(
        rig,
        "lake",
        topic,
        *("--to", f"s3a://{WAREHOUSE}/{place}", "--table", "tpch.lineitem"),
        *("--endpoint", rig.s3_endpoint, "--once", "--json", "--jars", _jars(), *schema),
    )
    with TemporaryDirectory() as folder, console.status("comparing by DuckDB"):
        files = list(_table_files(s3, place, Path(folder)))
        found = _compared(data.path, files)
    return {
        "way": way,
        "topic": topic,
        **found,
        "logged_bytes": logged,
        "seconds_to_kafka": round(delivered.seconds, 1),
        "cpu_seconds_to_kafka": round(delivered.cpu, 1),
        "seconds_to_table": round(written.seconds, 1),
        "cpu_seconds_to_table": round(written.cpu, 1),
    }


def _jars() -> str:
    """Return Spark's Kafka source, Iceberg and Hadoop's S3 client; downloaded where missing."""
    tools = toolbox(LocalSettings.from_environment())
    folders = (tools.library(one) for one in ("spark-lake", "spark-s3a"))
    return ",".join(str(jar) for folder in folders for jar in folder.glob("*.jar"))


class _Cost:
    """A command, its wall time, and the CPU time of it, its descendants and the broker."""

    def __init__(self, rig: Rig, *arguments: str) -> None:
        console.print(f"extentflow {' '.join(arguments)}", highlight=False, markup=False)
        started, before = time.monotonic(), broker_seconds(rig.root)
        servers = _descendants()
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(rig.extentflow, *arguments, quiet=True)
            spent: dict[int, float] = {}
            while not running.done():
                spent |= _descendants()
                wait([running], SAMPLE_SECONDS)
            self.output = running.result()
        self.seconds = time.monotonic() - started
        own = (seconds for process, seconds in spent.items() if process not in servers)
        self.cpu = sum(own) + broker_seconds(rig.root) - before


def _descendants() -> dict[int, float]:
    """Return the CPU time of each process below this one so far."""
    found: dict[int, float] = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            found[process.pid] = sum(process.cpu_times()[:2])
    return found


def _schema(path: Path) -> str:
    columns = pq.read_schema(path)
    return SCHEMA.write(tuple((one.name, _type(written_type(one.type))) for one in columns))


def _type(written: str) -> str:
    return "string" if written == "string_view" else written


def _table_files(s3: "S3Client", place: str, folder: Path) -> Iterator[Path]:
    """Yield copies of the data files of a table's current snapshot, as its metadata lists them."""

    def read(uri: str) -> bytes:
        bucket, _, key = uri.partition("://")[2].partition("/")
        return s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    prefix = f"{place}/tpch/lineitem/metadata/"
    listed = s3.list_objects_v2(Bucket=WAREHOUSE, Prefix=prefix)["Contents"]
    newest = max(
        (one for one in listed if one["Key"].endswith(".metadata.json")),
        key=lambda one: int(one["Key"].rpartition("/v")[2].partition(".")[0]),
    )
    table = json.loads(read(f"s3://{WAREHOUSE}/{newest['Key']}"))
    current = table["current-snapshot-id"]
    snapshot = next(one for one in table["snapshots"] if one["snapshot-id"] == current)
    for manifest in fastavro.reader(io.BytesIO(read(snapshot["manifest-list"]))):
        assert isinstance(manifest, dict)  # noqa: S101 - an Avro record
        for entry in fastavro.reader(io.BytesIO(read(manifest["manifest_path"]))):
            assert isinstance(entry, dict)  # noqa: S101 - an Avro record
            if entry["status"] == 2:  # noqa: PLR2004 - deleted
                continue
            uri = entry["data_file"]["file_path"]
            copy = folder / uri.rpartition("/")[2]
            copy.write_bytes(read(uri))
            yield copy


def _compared(source: Path, files: list[Path]) -> dict[str, int]:
    """Compare all fields of all rows, as multisets."""
    names = [str(file) for file in files]
    with duckdb.connect() as database:
        database.execute("SET preserve_insertion_order = false")
        database.read_parquet(str(source)).create_view("object")
        database.read_parquet(names).create_view("lake")

        def count(rows: str) -> int:
            found = database.execute(f"SELECT count(*) FROM ({rows})").fetchone()  # noqa: S608 - no input
            return int(found[0]) if found else 0

        return {
            "rows_in_object": count("SELECT * FROM object"),
            "rows_in_table": count("SELECT * FROM lake"),
            "missing": count("SELECT * FROM object EXCEPT ALL SELECT * FROM lake"),
            "unexpected": count("SELECT * FROM lake EXCEPT ALL SELECT * FROM object"),
        }


def _show(results: list[dict[str, Any]]) -> None:
    table = Table("", *(one["way"] for one in results))
    for name in [name for name in results[0] if name not in ("way", "topic")]:
        values = [one[name] for one in results]
        table.add_row(name.replace("_", " "), *(f"{value:,}" for value in values))
    console.print(table)


if __name__ == "__main__":
    sys.exit(ended("demo-lake", main))
