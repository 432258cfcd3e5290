"""The command line on real servers: errors, remedies, tables and JSON."""

import gzip
import json
import os
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.conftest import MakeTopic
from tests.support.delivery import PROGRAM, Delivery, joined, numbered_lines
from tests.support.real import Crash, at, crash, run_here, take_over, the_job
from tests.support.waiting import eventually

from extentflow.cli import app, run_command_line
from extentflow.kafka import ProducerSettings, SlotProgress
from extentflow.model import Job
from extentflow.services.composition import open_orders, open_runs
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

LINES = numbered_lines("line ", 2_000)
ODD_KEYS = ("a b.txt", "a+b.txt", "a%2Fb.txt", "ümläut ☃.txt", "star*.txt", "[1]?.txt", "#&=.txt")


@dataclass(frozen=True)
class Said:
    """What a command ended with."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines of standard error, all of which are errors."""
        lines = self.err.splitlines()
        assert all(line.startswith("error: ") for line in lines), self.err
        return [line.removeprefix("error: ") for line in lines]

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever JSON can say
        """Standard output, which is one JSON document and nothing else."""
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Commands of this process (`say`), or of one of their own (`run`)."""

    delivery: Delivery
    directory: Path
    monkeypatch: pytest.MonkeyPatch
    captured: pytest.CaptureFixture[str]

    def say(self, *words: str, **settings: str) -> Said:
        """Run a command; `settings` are worker settings, dots written as underscores."""
        changes = {f"EXTENTFLOW_{name.upper()}": text for name, text in settings.items()}
        with self.monkeypatch.context() as patch:
            patch.chdir(self.directory)
            for name, text in {**self._settings(), **changes}.items():
                patch.setenv(name, text)
            self.captured.readouterr()
            code = run_command_line(app, words)
        return Said(code, *self.captured.readouterr())

    def run(self, *words: str) -> Said:
        """Run a command as a process."""
        ended = subprocess.run(
            [str(PROGRAM), *words],
            env={**os.environ, **self._settings()},
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(ended.returncode, ended.stdout, ended.stderr)

    def written(self, **changes: str | None) -> str:
        """Write a connector's file; dots are written as two underscores, None leaves a key out."""
        config: dict[str, str | None] = {
            "name": self.delivery.connector_name,
            "topic": self.delivery.topic,
            "aws.s3.bucket.name": self.delivery.bucket,
            "aws.s3.prefix": self.delivery.prefix,
            "aws.s3.endpoint": self.delivery.stack.endpoint("s3"),
            **{key.replace("__", "."): text for key, text in changes.items()},
        }
        path = self.directory / "connector.json"
        kept = {key: text for key, text in config.items() if text is not None}
        path.write_text(json.dumps(kept), encoding="utf-8")
        return str(path)

    def put(self, **changes: str | None) -> None:
        """Store the connector."""
        assert self.say("connectors", "put", self.written(**changes)).code == 0

    @property
    def jobs(self) -> list[Job]:
        """What is registered for the connector."""
        return list(self.delivery.runtime.ledger.jobs.list(self.delivery.connector_name))

    @property
    def stored(self) -> bool:
        """Whether the connector is listed."""
        listed = self.say("connectors", "list", "--json").json
        return any(each["name"] == self.delivery.connector_name for each in listed)

    @property
    def connector(self) -> tuple[str, str]:
        return "--connector", self.delivery.connector_name

    def _settings(self) -> Mapping[str, str]:
        ours = self.delivery.environment
        return {name: text for name, text in ours.items() if name.startswith("EXTENTFLOW_")}


@pytest.fixture(scope="module")
def shared_table() -> str:
    """One ledger for tests that look at their own connector's jobs only."""
    return f"shared-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def delivery(stack: Stack, s3: "S3Client", bucket: str, unique: str, shared_table: str) -> Delivery:
    changes = {"retry_timeout_seconds": 1.0, "ledger_table": shared_table}
    made = Delivery(stack, s3, bucket, unique, changes)
    assert made.runtime.ledger.id
    return made


