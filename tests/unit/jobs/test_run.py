"""A run from the driver's side: what it reports, how receipts are summed."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from tests.support.golden import Golden
from tests.support.local_engine import CallingThreadEngine, RecordingListener, until_final
from tests.support.memory_delivery import World, expected

from extentflow.delivery.runner import run_extent
from extentflow.engines import RunListener, Task
from extentflow.errors import (
    Conflict,
    LedgerUnavailable,
    Misconfigured,
    ProgressUnknown,
    SinkUnavailable,
)
from extentflow.formats import Format
from extentflow.jobs.planner import MAX_EXTENTS, JobRequest
from extentflow.jobs.preflight import CACHE_SECONDS
from extentflow.jobs.run import WAVE_EXTENTS, JobRunner, ReceiptTotals, RunReport, known_job, report
from extentflow.ledger import ConnectorState
from extentflow.model import Extent, Job, JobState, Outcome, Receipt
from extentflow.storage import RangeSource
from extentflow.wording import TOLERATE

RECEIPT = Receipt("job", 0, "s3://bucket/key[0-4)", Outcome.DONE, records=4, bytes_read=40)


def driver(
    world: World, engine: CallingThreadEngine, watch: RecordingListener | None = None
) -> JobRunner:
    return JobRunner("here", engine, world.planner, world.ledger, watch or RecordingListener())


def ingested(world: World, *bodies: bytes, engine: CallingThreadEngine | None = None) -> RunReport:
    """Put one object per body and run them all."""
    versions = [world.put(body, f"key{n}") for n, body in enumerate(bodies)]
    engine = engine or CallingThreadEngine(until_final(world.worker()))
    return driver(world, engine).deliver(world.request(version) for version in versions)


# -- receipts -------------------------------------------------------------------------------------


def test_receipts_are_summed_and_passed_on() -> None:
    watch = RecordingListener()
    tally = ReceiptTotals(watch)
    other = replace(RECEIPT, ordinal=1, records=1, bytes_read=10, peak_rss_bytes=7)

    tally.on_receipt(RECEIPT)
    tally.on_receipt(other)

    assert (tally.records, tally.bytes_read, tally.peak_rss_bytes) == (5, 50, 7)
    assert watch.receipts == [RECEIPT, other]


def test_a_receipt_that_comes_twice_counts_once() -> None:
    watch = RecordingListener()
    tally = ReceiptTotals(watch)
    failed = replace(RECEIPT, ordinal=1, outcome=Outcome.FAILED, reason="bad")

    for receipt in (RECEIPT, failed, RECEIPT, failed):
        tally.on_receipt(receipt)

    assert tally.records == 8
    assert tally.errors == ("bad",)
    assert watch.receipts == [RECEIPT, failed]


def test_extents_that_fail_alike_share_a_line(golden: Golden) -> None:
    tally = ReceiptTotals(RecordingListener())
    uris = [f"s3://b/k[{n}-{n + 1})" for n in range(3)]
    failed = [
        replace(RECEIPT, ordinal=n, uri=uri, outcome=Outcome.FAILED, reason=f"{uri}: no such topic")
        for n, uri in enumerate(uris)
    ]

    for receipt in failed:
        tally.on_receipt(receipt)

    golden(*tally.errors)


def test_totals_take_constant_memory_however_many_extents_there_are() -> None:
    totals = ReceiptTotals(Unwatched())
    sizes = []
    for ordinal in range(4 * WAVE_EXTENTS):
        reason = f"extent {ordinal} failed"
        totals.on_receipt(
            Receipt("j", ordinal, f"s3://b/k[{ordinal}]", Outcome.FAILED, records=1, reason=reason)
        )
        if ordinal % WAVE_EXTENTS == WAVE_EXTENTS - 1:
            sizes.append(len(totals._seen))

    assert totals.records == 4 * WAVE_EXTENTS
    assert sizes[-1] == sizes[1] == 2 * WAVE_EXTENTS
    assert totals.errors == (f"extent 0 failed (and {4 * WAVE_EXTENTS - 1} more extents alike)",)


class Unwatched:
    def on_extent(self, extent: Extent) -> None: ...

    def on_receipt(self, receipt: Receipt) -> None: ...


def test_an_extent_handed_back_and_finished_later_counts_for_both() -> None:
    tally = ReceiptTotals(RecordingListener())

    tally.on_receipt(replace(RECEIPT, outcome=Outcome.HANDED_BACK, records=3, seconds=1.0))
    tally.on_receipt(replace(RECEIPT, records=1, seconds=2.0))

    assert tally.records == 4


def test_expectations_reach_the_watch() -> None:
    world = World()
    (extent,) = world.extents(world.job(b"abc"))
    watch = RecordingListener()

    ReceiptTotals(watch).on_extent(extent)

    assert watch.expected == [extent]


# -- a run ----------------------------------------------------------------------------------------


def test_a_run_reports_the_ledgers_totals_of_every_job() -> None:
    report = ingested(World(), b"abcdefgh", b"xy")

    assert report.ok
    assert [(job.state, job.extents, job.done, job.records) for job in report.jobs] == [
        ("DONE", 2, 2, 8),
        ("DONE", 1, 1, 2),
    ]
    assert [job.uri for job in report.jobs] == ["s3://bucket/key0", "s3://bucket/key1"]
    assert [job.object_bytes for job in report.jobs] == [8, 2]
    assert report.records_this_run == 10
    assert report.errors == ()


def test_a_second_run_adds_nothing_and_reports_the_same_totals() -> None:
    world = World()
    first = ingested(world, b"abcdefgh")

    second = ingested(world, b"abcdefgh")

    assert not any(job.delivered_before for job in first.jobs)
    assert second.jobs == tuple(replace(job, delivered_before=True) for job in first.jobs)
    assert second.records_this_run == 0
    assert sorted(world.delivered()) == sorted(expected(b"abcdefgh"))


def test_a_run_with_a_failed_job_is_not_ok_and_says_why(golden: Golden) -> None:
    report = ingested(World(), b"ab!d", b"xy")

    assert not report.ok
    assert [(job.state, job.failed) for job in report.jobs] == [("FAILED", 1), ("DONE", 0)]
    golden(*report.errors)


def test_receipts_echoed_by_an_engine_count_once() -> None:
    world = World()

    report = ingested(
        world, b"abcdefgh", engine=CallingThreadEngine(until_final(world.worker()), echoes=3)
    )

    assert report.records_this_run == 8


def test_a_run_ends_its_engine() -> None:
    world = World()
    engine = CallingThreadEngine(until_final(world.worker()))

    ingested(world, b"abc", engine=engine)

    assert engine.closed


def test_an_engine_that_fails_is_ended_too_and_its_error_comes_through() -> None:
    class Failing(CallingThreadEngine):
        def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
            watch.on_extent(tasks[0].extents[0])
            raise LedgerUnavailable("unavailable")

    engine = Failing()

    with pytest.raises(LedgerUnavailable, match="unavailable"):
        ingested(World(), b"abc", engine=engine)

    assert engine.closed


def test_a_stopped_run_registers_nothing_more_and_says_so() -> None:
    world = World()
    versions = [world.put(b"abc", f"key{n}") for n in range(3)]
    looks = iter([False, False, True])
    run = replace(driver(world, CallingThreadEngine()), stopped=lambda: next(looks, True))

    report = run.deliver(world.request(version) for version in versions)

    assert report.stopped
    assert not report.ok
    assert len(report.jobs) == 2
    assert {job.state for job in world.ledger.jobs.list()} == {JobState.PLANNING}


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_run_registers_no_more_jobs_once_its_connector_is_paused(
    state: str, golden: Golden
) -> None:
    world = World()
    world.ledger.connectors.put("c", {})
    versions = [world.put(b"abc", f"key{n}") for n in range(4)]

    def requests() -> Iterator[JobRequest]:
        for number, version in enumerate(versions):
            if number == 2:
                world.ledger.connectors.set_state("c", ConnectorState(state))
                world.ticker.clock.sleep(CACHE_SECONDS)
            yield world.request(version)

    report = driver(world, CallingThreadEngine(until_final(world.worker()))).deliver(requests())

    assert (report.ok, report.stopped, report.left_out) == (False, False, True)
    golden(*report.errors)
    assert {job.state for job in report.jobs} == {"PLANNING" if state == "PAUSED" else "CANCELLED"}
    assert len(list(world.ledger.jobs.list())) == len(report.jobs) == 2
    assert world.delivered() == []


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_run_of_a_paused_connector_ends_and_names_the_connector(state: str) -> None:
    world = World()
    world.ledger.connectors.put("c", {})

    class Skips(CallingThreadEngine):
        def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
            super().run(tasks[:1], watch)
            world.ledger.connectors.set_state("c", ConnectorState(state))

    report = ingested(world, b"abcdefgh", engine=Skips(until_final(world.worker())))

    (job,) = report.jobs
    assert (report.ok, report.stopped, report.broken) == (False, False, False)
    assert (job.state, job.done, job.extents, job.reason) == {
        "PAUSED": (
            "RUNNING",
            1,
            2,
            "connector c is PAUSED; continue it with `extentflow resume c`",
        ),
        "STOPPED": ("CANCELLED", 1, 2, "connector c was stopped"),
    }[state]
    assert report.errors == ()


def test_a_report_is_json_with_its_verdict() -> None:
    world = World()

    plain = json.loads(json.dumps(ingested(world, b"ab!d").to_json()))

    assert plain["ok"] is False
    assert plain["engine"] == "here"
    cause = f"s3://bucket/key0[0-4): bad record at offset 2: an exclamation mark; {TOLERATE}"
    assert plain["jobs"][0]["reason"] == f"1 of 1 extent failed: {cause}"


# -- totals of jobs that are not done --------------------------------------------------------------


def test_what_open_extents_committed_counts_in_a_jobs_totals() -> None:
    world = World(tolerant=True)
    job = world.job(b"abcd!fgh")
    whole, begun = world.extents(job)
    run_extent(whole, world.worker())
    run_extent(begun, world.worker(stopping=lambda: True))

    open_yet = report(world.ledger, world.ledger.jobs.close(job.id))
    run_extent(begun, world.worker())
    done = report(world.ledger, world.ledger.jobs.close(job.id))

    assert (open_yet.state, open_yet.done, open_yet.failed) == ("RUNNING", 1, 0)
    assert (open_yet.records, open_yet.bad) == (5, 1)
    assert (done.state, done.done, done.records, done.bad) == ("DONE", 2, 7, 1)


def test_what_a_failed_extent_committed_counts_in_its_jobs_totals() -> None:
    world = World()

    ended = ingested(world, b"abcdef!hijkl")

    (job,) = ended.jobs
    assert (job.state, job.done, job.failed) == ("FAILED", 2, 1)
    assert job.records == ended.records_this_run == len(world.delivered()) == 10


# -- replays --------------------------------------------------------------------------------------


def tried(world: World, body: bytes) -> Job:
    """Run an object and return its job as it ended."""
    ingested(world, body)
    (job,) = world.ledger.jobs.list()
    return job


def test_a_replay_of_a_bad_record_fails_at_the_same_place_and_adds_nothing(golden: Golden) -> None:
    world = World()
    job = tried(world, b"ab!d")
    before = world.delivered()

    report = driver(world, CallingThreadEngine(until_final(world.worker()))).replay(job)

    assert not report.ok
    golden(*report.errors)
    assert world.delivered() == before == expected(b"ab")


def test_a_replay_resumes_where_the_extent_stopped_once_fixed() -> None:
    world = World()
    job = tried(world, b"ab!d")
    world.tolerant = True

    report = driver(world, CallingThreadEngine(until_final(world.worker()))).replay(job)

    assert report.ok
    assert (report.jobs[0].records, report.jobs[0].bad) == (3, 1)
    assert report.records_this_run == 1
    assert world.delivered() == expected(b"ab!d")


def test_a_rejected_replay_starts_nothing() -> None:
    world = World()
    job = tried(world, b"ab!d")
    engine = CallingThreadEngine()

    with pytest.raises(Misconfigured):
        driver(world, engine).replay(job, ordinal=7)

    assert engine.runs == []
    assert world.ledger.jobs.get(job.id) == job


def unknown(world: World, body: bytes) -> Extent:
    """Leave an object's only extent with a worker that died, and of which Kafka forgot all."""
    (extent,) = world.extents(world.job(body))
    dying = world.worker()
    dying.slots.claim(extent, dying.client(extent))
    for number in range(4):
        world.broker.forget_group(f"app.ledger.slot-{number}")
    world.ticker.sleep(60)
    return extent


