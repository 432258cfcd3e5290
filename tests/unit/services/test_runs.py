"""Runs and plans that are refused; `replay -c`: which jobs are replayed, left out or repeated."""

import bz2
import gzip
import math
import random
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pyarrow import orc
from pyzstd import SeekableZstdFile
from tests.laws.compression_cases import bgzf
from tests.support.golden import Golden
from tests.support.local_engine import CallingThreadEngine, until_final
from tests.support.memory_delivery import TOPIC
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.config.specs import CONVERTERS
from extentflow.engines import Engine
from extentflow.errors import ExtentflowError, LedgerUnavailable, Misconfigured
from extentflow.jobs.preflight import CACHE_SECONDS
from extentflow.jobs.run import RunReport
from extentflow.kafka import ProducerSettings
from extentflow.kafka.topic_admin import NewTopics
from extentflow.ledger import Claim, ConnectorState
from extentflow.ledger.items import Write
from extentflow.ledger.job_store import job_key
from extentflow.model import Extent, Job, JobState, Receipt
from extentflow.plugins import EntryPoint
from extentflow.services.addressed import make_connector
from extentflow.services.composition import open_health, open_orders, open_runs
from extentflow.services.health import Finding
from extentflow.services.run_control import EngineChoice, RunControl
from extentflow.storage import StoreOptions
from extentflow.storage.local import LocalStore
from extentflow.wiring.extents import delivery_context


def in_frames(body: bytes) -> bytes:
    packed = BytesIO()
    with SeekableZstdFile(packed, "w", max_frame_content_size=20_000) as file:
        file.write(body)
    return packed.getvalue()


@dataclass
class Replayed:
    """The outcome of a replay: `refused` where nothing was started."""

    report: RunReport | None
    messages: str
    refused: bool = False

    @property
    def ok(self) -> bool:
        return self.report is not None and self.report.ok


@dataclass
class Line:
    """The service over a runtime in memory; extents are run in this process."""

    runtime: MemoryRuntime
    patch: pytest.MonkeyPatch
    open_engine: Callable[..., Engine]
    notes: list[str] = field(default_factory=list)

    def replay(self) -> Replayed:
        notes: list[str] = []
        runs = open_runs(self.runtime, RunControl(notify=notes.append), self.open_engine)
        try:
            report = runs.replay_all("c")
        except ExtentflowError as exc:
            return Replayed(None, str(exc), refused=isinstance(exc, Misconfigured))
        reasons = (job.reason for job in report.jobs)
        return Replayed(report, "\n".join([*notes, *report.errors, *reasons]))

    def run(
        self,
        *addresses: str,
        again: bool = False,
        stop_after: int | None = None,
        topics: NewTopics | None = None,
    ) -> RunReport:
        """Deliver the connector's objects; stop once `stop_after` of them are registered."""
        asked = count(1)

        def stopped() -> bool:
            return stop_after is not None and next(asked) > stop_after

        control = RunControl(notify=self.notes.append, stop_on=lambda _stop: nullcontext(stopped))
        choice = EngineChoice("inline")
        runs = open_runs(self.runtime, control, self.open_engine)
        order = self.runtime.order(*addresses)
        return runs.run(order, engine=choice, again=again, topics=topics)

    def set_clock(self, ahead_seconds: float) -> None:
        """Continue on a host whose clock is ahead of the ledger's."""
        ticker = self.runtime.ticker
        self.runtime.clock = replace(ticker.clock, wall=lambda: ticker.read() + ahead_seconds)

    @contextmanager
    def ending_after(self, extents: int) -> Iterator[None]:
        """Let the ledger become unavailable to workers after so many extents of a run."""
        open_engine, asked = self.open_engine, count(1)

        def opened(*_args: object, **_words: object) -> Engine:
            run_one = until_final(delivery_context(self.runtime, self.runtime.slots("here")))

            def run(extent: Extent) -> Receipt:
                if next(asked) > extents:
                    raise LedgerUnavailable("the table is unavailable")
                return run_one(extent)

            return CallingThreadEngine(run)

        self.open_engine = opened
        yield
        self.open_engine = open_engine

    def generations(self) -> dict[str, list[int]]:
        """The generations of every object that were delivered to their end."""
        done: dict[str, list[int]] = {}
        for job in self.runtime.memory.jobs.list(state=JobState.DONE):
            done.setdefault(job.version.key, []).append(job.generation)
        return {key: sorted(found) for key, found in sorted(done.items())}

    def cancelled(self, count: int) -> list[Job]:
        jobs = [self.runtime.job(f"c/{number}.txt") for number in range(count)]
        for job in jobs:
            self.runtime.memory.jobs.end(job.id, JobState.CANCELLED, "connector c was stopped")
        return jobs

    def before_opening(self, number: int, act: Callable[[], None]) -> None:
        """Call something before job `number` is opened, counted from 1."""
        resume, opened = self.runtime.memory.jobs.resume, count(1)

        def opening(job_id: str, **options: bool) -> Job:
            if next(opened) == number:
                act()
            return resume(job_id, **options)

        self.patch.setattr(self.runtime.memory.jobs, "resume", opening)

    def put_connector(self, **keys: str) -> None:
        """Store a connector that takes the format of each object from its name."""
        self.runtime.put_connector(**keys)
        stored = self.runtime.memory.connectors.get("c")
        assert stored is not None
        config = {key: text for key, text in stored.config.items() if key != "input.format"}
        self.runtime.memory.connectors.put("c", {**config, "extent.bytes": "auto"})

    def checks(self) -> Iterator[Finding]:
        """Return doctor's findings about the connector."""
        return open_health(self.runtime).connectors().findings("c", broker=True)

    def states(self) -> list[str]:
        return [state.value for _, state in sorted(self.runtime.states().items())]


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    runtime = MemoryRuntime()
    runtime.put_connector()

    def opened(*_args: object, **_words: object) -> CallingThreadEngine:
        return CallingThreadEngine(until_final(delivery_context(runtime, runtime.slots("here"))))

    return Line(runtime, monkeypatch, opened)