@pytest.fixture
def line(
    delivery: Delivery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    return CommandLine(delivery, tmp_path, monkeypatch, capsys)


@pytest.fixture
def alone(line: CommandLine) -> CommandLine:
    """A command line with a ledger of its own."""
    changes = {**line.delivery.changes, "ledger_table": f"own-{line.delivery.name}"}
    own = replace(line.delivery, changes=changes)
    assert own.runtime.ledger.id
    return replace(line, delivery=own)


# -- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named", "remedy"),
    [
        pytest.param(
            {"aws__s3__bucket__name": "no-such-bucket"},
            ["s3://no-such-bucket"],
            "correct aws.s3.bucket.name",
            id="bucket",
        ),
        pytest.param(
            {
                "topic": "no-such-topic",
                "errors__tolerance": "all",
                "errors__deadletterqueue__topic__name": "no-such-queue",
            },
            ["topic no-such-queue", "topic no-such-topic"],
            "--create-topic partitions=8",
            id="topics",
        ),
        pytest.param(
            {
                "aws__access__key__id": "extentflow",
                "aws__secret__access__key": "${env:A_WRONG_SECRET}",
            },
            ["403"],
            "allow s3:GetObject",
            id="permission",
        ),
        pytest.param(
            {
                "aws__access__key__id": "extentflow",
                "aws__secret__access__key": "${env:NO_SUCH_VARIABLE}",
            },
            ["${env:NO_SUCH_VARIABLE}"],
            "is not set",
            id="secret",
        ),
        pytest.param(
            {"input__format": None, "aws__s3__prefix": None},
            ["noextension"],
            "set input.format",
            id="format",
        ),
    ],
)
def test_a_missing_part_of_a_connector_is_one_line_and_starts_nothing(
    line: CommandLine, change: dict[str, str | None], named: list[str], remedy: str
) -> None:
    key = line.delivery.put("noextension", joined(LINES))
    line.monkeypatch.setenv("A_WRONG_SECRET", "wrong")
    address = f"s3://{line.delivery.bucket}/{key}"

    stored = line.say("connectors", "put", line.written(**{"input__format": "text", **change}))
    refused = stored.code != 0
    said = stored if refused else line.say("run", address, *line.connector, "--engine", "inline")

    assert refused is ("aws__s3__bucket__name" in change)
    assert said.code == 2
    assert len(said.errors) == len(named)
    for error, name in zip(said.errors, named, strict=True):
        assert name in error
        assert remedy in error
    assert line.jobs == []


def test_compacted_topics_are_rejected_before_a_record_without_a_key_is(
    line: CommandLine, make_topic: MakeTopic
) -> None:
    policy = {"cleanup.policy": "compact,delete"}
    topic, queue = make_topic("compacted", config=policy), make_topic("queue", config=policy)
    line.delivery.put("x.txt", joined(LINES))
    line.put(topic=topic, errors__tolerance="all", errors__deadletterqueue__topic__name=queue)

    said = line.say("run", *line.connector, "--engine", "inline")

    assert said.code == 2
    assert len(said.errors) == 2
    for error, name in zip(said.errors, (queue, topic), strict=True):
        assert name in error
        assert "is compacted" in error
    assert line.jobs == []


@pytest.mark.parametrize(
    ("words", "settings", "named"),
    [
        (["run", "s3://{bucket}/{prefix}none.txt"], {}, "s3://{bucket}/{prefix}none.txt"),
        pytest.param(
            ["run", "s3://{bucket}/{prefix}none/"],
            {},
            "s3://{bucket}/{prefix}none/",
            marks=pytest.mark.variant,
        ),
        (["run", "s3://{bucket}/{prefix}n*.txt"], {}, "s3://{bucket}/{prefix}n*.txt"),
        (["run", "s3://elsewhere/x.txt"], {}, "s3://elsewhere/x.txt is not in bucket {bucket}"),
        pytest.param(
            ["run", "x.txt"], {}, "x.txt is not in bucket {bucket}", marks=pytest.mark.variant
        ),
        (["run"], {"ledger_table": "no-such-table"}, "table no-such-table"),
        pytest.param(
            ["run", "--engine", "lambda"], {}, "--engine lambda", marks=pytest.mark.variant
        ),
        pytest.param(
            ["run", "--engine", "inline", "--master", "local"],
            {},
            "--master goes with",
            marks=pytest.mark.variant,
        ),
        (["run", "--engine", "emr"], {}, "EXTENTFLOW_SPARK_APPLICATION_ID"),
        (["run"], {"lease_seconds": "soon"}, "EXTENTFLOW_LEASE_SECONDS"),
    ],
    ids=str,
)
def test_a_missing_prerequisite_is_one_line_and_starts_nothing(
    line: CommandLine, words: Sequence[str], settings: dict[str, str], named: str
) -> None:
    line.delivery.put("x.txt", joined(LINES))
    line.put()
    place = {"bucket": line.delivery.bucket, "prefix": line.delivery.prefix}

    said = line.say(*(word.format(**place) for word in words), *line.connector, **settings)

    (error,) = said.errors
    assert (said.code, said.out) == (2, "")
    assert named.format(**place) in error
    assert line.jobs == []