def test_unknown_progress_is_raised() -> None:
    world = World()
    extent = unknown(world, b"abc")
    run = driver(world, CallingThreadEngine(until_final(world.worker())))
    report = run.deliver(iter([world.request(extent.version)]))
    assert report.jobs[0].state == "FAILED"

    with pytest.raises(ProgressUnknown):
        run.replay(known_job(world.ledger, extent.job))

    accepted = run.replay(known_job(world.ledger, extent.job), accept_duplicates=True)
    assert accepted.ok
    assert world.delivered() == expected(b"abc")


def test_a_job_of_unknown_progress_is_reported_and_delays_no_other() -> None:
    world = World()
    extent = unknown(world, b"abc")
    run = driver(world, CallingThreadEngine(until_final(world.worker())))
    run.deliver(iter([world.request(extent.version)]))
    other = world.job(b"xy", "other")
    world.ledger.jobs.end(other.id, JobState.CANCELLED, "connector c was stopped")
    jobs = [known_job(world.ledger, job_id) for job_id in (extent.job, other.id)]

    report = run.replay_all(jobs)

    assert [job.state for job in report.jobs] == ["FAILED", "DONE"]
    assert not report.ok
    assert "progress unknown" in report.errors[0]
    assert "--accept-duplicates" in report.errors[0]
    assert world.delivered() == expected(b"xy")


