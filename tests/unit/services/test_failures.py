"""`run --failed`: only what failed is delivered, once, under the latest revision."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count

import pytest
from tests.support.golden import Golden
from tests.support.local_engine import CallingThreadEngine, until_final
from tests.support.memory_delivery import TOPIC
from tests.support.memory_runtime import BUCKET, Cluster, MemoryRuntime

from extentflow.cli.status_reports import next_command, show_jobs
from extentflow.errors import AccessDenied, BucketGone, Conflict, Misconfigured
from extentflow.jobs.planner import AGAIN_BEGAN
from extentflow.jobs.run import RunReport
from extentflow.model import JobState, ObjectVersion
from extentflow.services.composition import open_dismissals, open_jobs, open_runs
from extentflow.services.connectors import Connectors
from extentflow.services.failures import Step, described, later_jobs
from extentflow.services.jobs import JobFilter
from extentflow.services.run_control import EngineChoice, RunControl
from extentflow.services.runs import Runs
from extentflow.wiring.extents import delivery_context

GOOD, BAD = b'{"a":1}\n', b'{"a":1}\n{"a":\n'


class Stage:
    """Objects, runs, and what reached the topic."""

    def __init__(self) -> None:
        self.runtime = MemoryRuntime()
        self.notes: list[str] = []
        self.put_connector()

    def put_connector(self, **changes: str) -> None:
        usual = {"input__format": "jsonl", "extent__bytes": "8"}
        self.runtime.put_connector(**(usual | changes))

    def tolerate_bad_records(self) -> None:
        queue = {"errors__deadletterqueue__topic__name": "dead"}
        self.runtime.cluster.create_topic("dead", 1)
        self.put_connector(errors__tolerance="all", **queue)

    def put(self, **bodies: bytes) -> None:
        for name, body in bodies.items():
            self.runtime.memory_store.put(BUCKET, f"c/{name}", body)

    def runs(self, stopped: Callable[[], bool] = lambda: False) -> Runs:
        def opened(*_args: object, **_words: object) -> CallingThreadEngine:
            slots = self.runtime.slots("here")
            return CallingThreadEngine(until_final(delivery_context(self.runtime, slots)))

        control = RunControl(notify=self.notes.append, stop_on=lambda _stop: nullcontext(stopped))
        return open_runs(self.runtime, control, opened)

    def run(self, *addresses: str, failed: bool = False, stop_after: int = 1_000) -> RunReport:
        asked = count(1)
        runs = self.runs(lambda: next(asked) > stop_after)
        choice = EngineChoice("inline")
        self.runtime.ticker.sleep(60)
        return runs.run(self.runtime.order(*addresses), engine=choice, failed=failed)

    def steps(self, *addresses: str) -> dict[str, tuple[Step, int]]:
        found = self.runs().failed(self.runtime.order(*addresses)).objects
        return {one.version.key[2:]: (one.step, one.before) for one in found}

    def sent(self) -> int:
        return len(self.runtime.cluster.read_committed(TOPIC))

    def jobs(self) -> Iterator[tuple[str, int, str, int]]:
        jobs = sorted(
            self.runtime.memory.jobs.list(), key=lambda job: (job.version.key, job.created)
        )
        return (
            (job.version.key[2:], job.generation, job.state.value, job.revision) for job in jobs
        )


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_only_failed_objects_are_delivered_under_the_latest_revision(stage: Stage) -> None:
    stage.put(good=GOOD, bad=BAD)
    assert not stage.run().ok
    before = stage.sent()
    stage.tolerate_bad_records()

    shown = stage.steps()
    report = stage.run(failed=True)

    assert shown == {"bad": (Step.AGAIN, 1)}
    assert report.ok
    assert [(job.uri, job.state, job.revision) for job in report.jobs] == [
        ("s3://shop/c/bad", "DONE", 2)
    ]
    assert [*stage.jobs()] == [
        ("bad", 0, "FAILED", 1),
        ("bad", 1, "DONE", 2),
        ("good", 0, "DONE", 1),
    ]
    assert stage.sent() == before + 1
    assert (
        "1 object to deliver in full under revision 2: s3://shop/c/bad; records of these that were"
        " delivered before, and are again: 1"
    ) in stage.notes


def test_a_run_of_failed_objects_without_any_says_so(stage: Stage, golden: Golden) -> None:
    stage.put(good=GOOD)
    stage.run()

    report = stage.run(failed=True)

    assert (report.ok, report.jobs) == (True, ())
    golden(stage.notes[-1])
    assert "job of connector c FAILED, is CANCELLED or SUPERSEDED" in stage.notes[-1]


def test_under_the_same_revision_nothing_is_delivered_twice(stage: Stage) -> None:
    stage.put(good=GOOD, bad=BAD)
    stage.run()
    before = stage.sent()

    shown = stage.steps()
    report = stage.run(failed=True)

    assert shown == {"bad": (Step.REPLAY, 1)}
    assert [(job.uri, job.state) for job in report.jobs] == [("s3://shop/c/bad", "FAILED")]
    assert stage.sent() == before


@pytest.mark.parametrize("stop_after", range(1, 6))
def test_an_interrupted_run_is_continued_by_the_same_command_and_doubles_nothing(
    stage: Stage, stop_after: int
) -> None:
    names = ["bad0", "bad1", "bad2"]
    stage.put(good=GOOD, **dict.fromkeys(names, BAD))
    stage.run()
    before = stage.sent()
    stage.tolerate_bad_records()

    stage.run(failed=True, stop_after=stop_after)
    for _ in range(3):
        last = stage.run(failed=True)

    assert last.ok
    assert stage.sent() == before + len(names)
    done = [job for job in stage.jobs() if job[2] == "DONE"]
    assert done == [*((name, 1, "DONE", 2) for name in names), ("good", 0, "DONE", 1)]
    assert stage.steps() == {}


def test_an_address_limits_it_to_an_object_or_a_prefix(stage: Stage) -> None:
    names = ("x/bad1", "x/bad2", "y/bad")
    stage.put(**dict.fromkeys(names, BAD))
    stage.run()

    assert [*stage.steps("s3://shop/c/x/")] == ["x/bad1", "x/bad2"]
    assert [*stage.steps("s3://shop/c/y/bad")] == ["y/bad"]
    assert [*stage.steps("s3://shop/c/*2")] == ["x/bad2"]
    assert [*stage.steps("s3://shop/c/z/")] == []


def test_a_replaced_object_is_delivered_as_its_new_version(stage: Stage) -> None:
    stage.put(one=BAD, other=BAD)
    stage.run()
    stage.put(one=GOOD * 2, other=GOOD * 3)
    stage.run("s3://shop/c/other")
    before = stage.sent()

    shown = stage.steps()
    report = stage.run(failed=True)

    assert shown == {"one": (Step.NEW, 1)}  # a record of the version before, which stays
    assert report.ok
    assert stage.sent() == before + 2


def test_deleted_objects_are_left_out_with_a_note(stage: Stage) -> None:
    stage.put(gone=BAD)
    stage.run()
    stage.tolerate_bad_records()
    stage.runtime.memory_store.remove(BUCKET, "c/gone")

    report = stage.run(failed=True)

    assert report.jobs == ()
    assert (
        "1 object left out, deleted since, as s3://shop/c/gone; `extentflow dismiss -c c` closes"
        " their jobs"
    ) in stage.notes


def stopped(stage: Stage) -> int:
    """Deliver one of two extents, stop the connector and resume it; return the records so far."""
    stage.put(stopped=GOOD * 2)
    runtime = stage.runtime
    planner, (config, revision) = runtime.planner(), runtime.connectors.latest("c")
    version = runtime.memory_store.head(BUCKET, "c/stopped")
    job = planner.plan(planner.register(runtime.requests.make(config, revision, version, 1)))
    runtime.run(job, 0)
    connectors = Connectors(runtime.ledger)
    assert connectors.stop("c").cancelled == (job.id,)
    connectors.resume("c")
    return stage.sent()


def test_a_cancelled_object_continues_where_it_ended_under_the_same_settings(stage: Stage) -> None:
    sent = stopped(stage)
    assert stage.run().records_this_run == 0  # `run` leaves what was stopped

    assert stage.steps() == {"stopped": (Step.REPLAY, 1)}
    assert stage.run(failed=True).ok

    assert (sent, stage.sent()) == (1, 2)
    assert [job[1:3] for job in stage.jobs()] == [(0, "DONE")]


def test_a_cancelled_object_is_delivered_in_full_under_other_settings(stage: Stage) -> None:
    """Trap: after `stop` and a change of the connector no command delivered what was left."""
    sent = stopped(stage)
    stage.put_connector(producer__linger__ms="7")

    assert stage.steps() == {"stopped": (Step.AGAIN, sent)}
    assert stage.run(failed=True).ok
    assert not stage.run(failed=True).jobs

    assert stage.sent() == sent + 2
    assert [job[1:] for job in stage.jobs()] == [(0, "CANCELLED", 1), (1, "DONE", 2)]


COMMANDS: dict[str, Callable[[Stage], object]] = {
    "run --failed": lambda stage: stage.run(failed=True),
    "replay -c": lambda stage: stage.runs().replay_all("c", engine=EngineChoice("inline")),
}


def meets(stage: Stage, first: str, second: str, moment: int) -> bool:
    """Run a command, and another one before its call `moment` of the ledger, if it has one."""
    asked, ended = count(), []

    def intervene(_name: str) -> None:
        if next(asked) == moment:
            stage.runtime.memory.on_call = lambda _name: None
            ended.append(COMMANDS[second](stage))

    stage.runtime.memory.on_call = intervene
    COMMANDS[first](stage)
    return bool(ended)


@pytest.mark.parametrize(("first", "second"), [tuple(COMMANDS), tuple(COMMANDS)[::-1]])
def test_two_commands_at_the_same_moment_open_one_generation(first: str, second: str) -> None:
    """Trap: each looked for the other's job before the other had one, and both delivered."""
    for moment in count():
        stage = Stage()
        stopped(stage)
        stage.put_connector(producer__linger__ms="7")
        met = meets(stage, first, second, moment)
        assert not any(job.state.open for job in stage.runtime.memory.jobs.list())
        # All of it once; or the record from before the stop a second time, as was said.
        assert stage.sent() in (2, 3), moment
        if not met:
            break
    assert moment > 10