@pytest.mark.parametrize(
    "words",
    [
        ["run", "-c", "absent"],
        ["plan", "-c", "absent"],
        ["connectors", "show", "absent"],
        ["connectors", "show", "absent", "--revision", "7"],
        ["connectors", "delete", "absent"],
        ["status", "absent"],
        ["replay", "absent"],
        ["status", "--state", "absent"],
    ],
    ids=" ".join,
)
def test_an_unknown_connector_or_job_is_named(line: CommandLine, words: list[str]) -> None:
    said = line.say(*words)

    (error,) = said.errors
    assert (said.code, said.out) == (2, "")
    assert "absent" in error


def test_a_malformed_connector_is_rejected_with_all_its_problems(
    line: CommandLine,
) -> None:
    file = line.written(
        topic=None,
        tpic="records",
        input__format="cvs",
        producer__linger__ms="soon",
        producer__acks="0",
        errors__tolerance="all",
    )

    said = line.say("connectors", "put", file)

    assert said.code == 2
    assert {error.split(":")[0].split("=")[0] for error in said.errors} == {
        "topic",
        "tpic",
        "input.format",
        "producer.linger.ms",
        "producer.acks",
        "errors.deadletterqueue.topic.name",
    }
    assert not line.stored


def test_a_wrong_producer_setting_is_found_before_it_is_stored(line: CommandLine) -> None:
    said = line.say("connectors", "put", line.written(producer__max__in__flight="10"))

    (error,) = said.errors
    assert said.code == 2
    assert "max.in.flight" in error
    assert not line.stored


def test_trap_t19_a_connector_without_objects_has_nothing_to_do(line: CommandLine) -> None:
    line.put()

    said = line.say("run", *line.connector, "--engine", "inline", "--json")

    assert (said.code, said.json["ok"], said.json["jobs"]) == (0, True, [])
    assert line.say("plan", *line.connector, "--json").json == []


# -- connectors -----------------------------------------------------------------------------------


def test_a_connectors_life(line: CommandLine) -> None:
    name = line.delivery.connector_name
    assert line.say("connectors", "put", line.written(), "--json").json["revision"] == 1
    assert line.say("connectors", "put", line.written(), "--json").json["revision"] == 1
    changed = line.written(input__format="text")
    assert line.say("connectors", "put", changed, "--json").json["revision"] == 2

    listed = line.say("connectors", "list", "--json").json
    shown = line.say("connectors", "show", name, "--json").json
    old = line.say("connectors", "show", name, "--revision", "1", "--json").json
    assert shown in listed
    assert (shown["revision"], shown["config"]["input.format"]) == (2, "text")
    assert shown["state"] == "ENABLED"
    assert (old["revision"], "input.format" in old["config"]) == (1, False)
    assert "input.format=text\n" in line.say("connectors", "show", name).out
    table = line.say("connectors", "list").out
    assert name in table
    assert line.delivery.address in table

    assert line.say("connectors", "delete", name, "--json").json["deleted"] is True
    assert not line.stored
    assert line.say("run", *line.connector).code == 2
    assert line.say("connectors", "delete", name).code == 2


def test_objects_that_two_connectors_deliver_to_a_topic_are_reported(line: CommandLine) -> None:
    line.put()
    name = line.delivery.connector_name

    nested = f"{line.delivery.prefix}in/"
    inside = line.written(name=f"{name}-in", aws__s3__prefix=nested)
    overlaps = line.say("connectors", "put", inside)
    apart = line.say("connectors", "put", line.written(name=f"{name}-other", topic="other"))

    assert (overlaps.code, apart.code) == (0, 0)
    assert overlaps.err == (
        f"note: connector {name} reads {line.delivery.address} into the same topic: objects that "
        "both read are delivered twice\n"
    )
    assert apart.err == ""


