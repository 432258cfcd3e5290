"""`run --dry-run`, also with `--failed`: shows what a run would do, and registers nothing."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.cli import app, output, run_command_line
from extentflow.cli import run_commands as runs
from extentflow.cli.option_groups import ServerOptions
from extentflow.engines import Engine
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.services.addressed import make_connector
from extentflow.services.composition import open_orders, open_runs
from extentflow.services.run_control import RunControl
from extentflow.services.runs import AGAIN, Runs, delivery_id

IN = f"s3://{BUCKET}/c/"


def _no_engine(*_args: object, **_words: object) -> Engine:
    pytest.fail("an engine was opened")


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> MemoryRuntime:
    made = MemoryRuntime()
    made.cluster.create_topic("orders")

    def opened(
        servers: ServerOptions, *, creates: bool = True
    ) -> tuple[MemoryRuntime, Callable[[], Runs]]:
        _ = servers, creates
        return made, partial(open_runs, made, RunControl(notify=output.note), _no_engine)

    monkeypatch.setattr(runs, "_open", opened)
    return made


def test_a_connector_that_the_command_makes_is_not_stored(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.put("c/a.txt", lines=2)

    code = run_command_line(app, ["run", IN, "--topic", "orders", "--dry-run", "--json"])

    (plan,) = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (plan["object"], plan["state"], plan["revision"]) == (f"{IN}a.txt", "new", 1)
    assert list(runtime.memory.connectors.list(deleted=True)) == []
    assert list(runtime.memory.jobs.list()) == []


@pytest.mark.parametrize("option", [[], ["--failed"]])
def test_a_stopped_connector_is_named_though_a_command_made_it(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    runtime.put("c/a.txt")
    made = make_connector([IN], "orders", {})
    open_orders(runtime).store(made, save=False, notify=output.note)
    runtime.memory.connectors.set_state(made.name, ConnectorState.STOPPED)

    code = run_command_line(app, ["run", IN, "--topic", "orders", "--dry-run", *option])

    err = " ".join(capsys.readouterr().err.split())
    assert code == 2
    assert f"connector {made.name} is STOPPED; continue it with `extentflow resume" in err


def test_a_stored_connector_is_planned(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.put_connector(topic="orders")
    runtime.put("c/a.txt", lines=2)

    code = run_command_line(app, ["run", "-c", "c", "--dry-run"])

    assert code == 0
    assert f"{IN}a.txt" in capsys.readouterr().out
    assert list(runtime.memory.jobs.list()) == []


def test_what_failed_is_shown_with_what_would_follow(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.put_connector(topic="orders")
    jobs = [runtime.job(f"c/{name}.txt", lines=2) for name in ("bad", "open")]
    runtime.run(runtime.planner().plan(jobs[0]), 0)
    runtime.memory.jobs.end(jobs[0].id, JobState.FAILED, "line 2 is bad")
    runtime.put_connector(topic="orders", extent__bytes="auto")

    code = run_command_line(app, ["run", "-c", "c", "--failed", "--dry-run", "--json"])

    assert code == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "object": f"{IN}bad.txt",
            "step": "AGAIN",
            "delivered_before": 1,
            "job": jobs[0].id,
            "revision": 1,
            "cause": "line 2 is bad",
        }
    ]


def test_a_second_delivery_is_shown_with_what_is_delivered_twice(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """Trap: with --again, a dry run printed the same as without."""
    runtime.put_connector(topic="orders")
    done = runtime.job("c/done.txt", lines=2)
    runtime.run(runtime.planner().plan(done), 0, 1)
    runtime.memory.jobs.close(done.id)
    half = runtime.job("c/half.txt", lines=3)
    runtime.run(runtime.planner().plan(half), 0)
    runtime.put("c/new.txt")
    command = ["run", "-c", "c", "--dry-run", "--again"]

    assert run_command_line(app, [*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert run_command_line(app, command) == 0
    said = capsys.readouterr().err
    assert run_command_line(app, ["plan", "-c", "c", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)

    assert {
        one["object"]: (one["state"], one["again"], one["delivered_before"]) for one in found
    } == {
        f"{IN}done.txt": ("DONE", "FULL", 2),
        f"{IN}half.txt": ("RUNNING", "FULL", 1),
        f"{IN}new.txt": ("new", "FULL", 0),
    }
    golden(said)
    assert "would be again: 3" in said
    assert not {"again", "delivered_before"} & set(plain[0])
    assert [job.state for job in runtime.memory.jobs.list()] == [JobState.RUNNING, JobState.DONE]


def test_an_interrupted_second_delivery_is_shown_as_continued(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.put_connector(topic="orders")
    order = runtime.order()
    for name in ("a", "b", "c"):
        first = runtime.job(f"c/{name}.txt", lines=2)
        runtime.run(runtime.planner().plan(first), 0, 1)
        runtime.memory.jobs.close(first.id)
    runtime.ticker.sleep(1)
    AGAIN.write(runtime.memory.notes, delivery_id(order), runtime.memory.now())
    for name, ordinals in (("a", (0, 1)), ("b", (0,))):
        version = runtime.memory_store.head(BUCKET, f"c/{name}.txt")
        request = runtime.requests.make(order.config, order.revision, version, 1)
        second = runtime.planner().register(request, again=runtime.memory.now())
        runtime.run(runtime.planner().plan(second), *ordinals)
        runtime.memory.jobs.close(second.id)

    assert run_command_line(app, ["run", "-c", "c", "--dry-run", "--again", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert [(one["again"], one["delivered_before"]) for one in found] == [
        ("NOTHING", 2),
        ("CONTINUE", 2),
        ("FULL", 2),
    ]


def test_nothing_that_failed_is_said(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    runtime.put_connector(topic="orders")

    assert run_command_line(app, ["run", "-c", "c", "--failed", "--dry-run"]) == 0

    golden(capsys.readouterr().err)


@pytest.mark.parametrize("option", [(), ("--failed",)])
def test_a_topic_that_is_missing_is_a_problem_unless_a_run_creates_it(
    runtime: MemoryRuntime,
    capsys: pytest.CaptureFixture[str],
    option: tuple[str, ...],
    golden: Golden,
) -> None:
    """Trap: `--failed` did not look, and `--create-topic` did not count."""
    letters = {"errors__deadletterqueue__topic__name": "bad", "errors__tolerance": "all"}
    runtime.put_connector(topic="absent", **letters)
    job = runtime.job("c/a.txt")
    runtime.memory.jobs.end(job.id, JobState.FAILED, "a cause")
    command = ["run", "-c", "c", "--dry-run", *option]

    without = run_command_line(app, command)
    refused = capsys.readouterr().err
    with_topics = run_command_line(app, [*command, "--create-topic", "partitions=2"])
    said = capsys.readouterr().err

    assert (without, with_topics) == (2, 0)
    assert "error: topic absent does not exist" in refused
    golden(said)
    assert "topic absent" in said
    assert "topic bad" in said
    assert "error" not in said
    assert runtime.cluster.missing_topics(["absent", "bad"]) == ["absent", "bad"]


def test_many_objects_are_totals_and_first_what_a_run_delivers(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    runtime.put_connector(topic="orders")
    for number in range(25):
        job = runtime.job(f"c/{number:02}.txt")
        if number < 20:
            runtime.run(runtime.planner().plan(job), 0)
            runtime.memory.jobs.close(job.id)

    assert run_command_line(app, ["run", "-c", "c", "--dry-run"]) == 0

    shown = capsys.readouterr().out
    assert shown.count(IN) == 20
    assert all(f"{IN}{number}.txt" in shown for number in range(20, 25))
    golden(shown)
    assert "100" in shown


def test_many_objects_that_failed_are_totals_and_causes_in_lines_of_their_own(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.put_connector(topic="orders")
    for number in range(25):
        job = runtime.job(f"c/{number:02}.txt")
        runtime.memory.jobs.end(job.id, JobState.FAILED, f"cause {number}")

    assert run_command_line(app, ["run", "-c", "c", "--failed", "--dry-run"]) == 0

    captured = capsys.readouterr()
    assert captured.out.count(IN) == 20
    assert "25 objects; 20 shown, --json shows all" in captured.out
    assert "cause" not in captured.out
    assert ": cause 19" in captured.err