def test_a_package_that_cannot_be_imported_ends_a_run_before_a_job_is_registered(
    line: Line,
    golden: Golden,
) -> None:
    entry = EntryPoint("broken", "no_such_module:MADE", "extentflow-broken 2.1")
    line.patch.setitem(CONVERTERS._declared, "broken", entry)
    line.runtime.put_connector(value__converter="broken")
    line.runtime.put()
    said = "revision 2, cannot be read: converter 'broken': entry point broken = no_such_module"

    with pytest.raises(Misconfigured, match=said):
        open_runs(line.runtime).plan(line.runtime.order())
    with pytest.raises(Misconfigured, match=said):
        line.run()
    findings = list(line.checks())

    assert line.states() == []
    (finding,) = findings
    assert finding.verdict == "problem"
    golden(finding.fact)
    assert "ModuleNotFoundError" in finding.fact
    golden(finding.remedy)


def test_cancelled_and_failed_jobs_are_replayed(line: Line) -> None:
    line.cancelled(2)
    failed = line.runtime.job("c/failed.txt")
    line.runtime.memory.jobs.end(failed.id, JobState.FAILED, "the store was unavailable")

    said = line.replay()

    assert said.ok
    assert line.states() == ["DONE"] * 3


def test_open_jobs_are_left_to_their_run_while_a_worker_holds_one(line: Line) -> None:
    """Trap: `replay -c` left them when their run was killed, and no command continued them all."""
    runtime = line.runtime
    planned = runtime.planner().plan(runtime.job("c/held.txt"))
    runtime.job("c/waits.txt")
    extent = next(iter(runtime.planner().pending(planned)))
    held = runtime.slots("worker").claim(extent, ProducerSettings())

    during = line.replay()
    states = line.states()
    runtime.ticker.sleep(3_600)  # the lease ends
    after = line.replay()

    assert isinstance(held, Claim)
    assert during.ok
    assert "2 open jobs left out, because a worker delivers connector c now" in during.messages
    assert sorted(states) == ["PLANNING", "RUNNING"]
    assert after.ok
    assert line.states() == ["DONE", "DONE"]


def test_the_next_replay_includes_jobs_that_a_broken_one_reopened(line: Line) -> None:
    line.cancelled(3)

    def unavailable() -> None:
        raise LedgerUnavailable("the table is unavailable")

    line.before_opening(3, unavailable)

    broken = line.replay()
    repeated = line.replay()

    assert not broken.ok
    assert "the table is unavailable" in broken.messages
    assert repeated.ok
    assert line.states() == ["DONE"] * 3


def test_a_pause_leaves_all_jobs_to_the_next_replay(line: Line) -> None:
    line.cancelled(4)

    def pause() -> None:
        line.runtime.memory.connectors.set_state("c", ConnectorState.PAUSED)
        line.runtime.clock.sleep(CACHE_SECONDS)

    line.before_opening(2, pause)

    said = line.replay()
    line.runtime.memory.connectors.set_state("c", ConnectorState.ENABLED)
    repeated = line.replay()

    assert not said.ok
    assert said.report is not None
    assert (said.report.left_out, len(said.report.jobs)) == (True, 2)
    assert "connector c is PAUSED" in said.messages
    assert repeated.ok
    assert line.states() == ["DONE"] * 4


def test_a_job_of_another_cluster_does_not_block_the_others(line: Line) -> None:
    first, _ = line.cancelled(2)
    gone = Write(job_key(first.id), sets={"cluster": "gone"})
    line.runtime.memory.items.update("", gone)

    said = line.replay()

    assert not said.ok
    assert said.report is not None
    assert said.report.left_out
    assert "delivers to Kafka cluster gone" in said.messages
    assert line.states() == ["CANCELLED", "DONE"]


def test_jobs_of_an_unusable_revision_do_not_block_the_others(line: Line, golden: Golden) -> None:
    line.cancelled(1)
    line.runtime.put_connector(topic="gone")
    other = line.runtime.job("c/other.txt")
    line.runtime.memory.jobs.end(other.id, JobState.CANCELLED, "connector c was stopped")

    said = line.replay()

    assert not said.ok
    golden(said.messages)
    assert "revision 2" in said.messages
    assert line.states() == ["DONE", "CANCELLED"]


def test_nothing_is_started_where_no_job_can_be_replayed(line: Line) -> None:
    line.cancelled(2)
    line.runtime.cluster.delete_topic(TOPIC)

    said = line.replay()

    assert said.refused
    assert "2 jobs of revision 1 left out" in said.messages
    assert line.states() == ["CANCELLED"] * 2


def test_an_object_with_a_newer_job_is_not_delivered_twice(
    line: Line,
) -> None:
    (job,) = line.cancelled(1)
    planner = line.runtime.planner()
    config, revision = line.runtime.connectors.latest("c")
    request = line.runtime.requests.make(config, revision, job.version, 1)

    def opened(*_args: object, **_words: object) -> CallingThreadEngine:
        planner.register(request, again=math.inf)  # while the engine starts
        return CallingThreadEngine(
            until_final(delivery_context(line.runtime, line.runtime.slots("here")))
        )

    line.open_engine = opened

    said = line.replay()

    assert not said.ok
    assert f"job {job.id} was started again meanwhile" in said.messages
    assert line.runtime.memory.jobs.get(job.id).state is JobState.CANCELLED  # type: ignore[union-attr]


def test_an_interrupted_second_delivery_is_resumed_by_the_same_command(line: Line) -> None:
    for key in ("c/a.txt", "c/b.txt"):
        line.runtime.put(key)
    assert line.run().ok
    line.runtime.ticker.sleep(60)

    interrupted = line.run(again=True, stop_after=1)
    line.runtime.ticker.sleep(60)
    resumed = line.run(again=True)

    assert interrupted.left_out
    assert resumed.ok
    assert line.generations() == {"c/a.txt": [0, 1], "c/b.txt": [0, 1]}
    assert any("resuming the second delivery" in note for note in line.notes)
    line.runtime.ticker.sleep(60)
    assert line.run(again=True).ok  # it was finished, so that this is a third one
    assert line.generations() == {"c/a.txt": [0, 1, 2], "c/b.txt": [0, 1, 2]}