def test_the_state_of_a_connector_is_shown_by_every_command(line: CommandLine) -> None:
    name = line.delivery.connector_name
    line.delivery.put("x.txt", joined(LINES[:5]))
    line.put()
    order = open_orders(line.delivery.runtime).stored(name)
    (version,) = open_runs(line.delivery.runtime).selections.versions(order)
    planner = line.delivery.runtime.planner()
    request = line.delivery.runtime.requests.make(order.config, order.revision, version, 1)
    job = planner.register(request)

    paused = line.say("pause", name)
    refused = line.say("run", *line.connector)
    shown = line.say("status", *line.connector)
    one_job = line.say("status", job.id)
    examined = line.say("doctor", *line.connector)
    stopped = line.say("stop", name)
    nothing = line.say("stop", name, "--json").json
    resumed = line.say("resume", name)
    misspelled = line.say("pause", f"{name}x")
    line.say("connectors", "delete", name)
    deleted = line.say("pause", name)

    assert paused.out == f"connector {name} is PAUSED\n"
    way_out = f"connector {name} is PAUSED; continue it with `extentflow resume {name}`"
    assert refused.errors == [way_out]
    assert shown.err == one_job.err == f"note: {way_out}\n"
    fact = f"connector: warning: {name}, revision 1, PAUSED"
    assert f"{fact}; continue it with `extentflow resume {name}`" in examined.out
    assert stopped.out == f"connector {name} is STOPPED\n1 open job cancelled\n"
    assert [(one.id, str(one.state)) for one in line.jobs] == [(job.id, "CANCELLED")]
    assert nothing == {"name": name, "state": "STOPPED", "cancelled": []}
    assert resumed.err.startswith("note: 1 job of it CANCELLED before: `extentflow status -c ")
    assert misspelled.errors == [f"there is no connector {name}x; did you mean {name}?"]
    assert deleted.out.startswith(f"connector {name} is PAUSED; it is not stored")


# -- plans ----------------------------------------------------------------------------------------


def test_a_plan_shows_what_a_run_would_do_and_writes_nothing(
    line: CommandLine, dynamodb: "DynamoDBClient"
) -> None:
    line.delivery.put("x.txt", joined(LINES))
    line.put(extent__bytes="8KiB")

    def items() -> list[Any]:
        return dynamodb.scan(TableName=str(line.delivery.settings.ledger_table))["Items"]

    before = items()

    (plan,) = line.say("plan", *line.connector, "--json").json
    table = line.say("plan", *line.connector)

    assert items() == before
    assert plan["object"] == f"{line.delivery.address}x.txt"
    assert plan["bytes"] == len(joined(LINES))
    assert plan["extents"][0] == [0, 8192]
    assert plan["extents"][-1][1] == plan["bytes"]
    assert (plan["format"], plan["topic"]) == ("text", line.delivery.topic)
    assert plan["job"] in table.out
    assert plan["state"] == "new"
    assert run_here(line.delivery).jobs[0].job == plan["job"]
    (after,) = line.say("plan", *line.connector, "--json").json
    assert (after["job"], after["state"]) == (plan["job"], "DONE")


@pytest.mark.long
def test_odd_objects_are_named_together_and_block_no_other(line: CommandLine) -> None:
    odd = ["noextension", "other.xyz"]
    for key in (*odd, "good.txt"):
        line.delivery.put(key, joined(LINES[:5]))
    line.put(input__format=None)

    plan = line.say("plan", *line.connector)
    said = line.say("run", *line.connector, "--engine", "inline", "--cores", "1", "--json")

    assert (plan.code, len(plan.errors), "good.txt" in plan.out) == (1, 2, True)
    assert all(key in error for key, error in zip(odd, sorted(plan.errors), strict=True))
    assert said.code == 1
    ends = {job["uri"].rpartition("/")[2]: job["state"] for job in said.json["jobs"]}
    assert ends == {"good.txt": "DONE", "noextension": "FAILED", "other.xyz": "FAILED"}
    assert sorted(line.delivery.values()) == sorted(LINES[:5])
    reported = [text for text in said.err.splitlines() if text.startswith("error: ")]
    assert ["set input.format" in text for text in reported] == [True, True]


