"""What commands advise, followed in the state in which they say it; then the topic is counted."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.memory_commands import CommandLine, Killed, advised, line
from tests.support.memory_runtime import BUCKET
from tests.support.parquet_keys import text_of

from extentflow.cli.option_groups import ServerOptions
from extentflow.discovery.admission import ArrivalHandler
from extentflow.errors import SinkUnavailable
from extentflow.services import composition
from extentflow.testing.services import MemoryQueue
from extentflow.testing.stores import Fault, FaultKind, FaultyStore, MemoryStore
from extentflow.wiring.functions import RuntimeContext

__all__ = ["line"]

IN = f"s3://{BUCKET}/c/"
# Of its objects, each line of 4 bytes is an extent.
TOPIC = ("--topic", "orders", "--set", "extent.bytes=4")
DELIVERED = 2
INLINE = ("--engine", "inline")
INFERRED = ("--topic", "orders")
NUMBERS = {"input__format": "csv", "csv__schema": "id:int64"}
TEXTS = {"input__format": "csv", "csv__schema": "id:string"}
DEAD = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dead",
}


def put_rows(line: CommandLine, *rows: str, key: str = "c/a.csv") -> None:
    """Put rows of one column, an extent each: the first one begins at byte 3."""
    line.runtime.memory_store.put(BUCKET, key, "\n".join(("id", *rows, "")).encode())


def deny(line: CommandLine, kind: FaultKind = "denied") -> None:
    """Let reads fail from the third extent on, until `permit`."""
    faulty = FaultyStore(line.runtime.memory_store, Fault(kind))

    def from_the_third(done: int) -> None:
        if done == DELIVERED:
            line.runtime.reads = faulty

    line.on_extent = from_the_third


def permit(line: CommandLine) -> None:
    line.on_extent = lambda _done: None
    line.runtime.reads = line.runtime.memory_store


class Killing:
    """Ends the process before an extent; later processes live."""

    def __init__(self, after: int) -> None:
        self._after: int | None = after

    def __call__(self, done: int) -> None:
        if done == self._after:
            self._after = None
            raise Killed


def kill(line: CommandLine, *words: str, after: int = 1) -> None:
    """Run a command whose process is killed when so many extents are done."""
    line.on_extent = Killing(after)
    with pytest.raises(Killed):
        line.run(*words)


def settings(**given: str) -> list[str]:
    named = {key.replace("__", "."): text for key, text in given.items()}
    return [word for key, text in named.items() for word in ("--set", f"{key}={text}")]


# -- a job that failed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "versioned"), [((), False), (INLINE, True)], ids=["usual", "inline, versioned"]
)
def test_a_failed_job_is_replayed(
    line: CommandLine, engine: tuple[str, ...], *, versioned: bool
) -> None:
    """Trap: the version of an object was part of the advised address, where `?` is a wildcard."""
    line.runtime.reads = line.runtime.memory_store = MemoryStore(versioned=versioned)
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    deny(line)

    assert line.run("-c", "c", *engine) == 1
    failed, replay = line.count, line.advice("replay")
    permit(line)
    assert line.follow(["status", replay[1]]) == 0
    assert line.advice("replay") == replay[:2]
    assert line.follow(replay) == 0
    replayed = line.count
    assert line.follow(replay) == 0
    done = line.count
    line.runtime.ticker.sleep(60)
    assert line.follow(line.advice("run")) == 0

    assert replay[2:] == [*engine]
    assert (failed, replayed, done, line.count) == (2, 3, 3, 6)


def test_all_failed_jobs_of_a_connector_are_replayed(line: CommandLine) -> None:
    line.runtime.put_connector(topic="orders")
    for name in ("a", "b"):
        line.runtime.put(f"c/{name}.txt", lines=3)
    deny(line)

    assert line.run("-c", "c", *INLINE) == 1
    failed, replay = line.count, line.advice("replay -c c")
    permit(line)
    assert line.follow(replay) == 0

    assert replay == ["replay", "-c", "c", *INLINE]
    assert (failed, line.count) == (2, 6)


def test_a_job_that_failed_in_an_outage_only_has_to_be_replayed(line: CommandLine) -> None:
    """Trap: the correction of an object was advised, which delivers it from its start."""
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    deny(line, "unavailable")

    assert line.run("-c", "c") == 1
    failed, replay = line.count, line.advice("replay")
    said = line.said
    permit(line)
    assert line.follow(["status", replay[1]]) == 0
    assert line.advice("replay") == replay
    assert line.follow(replay) == 0

    assert "when the store answers again" in said
    assert "correct the object" not in said
    assert (failed, line.count) == (2, 3)


def test_a_job_whose_object_is_gone_is_dismissed(line: CommandLine) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    store = line.runtime.memory_store
    line.on_extent = lambda done: store.remove(BUCKET, "c/a.txt") if done == DELIVERED else None

    assert line.run("-c", "c") == 1
    dismiss = line.advice("dismiss")
    (job,) = line.runtime.memory.jobs.list()
    assert line.run(f"{IN}a.txt", "-c", "c") == 2
    again = line.advice("dismiss")
    assert line.follow(dismiss) == 0

    assert dismiss == again == ["dismiss", job.id]
    assert [one.state for one in line.runtime.memory.jobs.list()] == ["SUPERSEDED"]


@pytest.mark.parametrize("engine", [(), INLINE], ids=["usual", "inline"])
def test_a_corrected_object_is_delivered_by_the_same_connector(
    line: CommandLine, engine: tuple[str, ...]
) -> None:
    line.runtime.put_connector(topic="orders", **NUMBERS)
    put_rows(line, "100", "200", "bad")

    assert line.run("-c", "c", *engine) == 1
    failed, said = line.count, line.said
    put_rows(line, "100", "200", "300")
    command = line.advice("run -c c", but="--failed")
    assert line.follow(command) == 0
    corrected = line.count
    assert line.follow(command) == 0

    assert "2 records of them are in the topic already" in said
    assert (failed, corrected, line.count) == (2, 5, 5)


@pytest.mark.parametrize("engine", [(), INLINE], ids=["usual", "inline"])
def test_what_failed_is_delivered_by_a_changed_connector(
    line: CommandLine, engine: tuple[str, ...]
) -> None:
    line.runtime.put_connector(topic="orders", **NUMBERS)
    put_rows(line, "100", "200", "bad")
    put_rows(line, "400", key="c/b.csv")

    assert line.run("-c", "c", *engine) == 1
    failed, command = line.count, line.advice("run -c c --failed")
    line.runtime.put_connector(topic="orders", **TEXTS)
    assert line.follow([*command, "--dry-run"]) == 0
    shown, told = line.count, line.said
    assert line.follow(command) == 0
    delivered = line.count
    assert line.follow(command) == 0

    assert command[4:] == [*engine]
    assert "delivered before, and would be again: 2" in told
    assert (failed, shown, delivered, line.count) == (3, 3, 6, 6)


@pytest.mark.parametrize("made", [True, False], ids=["made", "stored"])
def test_bad_records_that_ended_a_job_are_tolerated_and_discarded(
    line: CommandLine,
    made: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    line.runtime.cluster.create_topic("dead")
    put_rows(line, "100", "200", "bad")
    if made:
        command = [IN, *TOPIC, *settings(csv__schema="id:int64")]
        tolerant = settings(**{"csv.schema": "id:int64", **DEAD})
        assert line.run(*command) == 1
        assert "the same command with --failed delivers" in line.said
        failed = [IN, *TOPIC, *tolerant, "--failed"]
    else:
        line.runtime.put_connector(topic="orders", **NUMBERS)
        assert line.run("-c", "c") == 1
        failed = line.advice("run -c c --failed")[1:]
        line.runtime.put_connector(topic="orders", **NUMBERS, **DEAD)
    before = line.count
    assert line.run(*failed) == 0
    tolerated, show = line.count, line.advice("dead-letters")
    assert line.follow([*show, "--discard", "all"]) == 0
    assert "1 dead letter discarded" in line.shown
    assert line.follow(["replay-dead-letters", *show[1:]]) == 0

    assert (before, tolerated, line.count) == (2, 4, 4)


@pytest.mark.parametrize(
    ("name", "content", "given"),
    [
        ("a.csv", b"id\n1\nx\n2\n", {"csv.schema": "id:int64"}),
        ("a.jsonl", b'{"id":1}\n{"id":\n{"id":2}\n', {}),
        ("a.json", b'[{"id":1},{"id":"x"},{"id":2}]', {"json.schema": "id:int64"}),
        ("a.txt", b"1\n\xff\n2\n", {}),
    ],
)
def test_a_bad_record_of_any_text_format_names_the_dead_letter_queue(
    line: CommandLine, name: str, content: bytes, given: dict[str, str]
) -> None:
    line.runtime.cluster.create_topic("dead")
    line.runtime.memory_store.put(BUCKET, f"c/{name}", content)
    if name.endswith("json"):
        given["input.format"] = "json"
    command = [IN, *INFERRED, *settings(**given)]

    assert line.run(*command) == 1
    advised = re.findall(r"errors[.a-z]+=\w+", line.said)
    assert "errors.tolerance and errors.deadletterqueue.topic.name keep bad records" in line.said
    tolerant = [word.replace("TOPIC", "dead") for word in advised]
    assert line.run(*command, *(f"--set={word}" for word in tolerant), "--failed") == 0

    assert line.count == 2
    assert len(line.runtime.cluster.read_committed("dead")) == 1


def test_a_job_that_another_connector_began_is_replayed_and_nothing_doubled(
    line: CommandLine,
) -> None:
    line.runtime.put(lines=3)
    deny(line)
    assert line.run(IN, *TOPIC, *settings(name="first")) == 1
    permit(line)

    assert line.run(IN, *TOPIC) == 1
    replay = line.advice("replay")
    assert "connector first began" in line.said
    assert line.run(IN, *TOPIC, "--failed") == 2
    assert line.advice("replay") == replay
    failed = line.count
    assert line.follow(replay) == 0
    replayed = line.count
    assert line.run(IN, *TOPIC) == 0

    assert (failed, replayed, line.count) == (2, 3, 3)


def test_a_job_whose_object_was_delivered_since_is_replayed_with_accepted_duplicates(
    line: CommandLine,
) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    deny(line)
    assert line.run("-c", "c") == 1
    job = line.advice("replay")[1]
    permit(line)
    line.runtime.ticker.sleep(60)
    assert line.run("-c", "c", "--again") == 0
    delivered = line.count

    assert line.follow(["replay", "-c", "c"]) == 0
    assert line.advice("replay", JOB=job) == ["replay", job, "--accept-duplicates"]
    assert line.follow(["replay", job]) == 2
    replay = line.advice("replay")
    assert line.follow(line.advice("status")) == 0
    assert "DONE" in line.shown
    refused = line.count
    assert line.follow(replay) == 0

    assert replay == ["replay", job, "--accept-duplicates"]
    assert (delivered, refused, line.count) == (5, 5, 6)


def test_commands_that_are_advised_take_the_servers_that_they_need(line: CommandLine) -> None:
    line.runtime.put(lines=3)
    deny(line)
    assert line.run(IN, *TOPIC, "--bootstrap-servers", "broker:9092") == 1
    needed = line.said.partition("`replay` needs `")[2].partition("`")[0].split()
    replay = line.advice("replay")
    permit(line)

    assert line.follow([*replay, *needed]) == 0

    assert line.given == ServerOptions(bootstrap_servers="broker:9092")
    assert line.count == 3


# -- a run that ended early ------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["replay", "the command that began it"])
def test_a_killed_run_is_continued(line: CommandLine, way: str) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    kill(line, "-c", "c")
    (job,) = line.runtime.memory.jobs.list()
    killed = line.count

    assert line.follow(["status", job.id]) == 0
    assert "1 of 3 extents are done, and no extent is in work now" in line.said
    assert way in line.said
    following = line.advice("replay") if way == "replay" else ["run", "-c", "c"]
    assert line.follow(following) == 0
    continued = line.count
    assert line.follow(following) == 0

    assert (killed, continued, line.count) == (1, 3, 3)


@pytest.mark.parametrize("way", ["replay", "run"])
@pytest.mark.parametrize("command", [("-c", "c"), (IN, *TOPIC)], ids=["stored", "made"])
def test_what_a_topic_lost_is_delivered_again(
    line: CommandLine, way: str, command: tuple[str, ...]
) -> None:
    """The topic is deleted and created again between a killed run and its continuation."""
    if command[0] == "-c":
        line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    kill(line, *command)
    line.runtime.cluster.create_topic("orders")

    continued = ["run", *command] if way == "run" else line_of_replay(line)
    assert line.follow(continued) == 1
    assert "topic orders was created again: its id was" in line.said
    assert "committed to the former topic is gone" in line.said
    begins = "run -c c" if command[0] == "-c" else "run s3://"
    again = line.advice(begins)
    assert "continues where it failed" not in line.said
    assert line.follow(continued) == 1  # and no job is DONE
    line.runtime.ticker.sleep(60)
    (job,) = line.runtime.memory.jobs.list()
    assert line.follow(["status", job.id]) == 0
    assert line.advice(begins) == again
    assert line.follow(again) == 0

    assert line.count == 3


def line_of_replay(line: CommandLine) -> list[str]:
    (job,) = line.runtime.memory.jobs.list()
    return ["replay", job.id]


@pytest.mark.parametrize("command", [("-c", "c"), (IN, *TOPIC)], ids=["stored", "made"])
def test_objects_of_a_former_topic_are_named(line: CommandLine, command: tuple[str, ...]) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    assert line.run(*command) == 0
    assert line.run(*command) == 0
    before = line.said
    line.runtime.cluster.create_topic("orders")

    assert line.run(*command) == 0
    assert "topic orders was created again since 1 object of these was delivered" in line.said
    line.runtime.ticker.sleep(60)
    assert line.run(*command, "--again") == 0

    assert "created again" not in before
    assert line.count == 3


def test_objects_of_a_topic_that_is_gone_are_named(line: CommandLine) -> None:
    line.runtime.put(lines=3)
    assert line.run(IN, *TOPIC) == 0
    line.runtime.cluster.delete_topic("orders")

    assert line.run(IN, *TOPIC) == 0
    assert "topic orders does not exist any more since 1 object of these was" in line.said
    line.runtime.ticker.sleep(60)
    assert line.run(IN, *TOPIC, "--again", "--create-topic", "partitions=1") == 0

    assert line.count == 3


def test_a_topic_that_is_created_again_behind_a_job_is_named_by_the_same_run(
    line: CommandLine,
) -> None:
    line.runtime.put("c/a.txt", lines=3)
    line.runtime.put("c/b.txt", lines=3)

    def recreate(done: int) -> None:
        if done == 3:
            line.runtime.cluster.create_topic("orders")
            line.runtime.ticker.sleep(60)  # until the next job asks for its id again

    line.on_extent = recreate
    assert line.run(IN, *TOPIC) == 0

    assert "topic orders was created again since 1 object of these was delivered" in line.said
    assert line.count == 3


def test_failed_jobs_of_a_former_topic_are_named_before_they_are_continued(
    line: CommandLine,
) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    kill(line, "-c", "c")
    line.runtime.cluster.create_topic("orders")
    assert line.run("-c", "c") == 1

    line.run("-c", "c", "--failed", "--dry-run")

    assert "topic orders was created again since 1 object of these" in line.said
    assert "--again delivers them" in line.said


def test_a_stopped_run_is_continued_by_the_same_command(line: CommandLine) -> None:
    line.runtime.put(lines=3)
    line.on_extent = lambda done: line.stop() if done == 2 else None

    assert line.run(IN, *TOPIC) == 130
    assert "run the same command again to resume" in line.said
    stopped, line.on_extent = line.count, lambda _done: None
    assert line.run(IN, *TOPIC) == 0

    assert (stopped, line.count) == (2, 3)


@pytest.mark.parametrize("way", ["replay -c c", "replay", "run -c c --failed"])
def test_what_stop_cancelled_is_delivered_after_resume(line: CommandLine, way: str) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    kill(line, "-c", "c")
    assert line.follow(["stop", "c"]) == 0
    assert "1 open job cancelled" in line.shown
    after = line.advice("replay -c")

    assert line.run("-c", "c") == 2
    assert line.follow(line.advice("resume")) == 0
    assert line.advice("replay -c") == after
    assert line.follow(line.advice("status")) == 0
    assert "CANCELLED" in line.shown
    assert line.run("-c", "c") == 1
    following = line.advice(way, but="-c" if way == "replay" else "--no-such")
    if "--failed" in way:
        line.runtime.put_connector(topic="orders", message__key="object")
    cancelled = line.count
    assert line.follow(following) == 0
    delivered = line.count
    assert line.follow(following) == 0

    twice = 1 if "--failed" in way else 0
    assert (cancelled, delivered, line.count) == (1, 3 + twice, 3 + twice)


@pytest.mark.parametrize("way", ["replay", "stop"])
def test_a_job_that_its_connector_reads_no_more_is_continued_or_cancelled(
    line: CommandLine, way: str
) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put(lines=3)
    kill(line, "-c", "c")
    (job,) = line.runtime.memory.jobs.list()
    line.runtime.put_connector(topic="orders", aws__s3__prefix="d/")
    line.runtime.put("d/b.txt")

    assert line.run("-c", "c") == 0
    told, count = line.said, line.count
    if way == "replay":
        assert line.follow(line.advice("replay", JOB=job.id)) == 0
    else:
        resume = line.advice("resume")
        assert line.follow(line.advice("stop")) == 0
        assert line.follow(resume) == 0
    delivered = line.count
    assert line.run("-c", "c") == 0

    assert "left open" in told
    assert "left open" not in line.said
    assert (count, delivered, line.count) == ((2, 4, 4) if way == "replay" else (2, 2, 2))


def test_a_new_version_is_delivered_by_the_command_that_its_old_one_ended(
    line: CommandLine,
) -> None:
    line.runtime.put(lines=3)

    def replaced(done: int) -> None:
        if done == 1:
            line.runtime.memory_store.put(BUCKET, "c/a.txt", b"new\n" * 4)

    line.on_extent = replaced
    assert line.run(IN, *TOPIC) == 1
    said, superseded = line.said, line.count
    line.on_extent = lambda _done: None
    assert line.run(IN, *TOPIC) == 0
    delivered = line.count
    assert line.run(IN, *TOPIC) == 0

    assert "run its address again to deliver the new version" in said
    assert (superseded, delivered, line.count) == (1, 5, 5)


def test_an_action_after_the_delivery_is_repeated_and_nothing_delivered_again(
    line: CommandLine,
) -> None:
    line.runtime.put_connector(topic="orders", after__completion="delete")
    line.runtime.put()
    fault = Fault("denied", "delete", frozenset({1}))
    line.runtime.reads = FaultyStore(line.runtime.memory_store, fault)
    assert line.run("-c", "c") == 0
    (job,) = line.runtime.memory.jobs.list()

    assert line.follow(["status", job.id]) == 0
    assert line.follow(line.advice("run")) == 0

    assert list(line.runtime.memory_store.list(BUCKET)) == []
    assert line.count == 1


# -- connectors ------------------------------------------------------------------------------------


def test_the_connectors_that_there_are_are_listed_and_shown(line: CommandLine) -> None:
    line.runtime.put_connector("orders", topic="orders")

    assert line.follow(["resume", "xyz"]) == 2
    assert line.follow(line.advice("connectors list")) == 0
    assert "orders" in line.shown
    assert line.follow(["connectors", "show", "orders", "--revision", "7"]) == 2
    assert line.follow(line.advice("connectors show")) == 0
    assert "# orders, revision 1" in line.shown


def test_a_connector_with_other_settings_is_shown_used_replaced_or_left(
    line: CommandLine,
) -> None:
    line.runtime.put()
    assert line.run(IN, *TOPIC, "--save") == 0
    other = settings(message__key="object")

    assert line.run(IN, *TOPIC, *other) == 2
    use = line.advice("run", ADDRESS=IN)
    assert line.follow(line.advice("connectors show")) == 0
    assert "message.key" not in line.shown
    assert line.follow(use) == 0
    assert line.run(IN, *TOPIC, *other, *settings(name="mine")) == 0
    assert line.run(IN, *TOPIC, *other, "--save") == 0

    assert line.count == 1


@pytest.mark.parametrize("way", ["--save", "put"])
def test_a_connector_that_a_command_made_is_stored_later(
    line: CommandLine, tmp_path: Path, way: str
) -> None:
    line.runtime.put()
    assert line.run(IN, *TOPIC) == 0

    assert line.run("-c", "orders-from-shop") == 2
    if way == "--save":
        assert line.advice("run --topic")
        assert line.run(IN, *TOPIC, "--save") == 0
        run = line.advice("run -c")
    else:
        stored = tmp_path / "c.properties"
        stored.write_text(
            f"name=orders-from-shop\ntopic=orders\naws.s3.bucket.name={BUCKET}\naws.s3.prefix=c/\n"
        )
        assert line.follow(line.advice("connectors put", FILE=str(stored))) == 0
        run = ["run", "-c", "orders-from-shop"]
    line.runtime.put("c/b.txt")
    assert line.follow(run) == 0

    assert line.count == 2


def test_a_stored_connector_of_the_same_objects_doubles_what_the_command_delivers_as_it_says(
    line: CommandLine,
) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put()

    assert line.run(IN, *TOPIC, "--dry-run") == 0
    assert line.run(IN, *TOPIC) == 0
    assert "a later run of that one delivers again what this command delivers" in line.said
    first = line.count
    use = line.advice("run", ADDRESS=IN)
    assert line.follow(use) == 0
    second = line.count
    assert line.follow(use) == 0

    assert (first, second, line.count) == (1, 2, 2)


def test_jobs_since_a_time_are_listed_as_the_message_writes_it(line: CommandLine) -> None:
    line.runtime.put_connector(topic="orders")
    line.runtime.put()
    assert line.run("-c", "c") == 0

    assert line.follow(["status", "--since", "yesterday"]) == 2
    examples = re.findall(r"as in ([0-9][\w:-]*)", line.said)
    listed = []
    for example in examples:
        assert line.follow(["status", "--since", example]) == 0
        listed.append("c/a.txt" in line.shown)

    assert len(examples) == 2
    assert listed[0]


# -- settings, formats and topics ------------------------------------------------------------------


def inferred(line: CommandLine) -> None:
    """Put an object whose samples hold numbers, and a row between them that does not."""
    rows = [f"{number}" for number in range(10**18, 10**18 + 120_000)]
    rows[20_000] = "no number"
    put_rows(line, *rows)


@pytest.mark.parametrize("made", [True, False], ids=["made", "stored"])
def test_types_that_were_inferred_are_shown_and_given(
    line: CommandLine,
    made: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    inferred(line)
    usual = {"input__format": "csv", "extent__bytes": "auto"}
    if made:
        assert line.run(IN, *INFERRED, *settings(csv__schema="infer")) == 1
    else:
        line.runtime.put_connector(topic="orders", **usual, csv__schema="infer")
        assert line.run("-c", "c") == 1
    before = line.count
    plan = line.advice("plan", NAME="c")
    if made:
        assert "`run ADDRESS --topic` with --dry-run --json" in line.said
        plan = ["run", IN, *INFERRED, *settings(csv__schema="infer"), "--dry-run", "--json"]
    assert line.follow(plan) == 0
    (shown,) = json.loads(line.shown)
    wider = shown["facts"].replace("int64", "string")
    if made:
        again = [IN, *INFERRED, *settings(csv__schema=wider), "--failed"]
    else:
        line.runtime.put_connector(topic="orders", **usual, csv__schema=wider)
        again = ["-c", "c", "--failed"]
    assert line.run(*again) == 0

    assert line.count - before == 120_000


def test_the_topic_of_dead_letters_is_created_with_what_fits_it(line: CommandLine) -> None:
    """Trap: compaction was asked for it, too, whose records have no keys, and refused then."""
    line.runtime.put()
    words = [
        IN,
        "--topic",
        "fresh",
        *settings(
            message__key="object",
            **{
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "letters",
            },
        ),
    ]

    assert line.run(*words, "--create-topic", "partitions=3,cleanup.policy=compact,delete") == 0

    assert line.runtime.cluster.limits("fresh").needs_keys
    assert not line.runtime.cluster.limits("letters").needs_keys
    assert len(line.runtime.cluster.read_committed("fresh")) == 1


def test_an_object_that_a_listing_leaves_out_is_delivered_by_its_own_address(
    line: CommandLine,
) -> None:
    for name in ("a.txt", "_b.txt"):
        line.runtime.put(f"c/{name}")

    assert line.run(IN, *TOPIC) == 0
    assert "give an object's own address" in line.said
    first = line.count
    assert line.run(f"{IN}_b.txt", *TOPIC) == 0
    assert line.run(IN, *TOPIC) == 0

    assert (first, line.count) == (1, 2)


@pytest.mark.parametrize("way", ["--set", "-c"])
def test_rows_of_other_settings_are_compared_with_those(line: CommandLine, way: str) -> None:
    line.runtime.memory_store.put(BUCKET, "c/a.csv", b"id,n\n1,2\n3,4\n")
    assert line.run(IN, *TOPIC, *settings(select="id")) == 0
    name = line.said.split()[2].strip(",")
    verify = ["count", "orders", "--verify", IN]

    assert line.follow(verify) == 1
    assert "DIFFERENT" in line.shown
    assert "give those of the delivery by --set, or its connector by -c" in line.said
    given = settings(select="id") if way == "--set" else ["-c", name]
    assert line.follow([*verify, *given]) == 0
    assert line.shown.startswith("equal")


def test_encrypted_columns_are_left_out_or_shown_with_their_keys(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARD_KEYS", text_of({"cards": bytes(16)}))
    line.runtime.memory_store.put(BUCKET, "c/a.csv", b"id,card\n1,2\n")
    encrypted = {
        "columnar.encoding": "parquet",
        "columnar.encryption.columns": "card",
        "columnar.encryption.key": "cards",
        "columnar.encryption.key.list": "${env:CARD_KEYS}",
    }
    assert line.run(IN, *INFERRED, *settings(**encrypted)) == 0

    assert line.follow(["tail", "orders"]) == 2
    assert "give their keys (--keys, or" in line.said
    assert "name only other columns (--column, or" in line.said
    assert line.follow(["tail", "orders", "--column", "id"]) == 0
    plain = json.loads(line.shown)
    assert line.follow(["tail", "orders", "--keys", "${env:CARD_KEYS}"]) == 0

    assert plain == {"id": "1"}
    assert json.loads(line.shown) == {"id": "1", "card": "2"}


# -- servers ---------------------------------------------------------------------------------------


def test_a_master_goes_with_the_engine_that_the_message_names(line: CommandLine) -> None:
    line.runtime.put()
    master = ("--master", "local[2]")

    assert line.run(IN, *TOPIC, *INLINE, *master) == 2
    engine = re.findall(r"(--engine) (\w+), not", line.said)
    assert line.run(IN, *TOPIC, *engine[0], *master) == 0

    assert engine == [("--engine", "spark")]
    assert line.count == 1


def test_doctor_is_repeated_when_the_brokers_answer(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> Mapping[str, str]:
        raise SinkUnavailable("no broker answers")

    usual = {"transaction.partition.verification.enable": "true"}
    for name, found in (("config", usual), ("share_groups", {}), ("proof", "none")):
        monkeypatch.setattr(line.runtime.cluster, name, lambda found=found: found, raising=False)
    with pytest.MonkeyPatch.context() as outage:
        outage.setattr(line.runtime.cluster, "config", silent)
        line.follow(["doctor"])
    again = advised(line.shown, "doctor")
    line.follow(again)

    assert "transaction verification: ok: on" in line.shown
    assert "`extentflow doctor`" not in line.shown


# -- notifications ---------------------------------------------------------------------------------


def test_the_object_of_a_notification_that_is_not_understood_is_submitted(
    line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, queue = line.runtime, arrivals(line, monkeypatch)
    runtime.put_connector(topic="orders")
    runtime.put(lines=2)
    event = tmp_path / "event.json"
    event.write_text('{"surprise": 1}')

    assert line.follow(["submit", "--event", str(event)]) == 2
    submit = line.advice("submit")
    assert submit == ["submit", "s3://bucket/key"]
    assert line.follow([submit[0], f"{IN}a.txt"]) == 0
    assert admitted(line, queue) == 1

    assert line.count == 2


@pytest.mark.parametrize("engine", [(), ("--engine", "lambda")], ids=["usual", "lambda"])
def test_the_objects_of_a_prefix_are_submitted_with_their_connector(
    line: CommandLine, monkeypatch: pytest.MonkeyPatch, engine: tuple[str, ...]
) -> None:
    queue = arrivals(line, monkeypatch)
    line.runtime.put_connector(topic="orders")
    for name in ("a", "b"):
        line.runtime.put(f"c/{name}.txt", lines=2)

    assert line.follow(["submit", IN]) == 2
    assert "give --connector to submit all below a prefix" in line.said
    assert line.follow(["submit", IN, "--connector", "c", *engine]) == 0
    assert admitted(line, queue) == 2

    assert line.count == 4


def arrivals(line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> MemoryQueue:
    """Return the queue to which objects are submitted."""
    queue = MemoryQueue(line.runtime.ticker.read)
    opened = replace(composition.open_submissions(line.runtime), arrivals=lambda: queue)
    monkeypatch.setattr(composition, "open_submissions", lambda _runtime: opened)
    return queue


def admitted(line: CommandLine, queue: MemoryQueue) -> int:
    """Deliver the objects of messages, each of two extents, as functions do; return how many."""
    runtime, refused = line.runtime, MemoryQueue(line.runtime.ticker.read)
    planner = runtime.planner()
    handler = ArrivalHandler(
        context=RuntimeContext(runtime),
        planner=planner,
        start=planner.plan,
        kept=refused,
        arrivals=queue,
        backfill=lambda _wanted: None,
    )
    for body in queue.sent:
        handler.take(body)
    jobs = list(runtime.memory.jobs.list())
    for job in jobs:
        runtime.run(job, 0, 1)
    assert refused.sent == []
    return len(jobs)
