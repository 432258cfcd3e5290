"""What competitors are made of: payloads, sinks that drop, CPU time, the machine."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.cpu import cpu_seconds
from bench.data import line_count, scale_of
from bench.dropping import DroppingFence, DroppingSink
from bench.machine import machine
from bench.process import WarmProcess
from bench.processes.payloads import payloads

import extentflow.wiring  # noqa: F401 - registers converters
from extentflow.kafka import ProducerSettings, Records, SlotProgress
from extentflow.testing.broker import MemoryBroker


def test_payloads_of_text_are_its_lines_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_bytes(b'a,b\n"1,x",\n,\xff\n')

    values = [value.as_py() for array in payloads(str(path)) for value in array]

    assert values == [b"a,b", b'"1,x",', b",\xff"]
    assert line_count(path) == 3


def test_payloads_of_parquet_are_its_rows_as_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), path)

    values = [value.as_py() for array in payloads(str(path)) for value in array]

    assert values == [b'{"n":1}', b'{"n":2}']


def test_records_are_dropped_and_progress_is_not() -> None:
    broker = MemoryBroker({"orders": 1})
    sink = DroppingFence(broker.fence("slot", ProducerSettings())).open()
    assert isinstance(sink, DroppingSink)

    refused = sink.send(Records("orders", pa.array([b"a", b"b"], pa.binary())))
    sink.commit(SlotProgress(epoch=1, job="job", records=2))

    assert not refused
    assert sink.records == 2
    assert broker.read_uncommitted("orders") == []
    assert broker.group("slot") == SlotProgress(epoch=1, job="job", records=2)


def test_cpu_time_counts_this_process_and_those_that_it_started() -> None:
    work = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 400_000)"
    before = cpu_seconds()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)
    own = cpu_seconds() - before

    subprocess.run([sys.executable, "-c", work], check=True)

    assert own > 0
    assert cpu_seconds() - before > 2 * own


def test_a_scale_is_named_by_three_digits() -> None:
    assert scale_of(10**9, 232_000_000) == 4.31


def test_the_machine_is_described_in_json() -> None:
    found = machine()

    assert found["cores"] >= 1
    assert found["versions"]["kafka"].count(".") == 2
    assert json.loads(json.dumps(found)) == found


ECHO = """
import sys
from bench.process import serve

serve(lambda request: {**request, "to": sys.argv[1]})
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """TemplateContext in which `python -m echo` answers what it is asked."""
    (tmp_path / "echo.py").write_text(ECHO)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}


def test_a_competitor_returns_its_cpu_time_and_ends_with_its_context(
    environment: dict[str, str],
) -> None:
    with WarmProcess.start("echo", environment, "us") as process:
        answer = process.ask(a=1)

    assert answer.pop("cpu_seconds") >= 0
    assert answer == {"a": 1, "to": "us"}
    assert process.process.returncode == 0


def test_an_error_ends_a_lane_at_once(environment: dict[str, str]) -> None:
    with pytest.raises(KeyError), WarmProcess.start("echo", environment, "us") as process:
        raise KeyError

    assert process.process.returncode == -signal.SIGTERM


def test_a_lane_that_ended_says_so_instead_of_answering(environment: dict[str, str]) -> None:
    (Path(environment["PYTHONPATH"].partition(os.pathsep)[0]) / "mute.py").write_text("input()")

    with (
        WarmProcess.start("mute", environment) as process,
        pytest.raises(RuntimeError, match="ended with 0"),
    ):
        process.ask(a=1)
