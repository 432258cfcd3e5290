"""Both engines deliver every format exactly once, as independent readers confirm."""

import csv
import gzip
import hashlib
import io
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyorc
import pytest
import zstandard
from pyarrow import orc
from tests.support.delivery import (
    PROGRAM,
    Counted,
    Delivery,
    Seen,
    joined,
    numbered_lines,
    parsed,
)
from tests.support.formats import in_frames, in_streams
from tests.support.registry import registry_double

from extentflow.engines import Engine
from extentflow.jobs.run import RunReport
from extentflow.wiring import open_engine
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ENGINES = ("inline", "spark")
LINES = numbered_lines("line ", 20_000)


# -- what is delivered, and what is true of it ----------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """An object, the records that other readers find in it, and how to compare them."""

    body: bytes
    truth: list[Any]
    seen_as: Callable[[list[bytes]], list[Any]]


def text(body: bytes) -> Sample:
    return Sample(body, sorted(LINES), sorted)


def csv_rows() -> bytes:
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["number", "name", "note"])
    writer.writerows(
        [row, f"näme {row}", f'says "{row}",\n{row},twice,or more'] for row in range(8_000)
    )
    return table.getvalue().encode()


def csv_sample(body: bytes) -> Sample:
    rows = csv.DictReader(io.StringIO(csv_rows().decode()))
    return Sample(body, sorted(rows, key=json.dumps), parsed)


def json_lines() -> list[bytes]:
    return [json.dumps({"n": n, "nested": {"list": [n, None]}}).encode() for n in range(8_000)]


def json_sample(body: bytes) -> Sample:
    return Sample(body, sorted(json_lines()), sorted)


def parquet() -> Sample:
    table = pa.table(
        {
            "id": pa.array(range(12_000), pa.int64()),
            "name": [None if row % 7 == 0 else f"naïve {row}" for row in range(12_000)],
            "tags": [[row, row + 1] for row in range(12_000)],
        }
    )
    body = io.BytesIO()
    pq.write_table(table, body, row_group_size=1_000)
    truth = pq.read_table(io.BytesIO(body.getvalue())).to_pylist()
    return Sample(body.getvalue(), sorted(truth, key=json.dumps), parsed)


def avro() -> Sample:
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "int"}},
        ],
    }
    rows = [
        {"id": row, "name": None if row % 7 == 0 else f"naïve {row}", "tags": [row] * (row % 3)}
        for row in range(12_000)
    ]
    body = io.BytesIO()
    fastavro.writer(body, schema, rows, codec="snappy", sync_interval=8_000)
    truth = list(fastavro.reader(io.BytesIO(body.getvalue())))
    return Sample(body.getvalue(), sorted(truth, key=json.dumps), parsed)


def orc_sample() -> Sample:
    table = pa.table({"id": range(12_000), "name": [f"naïve {row} " * 9 for row in range(12_000)]})
    body = io.BytesIO()
    orc.write_table(table, body, compression="uncompressed", stripe_size=16_000, batch_size=256)
    truth = list(pyorc.Reader(body, struct_repr=pyorc.StructRepr.DICT))
    return Sample(body.getvalue(), sorted(truth, key=json.dumps), parsed)


def arrow() -> Sample:
    table = pa.table({"id": range(12_000), "name": [f"naïve {row}" for row in range(12_000)]})
    body = io.BytesIO()
    with pa.ipc.new_file(body, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=1_000):
            writer.write_batch(batch)
    return Sample(body.getvalue(), sorted(table.to_pylist(), key=json.dumps), parsed)


def halves(body: bytes, compress: Callable[[bytes], bytes]) -> bytes:
    """Two gzip members, or two zstd frames, cut anywhere."""
    middle = len(body) // 2 + 3
    return compress(body[:middle]) + compress(body[middle:])


# What hardly can be compressed.
DIGESTS = [hashlib.sha256(line).hexdigest().encode() for line in LINES[:8_000]]


def digest_rows() -> bytes:
    table = io.StringIO()
    rows = ({"id": str(n), "text": f'"\n{text.decode()},\n'} for n, text in enumerate(DIGESTS))
    writer = csv.DictWriter(table, ["id", "text"])
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue().encode()


def digest_truth() -> list[Any]:
    return sorted(csv.DictReader(io.StringIO(digest_rows().decode(), newline="")), key=json.dumps)