def test_what_a_resumed_delivery_has_already_is_said(line: Line) -> None:
    """Trap: the note advised `--again`, with which the command was called."""
    for key in ("c/a.txt", "c/b.txt"):
        line.runtime.put(key)
    assert line.run().ok
    line.runtime.ticker.sleep(60)
    line.run(again=True, stop_after=1)
    line.runtime.ticker.sleep(60)
    assert line.run().ok
    line.notes.clear()

    resumed = line.run(again=True)

    assert [job.delivered_before for job in resumed.jobs] == [True, False]
    assert "skipped, because the resumed delivery has them already: 1 of 2" in line.notes[-1]


def test_hosts_with_other_clocks_continue_one_second_delivery(line: Line) -> None:
    keys = ["c/a.txt", "c/b.txt", "c/d.txt"]
    for key in keys:
        line.runtime.put(key)
    assert line.run().ok
    line.runtime.ticker.sleep(60)

    for ahead_seconds in (3_600, -3_600):
        line.set_clock(ahead_seconds)
        with line.ending_after(1):
            assert line.run(again=True).broken
        line.runtime.ticker.sleep(60)
    line.set_clock(0)
    assert line.run(again=True).ok

    assert line.generations() == {key: [0, 1] for key in keys}
    line.set_clock(-7_200)
    line.runtime.ticker.sleep(60)
    assert line.run(again=True).ok  # another one
    assert line.generations() == {key: [0, 1, 2] for key in keys}


def test_a_first_delivery_of_an_interrupted_again_is_not_repeated(line: Line) -> None:
    keys = ["c/a.txt", "c/b.txt", "c/d.txt"]
    for key in keys:
        line.runtime.put(key)

    for _ in range(2):
        with line.ending_after(1):
            assert line.run(again=True).broken
        line.runtime.ticker.sleep(60)
    assert line.run(again=True).ok

    assert line.generations() == {key: [0] for key in keys}


def test_again_starts_over_where_the_connector_was_changed_meanwhile(line: Line) -> None:
    for key in ("c/a.txt", "c/b.txt"):
        line.runtime.put(key)
    assert line.run().ok
    line.runtime.ticker.sleep(60)
    assert line.run(again=True, stop_after=1).left_out
    line.runtime.put_connector(producer__linger__ms="7")
    line.runtime.ticker.sleep(60)

    report = line.run(again=True)

    assert report.ok
    assert {(job.uri[-5:], job.state, job.revision) for job in report.jobs} == {
        ("a.txt", "DONE", 2),
        ("b.txt", "DONE", 2),
    }
    assert line.generations() == {"c/a.txt": [0, 2], "c/b.txt": [0, 1]}
    states = [job.state.value for job in line.runtime.memory.jobs.list() if job.generation == 1]
    assert sorted(states) == ["CANCELLED", "DONE"]


def test_the_open_job_of_a_replaced_or_deleted_object_is_ended_by_the_next_run(line: Line) -> None:
    half = {key: line.runtime.job(key, lines=2) for key in ("c/replaced.txt", "c/deleted.txt")}
    for job in half.values():
        line.runtime.memory.jobs.plan(job.id, count=2, cursor=8, complete=True, covered=8)
        line.runtime.run(job, 0)
    line.runtime.memory_store.put(BUCKET, "c/replaced.txt", b"new\n")
    line.runtime.memory_store.remove(BUCKET, "c/deleted.txt")

    report = line.run()

    states = {(job.uri, job.state, job.earlier) for job in report.jobs}
    assert states == {
        ("s3://shop/c/replaced.txt", "DONE", False),
        ("s3://shop/c/replaced.txt", "SUPERSEDED", True),
        ("s3://shop/c/deleted.txt", "FAILED", True),
    }
    assert {job.uri for job in report.jobs if not job.settled} == {"s3://shop/c/deleted.txt"}
    assert any("2 jobs of earlier runs included" in note for note in line.notes)
    again = line.run()
    assert again.ok
    assert not any(job.earlier for job in again.jobs)


@pytest.mark.parametrize("address", ["s3://shop/c/a.txt", "s3://shop/c/a*"])
def test_the_address_of_a_deleted_object_ends_its_open_job(line: Line, address: str) -> None:
    line.runtime.job("c/a.txt")
    line.runtime.memory_store.remove(BUCKET, "c/a.txt")

    report = line.run(address)

    assert [(job.uri, job.state, job.earlier) for job in report.jobs] == [
        ("s3://shop/c/a.txt", "FAILED", True)
    ]
    assert any("1 job of earlier runs included" in note for note in line.notes)
    with pytest.raises(Misconfigured, match="no object matches"):
        line.run(address)


def test_an_address_that_means_nothing_is_refused_before_the_others_run(line: Line) -> None:
    line.runtime.job("c/deleted.txt")
    line.runtime.memory_store.remove(BUCKET, "c/deleted.txt")
    line.runtime.put("c/a.txt")

    with pytest.raises(Misconfigured) as raised:
        line.run(*(f"s3://shop/c/{key}" for key in ("a.txt", "deleted.txt", "b.txt", "c.txt")))

    assert [problem.partition(";")[0] for problem in raised.value.problems] == [
        "no object matches s3://shop/c/b.txt",
        "no object matches s3://shop/c/c.txt",
    ]
    assert line.states() == ["PLANNING"]


