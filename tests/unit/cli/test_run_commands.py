"""Notes and remedies that `run` and `replay` print."""

from dataclasses import replace
from pathlib import Path

import pytest
import typer
from tests.support.golden import Golden
from tests.support.memory_runtime import MemoryRuntime

from extentflow.cli import app, run_command_line, run_reports
from extentflow.cli import run_commands as runs
from extentflow.config.parsing import parse
from extentflow.errors import ObjectGone, reason
from extentflow.jobs.run import JobReport, RunReport
from extentflow.services.composition import open_runs
from extentflow.services.orders import StoredOrder
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
    config = parse({"name": "orders", "topic": "orders", "aws.s3.bucket.name": "bucket"})
    order = StoredOrder(config, revision)
    return list(open_runs(MemoryRuntime())._result_notes(RunReport("inline", jobs=jobs), order))


def test_jobs_under_an_older_revision_are_reported_with_the_remedy(golden: Golden) -> None:
    notes = notes_of(3, job("old", 1), job("new", 3), job("elder", 2))

    (note,) = notes
    golden(note)
    assert "s3://bucket/old" in note
    assert "the same command with --again" in note


def test_jobs_under_the_latest_revision_are_not_reported() -> None:
    assert notes_of(3, job("one", 3), job("other", 3)) == []


@pytest.mark.parametrize(("records", "said"), [(0, "0 records in 2"), (6, "(3/s)")])
def test_a_run_without_records_has_no_rate(
    capsys: pytest.CaptureFixture[str], records: int, said: str
) -> None:
    report = RunReport("inline", seconds=2.0, records_this_run=records, jobs=(job("one", 1),))

    run_reports.show(report, as_json=False)

    shown = capsys.readouterr().err
    assert said in shown
    assert "(0/s)" not in shown


def test_one_record_is_not_called_records(capsys: pytest.CaptureFixture[str]) -> None:
    report = RunReport("inline", seconds=1.0, records_this_run=1, jobs=(job("one", 1),))

    run_reports.show(report, as_json=False)

    assert "1 record in 1.0 s (1/s)" in capsys.readouterr().err


def test_a_superseded_job_says_once_how_to_deliver_the_new_version(
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    error = str(object_changed("s3://bucket/one[0-4)", "its ETag is new, not old"))
    superseded = replace(job("one", 1), state="SUPERSEDED", reason=f"{error}; records stay")

    with pytest.raises(typer.Exit):
        run_reports.show(RunReport("inline", jobs=(superseded,), errors=(error,)), as_json=True)

    (line,) = capsys.readouterr().err.splitlines()
    golden(line)
    assert "s3://bucket/one[0-4)" in line
    assert line.endswith("; job id-one is SUPERSEDED")
    assert line.count("to deliver the new version") == 1
    assert "if it was not delivered yet" in line


def test_a_run_says_once_that_it_creates_the_ledger_and_then_which_one_it_uses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = ["run", "-c", "orders", "--bootstrap-servers", "127.0.0.1:1"]

    said = [(run_command_line(app, command), capsys.readouterr().err) for _ in range(2)]

    (first, created), (second, used) = said
    assert first == second == 2
    assert [line.split(" ")[1:4] for line in created.splitlines()[:-1]] == [
        ["created", "the", "ledger"]
    ]
    assert "created" not in used
    assert "because no setting names one" in used


@pytest.mark.parametrize("command", ["run", "replay"])
def test_an_unknown_engine_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(runs, "_open", lambda: pytest.fail("settings were read"))
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
            "one: not finished: 0 of 1 extent is done; connector orders is PAUSED; continue",
        ),
        ("RUNNING", "", "not finished: 0 of 1 extent is done"),
        ("RUNNING", "", "run the same command again to resume"),
        (
            "CANCELLED",
            "connector orders was stopped",
            "note: `extentflow replay id-one` delivers the rest, `extentflow replay -c orders`",
        ),
    ],
)
def test_a_job_that_is_not_done_is_reported_with_the_remedy(
    capsys: pytest.CaptureFixture[str], state: str, reason: str, way_out: str
) -> None:
    left = replace(job("one", 1), state=state, reason=reason, done=0)

    with pytest.raises(typer.Exit) as ended:
        run_reports.show(RunReport("inline", jobs=(left,)), as_json=True)

    assert ended.value.exit_code == 1
    assert way_out in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 2])
def test_failed_jobs_of_objects_that_are_gone_are_dismissed(
    capsys: pytest.CaptureFixture[str], golden: Golden, count: int
) -> None:
    """Trap: the correction of the object was advised, or a replay, which failed again."""
    why = f"1 of 1 extent failed: {reason(ObjectGone('s3://bucket/one: no such key'))}"
    gone = [
        replace(job(name, 1), state="FAILED", reason=why, done=0) for name in ("one", "two")[:count]
    ]

    with pytest.raises(typer.Exit):
        run_reports.show(RunReport("inline", jobs=tuple(gone)), as_json=True)

    said = capsys.readouterr().err
    golden(said)
    assert "`extentflow dismiss " in said
    assert not {"replay", "correct the object"} & {*said.replace("`", " ").split()}