@pytest.mark.parametrize("stop", ["before the last commit ends", "before the job is closed"])
def test_of_an_object_that_was_stopped_with_its_last_commit_nothing_is_delivered_again(
    stage: Stage, stop: str
) -> None:
    """Trap: the job stayed CANCELLED with all extents DONE; other settings sent all of it again."""
    stopped(stage)
    memory, connectors = stage.runtime.memory, Connectors(stage.runtime.ledger)
    (job,) = memory.jobs.list("c")
    memory.jobs.resume(job.id)
    last = "complete" if stop == "before the last commit ends" else "close"

    def intervene(name: str) -> None:
        if name == last:
            memory.on_call = lambda _name: None
            connectors.stop("c")

    memory.on_call = intervene
    stage.runtime.run(job, 1)
    connectors.resume("c")
    stage.put_connector(producer__linger__ms="7")
    sent = stage.sent()

    assert stage.steps() == {}
    assert not stage.run(failed=True).jobs

    assert stage.sent() == sent == 2
    assert [one[2] for one in stage.jobs()] == ["DONE"]


def test_a_replay_of_all_leaves_out_objects_whose_later_version_was_delivered(
    stage: Stage,
    golden: Golden,
) -> None:
    """Trap: their jobs ended SUPERSEDED, with errors, though nothing was left to deliver."""
    stage.put(one=BAD, other=BAD)
    stage.run()
    stage.put(one=GOOD)
    stage.run("s3://shop/c/one")
    old = next(
        job
        for job in stage.runtime.memory.jobs.list("c", JobState.FAILED)
        if "one" in job.version.key
    )
    before = stage.sent()

    report = stage.runs().replay_all("c", engine=EngineChoice("inline"))

    assert [job.uri for job in report.jobs] == ["s3://shop/c/other"]
    assert stage.sent() == before
    left = "1 job left out, because a later version of the object was delivered since"
    assert left in stage.notes
    detail = open_jobs(stage.runtime).get(old.id)
    assert detail.newer is not None
    assert detail.newer.state is JobState.DONE
    golden(next_command(detail))


