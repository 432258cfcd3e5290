"""What commands advise, executed in the state in which they say it; then the topic is counted."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from extentflow.cli import app, run_command_line
from extentflow.kafka.reading import read_committed
from extentflow_local.stack.ports import free_run
from extentflow_local.stack.stack import Stack

pytestmark = pytest.mark.long

COMMAND = re.compile(r"`extentflow ([^`]+)`")


@dataclass
class Advised:
    """Commands of this process over files below `folder`, one topic and a ledger of SQLite."""

    folder: Path
    servers: str
    topic: str
    captured: pytest.CaptureFixture[str]
    code: int = 0
    said: str = ""

    def run(self, *more: str) -> int:
        """Run the folder into the topic; `more` words are added."""
        return self.follow(["run", f"{self.folder}/in/", "--topic", self.topic, *more])

    def follow(self, words: Sequence[str]) -> int:
        """Run a command; keep its code and what it said."""
        self.captured.readouterr()
        self.code = run_command_line(app, [*words])
        self.said = "".join(self.captured.readouterr())
        return self.code

    def advice(self, verb: str) -> list[str]:
        """Return the words of the command that was advised and begins with `verb`."""
        found: set[str] = {one for one in COMMAND.findall(self.said) if one.startswith(verb)}
        assert len(found) == 1, (verb, self.said)
        return found.pop().split()

    def write(self, name: str, text: str) -> None:
        path = self.folder / "in" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    @property
    def connector(self) -> str:
        """The name of the connector that the last `run` made."""
        found = re.search(r"connector (\S+), revision", self.said)
        assert found, self.said
        return found[1]

    @property
    def count(self) -> int:
        """How many records consumers of the topic see."""
        batches = read_committed({"bootstrap.servers": self.servers}, self.topic)
        return sum(map(len, batches))


@pytest.fixture
def advised(
    stack: Stack,
    unique: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Advised:
    servers = stack.endpoint("kafka")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EXTENTFLOW_BOOTSTRAP_SERVERS", servers)
    monkeypatch.setenv("EXTENTFLOW_LEDGER_URL", f"sqlite:///{tmp_path}/ledger.db")
    monkeypatch.setenv("EXTENTFLOW_RETRY_TIMEOUT_SECONDS", "5")
    return Advised(tmp_path, servers, f"advice-{unique}", capsys)


def begin(advised: Advised) -> None:
    """Deliver nothing yet: follow the advice for a missing ledger, then for a missing topic."""
    advised.write("a.csv", "id,n\n1,1\n2,2\n")
    assert advised.run() == 2
    assert advised.follow(advised.advice("init")) == 0
    assert advised.run() == 2
    assert "--create-topic" in advised.said


def test_a_missing_ledger_and_topic_are_made_and_a_repetition_delivers_once(
    advised: Advised,
) -> None:
    begin(advised)

    assert advised.run("--create-topic", "partitions=1") == 0
    assert "the same command again delivers only what is new" in advised.said
    verify = ["count", advised.topic, "--verify", f"{advised.folder}/in/"]
    assert advised.follow([*verify, "-c", advised.connector]) == 0
    once = advised.count
    assert advised.run() == 0
    assert "--again delivers them a second time" in advised.said
    repeated = advised.count
    assert advised.run("--again") == 0
    assert "the same command without --again delivers only what is new" in advised.said
    twice = advised.count
    assert advised.run() == 0

    assert (once, repeated, twice, advised.count) == (2, 2, 4, 4)


def test_other_settings_are_delivered_with_again_only(advised: Advised) -> None:
    begin(advised)
    assert advised.run("--create-topic", "partitions=1") == 0

    changed = ("--set", "message.key=column:id")
    assert advised.run(*changed) == 0
    before = advised.count
    assert "job with other settings than these: 1 of 1 object; --again" in advised.said
    assert advised.run(*changed, "--again") == 0

    assert (before, advised.count) == (2, 4)


def test_a_failed_job_is_continued_after_a_change_of_settings(advised: Advised) -> None:
    begin(advised)
    advised.write("b.csv", "id,n\n3,3\nx,4\n")
    typed = ("--set", "csv.schema=id:int64,n:int64")

    assert advised.run("--create-topic", "partitions=1", *typed) == 1
    failed = advised.count
    assert "--failed" in advised.said
    text = ("--set", "csv.schema=id:string,n:int64", "--failed")
    assert advised.run(*text) == 0

    assert (failed, advised.count) == (2, 4)


def test_dead_letters_are_shown_corrected_and_replayed(advised: Advised) -> None:
    begin(advised)
    advised.write("b.csv", "id,n\n3,3\nx,4\n")
    dead = f"{advised.topic}-dead"
    tolerant = ("--set", "errors.tolerance=all", "--set", "csv.schema=id:int64,n:int64")
    queue = ("--set", f"errors.deadletterqueue.topic.name={dead}")

    assert advised.run("--create-topic", "partitions=1", *tolerant, *queue) == 0
    delivered = advised.count
    show = advised.advice("dead-letters")
    assert advised.follow([*show, "--json"]) == 0
    (line,) = advised.said.splitlines()
    repairs = advised.folder / "repairs.jsonl"
    repairs.write_text(line.replace("x,4", "4,4"), encoding="utf-8")
    replay = ["replay-dead-letters", *show[1:], "--repairs", str(repairs)]
    assert advised.follow(replay) == 0
    replayed = advised.count
    assert advised.follow(replay) == 0

    assert (delivered, replayed, advised.count) == (3, 4, 4)


@pytest.mark.parametrize("change", ["pause", "stop"])
def test_a_connector_that_does_not_run_is_resumed(advised: Advised, change: str) -> None:
    begin(advised)
    assert advised.run("--create-topic", "partitions=1") == 0
    name = advised.connector
    advised.write("c.csv", "id,n\n5,5\n")
    assert advised.follow([change, name]) == 0
    assert "is not stored" in advised.said

    assert advised.run() == 2
    refused = advised.count
    assert advised.follow(advised.advice("resume")) == 0
    assert advised.run() == 0

    assert (refused, advised.count) == (2, 3)


def test_the_command_that_put_names_delivers(advised: Advised) -> None:
    begin(advised)
    stored = advised.folder / "c.properties"
    stored.write_text(
        f"name=stored\ntopic={advised.topic}\nendpoint.type=localfile\n"
        f"directory={advised.folder}/in\n"
    )

    assert advised.follow(["connectors", "put", str(stored)]) == 0
    stream = advised.advice("stream -c")
    run = advised.advice("run -c")
    assert advised.follow([*run, "--create-topic", "partitions=1"]) == 0
    once = advised.count
    assert advised.follow(run) == 0

    twice = advised.count
    advised.write("c.txt", "3\n")
    command = [sys.executable, "-m", "extentflow", *stream, "--once"]
    streamed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert streamed.returncode == 0, streamed.stderr
    assert (once, twice, advised.count) == (2, 2, 3)


def test_a_corrected_object_is_delivered_and_its_failed_job_no_longer_open(
    advised: Advised,
) -> None:
    begin(advised)
    advised.write("b.csv", "id,n\n3,3\nx,4\n")
    typed = ("--set", "csv.schema=id:int64,n:int64")
    assert advised.run("--create-topic", "partitions=1", *typed) == 1
    failed = advised.count
    advised.write("b.csv", "id,n\n3,3\n4,4\n")

    assert advised.run(*typed) == 0
    corrected = advised.count
    assert advised.follow(["status"]) == 0

    assert (failed, corrected) == (2, 4)
    assert "1 FAILED (1 delivered since)" in advised.said


def test_a_changed_object_is_delivered_as_the_note_says(advised: Advised) -> None:
    begin(advised)
    assert advised.run("--create-topic", "partitions=1") == 0
    advised.write("a.csv", "id,n\n1,1\n2,2\n3,3\n")

    assert advised.run() == 0

    assert "changed since delivery: 1 object" in advised.said
    assert "the new version is delivered in full" in advised.said
    assert advised.count == 5


def test_the_stack_that_is_advised_takes_the_command_that_lacked_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a stack of its own, at free ports, because the state is that none runs."""
    first = free_run(2, random.SystemRandom())
    monkeypatch.setenv("EXTENTFLOW_LOCAL_KAFKA_PORT", str(first))
    monkeypatch.setenv("EXTENTFLOW_LOCAL_S3_PORT", str(free_run(8, random.SystemRandom())))
    monkeypatch.delenv("EXTENTFLOW_LOCAL_STACK")
    environment = dict(os.environ)  # a command adds the servers that it finds
    monkeypatch.chdir(tmp_path)
    advised = Advised(tmp_path, f"127.0.0.1:{first}", "advice", capsys)
    advised.write("a.csv", "id,n\n1,1\n2,2\n")

    assert advised.run("--create-topic", "partitions=1") == 2
    try:
        assert advised.follow(advised.advice("up")) == 0
        assert advised.run("--create-topic", "partitions=1") == 0, advised.said
        once = advised.count
        assert advised.run() == 0, advised.said

        assert (once, advised.count) == (2, 2)
    finally:
        assert advised.follow(["down"]) == 0
        os.environ.clear()
        os.environ.update(environment)
