"""Which jobs of other connectors deliver an object to the same topics: what their revisions say."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.memory_delivery import TOPIC
from tests.support.memory_runtime import MemoryRuntime

from extentflow.jobs.run import JobReport
from extentflow.ledger import ConnectorVersion
from extentflow.model import Job, JobState, ObjectVersion, Plan, job_id
from extentflow.services.addressed import make_connector
from extentflow.services.coverage import Coverage
from extentflow.services.run_notes import describe_other_connectors
from extentflow.storage import StoreOptions
from extentflow.storage.local import LocalStore

OTHER = {"name": "other", "topic": "orders", "aws.s3.bucket.name": "shop", "aws.s3.prefix": "in/"}
TO_EU = {
    "transforms": "r",
    "transforms.r.type": "RegexRouter",
    "transforms.r.regex": ".*",
    "transforms.r.replacement": "orders-eu",
}
BY_VALUE = {
    "transforms": "x",
    "transforms.x.type": "ExtractTopic",
    "transforms.x.field": "kind",
    "transforms.x.topics": "orders, returns",
}
GROUPED = {"columnar.encoding": "arrow", "columnar.groups": "a: id; rest: *"}


class Scene:
    """A connector with revisions, and one object with a job under the first."""

    def __init__(self, *revisions: Mapping[str, str]) -> None:
        self.runtime = MemoryRuntime()
        for changes in revisions:
            self.runtime.memory.connectors.put("other", {**OTHER, **changes})
        self.version = ObjectVersion("shop", "in/a.csv", None, "e", 10)
        self.notes: list[str] = []

    def job(self, revision: int = 1, generation: int = 0, state: JobState = JobState.DONE) -> Job:
        """Register the job of the object under a revision."""
        memory, runtime = self.runtime.memory, self.runtime
        found = runtime.requests.make(
            runtime.connectors.revision("other", revision), revision, self.version, 1
        )
        job = Job(
            job_id("other", self.version, generation),
            "other",
            revision,
            self.version,
            "csv",
            found.cluster,
            plan=Plan(target_bytes=1),
            generation=generation,
            state=state,
        )
        return memory.jobs.register(job)

    def covering(self, topic: str = "orders", **settings: str) -> list[Job]:
        """Return the jobs that deliver the object to the topics of a command."""
        given = {key.replace("__", "."): text for key, text in settings.items()}
        made = make_connector(["s3://shop/in/"], topic, given)
        runtime = self.runtime
        return list(
            Coverage(
                made.config,
                runtime.ledger,
                runtime.connectors,
                runtime.planner(),
                self.notes.append,
            ).jobs(self.version)
        )


@pytest.mark.parametrize(
    ("first", "second", "delivered"),
    [
        ({}, {}, True),
        ({"topic": "before"}, {}, False),
        ({}, {"topic": "later"}, True),
        ({}, {"aws.s3.prefix": "elsewhere/"}, True),
        ({}, {"aws.s3.bucket.name": "elsewhere"}, True),
        (TO_EU, {}, False),
        ({}, TO_EU, True),
        ({"topic": "before", **TO_EU, "transforms.r.replacement": "orders"}, {}, True),
        (GROUPED, {}, False),
    ],
)
def test_the_revision_that_a_job_pins_decides(
    first: dict[str, str], second: dict[str, str], *, delivered: bool
) -> None:
    scene = Scene(first, second)
    job = scene.job(1)

    assert scene.covering() == [job] * delivered


def test_any_generation_that_delivers_to_the_topic_counts() -> None:
    scene = Scene({}, {"topic": "later"})
    first, again = scene.job(1), scene.job(2, generation=1)

    assert scene.covering() == [first]
    assert scene.covering("later") == [again]


@pytest.mark.parametrize(
    ("states", "first"),
    [
        ([JobState.DONE, JobState.FAILED], 0),
        ([JobState.DONE, JobState.RUNNING], 0),
        ([JobState.FAILED, JobState.DONE], 1),
        ([JobState.FAILED, JobState.RUNNING], 1),
        ([JobState.DONE, JobState.DONE], 1),
    ],
)
def test_a_generation_that_delivered_everything_decides(states: list[JobState], first: int) -> None:
    scene = Scene({})
    jobs = [scene.job(generation=number, state=state) for number, state in enumerate(states)]

    assert scene.covering()[0] == jobs[first]


def test_of_an_object_that_was_uploaded_again_the_newest_generation_decides() -> None:
    scene = Scene({})
    scene.version = replace(scene.version, modified=1)
    scene.job(state=JobState.DONE)
    scene.version = replace(scene.version, modified=2)
    newest = scene.job(generation=1, state=JobState.FAILED)

    assert scene.covering()[0] == newest


@pytest.mark.parametrize(("topic", "covered"), [("t.{key}", False), ("t.in.{key}", True)])
def test_each_connector_fills_its_topic_with_its_own_name_of_a_file(
    tmp_path: Path, topic: str, *, covered: bool
) -> None:
    (tmp_path / "in").mkdir()
    runtime = MemoryRuntime()
    settings = {"name": "other", "topic": "t.{key}", "endpoint.type": "localfile"}
    runtime.memory.connectors.put("other", {**settings, "directory": str(tmp_path)})
    version = ObjectVersion(str(tmp_path), "in/a.csv", None, "e", 10)
    job = Job(job_id("other", version), "other", 1, version, "csv", "c", plan=Plan(target_bytes=1))
    runtime.memory.jobs.register(job)
    config = make_connector([f"{tmp_path}/in/"], topic, {}).config
    coverage = Coverage(config, runtime.ledger, runtime.connectors, runtime.planner())

    found = list(coverage.jobs(ObjectVersion(config.bucket, "a.csv", None, "e", 10)))

    assert [one.id for one in found] == [job.id] * covered


@pytest.mark.parametrize(("body", "covered"), [(b"id\n1\n", True), (b"id\n2\n", False)])
def test_a_copy_of_what_another_connector_delivered_counts_by_its_content(
    tmp_path: Path, body: bytes, *, covered: bool
) -> None:
    path = tmp_path / "in" / "a.csv"
    path.parent.mkdir()
    path.write_bytes(b"id\n1\n")
    runtime = MemoryRuntime()
    runtime.reads = store = LocalStore(StoreOptions())
    settings = {"name": "other", "topic": TOPIC, "endpoint.type": "localfile"}
    runtime.memory.connectors.put("other", {**settings, "directory": str(tmp_path)})
    other = runtime.connectors.revision("other", 1)
    version, planner = store.head(str(tmp_path), "in/a.csv"), runtime.planner()
    job = planner.plan(planner.admit(runtime.requests.make(other, 1, version, 1)))
    runtime.run(job, 0)
    assert runtime.memory.jobs.close(job.id).state is JobState.DONE
    copy = tmp_path / "copy"
    copy.write_bytes(body)
    shutil.copystat(path, copy)
    copy.rename(path)
    config = make_connector([f"{tmp_path}/in/"], TOPIC, {}).config
    coverage = Coverage(config, runtime.ledger, runtime.connectors, planner)

    found = list(coverage.jobs(store.head(config.bucket, "a.csv")))

    assert [one.id for one in found] == [job.id] * covered


def test_a_new_revision_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene({}, {"topic": "second"}, {"topic": "third"})
    connectors = scene.runtime.memory.connectors
    config = make_connector(["s3://shop/in/"], "orders", {}).config
    runtime = scene.runtime
    coverage = Coverage(config, runtime.ledger, runtime.connectors, runtime.planner())
    read: list[tuple[str, int | None]] = []
    get = connectors.get

    def reading(name: str, revision: int | None = None) -> ConnectorVersion | None:
        read.append((name, revision))
        return get(name, revision)

    monkeypatch.setattr(connectors, "get", reading)
    assert [one.topic for one in coverage.others()] == ["orders", "second", "third"]
    assert read == [("other", 1), ("other", 2)]
    connectors.put("other", {**OTHER, "topic": "fourth"})

    assert len(coverage.others()) == 4
    assert read == [("other", 1), ("other", 2)]


def test_where_values_choose_the_topics_nothing_counts_and_a_line_says_so() -> None:
    scene = Scene(BY_VALUE)
    scene.job(1)

    assert scene.covering() == []
    (line,) = scene.notes
    assert "connector other" in line
    assert "s3://shop/in/a.csv" in line


@pytest.mark.parametrize("revisions", [[{}], [{}, {"aws.s3.endpoint": "", "topic": "orders"}]])
def test_a_revision_of_another_server_has_other_objects(revisions: list[dict[str, str]]) -> None:
    elsewhere = {"aws.s3.endpoint": "http://minio:9000"}
    scene = Scene(elsewhere, *({**OTHER} for _ in revisions[1:]))
    scene.job(1)

    assert scene.covering() == []


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({}, "no second one is begun"),
        ({"after.completion": "delete"}, "begun, and after.completion=delete is not applied"),
    ],
)
def test_what_another_connectors_job_leaves_undone_is_said(
    settings: dict[str, str], end: str
) -> None:
    config = make_connector(["s3://shop/in/"], "orders", settings).config
    job = JobReport("j", "s3://shop/in/a", "other", "DONE", "", 1, 1, 0, 2, 0, 10)

    (line,) = describe_other_connectors(config, [job])

    assert "connector other" in line
    assert line.endswith(end)
