"""`run --engine emr`: a run is asked for over HTTP, waited for, and cancelled with the command.

Nothing runs behind the stand-in: tests deliver what the run would, and say how it ends.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.delivery import PROGRAM, Delivery, joined, numbered_lines
from tests.support.waiting import AWAITED_SECONDS, eventually

from extentflow.cli import INCOMPLETE, NOTHING_STARTED, STOPPED
from extentflow_local.aws.emr.double import IdleRuns, IdleWork
from extentflow_local.aws.emr.service import EmrServerless
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LINES = numbered_lines("line-", 3_000)
CODE = {
    "EXTENTFLOW_SPARK_ENTRY_POINT": "s3://code/spark_deliver.py",
    "EXTENTFLOW_SPARK_ARCHIVE": "s3://code/archive.tgz",
}


@dataclass
class Shell:
    """A shell whose application behaves as the test sets it up."""

    delivery: Delivery
    emr: EmrServerless
    idle: IdleRuns

    def start(self, *words: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [str(PROGRAM), *words, "--engine", "emr", "--json"],
            env={**self.delivery.environment, **CODE, **self.emr.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.delivery.started.append(process)
        return process

    def run(self) -> "subprocess.Popen[str]":
        return self.start("run", self.delivery.address, "-c", self.delivery.connector_name)

    def work(self, before: int = 0) -> IdleWork:
        """Wait for the run that begins after so many others."""
        found: IdleWork = eventually(
            "a run begins", lambda: [*self.idle.work.values()][before : before + 1]
        )[0]
        return found

    def said(self, process: "subprocess.Popen[str]") -> tuple[int, Any, str]:
        output, errors = process.communicate(timeout=AWAITED_SECONDS)
        return process.returncode, json.loads(output or "null"), errors


@pytest.fixture
def shell(stack: Stack, s3: "S3Client", bucket: str, unique: str) -> Iterator[Shell]:
    delivery = Delivery(stack, s3, bucket, unique)
    delivery.put("a.txt", joined(LINES))
    delivery.connector({"extent.bytes": "8KiB"})
    idle = IdleRuns()
    with EmrServerless(idle) as emr:
        yield Shell(delivery, emr, idle)
    delivery.kill_started()


@pytest.mark.long
def test_the_command_waits_for_the_run_and_prints_what_it_delivered(shell: Shell) -> None:
    waiting = shell.run()
    work = shell.work()
    shell.delivery.finish("inline")  # what the run's workers would do
    work.end()
    code, reported, notes = shell.said(waiting)
    (order,) = shell.idle.orders

    assert (code, reported["ok"], reported["engine"]) == (0, True, "emr"), notes
    assert reported["records_this_run"] == len(LINES)
    assert f"run {order.run} is started" in notes
    assert "records" in notes
    name = shell.delivery.connector_name
    assert order.arguments == ("--connector", name, "--json", shell.delivery.address)
    assert sorted(shell.delivery.values()) == sorted(LINES)


@pytest.mark.variant
def test_where_nothing_is_left_no_run_is_asked_for(shell: Shell) -> None:
    shell.delivery.finish("inline")

    code, reported, notes = shell.said(shell.run())

    assert (code, reported["ok"]) == (0, True), notes
    assert shell.idle.orders == []


@pytest.mark.variant
def test_a_run_that_fails_is_an_error_and_a_replay_names_the_job(shell: Shell) -> None:
    waiting = shell.run()
    shell.work().end(1)
    code, _, notes = shell.said(waiting)
    (job,) = shell.delivery.jobs()
    again = shell.start("replay", job.id)
    work = shell.work(1)
    shell.delivery.finish("inline")
    work.end()
    second, reported, _ = shell.said(again)

    assert code == INCOMPLETE
    assert "ended as FAILED and has left extents" in notes
    assert (second, reported["ok"]) == (0, True)
    assert shell.idle.orders[1].arguments == ("--job", job.id, "--json")


@pytest.mark.variant
def test_ctrl_c_cancels_the_run_and_any_engine_resumes(shell: Shell) -> None:
    waiting = shell.run()
    work = shell.work()
    waiting.send_signal(signal.SIGINT)
    code, _, notes = shell.said(waiting)
    (order,) = shell.idle.orders

    assert code == STOPPED, notes
    assert f"run {order.run} is cancelled" in notes
    eventually("the run is asked to stop", lambda: work.stops)
    assert shell.delivery.finish("inline")["ok"]
    assert sorted(shell.delivery.values()) == sorted(LINES)


def test_a_connector_with_secrets_of_the_shell_is_rejected_before_a_run(
    shell: Shell,
) -> None:
    shell.delivery.connector(
        {"aws.access.key.id": "${env:GRID_KEY}", "aws.secret.access.key": "${env:GRID_SECRET}"}
    )

    code, _, errors = shell.said(shell.run())

    assert code == NOTHING_STARTED
    assert "aws.access.key.id=${env:GRID_KEY}" in errors
    assert "--engine spark" in errors
    assert not shell.idle.work