@pytest.mark.long
def test_a_plan_reports_large_lines_and_missing_topics_as_a_run_does(line: CommandLine) -> None:
    engine = ("--engine", "inline", "--cores", "1")
    line.delivery.put("x.txt", b"x" * 1_100_000 + b"\n")

    line.put()
    large = [line.say("plan", *line.connector), line.say("run", *line.connector, *engine)]
    line.put(topic="no-such-topic")
    missing = [line.say("plan", *line.connector), line.say("run", *line.connector, *engine)]

    assert [said.code for said in large + missing] == [1, 1, 2, 2]
    assert all(
        "a record of 1100000 bytes is too large for the topic: max.message.bytes of" in one.err
        for one in large
    )
    assert missing[0].errors == missing[1].errors
    assert missing[0].errors[0].startswith("topic no-such-topic does not exist on Kafka at ")


def planned(line: CommandLine, *addresses: str) -> list[str]:
    """Return the keys that addresses select, without the prefix."""
    said = line.say("plan", *addresses, *line.connector, "--json")
    assert said.code == 0, said.err
    return [plan["object"].removeprefix(line.delivery.address) for plan in said.json]


@pytest.mark.long
def test_trap_t20_addresses_are_exact_keys_prefixes_or_globs(line: CommandLine) -> None:
    others = ("starfish.txt", "1x.txt", "a b.txt.gz", "sub/deep/z.txt", "sub/y.csv")
    for key in (*ODD_KEYS, *others):
        line.delivery.put(key, gzip.compress(b"") if key.endswith(".gz") else b"")
    line.put()
    root = line.delivery.address

    for key in ODD_KEYS:
        assert planned(line, f"{root}{key}") == [key]
    assert planned(line, f"{root}sub") == ["sub/deep/z.txt", "sub/y.csv"]
    assert planned(line, f"{root}sub/") == ["sub/deep/z.txt", "sub/y.csv"]
    assert planned(line, f"{root}s*.csv") == ["sub/y.csv"]
    assert planned(line, f"{root}s*f*.txt", f"{root}sub/", f"{root}sub/y.csv") == [
        "starfish.txt",
        "sub/deep/z.txt",
        "sub/y.csv",
    ]
    assert sorted(planned(line)) == sorted((*ODD_KEYS, *others))


# -- runs -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_of_odd_keys_prints_json_for_programs_and_nothing_else(line: CommandLine) -> None:
    for key in ODD_KEYS:
        line.delivery.put(key, joined([key.encode()]))
    line.put(message__key="object")

    said = line.run("run", *line.connector, "--engine", "inline", "--cores", "2", "--json")

    assert said.code == 0, said.err
    assert said.json["ok"] is True
    assert [job["state"] for job in said.json["jobs"]] == ["DONE"] * len(ODD_KEYS)
    found = {record.key: record.value for record in line.delivery.read()}
    assert found == {f"{line.delivery.prefix}{key}".encode(): key.encode() for key in ODD_KEYS}
    assert_quiet(said)


def assert_quiet(said: Said) -> None:
    """Whether the output has no traces and no lines of the Kafka client."""
    for noise in ("Traceback", "rdkafka", "GETPID", "BGQUEUE", "%3|", "%4|", "%5|", "%6|"):
        assert noise not in said.err