SAMPLES = {
    "lines.txt": text(joined(LINES)),
    "unfinished.txt": text(joined(LINES)[:-1]),
    "nested/deeper/lines.txt.gz": text(halves(joined(LINES), gzip.compress)),
    "lines.txt.zst": text(halves(joined(LINES), zstandard.compress)),
    "digests.txt.bz2": Sample(in_streams(joined(DIGESTS)), sorted(DIGESTS), sorted),
    "seekable.txt.zst": Sample(in_frames(joined(DIGESTS)), sorted(DIGESTS), sorted),
    "rows.csv": csv_sample(csv_rows()),
    "digests.csv.bz2": Sample(in_streams(digest_rows()), digest_truth(), parsed),
    "seekable.csv.zst": Sample(in_frames(digest_rows()), digest_truth(), parsed),
    "rows.csv.gz": csv_sample(halves(csv_rows(), gzip.compress)),
    "objects.jsonl": json_sample(joined(json_lines())),
    "objects.jsonl.zst": json_sample(halves(joined(json_lines()), zstandard.compress)),
    "groups.parquet": parquet(),
    "blocks.avro": avro(),
    "batches.arrow": arrow(),
    "stripes.orc": orc_sample(),
    "empty.txt": Sample(b"", [], sorted),
}


@dataclass(frozen=True)
class Everything:
    """One run over all samples."""

    delivery: Delivery
    report: dict[str, Any]
    by_key: dict[str, list[bytes]]

    def job(self, label: str) -> dict[str, Any]:
        uri = f"{self.delivery.address}{label}"
        (found,) = (job for job in self.report["jobs"] if job["uri"] == uri)
        return dict(found)


@pytest.fixture(scope="module", params=ENGINES)
def everything(
    request: pytest.FixtureRequest, stack: Stack, s3: "S3Client", bucket: str
) -> Everything:
    delivery = Delivery(stack, s3, bucket, f"{request.param}-{uuid4().hex[:12]}")
    for label, sample in SAMPLES.items():
        delivery.put(label, sample.body)
    delivery.connector({"message.key": "object", "extent.bytes": "64KiB"})
    report = delivery.finish(request.param)
    return Everything(delivery, report, delivery.values_by_key())


@pytest.mark.spark
@pytest.mark.parametrize("label", SAMPLES)
def test_every_record_of_an_object_arrives_exactly_once(everything: Everything, label: str) -> None:
    sample = SAMPLES[label]

    values = everything.by_key.get(f"{everything.delivery.prefix}{label}", [])

    assert sample.seen_as(values) == sample.truth


@pytest.mark.spark
@pytest.mark.parametrize("label", SAMPLES)
def test_the_ledger_counts_exactly_what_arrived(everything: Everything, label: str) -> None:
    job = everything.job(label)

    assert (job["state"], job["records"], job["bad"]) == ("DONE", len(SAMPLES[label].truth), 0)
    assert (job["done"], job["failed"]) == (job["extents"], 0)


@pytest.mark.spark
def test_objects_that_can_be_cut_have_several_extents(everything: Everything) -> None:
    counts = {label: everything.job(label)["extents"] for label in SAMPLES}

    cut = {label for label, count in counts.items() if count > 1}
    lines = {"lines.txt", "unfinished.txt", "rows.csv", "objects.jsonl"}
    lines |= {"digests.txt.bz2", "digests.csv.bz2", "seekable.txt.zst", "seekable.csv.zst"}
    assert cut == lines | {"groups.parquet", "blocks.avro", "stripes.orc", "batches.arrow"}


@pytest.mark.spark
def test_a_run_leaves_no_claim_and_no_slot_behind(everything: Everything) -> None:
    assert everything.delivery.leftovers() == []
    assert everything.delivery.owned() == []