@pytest.mark.parametrize("changed", [{"aws__s3__prefix": "new/"}, {"aws__s3__bucket__name": "new"}])
def test_open_jobs_that_the_connector_does_not_cover_any_more_are_reported(
    line: Line, changed: dict[str, str]
) -> None:
    job = line.runtime.job("c/a.txt")
    line.runtime.put_connector(**changed)
    line.runtime.memory_store.put("new", "c/x.txt", b"abc\n")
    line.runtime.put("new/x.txt")

    report = line.run()

    assert [one.uri for one in report.jobs] != ["s3://shop/c/a.txt"]
    assert report.ok
    (note,) = (note for note in line.notes if "left open" in note)
    assert "1 job of connector c left open" in note
    assert f"as s3://shop/c/a.txt: job {job.id}; `extentflow replay JOB` continues one" in note


def test_an_object_that_arrives_during_the_listing_is_not_called_replaced(line: Line) -> None:
    line.runtime.put("c/a.txt")
    arrived: list[Job] = []

    def arrive(name: str) -> None:
        if name == "jobs" and not arrived:
            line.runtime.memory.on_call = lambda _name: None
            arrived.append(line.runtime.job("c/b.txt"))

    line.runtime.memory.on_call = arrive

    report = line.run()

    assert [job.uri for job in report.jobs] == ["s3://shop/c/a.txt"]
    assert not any("earlier runs" in note for note in line.notes)
    assert line.runtime.states()["c/b.txt"] is JobState.PLANNING  # its planner's


def test_an_address_of_an_object_runs_no_job_of_a_directory_with_its_name(line: Line) -> None:
    line.runtime.put("c/a")
    line.runtime.job("c/a/b.txt")
    replaced = line.runtime.job("c/a/c.txt")
    line.runtime.put("c/a/c.txt", lines=2)

    report = line.run("s3://shop/c/a")

    assert [(job.uri, job.earlier) for job in report.jobs] == [("s3://shop/c/a", False)]
    assert line.runtime.memory.jobs.get(replaced.id) == replaced


def test_a_job_that_is_planned_between_two_lists_runs_once(line: Line) -> None:
    job = line.runtime.job("c/a.txt")
    line.runtime.memory_store.put(BUCKET, "c/a.txt", b"new\n")
    listed = count()

    def plan(name: str) -> None:
        if name == "jobs" and next(listed) == 1:
            line.runtime.memory.on_call = lambda _name: None
            steps = line.runtime.memory.jobs
            steps.plan(job.id, count=1, cursor=4, complete=True, covered=4)

    line.runtime.memory.on_call = plan

    report = line.run()

    assert [job.state for job in report.jobs] == ["SUPERSEDED", "DONE"]
    assert any("1 job of earlier runs included" in note for note in line.notes)


def test_a_run_of_one_address_reads_no_open_jobs_of_other_objects(line: Line) -> None:
    line.runtime.put("c/a.txt")
    for number in range(50):
        line.runtime.job(f"c/b/{number}.txt")
    read = line.runtime.asked({"job"})

    line.run("s3://shop/c/a.txt")

    assert len(read()) < 10


def test_a_format_that_content_shows_is_planned_stored_and_delivered(line: Line) -> None:
    stored = line.runtime.memory.connectors.get("c")
    assert stored is not None
    config = {name: text for name, text in stored.config.items() if name != "input.format"}
    line.runtime.memory.connectors.put("c", config)
    line.runtime.memory_store.put(BUCKET, "c/data", b'{"a": 1}\n{"a": 2}\n')
    line.runtime.memory_store.put(BUCKET, "c/pretty.json", b'{\n"a": 1}\n')
    line.runtime.memory_store.put(BUCKET, "c/lines.csv", b"a\n1\n")

    plans = open_runs(line.runtime).plan(line.runtime.order())
    report = line.run()

    said = {one.version.key: (one.format, one.format_source) for one in plans.objects}
    assert said == {
        "c/data": ("jsonl", "content"),
        "c/pretty.json": ("json", "content"),
        "c/lines.csv": ("csv", "extension .csv"),
    }
    assert [job.state for job in report.jobs] == [JobState.DONE] * 3
    assert {job.version.key: job.format for job in line.runtime.memory.jobs.list()} == {
        key: name for key, (name, _) in said.items()
    }


PARQUET = BytesIO()
pq.write_table(pa.table({"id": [1, 2], "t": ["a", "b"], "d": [1.5, 2.5]}), PARQUET)
FILTERED = {
    "transforms": "keep",
    "transforms__keep__type": "Filter",
    "transforms__keep__predicate": "large",
    "predicates": "large",
    "predicates__large__type": "Condition",
}