# -- jobs by name ---------------------------------------------------------------------------------


def stored(world: World, *ids: str) -> list[Job]:
    job = world.planner.register(world.request(world.put(b"abc")))
    return [world.ledger.jobs.register(replace(job, id=each)) for each in ids]


def test_a_job_is_known_by_its_id_or_the_beginning_of_it() -> None:
    world = World()
    first, second = stored(world, "xx00", "xx11")

    assert known_job(world.ledger, "xx00") == first
    assert known_job(world.ledger, "xx1") == second


def test_an_exact_id_wins_over_longer_ones() -> None:
    world = World()
    first, _ = stored(world, "xx", "xx11")

    assert known_job(world.ledger, "xx") == first


def test_an_ambiguous_beginning_is_rejected_with_the_number_of_jobs(golden: Golden) -> None:
    world = World()
    stored(world, "xx00", "xx11")

    with golden.raises(Misconfigured, match="`extentflow status`"):
        known_job(world.ledger, "xx")


def test_an_unknown_job_is_named(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="`extentflow status`"):
        known_job(World().ledger, "zz")


def test_extents_of_a_run_are_those_of_its_jobs() -> None:
    world = World()
    engine = CallingThreadEngine(until_final(world.worker()))

    report = ingested(world, b"abcdefgh", engine=engine)

    extents: list[Extent] = world.extents(known_job(world.ledger, report.jobs[0].job))
    assert sorted(engine.extents) == [(e.job, e.ordinal) for e in extents]