def test_a_replaced_object_counts_until_its_new_version_is_delivered(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trap: the job ended SUPERSEDED, and nothing showed that the new version was not delivered."""
    stage.put(one=GOOD, other=GOOD, gone=GOOD)
    runtime, jobs = stage.runtime, stage.runtime.memory.jobs
    config, revision = runtime.connectors.latest("c")
    for name in ("one", "other", "gone"):
        version = runtime.memory_store.head(BUCKET, f"c/{name}")
        job = runtime.planner().register(runtime.requests.make(config, revision, version, 1))
        stage.put(**{name: GOOD * 2})
        jobs.end(job.id, JobState.SUPERSEDED, "it was replaced after planning")
    stage.run("s3://shop/c/other")
    runtime.memory_store.remove(BUCKET, "c/gone")

    found = open_jobs(runtime).find(JobFilter("c", undelivered=True))
    show_jobs(open_jobs(runtime).find(JobFilter("c")), filtered=False)
    dismissed = open_dismissals(runtime).dismiss_all("c")
    shown = stage.steps()
    report = stage.run(failed=True)

    assert {one.job.version.key for one in found.jobs} == {"c/one", "c/gone"}
    assert "3 SUPERSEDED (2 with an undelivered later version)" in capsys.readouterr().out
    assert [job.version.key for job in dismissed.jobs] == ["c/gone"]
    assert dismissed.kept == ("s3://shop/c/one",)
    assert shown == {"one": (Step.NEW, 0)}
    assert [(job.uri, job.state) for job in report.jobs] == [("s3://shop/c/one", "DONE")]
    assert open_jobs(runtime).find(JobFilter("c", undelivered=True)).matching == 0
    assert not stage.steps()


def test_the_address_of_an_object_that_was_removed_names_how_its_job_is_closed(
    stage: Stage, golden: Golden
) -> None:
    stage.put(bad=BAD)
    stage.run()
    stage.runtime.memory_store.remove(BUCKET, "c/bad")

    with golden.raises(Misconfigured, match="`extentflow dismiss "):
        stage.run("s3://shop/c/bad")


def test_a_version_that_is_current_again_is_replayed(stage: Stage) -> None:
    """Trap: its job was left out, because another version was delivered in between."""
    sent = stopped(stage)
    stage.put(stopped=GOOD)
    assert stage.run().ok
    stage.put(stopped=GOOD * 2)

    report = stage.runs().replay_all("c", engine=EngineChoice("inline"))

    assert report.ok
    assert [job.state for job in report.jobs] == ["DONE"]
    assert stage.sent() == sent + 1 + 1


def test_a_later_version_is_found_however_many_objects_were_delivered_since(stage: Stage) -> None:
    """Trap: behind the newest 1,000 deliveries, a job counted as failed again."""
    stage.put(one=BAD)
    stage.run()
    (failed,) = stage.runtime.memory.jobs.list("c", JobState.FAILED)
    stage.put(one=GOOD)
    stage.run()
    stage.put(**{f"later{number}": GOOD for number in range(3)})
    stage.run()

    found = later_jobs(stage.runtime.memory, [failed], least=1)

    assert found[failed.id].state is JobState.DONE
    assert found[failed.id].version.key == "c/one"


def test_an_object_of_another_bucket_is_no_later_version(stage: Stage) -> None:
    """Trap: where a connector reads another bucket since, a key's jobs there hid those here."""
    stage.put(one=BAD)
    stage.run()
    (old,) = stage.runtime.memory.jobs.list("c", JobState.FAILED)
    stage.put_connector(aws__s3__bucket__name="elsewhere")
    stage.runtime.memory_store.put("elsewhere", "c/one", GOOD)
    assert stage.run().ok
    assert not any("changed since delivery" in note for note in stage.notes)

    report = stage.runs().replay_all("c", engine=EngineChoice("inline"))

    assert [job.job for job in report.jobs] == [old.id]
    assert open_jobs(stage.runtime).get(old.id).newer is None


def test_a_bucket_that_is_missing_is_no_deletion(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: of a folder that was not mounted, all objects were left out as deleted, with code 0."""
    stage.put(one=BAD)
    stage.run()

    def head(*_args: object) -> None:
        raise BucketGone("s3://shop: no such bucket")

    monkeypatch.setattr(stage.runtime.memory_store, "head", head)

    with pytest.raises(BucketGone):
        stage.run(failed=True)
    with pytest.raises(BucketGone):
        stage.steps()


def test_a_job_of_another_cluster_prevents_no_other_object(stage: Stage) -> None:
    """Trap: it ended the run, and its dry run did not say so."""
    stage.put(one=BAD, two=BAD)
    stage.run("s3://shop/c/one")
    new = Cluster({TOPIC: 1})
    new.cluster = "new"
    stage.runtime.use_cluster(new)
    stage.run("s3://shop/c/two")
    stage.tolerate_bad_records()

    (problem,) = stage.runs().failed(stage.runtime.order()).problems
    report = stage.run(failed=True)

    assert "c/one: job " in problem
    assert "and bootstrap.servers leads to new" in problem
    assert problem in report.errors
    assert [(job.uri, job.state) for job in report.jobs] == [("s3://shop/c/two", "DONE")]


def test_an_object_that_may_not_be_read_prevents_no_other_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put(one=BAD, two=BAD)
    stage.run()
    stage.tolerate_bad_records()
    head = stage.runtime.memory_store.head

    def denied(bucket: str, key: str, *more: str) -> ObjectVersion:
        if key == "c/one":
            raise AccessDenied("s3://shop/c/one: access denied")
        return head(bucket, key, *more)

    monkeypatch.setattr(stage.runtime.memory_store, "head", denied)

    assert stage.steps() == {"one": (Step.AGAIN, 1), "two": (Step.AGAIN, 1)}
    assert [job.state for job in stage.run(failed=True).jobs] == ["DONE", "DONE"]


def test_records_of_all_generations_are_counted_as_delivered_before(stage: Stage) -> None:
    stage.put(one=BAD)
    stage.run()
    stage.put_connector(input__format="parquet")
    stage.run(failed=True)
    stage.tolerate_bad_records()

    assert stage.steps() == {"one": (Step.AGAIN, 1)}


def test_an_interrupted_second_delivery_is_left_to_its_own_command(stage: Stage) -> None:
    """Trap: its first generation was continued beside the next one."""
    stopped(stage)
    (job,) = stage.runtime.memory.jobs.list("c")
    stage.runtime.memory.jobs.resume(job.id)
    stage.runtime.memory.jobs.end(job.id, JobState.CANCELLED, AGAIN_BEGAN)
    sent = stage.sent()

    assert stage.steps() == {}
    assert not stage.run(failed=True).jobs
    assert stage.sent() == sent


def test_a_stopped_connector_is_a_problem_of_a_dry_run(stage: Stage) -> None:
    stage.put(one=BAD)
    stage.run()
    Connectors(stage.runtime.ledger).stop("c")

    (problem,) = stage.runs().failed(stage.runtime.order()).problems
    (planned,) = stage.runs().plan(stage.runtime.order()).problems

    assert "connector c is STOPPED" in problem
    assert planned == problem


def test_an_object_that_fails_again_is_replayed_and_not_delivered_a_third_time(
    stage: Stage,
) -> None:
    stage.put(bad=BAD)
    stage.run()
    stage.put_connector(producer__linger__ms="7")
    stage.run(failed=True)
    before = stage.sent()

    assert stage.steps() == {"bad": (Step.REPLAY, 2)}
    stage.run(failed=True)

    assert stage.sent() == before
    assert [job[1:] for job in stage.jobs()] == [(0, "FAILED", 1), (1, "FAILED", 2)]


def test_what_is_done_is_described_by_step(stage: Stage, golden: Golden) -> None:
    stage.put(one=BAD, two=BAD)
    stage.run()

    lines = described(stage.runs().failed(stage.runtime.order()).objects, 1)

    golden(*lines)


def test_a_replay_of_a_job_whose_object_was_delivered_since_is_refused(
    stage: Stage, golden: Golden
) -> None:
    """Trap: both commands that a failed run prints, one after the other, doubled its records."""
    stage.put(bad=BAD)
    (first,) = stage.run().jobs
    stage.tolerate_bad_records()
    assert stage.run(failed=True).ok
    sent, jobs = stage.sent(), list(stage.jobs())

    with golden.raises(Conflict) as refused:
        stage.runs().replay(first.job)

    assert f"`extentflow replay {first.job} --accept-duplicates`" in str(refused.value)
    assert (stage.sent(), list(stage.jobs())) == (sent, jobs)


def test_jobs_are_listed_in_the_order_in_which_they_pass_through_states() -> None:
    """Trap: a job that ended while jobs were listed was in no list: totals went down and up."""
    runtime = MemoryRuntime()
    runtime.put_connector()
    for state in JobState:
        job = runtime.job(f"c/{state}.txt")
        if state is not JobState.PLANNING:
            runtime.planner().plan(job)
        if state is JobState.DONE:
            runtime.run(job, 0)
            runtime.memory.jobs.close(job.id)
        elif not state.open:
            runtime.memory.jobs.end(job.id, state, "a cause")

    assert [job.state for job in runtime.memory.jobs.list()] == list(JobState)
    assert [job.state for job in runtime.memory.jobs.list("c")] == list(JobState)