@pytest.mark.parametrize(
    ("name", "body", "connector", "problem"),
    [
        ("a.csv", b"id,t\n1,a\n", {"message__key": "column:x"}, "there is no column 'x'"),
        ("a.csv", b"id,id\n1,2\n", {}, "the header names 'id' more than once"),
        ("a.csv", b"id,t\n1,a,b\n", {}, "bad record at offset 5: expected 2 fields, got 3"),
        ("a.csv", b"id\n1\n", {"headers": "h=column:x"}, "there is no column 'x'"),
        (
            "a.txt",
            b"x" * 1_000_001 + b"\n",
            {},
            "bytes is too large for the topic: max.message.bytes of topic records is 1000000",
        ),
        (
            "a.jsonl",
            b'{"n": [1, 2], "data": {"items": [' + b"1, " * 400_000 + b"1]}}",
            {},
            "1000000; raise it, or set input.format=json and json.records.path=data.items: each",
        ),
        (
            "a.json",
            b'{"data":\n {"items": [' + b"1, " * 400_000 + b"1]}}",
            {},
            "1000000; raise it, or set json.records.path=data.items: each element becomes a record",
        ),
        (
            "a.csv",
            b"id,t\n2,2030-01-01T00:00:00Z\n",
            {"message__timestamp": "column:t"},
            "offset 5: timestamp 2030-01-01T00:00:00.000Z is .* .message.timestamp.after.max.ms=36",
        ),
        ("a.csv", b"id\n1\n", {"select": "x"}, "there is no column 'x'"),
        (
            "a.csv",
            b"id\n1\n",
            {**FILTERED, "predicates__large__condition": "id > 5"},
            "transforms.keep .Filter.: column id has type string",
        ),
        (
            "a.csv",
            b"id\n1\n",
            {"transforms": "m", "transforms__m__type": "MaskField", "transforms__m__fields": "x"},
            "transforms.m .MaskField.: there is no column 'x'",
        ),
        ("a.jsonl", b'{"id": 1}\n', {"message__key": "column:x"}, "there is no member 'x'"),
        ("a.jsonl", b"{id: 1}\n", {}, "bad record at offset 0: not one JSON value"),
        ("a.json", b'[{"id": 1}]', {"message__key": "column:x"}, "there is no member 'x'"),
        ("a.txt", b"caf\xe9\n", {}, "not UTF-8: .* set character.set"),
        (
            "a.parquet",
            PARQUET.getvalue(),
            {"message__key": "column:x"},
            "there is no column 'x'",
        ),
        (
            "a.parquet",
            PARQUET.getvalue(),
            {"message__timestamp": "column:d"},
            "message.timestamp=column:d: double is no instant",
        ),
        (
            "a.parquet",
            PARQUET.getvalue(),
            {"message__partition": "column:d"},
            "message.partition=column:d: double is no integer",
        ),
    ],
)
def test_a_plan_reports_what_delivery_would_meet_at_the_first_records(
    line: Line, name: str, body: bytes, connector: dict[str, str], problem: str
) -> None:
    line.put_connector(**connector)
    line.runtime.memory_store.put(BUCKET, f"c/{name}", body)

    plans = open_runs(line.runtime).plan(line.runtime.order())
    written = line.states()
    try:
        errors = list(line.run().errors)
    except Misconfigured as exc:  # columns are checked before a job is registered
        errors = list(exc.problems)

    assert written == []
    assert plans.objects == ()
    (said,) = plans.problems
    assert re.search(problem, said)
    assert said.startswith(f"s3://{BUCKET}/c/{name}")
    assert errors == [said]


COLUMNAR = {"columnar__encoding": "parquet"}
ENCRYPTED = {
    **COLUMNAR,
    "columnar__encryption__columns": "nosuch",
    "columnar__encryption__key": "one",
    "columnar__encryption__key__list": "${env:MASTER_KEYS}",
}


@pytest.fixture
def new_topic(line: Line, monkeypatch: pytest.MonkeyPatch) -> Line:
    """A line with a Parquet object, and without its topic."""
    monkeypatch.setenv("MASTER_KEYS", "one:" + b64encode(bytes(16)).decode())
    line.runtime.memory_store.put(BUCKET, "c/a.parquet", PARQUET.getvalue())
    line.runtime.cluster.delete_topic(TOPIC)
    return line


@pytest.mark.parametrize(
    ("connector", "topics", "problem"),
    [
        ({**COLUMNAR, "columnar__groups": "a: x; r: *"}, {}, "there is no column x, only id, t, d"),
        (ENCRYPTED, {}, "columns: there is no column nosuch, only id, t, d"),
        ({**ENCRYPTED, "columnar__encryption__key": "two"}, {}, "has no key of that id"),
        (COLUMNAR, {"cleanup.policy": "compact"}, "topic records is compacted"),
    ],
)
def test_a_run_that_can_deliver_nothing_creates_no_topic_and_no_job(
    new_topic: Line, connector: dict[str, str], topics: dict[str, str], problem: str
) -> None:
    new_topic.put_connector(**connector)

    with pytest.raises(Misconfigured, match=problem):
        new_topic.run(topics=NewTopics(1, config=topics))

    assert new_topic.states() == []
    assert new_topic.runtime.cluster.missing_topics([TOPIC]) == [TOPIC]


def test_a_run_whose_schema_contradicts_that_of_its_topic_creates_no_job(
    line: Line, golden: Golden
) -> None:
    line.put_connector(**COLUMNAR)
    line.runtime.schemas.settle(TOPIC, pa.schema([("id", pa.string())]))
    line.runtime.memory_store.put(BUCKET, "c/a.parquet", PARQUET.getvalue())

    with golden.raises(Misconfigured, match=f"/c/a.parquet.*topic {TOPIC}.*column id"):
        line.run()

    assert line.states() == []


def test_a_run_delivers_the_objects_whose_columns_are_right(new_topic: Line) -> None:
    new_topic.put_connector(**{**ENCRYPTED, "columnar__encryption__columns": "more"})
    more = BytesIO()
    pq.write_table(pa.table({"id": [1], "more": ["a"]}), more)
    new_topic.runtime.memory_store.put(BUCKET, "c/b.parquet", more.getvalue())

    report = new_topic.run(topics=NewTopics(1))

    assert new_topic.states() == ["FAILED", "DONE"]
    assert "there is no column more" in report.errors[0]


def test_a_plan_reports_a_missing_topic_once_and_as_delivery_would(line: Line) -> None:
    line.put_connector(errors__tolerance="all", errors__deadletterqueue__topic__name="dead")
    for name in ("a.txt", "b.txt"):
        line.runtime.put(f"c/{name}")

    plans = open_runs(line.runtime).plan(line.runtime.order())
    with pytest.raises(Misconfigured) as raised:
        line.run()

    assert plans.problems == raised.value.problems == ("topic dead does not exist",)
    assert [one.version.key for one in plans.objects] == ["c/a.txt", "c/b.txt"]
    assert line.runtime.cluster.ensured == 1  # by the run: a plan creates nothing


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("_delta_log/00000000000000000001.json", "Delta Lake"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("day=1/.hoodie_partition_metadata", "Hudi"),
        ("metadata/v2.metadata.json", "Iceberg"),
        ("metadata/v2.json", None),
    ],
)
def test_a_run_notes_that_objects_are_files_of_a_table(
    line: Line, file: str, kind: str | None
) -> None:
    for name in ("c/part-1.txt", f"c/{file}"):
        line.runtime.memory_store.put(BUCKET, name, b"{}\n")

    assert line.run().ok

    found = [note for note in line.notes if "is part of a table" in note]
    assert len(found) == (0 if kind is None else 1)
    assert all(f"c/{file} is part of a table of {kind}: " in note for note in found)


