"""Bytes fetched from the store, counted at a proxy: the object once, and one footer per worker."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.integration.faultproxy import FaultProxy
from tests.support.delivery import Delivery
from tests.support.local_engine import CallingThreadEngine, RecordingListener

from extentflow.wiring import open_worker
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MIB = 1 << 20
ROWS, ROW_BYTES = 16_000, 4_200
MOST = 1.02


def table() -> pa.Table:
    """Return rows of a few kilobytes that no compression makes smaller."""
    random = np.random.default_rng(7)
    text = random.integers(ord("a"), ord("z") + 1, ROWS * ROW_BYTES, np.uint8).tobytes()
    offsets = pa.py_buffer(np.arange(ROWS + 1, dtype=np.int32) * ROW_BYTES)
    values = pa.StringArray.from_buffers(ROWS, offsets, pa.py_buffer(text))
    return pa.table({"n": range(ROWS), "text": values})


def text() -> bytes:
    return b"\n".join(value.as_py().encode() for value in table()["text"]) + b"\n"


def csv() -> bytes:
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table(), sink)
    return sink.getvalue()


def parquet() -> bytes:
    """Return row groups of 20 rows: a footer of a quarter megabyte."""
    sink = io.BytesIO()
    pq.write_table(table(), sink, row_group_size=20, compression="none", use_dictionary=False)
    return sink.getvalue()


def footer_bytes(body: bytes) -> int:
    return int.from_bytes(body[-8:-4], "little") + 8


@pytest.fixture
def delivery(stack: Stack, s3: "S3Client", bucket: str, unique: str) -> Delivery:
    changes = {"transaction_max_bytes": 64 * MIB, "transaction_max_seconds": 5.0}
    return Delivery(stack, s3, bucket, unique, changes)


@pytest.mark.parametrize(
    ("made", "footer"),
    [
        pytest.param(text, lambda _: 0, id="txt"),
        pytest.param(csv, lambda _: 0, id="csv", marks=pytest.mark.soak),
        pytest.param(parquet, footer_bytes, id="parquet"),
    ],
)
@pytest.mark.long
def test_an_object_is_fetched_once_and_a_footer_once_per_worker(
    delivery: Delivery,
    s3_proxy: FaultProxy,
    made: Callable[[], bytes],
    footer: Callable[[bytes], int],
) -> None:
    body = made()
    delivery.put("x.txt" if made is text else f"x.{made.__name__}", body)
    delivery.connector({"aws.s3.endpoint": s3_proxy.endpoint, "extent.bytes": "16MiB"})
    worker = open_worker(delivery.settings.to_map(), "here")

    report = delivery.run(engine=CallingThreadEngine(worker.run), watch=RecordingListener())

    worker.close()
    fetched = s3_proxy.response_body_bytes("GET")
    assert report.ok
    assert len(body) >= 64 * MIB
    assert report.jobs[0].extents >= 4
    assert report.jobs[0].records == ROWS
    assert fetched <= MOST * len(body) + max(64 << 10, footer(body))
    assert fetched >= len(body) - footer(body)
    assert report.bytes_read <= fetched
