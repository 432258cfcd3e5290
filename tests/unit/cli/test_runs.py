"""What `run` and `replay` tell besides totals."""

from dataclasses import replace

import pytest
import typer

from extentflow.cli import runs
from extentflow.jobs.run import JobReport, RunReport


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


def told(capsys: pytest.CaptureFixture[str], revision: int, *jobs: JobReport) -> list[str]:
    runs.note_older(RunReport("inline", jobs=jobs), revision)
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_each_job_under_an_older_revision_is_told_with_the_way_to_the_latest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = told(capsys, 3, job("old", 1), job("new", 3), job("elder", 2))

    assert [note.partition(" of connector")[0] for note in notes] == [
        "note: s3://bucket/old: job id-old has revision 1",
        "note: s3://bucket/elder: job id-elder has revision 2",
    ]
    assert all("orders, which is at 3 now; `run --again` begins a full" in note for note in notes)


def test_jobs_under_the_latest_revision_are_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, 3, job("one", 3), job("other", 3)) == []


@pytest.mark.parametrize(
    ("state", "reason", "way_out"),
    [
        (
            "RUNNING",
            "connector orders is PAUSED; `extentflow resume orders` lets it go on",
            "resume orders` lets it go on; the same command resumes it",
        ),
        ("RUNNING", "", "is RUNNING; the same command resumes it"),
        (
            "CANCELLED",
            "connector orders was stopped",
            "stopped; `extentflow replay id-one` goes on, `extentflow replay -c orders` with all",
        ),
    ],
)
def test_a_job_that_is_not_over_is_told_with_the_way_on(
    capsys: pytest.CaptureFixture[str], state: str, reason: str, way_out: str
) -> None:
    left = replace(job("one", 1), state=state, reason=reason, done=0)

    with pytest.raises(typer.Exit) as ended:
        runs.show(RunReport("inline", jobs=(left,)), as_json=True)

    assert ended.value.exit_code == 1
    assert way_out in capsys.readouterr().err