class FailsLater(CallingThreadEngine):
    """Delivers the first task, then cannot go on."""

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        super().run(tasks[:1], watch)
        raise Misconfigured("topic extentflow.progress does not exist; create it")


def test_a_run_that_breaks_after_records_were_delivered_reports_both(golden: Golden) -> None:
    world = World()

    report = ingested(world, b"abcdefgh", engine=FailsLater(until_final(world.worker())))

    assert (report.ok, report.broken) == (False, True)
    golden(*report.errors)
    assert [(job.done, job.records) for job in report.jobs] == [(1, 4)]


def test_a_run_that_breaks_and_cannot_ask_how_its_jobs_stand_still_reports() -> None:
    world = World()

    class LosesTheLedger(FailsLater):
        def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
            try:
                super().run(tasks, watch)
            finally:
                world.ledger.refuse("job", times=100)

    report = ingested(world, b"abcdefgh", engine=LosesTheLedger(until_final(world.worker())))

    assert (report.ok, report.broken, report.jobs) == (False, True, ())


# -- objects that cannot be cut -------------------------------------------------------------------


UNFIT = "the extension .xyz is of no known format"


def test_an_undecodable_object_is_a_failed_job_among_others() -> None:
    world = World()
    run = driver(world, CallingThreadEngine(until_final(world.worker())))
    odd = world.request(world.put(b"?", "odd.xyz"), unfit=UNFIT)

    report = run.deliver(iter([odd, world.request(world.put(b"abcd"))]))

    assert [(job.state, job.reason) for job in report.jobs] == [
        (JobState.FAILED, UNFIT),
        (JobState.DONE, ""),
    ]
    assert (report.ok, report.records_this_run) == (False, 4)