@pytest.mark.long
def test_a_job_that_fails_its_replay_and_its_second_chance(line: CommandLine) -> None:
    line.delivery.put("bad.txt", joined([*LINES[:10], b"\xff", *LINES[10:20]]))
    line.delivery.put("cut.txt.gz", gzip.compress(joined(LINES))[:-10])
    line.delivery.put("good.txt", joined(LINES[:5]))
    line.put()
    words = (*line.connector, "--engine", "inline", "--cores", "1")

    failed = line.run("run", *words, "--json")

    jobs = {Path(job["uri"]).name: job for job in failed.json["jobs"]}
    states = {name: job["state"] for name, job in jobs.items()}
    assert failed.code == 1
    assert states == {"bad.txt": "FAILED", "cut.txt.gz": "FAILED", "good.txt": "DONE"}
    errors = [text for text in failed.err.splitlines() if text.startswith("error: ")]
    assert any("bad record at offset" in text for text in errors)
    name = line.delivery.connector_name
    assert f"`extentflow replay -c {name} --engine inline` continues where it failed" in failed.err
    assert f"`extentflow run -c {name} --failed --engine inline` delivers only" in failed.err
    assert_quiet(failed)
    before = line.delivery.values()
    queue = line.delivery.make_topic("dead", partitions=1)
    line.put(errors__tolerance="all", errors__deadletterqueue__topic__name=queue)

    replayed = line.run("replay", jobs["bad.txt"]["job"][:12], "--engine", "inline", "--json")

    assert replayed.code == 1
    assert replayed.json["records_this_run"] == 0
    assert "1 job of revision 1 of connector" in replayed.err
    assert line.delivery.values() == before

    address = f"{line.delivery.address}bad.txt"
    shown = line.say("run", address, *line.connector, "--failed", "--dry-run", "--json").json
    again = line.run("run", address, *words, "--failed", "--json")
    repeated = line.say("run", address, *line.connector, "--failed", "--json")

    assert [(one["object"], one["revision"]) for one in shown] == [(jobs["bad.txt"]["uri"], 1)]
    assert shown[0]["step"] == "AGAIN"
    assert again.code == 0
    assert (repeated.code, repeated.json["jobs"]) == (0, [])
    assert (again.json["jobs"][0]["records"], again.json["jobs"][0]["bad"]) == (20, 1)
    assert len(line.delivery.read(queue)) == 1


@pytest.mark.spark
@pytest.mark.long
def test_a_master_where_spark_does_not_start_is_one_line(line: CommandLine) -> None:
    line.delivery.put("x.txt", joined(LINES[:5]))
    line.put()

    said = line.run("run", *line.connector, "--master", "spark://127.0.0.1")

    reported = [text for text in said.err.splitlines() if text.startswith("error: ")]
    assert said.code == 2
    assert len(reported) == 1
    assert "Spark does not start on spark://127.0.0.1: " in reported[0]
    assert "Invalid master URL: spark://127.0.0.1" in reported[0]
    assert "Traceback" not in said.err
    assert line.jobs == []


def test_a_replay_of_a_done_job_starts_nothing(line: CommandLine) -> None:
    line.delivery.put("x.txt", joined(LINES[:5]))
    line.put()
    (job,) = run_here(line.delivery).jobs

    said = line.say("replay", job.job, "--master", "spark://127.0.0.1:1", "--json")

    assert (said.code, said.json["ok"]) == (0, True)
    assert f"job {job.job} is DONE, there is nothing to replay" in said.err
    assert sorted(line.delivery.values()) == sorted(LINES[:5])


@pytest.mark.long
def test_undelivered_jobs_are_replayed_unless_a_newer_one_exists(
    line: CommandLine,
) -> None:
    name = line.delivery.connector_name
    bad = joined([*LINES[:3], b"\xff"])
    line.delivery.put("again.txt", bad)
    line.delivery.put("bad.txt", bad)
    line.put()
    assert not run_here(line.delivery).ok
    queue = line.delivery.make_topic("dead", partitions=1)
    line.put(errors__tolerance="all", errors__deadletterqueue__topic__name=queue)
    line.run(
        "run", f"{line.delivery.address}again.txt", *line.connector, "--engine", "inline", "--again"
    )
    line.put()
    line.delivery.put("new.txt", joined(LINES[5:9]))
    runtime = line.delivery.runtime
    order = open_orders(runtime).stored(name, [f"{line.delivery.address}new.txt"])
    (version,) = open_runs(runtime).selections.versions(order)
    runtime.planner().register(runtime.requests.make(order.config, order.revision, version, 1))
    line.say("stop", name)
    refused = line.say("replay", *line.connector)
    line.say("resume", name)
    before = line.delivery.values()

    said = line.run("replay", *line.connector, "--engine", "inline", "--json")

    states = {Path(job["uri"]).name: job["state"] for job in said.json["jobs"]}
    assert refused.code == 2
    assert f"connector {name} is STOPPED" in refused.err
    assert said.code == 1
    assert states == {"bad.txt": "FAILED", "new.txt": "DONE"}
    assert "note: 1 job left out, because the object was delivered again since" in said.err
    assert sorted(line.delivery.values()) == sorted([*before, *LINES[5:9]])


