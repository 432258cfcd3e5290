"""Lists of jobs; the map of a job's extents: one cell each, or the worst of several."""

import json
from collections.abc import Callable, Iterator

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.cli import app, opening, output, run_command_line
from extentflow.cli.connector_commands import now
from extentflow.cli.status_reports import (
    MAP_CELLS,
    extent_map,
    job_json,
    next_command,
    show_job,
    show_jobs,
    view_job,
    view_jobs,
    watch,
)
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim, ClaimMark, ConnectorState, ExtentItem
from extentflow.model import ExtentState, JobState
from extentflow.services.composition import open_jobs
from extentflow.services.connectors import Connectors
from extentflow.services.jobs import JobFilter, JobList

DONE, FAILED, PENDING = ExtentState.DONE, ExtentState.FAILED, ExtentState.PENDING
MARK = ClaimMark(slot=1, epoch=1, nonce="n")


def items(states: dict[int, ExtentState], *working: int) -> dict[int, ExtentItem]:
    found = {n: ExtentItem("job", n, state) for n, state in states.items()}
    return found | {n: ExtentItem("job", n, PENDING, claim=MARK) for n in working}


@pytest.mark.parametrize(
    ("filtered", "said"),
    [(False, "there are no jobs; `extentflow run`"), (True, "no job matches; ")],
)
def test_an_empty_list_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], *, filtered: bool, said: str
) -> None:
    show_jobs(JobList((), {}), filtered=filtered)

    assert said in capsys.readouterr().err