def test_a_plan_notes_once_that_a_topic_deletes_old_records(line: Line, golden: Golden) -> None:
    line.put_connector(message__timestamp="column:t")
    line.runtime.cluster.create_topic(TOPIC, config={"retention.ms": "300000"})
    body = b"id,t\n1,1000\n2,2000\n3,999000\n"
    for name in ("a.csv", "b.csv"):
        line.runtime.memory_store.put(BUCKET, f"c/{name}", body)

    plans = open_runs(line.runtime, RunControl(notify=line.notes.append)).plan(line.runtime.order())

    assert len(plans.objects) == 2
    assert plans.problems == ()
    (note,) = [one for one in line.notes if "retention.ms" in one]
    assert "2 of 3 timestamps" in note
    golden(note)


ROUTED = {
    "transforms": "route",
    "transforms__route__type": "ExtractTopic",
    "transforms__route__field": "to",
    "transforms__route__topics": "de,fr",
}


def test_a_plan_reports_a_missing_topic_that_only_values_name(line: Line) -> None:
    line.put_connector(**ROUTED)
    line.runtime.cluster.create_topic("de")
    line.runtime.memory_store.put(BUCKET, "c/a.csv", b"id,to\n1,de\n")

    plans = open_runs(line.runtime).plan(line.runtime.order())
    with pytest.raises(Misconfigured) as raised:
        line.run()

    assert plans.problems == raised.value.problems == ("topic fr does not exist",)
    assert [one.topic for one in plans.objects] == [TOPIC]
    assert line.states() == []


def test_a_plan_reports_a_first_record_whose_value_names_another_topic(
    line: Line, golden: Golden
) -> None:
    line.put_connector(**ROUTED)
    for topic in ("de", "fr"):
        line.runtime.cluster.create_topic(topic, 1)
    store = line.runtime.memory_store
    store.put(BUCKET, "c/a.csv", b"id,to\n1,de\n2,fr\n")
    store.put(BUCKET, "c/b.csv", b"id,to\n3,es\n")
    store.put(BUCKET, "c/c.csv", b"id,from\n4,de\n")

    plans = open_runs(line.runtime).plan(line.runtime.order())
    report = line.run()

    assert [one.version.key for one in plans.objects] == ["c/a.csv"]
    unlisted, missing = plans.problems
    assert unlisted.startswith(f"s3://{BUCKET}/c/b.csv")
    golden(unlisted)
    assert "transforms.route" in unlisted
    assert missing.startswith(f"s3://{BUCKET}/c/c.csv")
    golden(missing)
    assert "transforms.route" in missing
    assert set(report.errors) == {unlisted, missing}
    read = line.runtime.cluster.read_committed
    assert [record.value for record in read("de")] == [b'{"id":"1","to":"de"}']
    assert [record.value for record in read("fr")] == [b'{"id":"2","to":"fr"}']


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("sasl__password", "${file:/nowhere/kafka.properties:password}"),
        ("sasl__password", "${env:NO_SUCH_VARIABLE}"),
    ],
)
def test_a_missing_secret_of_the_producer_leaves_no_job(line: Line, key: str, text: str) -> None:
    line.put_connector(**{f"producer__{key}": text})
    line.runtime.put()

    with pytest.raises(Misconfigured) as refused:
        line.run()
    (problem,) = open_runs(line.runtime).plan(line.runtime.order()).problems
    findings = {one.check: one for one in line.checks()}

    assert refused.value.problems == (problem,)
    assert problem.startswith(f"producer.{key.replace('__', '.')}={text}: ")
    assert findings["producer settings"].verdict == "problem"
    assert line.states() == []
    line.put_connector()
    assert line.run().ok