@pytest.mark.spark
def test_trap_t19_an_empty_object_is_done_without_an_extent(everything: Everything) -> None:
    job = everything.job("empty.txt")

    assert (job["state"], job["extents"], job["records"]) == ("DONE", 0, 0)


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["inline", pytest.param("spark", marks=pytest.mark.soak)])
@pytest.mark.long
def test_documents_of_json_become_avro_with_keys_of_their_members(
    delivery: Delivery, engine: str
) -> None:
    total = 12_345_678_901_234_567_890
    rows = [
        {"id": row, "at": {"place": f"näme {row}", "tags": [row, None]}, "total": total + row}
        for row in range(6_000)
    ]
    delivery.put("rows.jsonl", joined([json.dumps(row).encode() for row in rows]))
    with registry_double() as registry:
        delivery.connector(
            {
                "input.format": "jsonl",
                "jsonl.schema": "infer",
                "extent.bytes": "64KiB",
                "message.key": "column:id",
                "value.converter": "avro",
                "value.converter.schema.registry.url": registry.url,
                "transforms": "few,cast,flat",
                "transforms.few.type": "Filter",
                "transforms.few.predicate": "late",
                "predicates": "late",
                "predicates.late.type": "Condition",
                "predicates.late.condition": "id >= 5000",
                "transforms.cast.type": "Cast",
                "transforms.cast.spec": "id:string",
                "transforms.flat.type": "Flatten",
                "transforms.flat.delimiter": "_",
            }
        )

        words = ["plan", delivery.address, "--connector", delivery.connector_name, "--json"]
        planned = subprocess.run(
            [str(PROGRAM), *words], env=delivery.environment, capture_output=True, check=False
        )
        report = delivery.finish(engine)

    assert planned.returncode == 0, planned.stderr
    (plan,) = json.loads(planned.stdout)
    facts = "id:int64,at:struct<place:string,tags:list<int64>>,total:decimal(38,0)"
    assert plan["facts"] == facts
    assert [job["state"] for job in report["jobs"]] == ["DONE"]
    assert report["jobs"][0]["extents"] > 5
    records = [(record.key, registry.decode(record.value or b"")) for record in delivery.read()]
    assert sorted(records) == sorted(
        (
            str(row).encode(),
            {
                "id": str(row),
                "at_place": f"näme {row}",
                "at_tags": [row, None],
                "total": Decimal(total + row),
            },
        )
        for row in range(5_000)
    )


# -- runs one after the other ---------------------------------------------------------------------


@pytest.mark.long
def test_trap_t31_running_again_adds_nothing(delivery: Delivery) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({"extent.bytes": "64KiB"})
    first = delivery.run()

    again = delivery.run()

    assert (first.records_this_run, again.records_this_run) == (len(LINES), 0)
    assert again.ok
    assert sorted(delivery.values()) == sorted(LINES)


@pytest.mark.long
def test_again_delivers_a_second_generation_on_purpose(delivery: Delivery) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({"extent.bytes": "64KiB"})
    delivery.run()

    again = delivery.run(again=True)

    assert again.ok
    assert sorted(job.generation for job in delivery.jobs()) == [0, 1]
    assert sorted(delivery.values()) == sorted(LINES * 2)


@pytest.mark.spark
@pytest.mark.long
def test_a_job_begun_inline_is_finished_on_spark_in_order(
    delivery: Delivery, tmp_path: Path
) -> None:
    (tmp_path / "nested").mkdir()
    (tmp_path / "nested" / "lines.txt").write_bytes(joined(LINES))
    config = {"endpoint.type": "localfile", "directory": str(tmp_path), "ordering": "object"}
    delivery.connector({**config, "extent.bytes": "16KiB"})
    engine = open_engine(delivery.runtime, "inline", cores=1)

    begun = stopped_at_first_receipt(delivery, engine)
    committed = sum(item.records for item in delivery.items())
    finished = delivery.finish("spark", f"file://{tmp_path}/nested/lines.txt")

    (job,) = begun.jobs
    assert job.state == "RUNNING"
    assert 0 < job.done < job.extents
    assert finished["ok"]
    assert finished["records_this_run"] == len(LINES) - committed
    assert delivery.values() == LINES


def stopped_at_first_receipt(delivery: Delivery, engine: Engine) -> RunReport:
    return delivery.run(watch=Seen(lambda _receipt: engine.stop()), engine=engine)


# -- order and tasks ------------------------------------------------------------------------------


@pytest.mark.long
def test_ordering_by_object_keeps_file_order_in_one_partition(delivery: Delivery) -> None:
    truth = {label: numbered_lines(label, 10_000) for label in "abc"}
    for label, lines in truth.items():
        delivery.put(f"{label}.txt", joined(lines))
    delivery.connector({"ordering": "object", "extent.bytes": "16KiB"})

    report = delivery.run()
    records = delivery.read()

    assert all(job.extents > 3 for job in report.jobs)
    for label, lines in truth.items():
        own = [record for record in records if (record.value or b"").startswith(label.encode())]
        assert [record.value for record in own] == lines
        assert len({record.partition for record in own}) == 1


@pytest.mark.long
def test_small_extents_share_tasks(delivery: Delivery) -> None:
    delivery.put("lines.txt", joined(LINES))
    delivery.connector({"extent.bytes": "4KiB"})
    engine = Counted(open_engine(delivery.runtime, "inline", cores=2))

    report = delivery.run(engine=engine)

    (job,) = report.jobs
    assert job.extents > 40
    assert len(engine.tasks) < job.extents / 4
    assert sorted(delivery.values()) == sorted(LINES)