def test_failed_jobs_that_were_delivered_since_are_counted_and_marked(
    capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    for key in ("c/a.txt", "c/b.txt"):
        runtime.memory.jobs.end(runtime.job(key).id, JobState.FAILED, "why")
    runtime.ticker.sleep(1)
    newer = runtime.planner().plan(runtime.job("c/a.txt", lines=2))
    runtime.run(newer, 0, 1)
    runtime.memory.jobs.close(newer.id)

    show_jobs(open_jobs(runtime).find(JobFilter("c")), filtered=False)
    shown = capsys.readouterr()
    show_jobs(open_jobs(runtime).find(JobFilter("c", undelivered=True)), filtered=False)
    left = capsys.readouterr()

    golden(shown.err)
    assert "2 FAILED (1 delivered since, 1 undelivered), 1 DONE" in shown.out
    assert shown.out.count("FAILED, delivered since") == 1
    assert "`extentflow status --undelivered`" in shown.err
    assert "1 job: 1 FAILED" in left.out
    assert "--undelivered" not in left.err


def test_every_state_has_its_cell_and_an_extent_without_an_item_is_pending() -> None:
    shown = extent_map(items({0: DONE, 1: FAILED, 3: PENDING}, 2), count=5)

    assert shown.plain == "█x▓··   █ done, ▓ working, · pending, x failed"


def test_a_job_without_extents_has_an_empty_map() -> None:
    assert extent_map({}, count=0).plain == ""


def test_many_extents_share_cells_and_the_worst_state_shows() -> None:
    count = 3 * MAP_CELLS
    states = dict.fromkeys(range(count), DONE)

    shown = extent_map(items(states | {4: FAILED}, 8), count=count).plain

    cells, _, legend = shown.partition(" ")
    assert cells == "█x▓" + "█" * (MAP_CELLS - 3)
    assert legend.strip() == "█ done, ▓ working, x failed; one cell is 3 extents"


@pytest.mark.parametrize("count", [1, MAP_CELLS, MAP_CELLS + 1, 10_000, 1_000_000])
def test_a_map_never_has_more_cells_than_fit(count: int) -> None:
    cells = extent_map({}, count=count).plain.partition(" ")[0]

    assert 0 < len(cells) <= MAP_CELLS


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.SUPERSEDED])
def test_status_names_the_command_that_continues_a_job(
    state: JobState, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    job = runtime.job("c/a.txt").id
    runtime.memory.jobs.end(job, state, "why")

    show_job(open_jobs(runtime).get(job))

    said = " ".join(capsys.readouterr().err.split())
    assert (f"`extentflow replay {job}` continues it" in said) is (state is JobState.FAILED)


@pytest.mark.parametrize("stored", [True, False])
def test_the_next_command_of_a_failed_job_is_one_that_its_connector_takes(
    golden: Golden, *, stored: bool
) -> None:
    """`run -c NAME` was advised for what `run --topic` made, and refused it as deleted."""
    runtime = MemoryRuntime()
    runtime.put_connector()
    job = runtime.job("c/a.txt").id
    runtime.memory.jobs.end(job, JobState.FAILED, "why")
    if not stored:
        runtime.memory.connectors.delete("c")

    said = next_command(open_jobs(runtime).get(job))

    golden(said)
    assert f"`extentflow replay {job}`" in said
    assert ("after a change of the connector, `extentflow run -c c --failed`" in said) is stored
    made = "after a change of its settings, the same `run ADDRESS --topic` command with --failed"
    assert (made in said) is not stored


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
@pytest.mark.parametrize("end", [JobState.DONE, JobState.FAILED])
def test_a_job_whose_object_a_later_job_delivers_names_that_job(
    capsys: pytest.CaptureFixture[str], state: JobState, end: JobState
) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    first = runtime.job("c/a.txt")
    runtime.memory.jobs.end(first.id, state, "why")
    runtime.ticker.sleep(1)
    config, revision = runtime.connectors.latest("c")
    request = runtime.requests.make(config, revision, first.version, 1)
    later = runtime.planner().register(request, again=runtime.ticker.read())
    if end is JobState.DONE:
        runtime.planner().plan(later)
        runtime.run(later, 0)
    else:
        runtime.memory.jobs.end(later.id, end, "why")

    found = open_jobs(runtime).get(first.id)
    show_job(found)
    document = job_json(found)

    shown = capsys.readouterr()
    named = f"{later.id}, {end}, delivers the object"
    assert named in " ".join(shown.out.split())
    assert "extentflow replay" not in shown.err
    assert document["later"] == {"job": later.id, "state": end}
    assert (f"`extentflow status {later.id}`" in document["next"]) is (end is JobState.FAILED)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """A terminal of so many columns."""
    monkeypatch.setattr(output.out, "_width", request.param)
    return int(request.param)


@pytest.mark.parametrize("wide", [60, 80, 120, 200], indirect=True)
def test_a_job_is_one_line_of_the_terminal(capsys: pytest.CaptureFixture[str], wide: int) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    names = [f"c/{'folder/' * 9}part-{number:05}.txt" for number in range(3)]
    jobs = [runtime.job(name) for name in names]
    runtime.memory.jobs.end(jobs[0].id, JobState.CANCELLED, "")

    show_jobs(open_jobs(runtime).find(JobFilter()), filtered=False)

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= wide
    for name, job in zip(names, jobs, strict=True):
        (line,) = (one for one in lines if one.rstrip().endswith(name[-9:]))
        assert line.lstrip().startswith(job.id[:10])


def test_more_jobs_than_shown_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    for number in range(5):
        runtime.job(f"c/{number}.txt")

    show_jobs(open_jobs(runtime).find(JobFilter(), limit=2), filtered=False)

    assert "5 jobs: 5 PLANNING; 2 of 5 shown, the newest" in capsys.readouterr().out


def test_a_job_is_called_interrupted_only_when_no_worker_has_a_lease(golden: Golden) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    job = runtime.job("c/a.txt", lines=3)
    planned = runtime.planner().plan(job)
    runtime.run(planned, 0)
    slots = runtime.slots("worker")
    extent = next(iter(runtime.planner().pending(planned)))
    held = slots.claim(extent, ProducerSettings())

    working = open_jobs(runtime).get(job.id)
    assert isinstance(held, Claim)
    slots.complete(held, position=extent.end, records=1, bad=0, filtered=0)
    between = open_jobs(runtime).get(job.id)
    runtime.ticker.sleep(3_600)  # the lease ends
    left = open_jobs(runtime).get(job.id)

    assert (working.active, next_command(working)) == (True, "")
    assert (between.active, left.active) == (False, False)
    golden(next_command(between))
    golden(next_command(left))
    assert "interrupted" not in next_command(between)


@pytest.mark.parametrize("stored", [True, False])
def test_jobs_that_no_worker_delivers_name_the_command_that_continues_them(
    capsys: pytest.CaptureFixture[str], golden: Golden, *, stored: bool
) -> None:
    """Trap: of a killed run, `status` showed 397 RUNNING, and no word about it."""
    runtime = MemoryRuntime()
    runtime.put_connector()
    planned = runtime.planner().plan(runtime.job("c/a.txt"))
    runtime.job("c/b.txt")
    if not stored:
        runtime.memory.connectors.delete("c")
    extent = next(iter(runtime.planner().pending(planned)))
    held = runtime.slots("worker").claim(extent, ProducerSettings())

    show_jobs(open_jobs(runtime).find(JobFilter(prefix="c/b")), filtered=True)
    during = capsys.readouterr().err
    runtime.ticker.sleep(3_600)  # the lease ends
    found = open_jobs(runtime).find(JobFilter())
    show_jobs(found, filtered=False)
    after = capsys.readouterr().err
    runtime.memory.connectors.set_state("c", ConnectorState.PAUSED)
    show_jobs(open_jobs(runtime).find(JobFilter()), filtered=False)
    paused = capsys.readouterr().err

    assert isinstance(held, Claim)
    assert during == ""
    golden(after)
    assert f"`extentflow {'run' if stored else 'replay'} -c c` continues them" in after
    golden(paused)
    assert "`extentflow resume c`" in paused
    assert view_jobs(filtered=False).to_json(found)["interrupted"] == {"c": 2}


def test_jobs_of_a_worker_between_two_extents_are_not_called_interrupted(
    capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """Trap: of a running job, `status` said that it was interrupted, and to run it again."""
    runtime = MemoryRuntime()
    runtime.put_connector()
    planned = runtime.planner().plan(runtime.job("c/a.txt", lines=2))
    extent = next(iter(runtime.planner().pending(planned)))
    slots = runtime.slots("worker")
    held = slots.claim(extent, ProducerSettings())
    assert isinstance(held, Claim)
    slots.complete(held, position=extent.end, records=1, bad=0, filtered=0)

    found = open_jobs(runtime).find(JobFilter())
    show_jobs(found, filtered=False)
    said = capsys.readouterr().err
    (listed,) = Connectors(runtime.memory).list()
    slots.release()
    show_jobs(open_jobs(runtime).find(JobFilter()), filtered=False)
    ended = capsys.readouterr().err

    golden(said)
    assert "interrupted" not in said
    assert view_jobs(filtered=False).to_json(found)["interrupted"] == {}
    assert now(listed) == "1 open job, no extent in work now"
    assert "they were interrupted" in ended


def test_a_watch_shows_changes_until_every_job_has_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    job = runtime.job("c/a.txt", lines=2)
    steps: Iterator[Callable[[], object]] = iter(
        [
            lambda: runtime.planner().plan(job),
            lambda: None,
            lambda: runtime.run(job, 0, 1),
        ]
    )

    def sleep(_seconds: float) -> None:
        next(steps)()

    watch(lambda: open_jobs(runtime).get(job.id), view_job(), as_json=False, sleep=sleep)

    assert capsys.readouterr().out.splitlines() == [
        "PLANNING: 0/0 extents, 0 and 0 bad",
        "RUNNING: 0/2 extents, 0 and 0 bad",
        "DONE: 2/2 extents, 2 and 0 bad",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_watch_that_is_begun_before_the_first_job_waits_for_it(
    terminal: bool,  # noqa: FBT001
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trap: it ended at once with `0 jobs:`, before the run in another terminal had begun."""
    runtime = MemoryRuntime()
    runtime.put_connector()
    moments = iter(range(10))

    def sleep(_seconds: float) -> None:
        if next(moments) == 2:
            runtime.run(runtime.planner().plan(runtime.job("c/a.txt")), 0)

    monkeypatch.setattr(type(output.out), "is_terminal", terminal)
    view = view_jobs(filtered=True, watched=True)
    watch(lambda: open_jobs(runtime).find(JobFilter("c")), view, as_json=False, sleep=sleep)

    shown = capsys.readouterr()
    assert shown.out.count("no job matches yet") == 1
    assert "1 job: 1 DONE" in shown.out
    assert next(moments) == 3


def test_a_program_that_watches_reads_a_document_per_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    job = runtime.planner().plan(runtime.job("c/a.txt", lines=2))
    runtime.run(job, 0, 1)

    watch(lambda: open_jobs(runtime).get(job.id), view_job(), as_json=True)
    watch(lambda: open_jobs(runtime).find(JobFilter()), view_jobs(filtered=False), as_json=True)

    one, all_jobs = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["job"]["state"], one["plan"]["count"], len(one["extents"])) == ("DONE", 2, 2)
    assert (all_jobs["matching"], all_jobs["states"]) == (1, {"DONE": 1})


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> MemoryRuntime:
    made = MemoryRuntime()
    made.put_connector()
    monkeypatch.setattr(opening, "open_runtime", lambda *_args, **_words: made)
    return made


def test_the_job_of_a_removed_object_is_dismissed(
    runtime: MemoryRuntime, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """Trap: it stayed FAILED for good, and counted with those that can still be delivered."""
    for name in ("gone", "there", "replaced"):
        job = runtime.memory.jobs.end(runtime.job(f"c/{name}.txt").id, JobState.FAILED, "why")
        if name == "gone":
            runtime.memory_store.delete(job.version)
    runtime.put("c/replaced.txt", lines=2)

    one = run_command_line(app, ["dismiss", job.id[:9]])
    golden(capsys.readouterr().out)
    rest = run_command_line(app, ["dismiss", "-c", "c"])
    shown = capsys.readouterr()
    again = run_command_line(app, ["dismiss", "-c", "c", "--json"])
    document = json.loads(capsys.readouterr().out)

    assert (one, rest, again) == (0, 0, 0)
    golden(shown.out)
    golden(shown.err)
    assert document == {"dismissed": [], "kept": [f"s3://{BUCKET}/c/there.txt"]}
    assert sorted(runtime.states().values()) == ["FAILED", "SUPERSEDED", "SUPERSEDED"]


@pytest.mark.parametrize("words", [[], ["abc", "-c", "c"]], ids=" ".join)
def test_a_dismissal_names_jobs_or_a_connector(
    words: list[str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert run_command_line(app, ["dismiss", *words]) == 2

    golden(capsys.readouterr().err)