def test_many_jobs_are_totals_and_the_failed_ones(
    capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    jobs = [job(str(number), 1) for number in range(2_000)]
    reason = "1 of 1 extent failed: s3://bucket/607[0-4): byte 8: no JSON"
    jobs[607] = replace(jobs[607], state="FAILED", reason=reason, done=0, failed=1)
    report = RunReport(
        "inline", jobs=tuple(jobs), errors=("s3://bucket/607[0-4): byte 8: no JSON",)
    )

    with pytest.raises(typer.Exit):
        run_reports.show(report, as_json=False)

    out, err = capsys.readouterr()
    assert "2,000 jobs: 1,999 DONE, 1 FAILED" in out
    assert len(out.splitlines()) < 10
    assert err.count("no JSON") == 1
    golden(err)
    assert "s3://bucket/607[0-4)" in err
    assert "`extentflow run -c orders --failed`" in err
    assert "`extentflow replay id-607`" in err


def failed(name: str, connector: str = "orders") -> JobReport:
    return replace(job(name, 1), state="FAILED", reason="why", done=0, connector=connector)


def advice(capsys: pytest.CaptureFixture[str], *jobs: JobReport, **words: str) -> str:
    with pytest.raises(typer.Exit):
        run_reports.show(RunReport("inline", jobs=jobs), as_json=True, **words)
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["one", "both"])
def test_the_next_commands_repeat_the_engine(
    capsys: pytest.CaptureFixture[str], name: str, golden: Golden
) -> None:
    """`extentflow run -c orders` starts Spark, where it is installed."""
    jobs = [failed("one"), failed("two")] if name == "both" else [failed("one")]

    said = advice(capsys, *jobs, engine="inline")

    golden(said)
    assert "`extentflow run -c orders --engine inline`" in said
    assert "`extentflow run -c orders --failed --engine inline`" in said
    which = "-c orders" if name == "both" else "id-one"
    assert f"`extentflow replay {which} --engine inline` continues" in said


def test_emr_is_repeated_only_where_the_command_takes_it(
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    said = advice(capsys, failed("one"), engine="emr")

    golden(said)
    assert "`extentflow run -c orders --engine emr`" in said
    assert "`extentflow run -c orders --failed`" in said
    assert "`extentflow replay id-one --engine emr`" in said
    several = advice(capsys, failed("one"), failed("two"), engine="emr")
    assert "`extentflow replay -c orders` continues" in several


def test_a_job_that_another_connector_began_is_replayed(
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    """The same command with --failed delivers only what failed under its own connector."""
    own, other = failed("one"), failed("two", "folder")
    words = {"command": "the same command", "connector": "orders"}

    both = advice(capsys, other, own, **words)
    only_other = advice(capsys, other, **words)

    golden(both)
    assert "`extentflow replay id-one`" in both
    assert "--failed" in both
    for said in (both, only_other):
        golden(said)
        assert "connector folder" in said
    assert "--failed" not in only_other


def test_cancelled_jobs_of_several_connectors_get_a_line_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = [replace(failed(name, name), state="CANCELLED") for name in ("a", "b")]

    said = advice(capsys, *jobs)

    assert "`extentflow replay -c a` the rest" in said
    assert "`extentflow replay -c b` the rest" in said


def test_an_interrupted_run_is_called_so(
    capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    left = replace(job("one", 1), state="RUNNING", extents=42, done=15)

    with pytest.raises(typer.Exit) as ended:
        run_reports.show(RunReport("inline", jobs=(left,), stopped=True), as_json=False)

    assert ended.value.exit_code == 130
    shown = capsys.readouterr().err
    golden(shown)
    assert "RUNNING" not in shown


def test_failures_come_before_what_was_interrupted(
    capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """Trap: of thousands of objects, the one that failed was not among those shown."""
    left = replace(job("left", 1), state="RUNNING", extents=2, done=1)
    report = RunReport("inline", jobs=(*[left] * 30, failed("bad", "c")), stopped=True)

    with pytest.raises(typer.Exit):
        run_reports.show(report, as_json=False)

    shown = capsys.readouterr()
    assert "bad" in shown.out
    assert "bad" in shown.err.splitlines()[1]
    golden(shown.err)


@pytest.mark.parametrize("words", [["--again"], ["--engine", "emr"]])
def test_failed_goes_without_again_and_emr(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert run_command_line(app, ["run", "-c", "orders", "--failed", *words]) == 2

    assert "--failed goes without --again" in capsys.readouterr().err


def test_problems_that_objects_share_are_one_line(
    capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """Trap: 1,418 objects of a stopped connector were eight equal lines and a table of 20."""
    why = "connector c is PAUSED; continue it with `extentflow resume c`"
    held = [replace(failed(f"a{n}", "c"), state="RUNNING", reason=why) for n in range(30)]

    with pytest.raises(typer.Exit):
        run_reports.show(RunReport("inline", jobs=tuple(held), left_out=True), as_json=False)

    captured = capsys.readouterr()
    assert captured.out.split() == ["30", "jobs:", "30", "RUNNING"]
    assert captured.err.count("error:") == 1
    assert "(and 29 more objects alike)" in captured.err
    golden(captured.err)
    assert "`extentflow resume c`" in captured.err
