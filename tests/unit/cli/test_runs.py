"""Notes and remedies that `run` and `replay` print."""

from dataclasses import replace

import pytest
import typer
from tests.support.memory_runtime import MemoryRuntime

from extentflow.cli import app, run_command_line, runs
from extentflow.jobs.run import JobReport, RunReport
from extentflow.services.runs import RunControl, Runs
from extentflow.storage.ranges import object_changed


def job(name: str, revision: int) -> JobReport:
    return JobReport(
        job=f"id-{name}",
        uri=f"s3://bucket/{name}",
        connector="orders",
        state="DONE",
        reason="",
        extents=1,
        done=1,
        failed=0,
        records=4,
        bad=0,
        object_bytes=4,
        revision=revision,
    )


def notes_of(revision: int, *jobs: JobReport) -> list[str]:
    notes: list[str] = []
    service = Runs(MemoryRuntime(), RunControl(notify=notes.append))
    service._note_older(RunReport("inline", jobs=jobs), revision)
    return notes


def test_jobs_under_an_older_revision_are_reported_with_the_remedy() -> None:
    notes = notes_of(3, job("old", 1), job("new", 3), job("elder", 2))

    assert [note.partition(" of connector")[0] for note in notes] == [
        "s3://bucket/old: job id-old uses revision 1",
        "s3://bucket/elder: job id-elder uses revision 2",
    ]
    assert all("orders, whose latest is 3; `run --again` starts a full" in note for note in notes)


def test_jobs_under_the_latest_revision_are_not_reported() -> None:
    assert notes_of(3, job("one", 3), job("other", 3)) == []


@pytest.mark.parametrize(("records", "said"), [(0, "0 records in 2"), (6, "(3/s)")])
def test_a_run_without_records_has_no_rate(
    capsys: pytest.CaptureFixture[str], records: int, said: str
) -> None:
    report = RunReport("inline", seconds=2.0, records_this_run=records, jobs=(job("one", 1),))

    runs.show(report, as_json=False)

    shown = capsys.readouterr().err
    assert said in shown
    assert "(0/s)" not in shown


def test_a_superseded_job_says_once_how_to_deliver_the_new_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = str(object_changed("s3://bucket/one[0-4)", "its ETag is new, not old"))
    superseded = replace(job("one", 1), state="SUPERSEDED", reason=f"{error}; records stay")

    with pytest.raises(typer.Exit):
        runs.show(RunReport("inline", jobs=(superseded,), errors=(error,)), as_json=True)

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: s3://bucket/one: job id-one is SUPERSEDED: s3://bucket/one[0-4)")
    assert line.count("to deliver the new version") == 1


@pytest.mark.parametrize("command", ["run", "replay"])
def test_an_unknown_engine_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(runs, "_runs", lambda: pytest.fail("settings were read"))
    wanted = ["-c", "orders"] if command == "run" else ["id"]

    assert run_command_line(app, [command, *wanted, "--engine", "sparc"]) == 2

    assert capsys.readouterr().err.startswith(
        "error: --engine sparc: there is no such engine; use one of spark, emr, inline"
    )


@pytest.mark.parametrize(
    ("state", "reason", "way_out"),
    [
        (
            "RUNNING",
            "connector orders is PAUSED; continue it with `extentflow resume orders`",
            "0 of 1 extents are done; then run the same command again to resume",
        ),
        ("RUNNING", "", "is RUNNING; 0 of 1 extents are done; run the same command again"),
        (
            "CANCELLED",
            "connector orders was stopped",
            "stopped; `extentflow replay id-one` delivers the rest, `extentflow replay -c orders`",
        ),
    ],
)
def test_a_job_that_is_not_done_is_reported_with_the_remedy(
    capsys: pytest.CaptureFixture[str], state: str, reason: str, way_out: str
) -> None:
    left = replace(job("one", 1), state=state, reason=reason, done=0)

    with pytest.raises(typer.Exit) as ended:
        runs.show(RunReport("inline", jobs=(left,)), as_json=True)

    assert ended.value.exit_code == 1
    assert way_out in capsys.readouterr().err