def test_doctor_reads_the_secrets_of_a_format(
    line: Line, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """Trap: doctor found nothing, and the first run that the key of its files is missing."""
    line.put_connector(
        input__format="parquet", parquet__encryption__footer__key="${env:KEY_OF_FILES}"
    )

    missing = {one.check: one for one in line.checks()}
    monkeypatch.setenv("KEY_OF_FILES", "hidden")
    there = {one.check: one for one in line.checks()}

    check = "secrets of parquet"
    assert missing[check].verdict == "problem"
    assert "parquet.encryption.footer.key=${env:KEY_OF_FILES}" in missing[check].fact
    assert there[check].verdict == "ok"
    golden(there[check].fact)
    assert "parquet.encryption.footer.key" in there[check].fact


def test_a_plan_accepts_bad_records_that_delivery_would_set_aside(line: Line) -> None:
    line.runtime.cluster.create_topic("dead")
    line.put_connector(errors__tolerance="all", errors__deadletterqueue__topic__name="dead")
    line.runtime.memory_store.put(BUCKET, "c/a.csv", b"id,t\n1,a,b\n")

    assert open_runs(line.runtime).plan(line.runtime.order()).problems == ()


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt", "a.parquet", "a.orc", "a.arrow"])
def test_a_plan_reads_little_of_an_object(line: Line, name: str) -> None:
    table, columns = (
        BytesIO(),
        pa.table({"n": np.random.default_rng(1).integers(0, 1 << 62, 1_000_000)}),
    )
    if name == "a.parquet":
        pq.write_table(columns, table, compression="none", use_dictionary=False)
    elif name == "a.orc":
        orc.write_table(columns, table)
    elif name == "a.arrow":
        with pa.ipc.new_file(table, columns.schema) as writer:
            writer.write_table(columns)
    body = table.getvalue() or b"1234567\n" * 1_000_000
    line.put_connector(message__key="object")
    line.runtime.memory_store.put(BUCKET, f"c/{name}", body)

    plans = open_runs(line.runtime).plan(line.runtime.order())

    assert plans.problems == ()
    assert line.runtime.memory_store.fetched_bytes < 1_200_000 < len(body)


def test_a_compression_that_content_shows_is_planned_stored_and_delivered(
    line: Line, golden: Golden
) -> None:
    stored = line.runtime.memory.connectors.get("c")
    assert stored is not None
    store, config = line.runtime.memory_store, {**stored.config, "input.format": "csv"}
    store.put(BUCKET, "c/plain", b"a\n1\n")
    store.put(BUCKET, "c/packed", gzip.compress(b"a\n2\n"))
    store.put(BUCKET, "c/named.csv", gzip.compress(b"a\n3\n"))
    line.runtime.memory.connectors.put("c", config)

    trusted = line.run()
    line.runtime.memory.connectors.put("c", {**config, "file.compression.type": "content"})
    plans = open_runs(line.runtime).plan(line.runtime.order())
    report = line.run(again=True)

    memory = line.runtime.memory
    (refused,) = [job for job in trusted.jobs if job.state != JobState.DONE]
    why = next(item.error for item in memory.extents.list(refused.job))
    golden(why)
    assert "c/named.csv" in why
    assert "file.compression.type=gzip" in why
    said = {one.version.key: (one.compression, one.compression_source) for one in plans.objects}
    assert said == {
        "c/plain": ("none", "content"),
        "c/packed": ("gzip", "content"),
        "c/named.csv": ("gzip", "content"),
    }
    assert [job.state for job in report.jobs] == [JobState.DONE] * 3
    assert {
        job.version.key: job.plan.compression for job in memory.jobs.list() if job.generation
    } == {key: name for key, (name, _) in said.items()}


def test_inferred_types_are_planned_stored_and_the_same_in_all_extents(line: Line) -> None:
    line.runtime.put_connector(
        input__format="csv",
        csv__schema="infer",
        extent__bytes="200000",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name="dead",
    )
    line.runtime.cluster.create_topic("dead", 1)
    rows = [f"{number},{number}.50\n" for number in range(200_000)]
    rows[80_000] = "late,1.50\n"  # in none of the samples
    body = ("id,price\n" + "".join(rows)).encode()
    line.runtime.memory_store.put(BUCKET, "c/a.csv", body)

    plans = open_runs(line.runtime).plan(line.runtime.order())
    report = line.run()

    (planned,), (job,) = plans.objects, line.runtime.memory.jobs.list()
    assert planned.facts == job.plan.facts == "id:int64,price:decimal(38,2)"
    assert [one.state for one in report.jobs] == [JobState.DONE]
    assert len(planned.extents) > 10
    assert [(one.records, one.bad) for one in report.jobs] == [(199_999, 1)]


def test_columns_of_documents_are_planned_and_become_keys_and_values(line: Line) -> None:
    line.runtime.put_connector(
        input__format="jsonl",
        jsonl__schema="infer",
        extent__bytes="200000",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name="dead",
        message__key="column:at.id",
        select="at,total",
    )
    line.runtime.cluster.create_topic("dead", 1)
    rows = [f'{{"at":{{"id":{one},"on":"2026-01-31"}},"total":1.5}}\n' for one in range(40_000)]
    rows[15_000] = '{"at":{"id":"late"}}\n'  # in none of the samples
    line.runtime.memory_store.put(BUCKET, "c/a.jsonl", "".join(rows).encode())

    plans = open_runs(line.runtime).plan(line.runtime.order())
    report = line.run()

    (planned,), (job,) = plans.objects, line.runtime.memory.jobs.list()
    assert planned.facts == job.plan.facts == "at:struct<id:int64,on:date>,total:float64"
    assert len(planned.extents) > 5
    assert [(one.state, one.records, one.bad) for one in report.jobs] == [
        (JobState.DONE, 39_999, 1)
    ]
    first = line.runtime.cluster.read_committed("records")[0]
    assert (first.key, first.value) == (b"0", b'{"at":{"id":0,"on":"2026-01-31"},"total":1.5}')


def test_a_job_keeps_the_types_that_its_first_planner_found(line: Line) -> None:
    line.runtime.put_connector(input__format="csv", csv__schema="infer")
    store = line.runtime.memory_store
    version = store.put(BUCKET, "c/a.csv", b"id\n1\n")
    config, revision = line.runtime.connectors.latest("c")
    request = line.runtime.requests.make(config, revision, version, 1)
    registered = line.runtime.planner().register(request)
    store.asked.clear()

    again = line.runtime.planner().register(request)

    assert again == registered
    assert again.plan.facts == "id:int64"
    assert not store.asked  # listings find objects again and again


def test_an_object_whose_types_cannot_be_found_is_a_failed_job_with_the_reason(line: Line) -> None:
    line.runtime.put_connector(input__format="csv", csv__schema="infer")
    line.runtime.memory_store.put(BUCKET, "c/a.csv", b"id,id\n1,2\n")

    report = line.run()

    (job,) = report.jobs
    assert job.state == JobState.FAILED
    assert "csv.header.duplicates=rename" in job.reason


_CHANCE = random.Random(1)
ROWS = "id,text\n" + "".join(f'{n},"a\n{_CHANCE.getrandbits(96):x}"\n' for n in range(30_000))


@pytest.mark.parametrize(
    ("name", "body", "compression", "reads"),
    [
        ("a.csv.bz2", bz2.compress(ROWS.encode(), 1), "bzip2-blocks", 0),
        ("a.csv.zst", in_frames(ROWS.encode()), "zstd-seekable", 1),
        ("a.csv.zst", zstandard.compress(ROWS.encode()), "zstd", 1),
    ],
)
def test_compressed_objects_are_cut_where_that_is_possible(
    line: Line, name: str, body: bytes, compression: str, reads: int
) -> None:
    line.runtime.put_connector(input__format="csv", extent__bytes="70000")
    store = line.runtime.memory_store
    version = store.put(BUCKET, f"c/{name}", body)
    config, revision = line.runtime.connectors.latest("c")
    store.asked.clear()

    line.runtime.requests.recognised(config, revision, version)

    assert len(store.asked) == reads
    (planned,) = open_runs(line.runtime).plan(line.runtime.order()).objects
    is_cut = compression != "zstd"
    assert planned.compression == compression
    assert (len(planned.extents) > 3) == is_cut
    report = line.run()
    (job,) = line.runtime.memory.jobs.list()
    assert job.plan.compression == (compression if is_cut else "")
    assert [(one.state, one.records, one.bad) for one in report.jobs] == [("DONE", 30_000, 0)]
    assert job.plan.count == len(planned.extents)


@pytest.mark.parametrize("name", ["a.csv.bz2", "a.csv.zst"])
def test_compressed_objects_have_one_extent_if_the_connector_says_so(line: Line, name: str) -> None:
    body = bz2.compress(ROWS.encode()) if "bz2" in name else in_frames(ROWS.encode())
    line.runtime.put_connector(
        input__format="csv", extent__bytes="70000", file__compression__split="false"
    )
    line.runtime.memory_store.put(BUCKET, f"c/{name}", body)

    report = line.run()

    (job,) = line.runtime.memory.jobs.list()
    assert (job.plan.count, job.plan.compression) == (1, "")
    assert [(one.state, one.records) for one in report.jobs] == [("DONE", 30_000)]


def test_a_seek_table_that_contradicts_its_object_is_a_failed_job_with_the_reason(
    line: Line,
) -> None:
    line.runtime.put_connector(input__format="csv", extent__bytes="70000")
    line.runtime.memory_store.put(BUCKET, "c/a.csv.zst", 2 * in_frames(ROWS.encode()))

    report = line.run()

    (job,) = report.jobs
    assert job.state == JobState.FAILED
    assert "zstd: the seek table states" in job.reason
    assert "set file.compression.split=false" in job.reason


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        (b"x,y\n" * 100, 1),
        (gzip.compress(random.Random(1).randbytes(500), mtime=0), 1),
        (bgzf(b"x,y\n" * 100, lambda: 4)[0], 2),
    ],
)
def test_content_costs_one_request_and_for_bgzf_another(
    line: Line, body: bytes, reads: int
) -> None:
    line.runtime.put_connector(input__format="csv")
    store = line.runtime.memory_store
    version = store.put(BUCKET, "c/part-0", body)
    config, revision = line.runtime.connectors.latest("c")
    store.asked.clear()

    for _ in range(2):
        line.runtime.requests.recognised(config, revision, version)

    assert [(one.operation, one.key) for one in store.asked] == [("read", "c/part-0")] * reads