def test_an_undecodable_object_is_the_same_failed_job_in_every_run() -> None:
    world = World()
    odd = world.request(world.put(b"?", "odd.xyz"), unfit=UNFIT)

    first, second = world.planner.admit(odd), world.planner.admit(odd)

    assert first == second == world.planner.newest(odd)
    assert list(world.ledger.jobs.list()) == [first]


def test_a_second_delivery_of_a_now_undecodable_object_fails() -> None:
    world = World()
    run = driver(world, CallingThreadEngine(until_final(world.worker())))
    version = world.put(b"abcd")
    assert run.deliver(iter([world.request(version)])).ok

    report = run.deliver(iter([world.request(version, unfit=UNFIT)]), again=math.inf)

    assert [(job.state, job.reason) for job in report.jobs] == [(JobState.FAILED, UNFIT)]
    assert not report.ok


def test_a_second_delivery_of_too_many_extents_fails() -> None:
    world = World()
    version = world.put(b"abcd")
    first = world.planner.register(world.request(version))
    world.ledger.jobs.end(first.id, JobState.CANCELLED, "enough")
    huge = replace(version, size=MAX_EXTENTS + 1)

    refused = world.planner.admit(world.request(huge, extent_bytes=1), again=math.inf)

    assert (refused.id == first.id, refused.state) == (False, JobState.FAILED)
    assert "a job has at most 1,000,000" in refused.reason


def test_a_rejection_is_the_clusters_own() -> None:
    world = World()
    version = world.put(b"abcd")
    world.planner.register(world.request(version))

    with pytest.raises(Conflict, match="delivers to Kafka cluster"):
        world.planner.admit(replace(world.request(version, unfit=UNFIT), cluster="another"))


def test_a_rejected_object_is_delivered_once_its_connector_is_corrected() -> None:
    world = World()
    run = driver(world, CallingThreadEngine(until_final(world.worker())))
    version = world.put(b"abcd", "odd.xyz")
    refused = world.request(version, unfit=UNFIT)
    run.deliver(iter([refused]))
    still = run.deliver(iter([replace(refused, revision=2, unfit="still none")]))

    repaired = run.deliver(iter([replace(world.request(version), revision=3)]))
    later = run.deliver(iter([replace(world.request(version), revision=4)]))

    assert [job.reason for job in still.jobs] == ["still none"]
    assert (repaired.ok, repaired.records_this_run) == (True, 4)
    assert (later.ok, later.records_this_run) == (True, 0)


