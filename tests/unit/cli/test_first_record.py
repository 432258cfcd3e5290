"""`extentflow run ADDRESS --topic TOPIC`: a connector of the command, its topic, its second run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.local_engine import CallingThreadEngine, until_final
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.cli import app, output, run_command_line, runs
from extentflow.services.runs import RunControl, Runs
from extentflow.sink.topics import NewTopics
from extentflow.wiring.extents import delivery_context

IN = f"s3://{BUCKET}/c/"
TOPIC = ("--topic", "orders")


@dataclass
class Line:
    """The command over a runtime in memory; `said` is what it wrote."""

    captured: pytest.CaptureFixture[str]
    runtime: MemoryRuntime = field(default_factory=MemoryRuntime)
    engines: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    given: Mapping[str, str] | None = None
    said: str = ""

    def open_runs(self, given: Mapping[str, str] | None = None) -> Runs:
        self.given = given
        return Runs(self.runtime, RunControl(notify=output.note), self._opened)

    def run(self, *words: str) -> int:
        code = run_command_line(app, ["run", *words])
        self.said = self.captured.readouterr().err
        return code

    @property
    def delivered(self) -> list[bytes | None]:
        return [record.value for record in self.runtime.cluster.read_committed("orders")]

    def _opened(self, _runtime: object, name: str, **words: Any) -> CallingThreadEngine:  # noqa: ANN401
        self.engines.append((name, words))
        work = delivery_context(self.runtime, self.runtime.slots("here"))
        return CallingThreadEngine(until_final(work))


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Line:
    made = Line(capsys)
    made.runtime.cluster.create_topic("orders")
    monkeypatch.setattr(runs, "_runs", made.open_runs)
    return made


def test_one_command_delivers_with_a_connector_that_it_shows(line: Line) -> None:
    line.runtime.put("c/a.txt", lines=2)

    code = line.run(f"{IN}a.txt", *TOPIC, "--bootstrap-servers", "localhost:9092")

    assert code == 0
    assert line.delivered == [b"abc", b"abc"]
    assert line.given == {"bootstrap.servers": "localhost:9092"}
    assert line.engines[0][0] == "inline"
    connector, by, *_ = line.said.splitlines()
    assert connector == (
        "note: connector orders-from-shop, revision 1; --save keeps it for `-c`: "
        "aws.s3.bucket.name=shop, aws.s3.prefix=c/, topic=orders"
    )
    assert by == "note: format text, by extension .txt: 1 object"
    assert "note: the same command again delivers only what is new" in line.said
    assert list(line.runtime.memory.connectors.list()) == []


def test_the_same_command_again_delivers_what_is_new_and_says_so(line: Line) -> None:
    line.runtime.put("c/a.txt")
    assert line.run(IN, *TOPIC) == 0
    line.runtime.put("c/b.txt")

    again = line.run(IN, *TOPIC)

    assert again == 0
    assert line.delivered == [b"abc", b"abc"]
    assert "1 of 2 objects were delivered before and are skipped" in line.said


@pytest.mark.parametrize(
    "other", [f"s3://{BUCKET}", f"s3://{BUCKET}/c", f"{IN}*.txt", f"{IN}a.txt"]
)
def test_another_address_of_the_same_object_delivers_it_no_second_time(
    line: Line, other: str
) -> None:
    line.runtime.put("c/a.txt")
    assert line.run(IN, *TOPIC) == 0

    assert line.run(other, *TOPIC) == 0

    assert line.delivered == [b"abc"]
    assert "1 of 1 objects were delivered before and are skipped" in line.said
    assert "other settings" not in line.said


def test_other_settings_are_reported_for_what_they_do_not_change(line: Line) -> None:
    line.runtime.put("c/a.txt")
    assert line.run(IN, *TOPIC) == 0

    code = line.run(IN, *TOPIC, "--set", "message.key=object")

    assert code == 0
    assert line.delivered == [b"abc"]
    assert "revision 2" in line.said
    assert "1 of 1 objects have jobs with other settings than these; --again delivers" in line.said


def test_every_key_of_connectors_can_be_set(line: Line) -> None:
    line.runtime.put("c/a.txt")

    code = line.run(IN, *TOPIC, "--set", "message.key=object", "--set", "name=mine")

    assert code == 0
    (record,) = line.runtime.cluster.read_committed("orders")
    assert record.key == b"c/a.txt"
    assert "connector mine, revision 1" in line.said


def test_a_saved_connector_is_used_by_its_name(line: Line) -> None:
    line.runtime.put("c/a.txt")
    assert line.run(IN, *TOPIC, "--save") == 0
    assert "--save keeps" not in line.said

    code = line.run("-c", "orders-from-shop", "--engine", "inline")

    assert code == 0
    assert line.delivered == [b"abc"]


@pytest.mark.parametrize(
    ("words", "partitions"),
    [
        (["--create-topic", "partitions=8"], 8),
        (["--create-topic", "partitions=3,cleanup.policy=compact,delete"], 3),
    ],
)
def test_a_missing_topic_is_created_where_the_command_says_so(
    line: Line, words: list[str], partitions: int
) -> None:
    line.runtime.put("c/a.txt")

    code = line.run(IN, "--topic", "fresh", *words)

    assert code == 0
    assert f"note: created topic fresh with {partitions} partitions" in line.said
    assert len(line.runtime.cluster.read_committed("fresh")) == 1


@pytest.mark.parametrize("creates", [True, False])
def test_a_missing_topic_is_created_where_the_brokers_would_do_so(
    line: Line,
    monkeypatch: pytest.MonkeyPatch,
    creates: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    asked: list[NewTopics] = []
    create: Callable[..., list[str]] = line.runtime.cluster.create_topics

    def noted(names: list[str], wanted: NewTopics) -> list[str]:
        asked.append(wanted)
        return create(names, wanted)

    monkeypatch.setattr(line.runtime.cluster, "create_topics", noted)
    monkeypatch.setattr(line.runtime.cluster, "creates_topics", creates)
    line.runtime.put("c/a.txt")

    line.run(IN, "--topic", "orders")

    assert asked == ([NewTopics()] if creates else [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --topic TOPIC, and the command makes a connector of the address"),
        ([IN, *TOPIC, "-c", "orders"], "give --topic TOPIC, and the command makes"),
        ([*TOPIC], "which objects? give an address"),
        ([IN, "-c", "c", "--set", "message.key=object"], "--set and --save go with --topic"),
        ([IN, "-c", "c", "--save"], "--set and --save go with --topic"),
        ([IN, *TOPIC, "--set", "x"], "--set x: write KEY=VALUE"),
        ([IN, *TOPIC, "--set", "input.fromat=csv"], "did you mean input.format?"),
        ([IN, *TOPIC, "--create-topic", "8"], "--create-topic 8: write partitions=8"),
        ([IN, *TOPIC, "--create-topic", "partitions=no"], "are whole numbers"),
        ([IN, *TOPIC, "--create-topic", "partitions=0"], "are whole numbers"),
        ([IN, *TOPIC, "--engine", "emr"], "--engine emr reads a stored connector: add --save"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_the_next_command(
    line: Line, words: list[str], said: str
) -> None:
    assert line.run(*words) == 2

    assert said in line.said
    assert line.engines == []


def test_a_failure_says_what_the_commands_need_that_it_names(line: Line) -> None:
    line.runtime.put("c/a.parquet")

    code = line.run(IN, *TOPIC, "--bootstrap-servers", "broker:9092")

    assert code == 1
    assert "`extentflow replay" in line.said
    assert "need `export EXTENTFLOW_BOOTSTRAP_SERVERS=broker:9092`" in line.said


def test_a_master_selects_spark(line: Line) -> None:
    line.runtime.put("c/a.txt")

    assert line.run(IN, *TOPIC, "--master", "local[2]") == 0
    assert line.engines[0][0] == "spark"