def test_a_replay_without_jobs_reports_that(line: CommandLine) -> None:
    line.delivery.put("x.txt", joined(LINES[:5]))
    line.put()
    run_here(line.delivery)

    said = line.say("replay", *line.connector)
    unknown = line.say("replay", "-c", "absent")

    assert said.code == 0
    assert f"connector {line.delivery.connector_name} has no job to replay" in said.err
    assert unknown.code == 2
    assert "there is no connector absent" in unknown.err


@pytest.mark.parametrize("words", [("0123",), ("--extent", "1"), ("--engine", "emr")], ids=" ".join)
def test_a_connectors_replay_goes_without_what_concerns_one_job(
    line: CommandLine, words: tuple[str, ...]
) -> None:
    said = line.say("replay", *words, *line.connector)

    assert said.code == 2
    assert "--connector goes with" in said.err


def test_a_replay_whose_progress_is_unknown_is_rejected_in_one_line(alone: CommandLine) -> None:
    line = alone
    line.delivery.put("x.txt", joined(LINES))
    line.put()
    with pytest.raises(Crash):
        run_here(line.delivery, before=at(2, crash))
    _forget(line.delivery)
    take_over(line.delivery)
    job = the_job(line.delivery).id

    said = line.say("replay", job, "--engine", "inline")

    (error,) = said.errors
    assert said.code == 2
    assert "progress unknown" in error
    assert f"extentflow replay {job} --extent 0 --accept-duplicates" in error


def _forget(delivery: Delivery) -> None:
    """Commit the slot's group from another client."""
    broker, slots = delivery.runtime.broker, delivery.slots()
    for slot in slots:
        identity = f"{delivery.settings.app_id}.{delivery.runtime.ledger.id}.slot-{slot.number}"
        fence = broker.fence(identity, ProducerSettings())
        fence.mark(SlotProgress(epoch=slot.epoch + 100))
        fence.close()


def test_an_error_is_one_line_and_debugging_shows_where(line: CommandLine) -> None:
    plain = line.say("run", "-c", "absent")
    debug = line.run("run", "-c", "absent", "--debug")

    assert (plain.code, debug.code) == (2, 2)
    assert len(plain.errors) == 1
    assert "Traceback (most recent call last):" in debug.err
    assert debug.err.splitlines()[-1] == plain.err.splitlines()[0]


# -- status ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_status_shows_the_jobs_also_where_a_queue_is_gone(
    line: CommandLine, queues: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", queues.endpoint("sqs"))
    line.delivery.put("lines.txt", joined(LINES))
    line.put()
    (job,) = run_here(line.delivery).jobs
    gone = f"{queues.endpoint('sqs')}/000000000000/gone"

    plain = line.say("status", *line.connector, arrivals_queue_url=gone)
    reported = line.say("status", *line.connector, "--json", arrivals_queue_url=gone)

    assert job.job in plain.out
    assert "error: arrivals.queue: " in plain.err
    assert "there is no such queue" in plain.err
    assert [one["job"] for one in reported.json["jobs"]] == [job.job]
    assert reported.json["queues"] == {}
    assert (plain.code, reported.code) == (1, 1)


def test_status_lists_jobs_and_shows_one_with_its_map_and_errors(alone: CommandLine) -> None:
    line = alone
    line.delivery.put("bad.txt", joined([*LINES[:500], b"\xff", *LINES[500:]]))
    line.delivery.put("good.txt", joined(LINES))
    line.put(extent__bytes="4KiB")
    report = run_here(line.delivery)
    bad = report.jobs[0]

    listed = line.say("status", "--json").json["jobs"]
    table = line.say("status").out
    failed = line.say("status", "--state", "failed", "--json").json["jobs"]
    one = line.say("status", bad.job[:10])
    plain = line.say("status", bad.job[:10], "--json").json

    assert {job["job"] for job in listed} == {job.job for job in report.jobs}
    assert all(job.job in table for job in report.jobs)
    assert [job["job"] for job in failed] == [bad.job]
    assert line.say("status", "--limit", "1", "--json").json["jobs"] == listed[:1]
    assert line.say("status", "-c", "absent", "--json").code == 2
    assert one.code == 0
    assert "█" * 1 in one.out
    assert one.out.count("x") >= 1
    assert f"{bad.extents - 1} done, 1 failed of {bad.extents}" in one.out
    error, note = one.err.splitlines()
    assert "bad record at offset" in error
    assert f"extentflow replay {bad.job}" in note
    assert plain["job"]["state"] == "FAILED"
    assert len(plain["extents"]) == bad.extents
    assert [item["state"] for item in plain["extents"]].count("FAILED") == 1


