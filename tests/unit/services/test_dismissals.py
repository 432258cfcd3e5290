"""Jobs whose objects were removed are closed; all others stay."""

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.errors import Misconfigured
from extentflow.model import Job, JobState
from extentflow.services.composition import open_dismissals, open_jobs
from extentflow.services.jobs import JobFilter


@pytest.fixture
def runtime() -> MemoryRuntime:
    made = MemoryRuntime()
    made.put_connector()
    return made


def ended(runtime: MemoryRuntime, key: str, state: JobState = JobState.FAILED) -> Job:
    return runtime.memory.jobs.end(runtime.job(key).id, state, "why")


def remove(runtime: MemoryRuntime, job: Job) -> None:
    runtime.memory_store.delete(job.version)


def states(runtime: MemoryRuntime) -> dict[str, JobState]:
    return {job.version.key: job.state for job in runtime.memory.jobs.list()}


def test_the_jobs_of_removed_objects_are_dismissed_and_others_stay(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    gone = ended(runtime, "c/gone.txt")
    stopped = ended(runtime, "c/stopped.txt", JobState.CANCELLED)
    ended(runtime, "c/there.txt")
    runtime.job("c/open.txt")
    remove(runtime, gone)
    remove(runtime, stopped)

    found = open_dismissals(runtime).dismiss_all("c")

    assert {job.id for job in found.jobs} == {gone.id, stopped.id}
    assert found.kept == (f"s3://{BUCKET}/c/there.txt",)
    assert states(runtime) == {
        "c/gone.txt": JobState.SUPERSEDED,
        "c/stopped.txt": JobState.SUPERSEDED,
        "c/there.txt": JobState.FAILED,
        "c/open.txt": JobState.PLANNING,
    }
    golden(found.jobs[0].reason)
    left = open_jobs(runtime).find(JobFilter("c", JobState.FAILED, undelivered=True))
    assert [one.job.version.key for one in left.jobs] == ["c/there.txt"]


def test_a_job_whose_object_was_replaced_is_dismissed_by_its_id(runtime: MemoryRuntime) -> None:
    job = ended(runtime, "c/a.txt")
    runtime.put("c/a.txt", lines=3)

    (dismissed,) = open_dismissals(runtime).dismiss([job.id[:8]]).jobs

    assert (dismissed.id, dismissed.state) == (job.id, JobState.SUPERSEDED)


def test_an_object_that_returns_is_delivered(runtime: MemoryRuntime) -> None:
    job = ended(runtime, "c/a.txt")
    remove(runtime, job)
    open_dismissals(runtime).dismiss([job.id])

    again = runtime.job("c/a.txt")

    assert (again.id, again.state.open) == (job.id, True)


def test_no_job_is_dismissed_where_one_is_refused(runtime: MemoryRuntime, golden: Golden) -> None:
    gone, there = ended(runtime, "c/gone.txt"), ended(runtime, "c/there.txt")
    opened, done = runtime.job("c/open.txt"), runtime.planner().plan(runtime.job("c/done.txt"))
    runtime.run(done, 0)
    runtime.memory.jobs.close(done.id)
    remove(runtime, gone)

    with pytest.raises(Misconfigured) as caught:
        open_dismissals(runtime).dismiss([one.id for one in (gone, there, opened, done)])

    golden("\n".join(caught.value.problems))
    assert [there.id in caught.value.problems[0], len(caught.value.problems)] == [True, 3]
    assert states(runtime)["c/gone.txt"] is JobState.FAILED


def test_an_unknown_connector_is_refused(runtime: MemoryRuntime) -> None:
    with pytest.raises(Misconfigured, match="there is no connector orders"):
        open_dismissals(runtime).dismiss_all("orders")