def test_an_open_job_whose_revision_cannot_be_used_here_holds_up_no_other() -> None:
    world = World()
    run = replace(
        driver(world, CallingThreadEngine(until_final(world.worker()))),
        undeliverable_reason=lambda job: "no such variable" if job.revision == 1 else "",
    )
    old, new = world.put(b"abcd", "old"), world.put(b"efgh", "new")
    begun = world.planner.register(world.request(old))
    latest = [replace(world.request(version), revision=2) for version in (old, new)]

    came_to = run.deliver(iter(latest))

    assert [(job.uri, job.state) for job in came_to.jobs] == [(new.uri, JobState.DONE)]
    (error,) = came_to.errors
    assert f"{old.uri}: job {begun.id} is left out: no such variable" in error
    assert not came_to.ok
    assert replace(run, undeliverable_reason=lambda _job: "").deliver(iter(latest)).ok


def test_a_replaced_object_of_an_unusable_revision_is_not_to_be_run_again(golden: Golden) -> None:
    world = World()
    run = replace(
        driver(world, CallingThreadEngine(until_final(world.worker()))),
        undeliverable_reason=lambda job: "no such variable" if job.revision == 1 else "",
    )
    old = world.planner.register(world.request(world.put(b"abcd", "key")))
    latest = replace(world.request(world.put(b"efgh", "key")), revision=2)

    report = run.deliver(iter([latest]), earlier=[old])

    assert [job.state for job in report.jobs] == [JobState.DONE]
    (error,) = report.errors
    golden(error)
    assert "--again" not in error


def test_a_superseded_object_that_is_now_undecodable_fails() -> None:
    world = World()
    version = world.put(b"abcd")
    first = world.planner.register(world.request(version))
    world.ledger.jobs.end(first.id, JobState.SUPERSEDED, "replaced")

    refused = world.planner.admit(world.request(version, unfit=UNFIT))

    assert (refused.id, refused.state, refused.reason) == (first.id, JobState.FAILED, UNFIT)


def test_a_problem_outside_the_object_fails_no_object() -> None:
    def unreadable(_job: Job) -> tuple[Format, RangeSource]:
        raise Misconfigured("secret s: AccessDenied")

    world = World()
    job = world.planner.register(world.request(world.put(b"abcd")))

    with pytest.raises(Misconfigured, match="secret s"):
        replace(world.planner, open=unreadable).admit(world.request(job.version))
    assert world.ledger.jobs.get(job.id) == job


# -- publishing -----------------------------------------------------------------------------------


def test_a_run_publishes_its_jobs_when_it_ends() -> None:
    world = World()
    given: list[Job] = []
    run = replace(
        driver(world, CallingThreadEngine(until_final(world.worker()))), publish=given.extend
    )

    report = run.deliver(
        world.request(world.put(body, body.decode())) for body in (b"abcdefgh", b"ab!d")
    )

    assert [(job.id, job.state) for job in given] == [
        (job.job, JobState(job.state)) for job in report.jobs
    ]
    assert [job.state for job in given] == [JobState.DONE, JobState.FAILED]


def test_a_run_whose_jobs_cannot_be_published_is_no_worse_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def unavailable(_jobs: Sequence[Job]) -> None:
        raise SinkUnavailable("no broker answers")

    world = World()
    run = replace(
        driver(world, CallingThreadEngine(until_final(world.worker()))), publish=unavailable
    )

    report = run.deliver(iter([world.request(world.put(b"abc"))]))

    assert report.ok
    assert "not every job's event was published" in caplog.text
    assert "no broker answers" in caplog.text


def test_a_stopped_run_publishes_nothing_and_the_next_run_everything() -> None:
    world = World()
    given: list[Job] = []
    version = world.put(b"abc")
    looks = iter([False, False, False])
    run = replace(
        driver(world, CallingThreadEngine(until_final(world.worker()))),
        publish=given.extend,
        stopped=lambda: next(looks, True),
    )

    stopped = run.deliver(iter([world.request(version)]))
    before = list(given)
    replace(run, stopped=lambda: False).deliver(iter([world.request(version)]))

    assert [job.state for job in stopped.jobs] == [JobState.DONE]
    assert before == []
    assert [job.state for job in given] == [JobState.DONE]
