"""What is listed of jobs: which match, how many, their causes, and what continues them."""

from dataclasses import replace

import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import TOPIC
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.model import Job, JobState
from extentflow.services.composition import open_jobs
from extentflow.services.jobs import JobFilter, parse_since

ORDERS = ConnectorConfig(name="orders", topic="orders", s3_bucket="shop")


def test_a_job_that_is_listed_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: totals of a run in progress exceeded the number of its objects."""
    runtime = MemoryRuntime()
    runtime.put_connector()
    job = runtime.job()
    changed = [job, replace(job, state=JobState.RUNNING)]
    monkeypatch.setattr(runtime.memory.jobs, "list", lambda *_: iter(changed))

    found = open_jobs(runtime).find(JobFilter())

    assert (found.matching, len(found.jobs)) == (1, 1)


def test_a_job_whose_object_a_later_job_delivers_shows_no_cause() -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    config, revision = runtime.connectors.latest("c")
    for key in ("c/again.txt", "c/replaced.txt", "c/open.txt"):
        runtime.memory.jobs.end(runtime.job(key).id, JobState.FAILED, f"why {key}")
        runtime.ticker.sleep(1)

    version = runtime.memory_store.head(BUCKET, "c/again.txt")
    request = runtime.requests.make(config, revision, version, 1)
    runtime.planner().register(request, again=runtime.ticker.read())
    runtime.job("c/replaced.txt", lines=2)
    listed, failed = (
        open_jobs(runtime).list("c", state=state) for state in (None, JobState.FAILED)
    )

    assert [one.cause for one in listed if one.cause] == ["why c/open.txt"]
    assert {one.cause for one in failed} == {"why c/open.txt", "why c/replaced.txt", ""}


def test_a_failed_job_is_followed_once_a_later_one_is_done() -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    config, revision = runtime.connectors.latest("c")
    first = {key: runtime.job(f"c/{key}.txt").id for key in ("again", "replaced", "open")}
    for failed in first.values():
        runtime.memory.jobs.end(failed, JobState.FAILED, "why")
    runtime.ticker.sleep(1)
    version = runtime.memory_store.head(BUCKET, "c/again.txt")
    request = runtime.requests.make(config, revision, version, 1)
    later = runtime.planner().register(request, again=runtime.ticker.read())
    newer = runtime.job("c/replaced.txt", lines=2)

    def followed() -> set[str]:
        listed = open_jobs(runtime).list("c")
        return {
            name
            for name, job in first.items()
            for one in listed
            if one.job.id == job and one.followed
        }

    assert followed() == set()
    for job in (later, newer):
        planned = runtime.planner().plan(job)
        runtime.run(planned, *range(planned.plan.count))
        runtime.memory.jobs.close(job.id)
    assert followed() == {"again", "replaced"}


def test_jobs_that_ended_are_counted_by_what_became_of_their_objects() -> None:
    """Trap: after a repair, `status` counted 12 FAILED, and did not say that one was left."""
    runtime = MemoryRuntime()
    runtime.put_connector()
    config, revision = runtime.connectors.latest("c")
    first = {key: runtime.job(f"c/{key}.txt") for key in ("again", "replaced", "open", "twice")}
    for job in first.values():
        runtime.memory.jobs.end(job.id, JobState.FAILED, "why")

    def follow(name: str) -> Job:
        runtime.ticker.sleep(1)
        request = runtime.requests.make(config, revision, first[name].version, 1)
        return runtime.planner().register(request, again=runtime.ticker.read())

    for name in ("again", "twice"):
        later = follow(name)
        if name == "twice":  # and failed once more
            runtime.memory.jobs.end(later.id, JobState.FAILED, "why")
            continue
        runtime.run(runtime.planner().plan(later), 0)
        runtime.memory.jobs.close(later.id)
    runtime.ticker.sleep(1)
    newer = runtime.planner().plan(runtime.job("c/replaced.txt", lines=2))
    runtime.run(newer, 0, 1)
    runtime.memory.jobs.close(newer.id)

    jobs = open_jobs(runtime)
    found, left = jobs.find(JobFilter("c"), limit=1), jobs.find(JobFilter("c", undelivered=True))

    assert (found.states, found.delivered, found.undelivered) == (
        {"FAILED": 5, "DONE": 2},
        {"FAILED": 2},
        {"FAILED": 2},
    )
    assert [(one.job.version.key, one.job.generation) for one in left.jobs] == [
        ("c/twice.txt", 1),
        ("c/open.txt", 0),
    ]
    assert (left.states, left.matching) == ({"FAILED": 2}, 2)
    runtime.job("c/new.txt")
    assert jobs.find(JobFilter("c", undelivered=True)).states == {"PLANNING": 1, "FAILED": 2}
    assert jobs.find(JobFilter("c", JobState.DONE, undelivered=True)).matching == 0


def test_a_job_that_ended_is_replayable_unless_a_later_one_delivers_its_object() -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    config, revision = runtime.connectors.latest("c")
    ended = {"again": JobState.FAILED, "failed": JobState.FAILED, "stopped": JobState.CANCELLED}
    made = {name: runtime.job(f"c/{name}.txt").id for name in (*ended, "open")}
    for name, state in ended.items():
        runtime.memory.jobs.end(made[name], state, "why")
    runtime.ticker.sleep(1)
    version = runtime.memory_store.head(BUCKET, "c/again.txt")
    request = runtime.requests.make(config, revision, version, 1)
    runtime.planner().register(request, again=runtime.ticker.read())

    found = [name for name, job in made.items() if open_jobs(runtime).get(job).replayable]

    assert found == ["failed", "stopped"]


def test_jobs_are_filtered_and_counted() -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    for name in ("x/1.txt", "x/2.txt", "y/1.txt"):
        runtime.job(f"c/{name}")
        runtime.ticker.sleep(60)
    ended = next(iter(runtime.memory.jobs.list()))
    runtime.memory.jobs.end(ended.id, JobState.FAILED, "why")
    jobs, now = open_jobs(runtime), runtime.ticker.read()

    def keys(chosen: JobFilter) -> list[str]:
        return [one.job.version.key for one in jobs.find(chosen).jobs]

    assert keys(JobFilter(prefix="c/x/")) == ["c/x/2.txt", "c/x/1.txt"]
    assert keys(JobFilter(prefix="s3://shop/c/y")) == ["c/y/1.txt"]
    assert keys(JobFilter(state=JobState.FAILED)) == [ended.version.key]
    assert set(keys(JobFilter(since=now - 90))) == {"c/y/1.txt", ended.version.key}
    found = jobs.find(JobFilter(), limit=1)
    assert (found.matching, found.states, len(found.jobs)) == (3, {"PLANNING": 2, "FAILED": 1}, 1)


def test_a_list_of_many_jobs_needs_as_many_calls_as_one_of_few() -> None:
    def calls(count: int) -> int:
        runtime = MemoryRuntime()
        runtime.put_connector()
        for number in range(count):
            job = runtime.job(f"c/{number}.txt")
            if number % 2:
                runtime.memory.jobs.end(job.id, JobState.FAILED, "why")
        open_jobs(runtime).find(JobFilter(), limit=count)  # the connector is read once per process
        asked: list[str] = []
        runtime.memory.on_call = asked.append
        open_jobs(runtime).find(JobFilter(), limit=count)
        return len(asked)

    assert calls(60) == calls(2)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0.0), ("2h", 992_800.0), ("1970-01-02T00:00:00Z", 86_400.0)],
)
def test_a_time_is_an_age_or_a_date(text: str, seconds: float) -> None:
    assert parse_since(text, 1_000_000.0) == seconds


def test_another_time_is_refused(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="--since"):
        parse_since("yesterday", 0.0)


def test_json_has_times_duration_rate_size_and_topic() -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    job = runtime.planner().plan(runtime.job("c/a.txt", lines=2))
    runtime.ticker.sleep(1)
    runtime.run(job, 0, 1)

    found = open_jobs(runtime).get(job.id).to_json()

    assert found["created"].endswith("Z")
    assert found["ended"].endswith("Z")
    assert found["seconds"] >= 1
    assert found["records_per_second"] == round(2 / found["seconds"], 1)
    assert (found["object_bytes"], found["topic"], found["active"]) == (8, TOPIC, None)
