"""The driver follows a remote Spark run through the ledger and reports its end."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.support.golden import Golden
from tests.support.local_engine import RecordingListener
from tests.support.memory_delivery import World

from extentflow.delivery.runner import run_extent
from extentflow.engines import pack
from extentflow.engines.remote import Run, RunState, RunStatus
from extentflow.engines.submitted_engine import SubmittedRunEngine
from extentflow.errors import Misconfigured, RunFailed
from extentflow.jobs.run import JobRunner as Drive
from extentflow.jobs.run import RunReport
from extentflow.ledger import ConnectorState, ExtentItem
from extentflow.model import Extent, Job, JobState, Outcome
from extentflow.testing.services import MemoryJobRuns

RUN = Run(subject="run-1", number=0, arguments=("--connector", "c"), timeout_minutes=720)
ID = "0" * 16
BODY = b"abcdefghijkl"  # three extents


@dataclass
class Elsewhere(MemoryJobRuns):
    """Runs whose one run takes its next step at each `describe`."""

    steps: list[Callable[[], object]] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def describe(self, run_id: str) -> RunStatus:
        self.looks += 1
        if not self.failures and self.steps:
            self.steps.pop(0)()
        return super().describe(run_id)

    def becomes(self, state: RunState, details: str = "") -> Callable[[], object]:
        """The step in which the run gets into a state."""

        def become() -> None:
            self.states[ID] = RunStatus(state, details)

        return become


@dataclass
class AdmissionWorld:
    """A driver whose engine is a remote run, with a clock that advances without waiting."""

    world: World = field(default_factory=World)
    runs: Elsewhere = field(default_factory=Elsewhere)
    watch: RecordingListener = field(default_factory=RecordingListener)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = SubmittedRunEngine(
            self.runs,
            lambda: self.runs.start(RUN),
            self.world.ledger,
            self.world.ticker.clock,
            say=self.said.append,
        )

    def delivers(self, job: Job, *ordinals: int) -> Callable[[], object]:
        """The step in which workers elsewhere deliver extents."""
        work = self.world.worker()

        def deliver() -> None:
            for extent in self.world.extents(job):
                if extent.ordinal in ordinals:
                    run_extent(extent, work)

        return deliver

    def drive(self, job: Job, *, stopped: bool = False) -> RunReport:
        """Deliver what a job has left."""
        world = self.world
        return Drive(
            "emr", self.engine, world.planner, world.ledger, self.watch, lambda: stopped
        ).resume(job)

    def extents(self, job: Job) -> list[Extent]:
        return self.world.extents(job)


def test_receipts_come_as_the_run_delivers_and_the_job_is_done() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    admission.runs.steps += [
        admission.runs.becomes(RunState.RUNNING),
        admission.delivers(job, 0, 2),
        admission.delivers(job, 1),
    ]

    report = admission.drive(job)

    assert report.ok
    assert [receipt.ordinal for receipt in admission.watch.receipts] == [0, 2, 1]
    assert (report.records_this_run, report.worker_peak_rss_bytes) == (12, 0)
    assert list(admission.runs.started.values()) == [RUN]
    assert [line for line in admission.said if "RUNNING" in line]


def test_records_delivered_before_the_run_are_not_counted() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    admission.delivers(job, 0)()
    admission.runs.steps.append(admission.delivers(job, 1, 2))

    report = admission.drive(job)

    assert (report.ok, report.records_this_run) == (True, 8)


def test_where_nothing_is_left_no_run_is_started() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    admission.delivers(job, 0, 1, 2)()

    admission.engine.run(pack(admission.extents(job), lambda _job: False, 1), admission.watch)

    assert admission.runs.started == {}
    assert len(admission.watch.receipts) == 3


def test_a_second_wave_waits_for_the_same_run() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    first, *rest = admission.extents(job)
    admission.runs.steps += [admission.delivers(job, 0, 1), admission.delivers(job, 2)]

    admission.engine.run(pack([first], lambda _job: False, 1), admission.watch)
    admission.engine.run(pack(rest, lambda _job: False, 1), admission.watch)

    assert len(admission.runs.started) == 1
    assert len(admission.watch.receipts) == 3


def test_a_failed_run_is_an_error_with_the_services_details(golden: Golden) -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    admission.runs.steps += [
        admission.delivers(job, 0),
        admission.runs.becomes(RunState.FAILED, "driver lost"),
    ]

    report = admission.drive(job)

    assert not report.ok
    golden(report.errors[0])
    assert ID in report.errors[0]
    assert [receipt.ordinal for receipt in admission.watch.receipts] == [0]


def test_a_run_that_dies_before_anything_is_delivered_raises() -> None:
    admission = AdmissionWorld()
    admission.runs.steps.append(admission.runs.becomes(RunState.CANCELLED))

    with pytest.raises(RunFailed, match="ended as CANCELLED"):
        admission.drive(admission.world.job(BODY))


def test_receipts_between_two_polls_are_reported_at_the_end() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    done, ended = admission.delivers(job, 0, 1, 2), admission.runs.becomes(RunState.SUCCESS)
    admission.runs.steps.append(lambda: (done(), ended()))

    assert admission.drive(job).ok


def test_a_job_that_ends_meanwhile_has_nothing_left() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    admission.runs.steps.append(
        lambda: admission.world.ledger.jobs.end(job.id, JobState.SUPERSEDED, "another version came")
    )

    report = admission.drive(job)

    assert [one.state for one in report.jobs] == ["SUPERSEDED"]
    assert {receipt.outcome for receipt in admission.watch.receipts} == {Outcome.JOB_CLOSED}


def test_what_a_job_delivered_right_before_it_closed_is_counted() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    deliver = admission.delivers(job, 0, 1, 2)
    read = admission.world.ledger.extents.list

    def extents_then_the_rest(job_id: str) -> Iterator[ExtentItem]:
        """Answer, and let the run go on to its end before anybody asks again."""
        found = list(read(job_id))
        if admission.runs.started:
            admission.world.ledger.extents.list = read  # type: ignore[method-assign]
            deliver()
            admission.world.ledger.jobs.close(job.id)
        return iter(found)

    admission.world.ledger.extents.list = extents_then_the_rest  # type: ignore[method-assign]

    report = admission.drive(job)

    assert (report.ok, report.records_this_run) == (True, 12)
    assert {receipt.outcome for receipt in admission.watch.receipts} == {Outcome.DONE}


def test_a_rejected_cancel_is_reported_and_the_receipts_remain(golden: Golden) -> None:
    class Guarded(Elsewhere):
        def cancel(self, run_id: str) -> None:
            raise Misconfigured(f"no permission to cancel {run_id}")

    admission = AdmissionWorld(runs=Guarded())
    job = admission.world.job(BODY)
    admission.runs.steps += [admission.delivers(job, 0), admission.engine.stop]

    report = admission.drive(job)

    assert report.records_this_run == 4
    golden(admission.said[-1])


def test_failed_extents_are_reported_with_their_reason() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(b"abcd!fghijkl")
    admission.runs.steps.append(admission.delivers(job, 0, 1, 2))

    report = admission.drive(job)

    outcomes = {receipt.ordinal: receipt.outcome for receipt in admission.watch.receipts}
    assert outcomes == {0: Outcome.DONE, 1: Outcome.FAILED, 2: Outcome.DONE}
    assert report.errors


def test_requests_to_an_unavailable_service_are_repeated() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    fails = lambda: setattr(admission.runs, "failures", 2)  # noqa: E731 - a step
    admission.runs.steps += [fails, admission.delivers(job, 0, 1, 2)]

    assert admission.drive(job).ok
    assert admission.runs.looks >= 3


def test_a_stop_cancels_the_run() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)
    admission.runs.steps += [admission.delivers(job, 0), admission.engine.stop]

    admission.drive(job)

    assert admission.runs.states[ID].state is RunState.CANCELLED
    assert f"run {ID} is cancelled" in admission.said[-1]


def test_a_stop_during_an_outage_reports_that_the_run_continues() -> None:
    admission = AdmissionWorld()
    job = admission.world.job(BODY)

    def stop() -> None:
        admission.engine.stop()
        admission.runs.failures = 9

    admission.runs.steps += [admission.delivers(job, 0), stop]

    admission.drive(job)

    assert "could not be cancelled and continues" in admission.said[-1]


def test_a_run_that_cannot_be_started_is_reported_at_once(golden: Golden) -> None:
    class Refused(Elsewhere):
        def start(self, run: Run) -> str:
            raise Misconfigured(f"no permission to start {run.subject}")

    admission = AdmissionWorld(runs=Refused())

    with golden.raises(Misconfigured, match="run-1"):
        admission.drive(admission.world.job(BODY))


def test_a_run_that_ended_for_a_paused_connector_reports_the_pause() -> None:
    admission = AdmissionWorld()
    ledger = admission.world.ledger
    ledger.connectors.put("c", {})
    job = admission.world.job(BODY)
    admission.runs.steps += [
        admission.delivers(job, 0),
        lambda: ledger.connectors.set_state("c", ConnectorState.PAUSED),
        admission.runs.becomes(RunState.FAILED, "exit code 1"),
    ]

    report = admission.drive(job)

    assert "ended as FAILED and has left extents" in report.errors[0]
    assert [(one.state, one.done, one.reason) for one in report.jobs] == [
        ("RUNNING", 1, "connector c is PAUSED; continue it with `extentflow resume c`")
    ]
