"""The Python API over doubles in memory, and the examples of its page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.local_engine import CallingThreadEngine, until_final
from tests.support.memory_delivery import TOPIC
from tests.support.memory_runtime import BUCKET, Cluster, MemoryRuntime

import extentflow
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured
from extentflow.model import JobState, Outcome
from extentflow.wiring import Runtime
from extentflow.wiring.extents import delivery_context

PAGE = Path(__file__).parents[3] / "docs" / "python.md"


def client(runtime: MemoryRuntime) -> extentflow.Extentflow:
    def opened(*_args: object, **_words: object) -> CallingThreadEngine:
        return CallingThreadEngine(until_final(delivery_context(runtime, runtime.slots("here"))))

    return extentflow.Extentflow(runtime=runtime, open_engine=opened)


@pytest.fixture
def runtime() -> MemoryRuntime:
    runtime = MemoryRuntime()
    runtime.put_connector()
    return runtime


def test_importing_the_package_imports_no_client() -> None:
    code = (
        "import sys, extentflow; extentflow.__version__; dir(extentflow);"
        "print([m for m in ('pyarrow', 'boto3', 'confluent_kafka', 'typer') if m in sys.modules])"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(extentflow, name) is not None for name in extentflow.__all__)
    with pytest.raises(AttributeError, match="no attribute 'bogus'"):
        _ = extentflow.bogus  # type: ignore[attr-defined]


def test_a_delivery_calls_back_for_each_extent(runtime: MemoryRuntime) -> None:
    runtime.put(lines=3)
    seen: list[int] = []

    report = client(runtime).deliver(
        connector="c", on_receipt=lambda receipt: seen.append(receipt.ordinal)
    )

    assert report.ok
    assert seen == [0, 1, 2]


def test_receipts_are_yielded_and_the_report_is_returned(runtime: MemoryRuntime) -> None:
    runtime.put(lines=2)
    receipts = client(runtime).receipts(connector="c")

    outcomes = [next(receipts).outcome, next(receipts).outcome]
    with pytest.raises(StopIteration) as ended:
        next(receipts)

    assert outcomes == [Outcome.DONE, Outcome.DONE]
    assert ended.value.value.ok


def test_an_error_of_a_delivery_is_raised_where_receipts_are_read(runtime: MemoryRuntime) -> None:
    with pytest.raises(Misconfigured, match="there is no connector d"):
        next(client(runtime).receipts(connector="d"))


def test_closing_receipts_ends_the_delivery(runtime: MemoryRuntime) -> None:
    runtime.put(lines=2)
    receipts = client(runtime).receipts(connector="c")
    next(receipts)

    receipts.close()

    assert client(runtime).deliver(connector="c").ok


def test_a_failed_job_is_replayed(runtime: MemoryRuntime) -> None:
    job = runtime.job()
    runtime.memory.jobs.end(job.id, JobState.FAILED, "the store was unavailable")

    assert client(runtime).replay(job.id[:8]).ok


def test_init_creates_a_ledger_that_a_setting_names(tmp_path: Path) -> None:
    address = LedgerAddress.of_file(tmp_path / "ledger.db")
    runtime = Runtime(WorkerSettings(bootstrap_servers="127.0.0.1:1", ledger_url=address))
    runtime.__dict__["broker"] = Cluster({TOPIC: 1})
    flow = extentflow.Extentflow(runtime=runtime)

    with pytest.raises(Misconfigured, match=r"`extentflow init` creates it.*`Extentflow\.init`"):
        flow.connectors.list()

    assert [flow.init().created, flow.init().created] == [True, False]
    assert flow.connectors.list() == []


def test_missing_topics_are_created_where_a_call_says_how(runtime: MemoryRuntime) -> None:
    for name in ("a", "b"):
        runtime.put_connector(name, topic=f"new-{name}")
        runtime.put(f"{name}/a.txt")
    flow = client(runtime)

    with pytest.raises(Misconfigured, match="topic new-a does not exist"):
        flow.deliver(connector="a")
    with pytest.raises(Misconfigured, match="whole numbers, not 'many'"):
        flow.receipts(connector="b", create_topic={"partitions": "many"}).send(None)
    delivered = flow.deliver(connector="a", create_topic={"partitions": 3})
    received = [*flow.receipts(connector="b", create_topic={"partitions": 4})]

    assert delivered.ok
    assert [one.outcome for one in received] == [Outcome.DONE]
    assert [one.partitions for one in runtime.cluster.topics(["new-a", "new-b"])] == [3, 4]


def test_what_is_wrong_with_a_call_is_found_before_a_ledger_is_created(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    flow = extentflow.Extentflow({"bootstrap.servers": "127.0.0.1:1"})

    with pytest.raises(Misconfigured, match="there is no such engine"):
        flow.replay("0123", engine="sparc")
    with pytest.raises(Misconfigured, match="functions may run on other machines"):
        flow.jobs.submit(["shop/in/a.csv"])
    with pytest.raises(Misconfigured, match="write a number and s, m, h or d"):
        flow.jobs.redrive(since="yesterday")

    assert list(tmp_path.iterdir()) == []


def test_the_examples_of_the_page_run(runtime: MemoryRuntime) -> None:
    runtime.memory_store.put(BUCKET, "in/a.json", b'{"id": 1}\n' * 3)
    names = {
        "extentflow": extentflow,
        "flow": client(runtime),
        "TOPIC": TOPIC,
        "BUCKET": BUCKET,
        "PREFIX": "in/",
    }
    pattern = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
    opening, *examples = pattern.findall(PAGE.read_text())

    assert "extentflow.Extentflow()" in opening
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102 - our own page