def test_objects_that_were_delivered_need_no_request_no_write_and_no_engine(
    line: Line, golden: Golden
) -> None:
    names = [f"c/{number}.txt" for number in range(5)]
    for name in names:
        line.runtime.put(name)
    assert line.run().ok
    line.open_engine = lambda *_args, **_words: pytest.fail("an engine was opened")
    line.runtime.memory_store.asked.clear()
    called: list[str] = []
    line.runtime.memory.on_call = called.append

    report = line.run()

    assert report.ok
    assert [(job.state, job.records, job.delivered_before) for job in report.jobs] == [
        ("DONE", 1, True)
    ] * len(names)
    assert not [asked for asked in line.runtime.memory_store.asked if asked.operation == "head"]
    assert not {"register", "close", "resume", "plan", "progress"} & {*called}
    golden(line.notes[-1])


def test_only_new_and_replaced_objects_are_requested_beside_delivered_ones(line: Line) -> None:
    for name in ("c/a.txt", "c/b.txt"):
        line.runtime.put(name)
    assert line.run().ok
    line.runtime.put("c/new.txt")
    line.runtime.put("c/b.txt", lines=2)
    line.runtime.memory_store.asked.clear()

    report = line.run()

    assert report.ok
    before = {job.uri.rpartition("/")[2]: job.delivered_before for job in report.jobs}
    assert before == {"a.txt": True, "b.txt": False, "new.txt": False}
    heads = [asked for asked in line.runtime.memory_store.asked if asked.operation == "head"]
    assert len(heads) == 2


def test_an_interrupted_second_delivery_is_continued_by_a_plain_run(line: Line) -> None:
    for name in ("c/a.txt", "c/b.txt"):
        line.runtime.put(name)
    assert line.run().ok
    line.runtime.ticker.sleep(60)
    with line.ending_after(1):
        assert line.run(again=True).broken

    report = line.run()

    assert report.ok
    assert line.generations() == {"c/a.txt": [0, 1], "c/b.txt": [0, 1]}


def test_the_small_object_of_an_interrupted_again_is_not_delivered_a_third_time(
    line: Line,
) -> None:
    """The printed advice, the same command again, doubles nothing."""
    line.runtime.put("c/small.txt")
    line.runtime.put("c/large.txt", lines=8)
    assert line.run().ok
    line.runtime.ticker.sleep(60)
    with line.ending_after(9):  # the large one comes first
        line.run(again=True)
    before = len(line.runtime.cluster.read_committed(TOPIC))

    line.run(again=True)
    line.run()

    assert before == 9 + 9
    assert line.generations() == {"c/large.txt": [0, 1], "c/small.txt": [0, 1]}


def test_links_that_a_listing_leaves_out_are_counted_with_an_example(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"abc\n")
    (tmp_path / "a.txt").symlink_to("b.txt")
    (tmp_path / "c.txt").hardlink_to(tmp_path / "b.txt")
    runtime, notes = MemoryRuntime(), list[str]()
    runtime.reads = LocalStore(StoreOptions())
    made = make_connector([str(tmp_path)], TOPIC, {"input.format": "text"})
    order = open_orders(runtime).store(made, save=False, notify=notes.append)

    plans = open_runs(runtime, RunControl(notify=notes.append)).plan(order)

    assert [one.version.key for one in plans.objects] == ["b.txt"]
    (line,) = [note for note in notes if "links" in note]
    assert "2 names" in line
    assert f"file://{tmp_path}/a.txt" in line