# -- doctor ---------------------------------------------------------------------------------------


def verdicts(said: Said) -> dict[str, str]:
    return {finding["check"]: finding["verdict"] for finding in said.json}


def test_doctor_finds_everything_in_order(alone: CommandLine) -> None:
    line = alone
    line.delivery.put("x.txt", joined(LINES))
    line.put()

    said = line.say("doctor", *line.connector, "--json")

    assert said.code == 0
    assert set(verdicts(said).values()) == {"ok"}
    assert list(verdicts(said)) == [
        "ledger",
        "clock",
        "broker credentials",
        "Kafka cluster",
        "progress topic",
        "transactions",
        "transaction verification",
        "exactly-once records",
        "slots",
        "offset retention",
        "connector",
        "objects",
        "topic",
    ]
    assert line.say("doctor", *line.connector).out.count(": ok: ") == 13


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        pytest.param({"aws__s3__endpoint": "http://127.0.0.1:1"}, ["objects"], id="endpoint"),
        pytest.param(
            {
                "topic": "no-such-topic",
                "errors__tolerance": "all",
                "errors__deadletterqueue__topic__name": "no-such-queue",
            },
            ["topic", "dead letter topic"],
            id="topics",
        ),
        pytest.param(
            {"producer__sasl__password": "${file:/no/such.properties:password}"},
            ["producer settings"],
            id="files",
        ),
    ],
)
@pytest.mark.long
def test_doctor_finds_problems_of_a_connector_with_remedies(
    line: CommandLine, change: dict[str, str], broken: list[str]
) -> None:
    line.delivery.put("x.txt", joined(LINES))
    line.put(**change)

    said = line.say("doctor", *line.connector, "--json")

    found = [finding for finding in said.json if finding["verdict"] == "problem"]
    assert said.code == 1
    assert [finding["check"] for finding in found] == broken
    assert all(finding["fact"] and finding["remedy"] for finding in found)


@pytest.mark.parametrize(
    ("settings", "broken"),
    [
        ({"ledger_table": "no-such-table"}, "ledger"),
        ({"ledger_endpoint": "http://127.0.0.1:1"}, "ledger"),
        ({"bootstrap_servers": "127.0.0.1:1"}, "Kafka cluster"),
    ],
    ids=str,
)
def test_doctor_finds_problems_of_the_servers_with_remedies(
    alone: CommandLine, settings: dict[str, str], broken: str
) -> None:
    said = alone.say("doctor", "--json", **settings)

    found = [finding for finding in said.json if finding["verdict"] == "problem"]
    assert said.code == 1
    assert [finding["check"] for finding in found] == [broken]
    assert all(finding["fact"] and finding["remedy"] for finding in found)


@pytest.mark.long
def test_doctor_warns_of_slots_that_were_left_with_an_extent(alone: CommandLine) -> None:
    line = alone
    line.delivery.put("x.txt", joined(LINES))
    line.put()
    with pytest.raises(Crash):
        run_here(line.delivery, before=at(2, crash))

    alive = line.say("doctor", "--json")
    deadline = line.delivery.slots()[0].until
    # Another process knows the ledger's clock to a second only, from below.
    eventually("the lease ends", lambda: line.delivery.runtime.ledger.now() > deadline + 2)
    stuck = line.say("doctor", "--json")

    assert verdicts(alive)["slots"] == "ok"
    assert verdicts(stuck)["slots"] == "warning"
    assert stuck.code == 0


# -- making what is missing -----------------------------------------------------------------------


def test_init_makes_the_table_once(line: CommandLine) -> None:
    table = f"fresh-{line.delivery.name}"

    first = line.say("init", "--json", ledger_table=table).json
    second = line.say("init", "--json", ledger_table=table).json
    people = line.say("init", ledger_table=table).out

    assert first["url"].startswith(f"dynamodb://{table}?")
    assert first["created"]
    assert second == {**first, "created": False}
    assert f"ledger {first['url']} exists (id {first['ledger']})" in people
