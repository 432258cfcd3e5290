"""Dead letters of records are decoded again and delivered, exactly once, whatever ends a replay."""

import gc
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.golden import Golden
from tests.support.memory_delivery import TOPIC
from tests.support.memory_runtime import BUCKET, Cluster, MemoryRuntime

from extentflow.config.connector import ConnectorConfig
from extentflow.delivery.received_letters import DeadLetter
from extentflow.delivery.redelivery import (
    MOST_REASONS,
    LetterDecoder,
    RedeliveryResult,
    _DecodedLetter,
)
from extentflow.errors import (
    AccessDenied,
    CorruptRecord,
    Misconfigured,
    ObjectArchived,
    Permanent,
    PositionGone,
    ProducerSpent,
    ProgressUnknown,
    SinkUnavailable,
    StoreUnavailable,
    TopicAbsent,
    UnsupportedType,
)
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.kafka import ProducerSettings, Records, RejectedRecord, SlotProgress
from extentflow.kafka.topic_admin import TopicFacts
from extentflow.kafka.topic_limits import TopicLimits
from extentflow.model import ObjectVersion
from extentflow.services.composition import open_dead_letters
from extentflow.services.dead_letter_queues import read_repairs, repair_line
from extentflow.storage import ObjectStore
from extentflow.testing.broker import MemorySink
from extentflow.wiring.redeliveries import changed_keys, open_redelivery

DEAD = "dead"
HEAD = b"id,name\n"
ROWS = [b"1,a", b"x,b", b"3,c", b'y,"d\ne"', b"5,f,g", b"z,h"]
WRONG = {"csv__schema": "id:int64,name:string"}
RIGHT = {"csv__schema": "id:string,name:string"}


class Killed(BaseException):
    """The end of a process, at a call."""


def tolerant(**changes: str) -> dict[str, str]:
    return {
        "input__format": "csv",
        "errors__tolerance": "all",
        "errors__deadletterqueue__topic__name": DEAD,
        "extent__bytes": "1000",
        **changes,
    }


def runtime_with(body: bytes, key: str = "c/a.csv", **changes: str) -> MemoryRuntime:
    """A runtime whose object was delivered, with its dead letters in the queue."""
    runtime = MemoryRuntime()
    runtime.cluster.create_topic(DEAD)
    runtime.put_connector(**tolerant(**changes))
    deliver(runtime, key, body)
    return runtime


def deliver(runtime: MemoryRuntime, key: str, body: bytes) -> None:
    runtime.memory_store.put(BUCKET, key, body)
    config, revision = runtime.connectors.latest("c")
    version = runtime.memory_store.head(BUCKET, key)
    runtime.run(runtime.planner().register(runtime.requests.make(config, revision, version, 1)), 0)


def values(runtime: MemoryRuntime) -> list[bytes | None]:
    return [record.value for record in runtime.cluster.read_committed(TOPIC)]


def letters(runtime: MemoryRuntime, *, everything: bool = False) -> list[dict[str, Any]]:
    found = open_dead_letters(runtime, "c").list(everything=everything)
    return [repair_line(one) for one in found]


def replay(runtime: MemoryRuntime, repairs: Path | None = None) -> RedeliveryResult:
    return open_dead_letters(runtime, "c").replay(repairs)


CSV = HEAD + b"\n".join(ROWS)


def test_a_corrected_connector_delivers_what_its_dead_letters_hold() -> None:
    runtime = runtime_with(CSV, **WRONG)
    assert [one["record"] for one in letters(runtime)] == ["x,b", 'y,"d\ne"', "5,f,g", "z,h"]
    delivered = values(runtime)
    runtime.put_connector(**tolerant(**RIGHT))

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (3, 1, 0)
    assert values(runtime)[len(delivered) :] == [
        b'{"id":"x","name":"b"}',
        b'{"id":"y","name":"d\\ne"}',
        b'{"id":"z","name":"h"}',
    ]
    (still,) = letters(runtime)
    assert (still["record"], still["attempt"], still["location"]) == ("5,f,g", 2, "28")
    assert still["reason"] == "expected 2 fields, got 3"


def test_a_queue_that_does_not_exist_yet_suggests_no_other_topic() -> None:
    runtime = MemoryRuntime()
    runtime.put_connector(**tolerant(**RIGHT))

    with pytest.raises(
        TopicAbsent, match=r"connector c has no dead letters.*--create-topic partitions=1"
    ):
        letters(runtime)


def test_a_repeated_replay_delivers_nothing_twice() -> None:
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT))
    replay(runtime)
    before = values(runtime)

    found = replay(runtime)

    assert (found.records, found.bad) == (0, 1)  # the one that is still bad, once more
    assert values(runtime) == before
    assert [one["attempt"] for one in letters(runtime)] == [3]


def put_unlisted(runtime: MemoryRuntime, **changes: str | None) -> None:
    """Store a revision as the next `run --topic` does, of the first one with these changes."""
    connectors = runtime.memory.connectors
    connectors.delete("c")
    first = connectors.get("c", 1)
    assert first is not None
    changed = {key.replace("__", "."): text for key, text in changes.items()}
    config = {key: text for key, text in {**first.config, **changed}.items() if text is not None}
    connectors.put("c", config, listed=False)


def test_letters_of_an_unlisted_connector_are_replayed_under_their_jobs_revision() -> None:
    runtime = runtime_with(CSV, **WRONG)
    dead = "errors__deadletterqueue__topic__name"
    put_unlisted(runtime, select="name", message__key="column:name")
    put_unlisted(runtime, errors__tolerance=None, csv__schema=None, **{dead: None})
    delivered = len(values(runtime))
    assert [one["record"] for one in letters(runtime)] == ["x,b", 'y,"d\ne"', "5,f,g", "z,h"]

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (0, 4, 0)
    assert [one["attempt"] for one in letters(runtime)] == [2, 2, 2, 2]
    assert len(values(runtime)) == delivered


def test_repairs_of_an_unlisted_connector_are_converted_as_its_job_did(tmp_path: Path) -> None:
    runtime = runtime_with(CSV, **WRONG)
    put_unlisted(runtime, select="name", csv__schema=None)
    first, *_ = letters(runtime)
    delivered = len(values(runtime))

    found = replay(runtime, repaired(tmp_path / "r.jsonl", first | {"record": "2,b"}))

    assert (found.records, found.bad) == (1, 3)
    assert values(runtime)[delivered:] == [b'{"id":2,"name":"b"}']


def test_a_listed_connector_whose_latest_revision_has_no_queue_is_refused(golden: Golden) -> None:
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(input__format="csv")

    with golden.raises(Misconfigured):
        letters(runtime)


def repaired(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_corrected_records_are_delivered_and_others_discarded(tmp_path: Path) -> None:
    runtime = runtime_with(CSV, **WRONG)
    delivered = values(runtime)
    first, second, third, fourth = letters(runtime)
    file = repaired(
        tmp_path / "r.jsonl",
        first | {"record": "2,b"},
        second | {"discard": True},
        {"partition": 0, "offset": third["offset"], "base64": "NSxmZw=="},
    )

    found = replay(runtime, file)

    assert (found.records, found.discarded, found.bad) == (2, 1, 1)
    assert values(runtime)[len(delivered) :] == [b'{"id":2,"name":"b"}', b'{"id":5,"name":"fg"}']
    assert [one["record"] for one in letters(runtime)] == [fourth["record"]]
    again = replay(runtime, file)  # the same file, as after a lost response
    assert (again.records, again.discarded, again.bad) == (0, 0, 1)


def test_repairs_of_letters_that_went_back_to_the_queue_are_refused(
    tmp_path: Path, golden: Golden
) -> None:
    runtime = runtime_with(CSV, **CAST)
    file = repaired(tmp_path / "r.jsonl", *[one | {"discard": True} for one in letters(runtime)])
    replay(runtime)  # all of them are still bad, and get new places
    runtime.put_connector(**tolerant())
    before, waiting = values(runtime), letters(runtime)

    with golden.raises(Misconfigured, match="0/0.*connector c"):
        replay(runtime, file)

    assert (values(runtime), letters(runtime)) == (before, waiting)


def test_repairs_of_no_dead_letter_of_the_connector_are_refused(tmp_path: Path) -> None:
    runtime = runtime_with(CSV, **WRONG)
    send(runtime, Records(DEAD, values_of(b"foreign"), headers=[[("a", None)]]))
    before = letters(runtime, everything=True)
    places = [(0, 4), (0, 99), (7, 0)]
    lines = [{"partition": one, "offset": at, "record": "1,a"} for one, at in places]

    with pytest.raises(Misconfigured) as caught:
        replay(runtime, repaired(tmp_path / "r.jsonl", *lines))

    assert [one.split(":")[0] for one in caught.value.problems] == [
        f"a repair of {one}/{at}" for one, at in places
    ]
    assert letters(runtime, everything=True) == before


def test_a_line_that_says_row_of_another_letter_is_refused(tmp_path: Path, golden: Golden) -> None:
    runtime = runtime_with(CSV, **WRONG)
    before = letters(runtime)
    line = {"partition": 0, "offset": before[0]["offset"], "row": True}

    with golden.raises(Misconfigured, match='"row"'):
        replay(runtime, repaired(tmp_path / "r.jsonl", line))

    assert letters(runtime) == before


def test_an_interrupted_replay_continues_with_its_own_repairs_only(tmp_path: Path) -> None:
    runtime = runtime_with(CSV, **WRONG)
    first, second, *_ = letters(runtime)
    file = repaired(tmp_path / "r.jsonl", first | {"discard": True}, second | {"record": "2,b"})
    other = repaired(tmp_path / "o.jsonl", first | {"record": "1,a"})
    calls = count(1)

    def killed(name: str) -> None:
        if name == "commit" and next(calls) == 2:
            raise Killed

    listen(runtime.cluster, killed)
    with pytest.raises(Killed):
        open_dead_letters(runtime, "c").replay(file, letters_per_transaction=1)
    listen(runtime.cluster, lambda _name: None)
    before = len(values(runtime))

    with pytest.raises(
        Misconfigured, match=f"a repair of 0/{first['offset']}: connector c has no such"
    ):
        replay(runtime, other)
    assert [one["offset"] for one in letters(runtime)] == [1, 2, 3]  # what can be repaired
    found = replay(runtime, file)

    assert (found.records, found.discarded, found.bad) == (1, 0, 2)
    assert values(runtime)[before:] == [b'{"id":2,"name":"b"}']


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "no repair"),
        ("[]", "no repair"),
        ('{"partition":0,"offset":"1","record":"a"}', "partition and offset are numbers"),
        ('{"partition":0,"offset":true,"record":"a"}', "partition and offset are numbers"),
        ('{"partition":0,"record":"a"}', "no repair"),
        ('{"partition":0,"offset":1}', "neither record nor base64 is a text"),
        ('{"partition":0,"offset":1,"base64":"?"}', "no repair"),
        ('{"partition":0,"offset":1,"record":null,"row":false}', "neither record nor base64"),
        ('{"partition":0,"offset":1,"record":1,"row":true}', "neither record nor base64"),
        ('{"partition":0,"offset":1,"record":""}', 'is empty; to deliver nothing, write "discard"'),
        ('{"partition":0,"offset":1,"base64":""}', "the record is empty"),
        ('{"partition":0,"offset":1,"record":"a","discard":"true"}', "discard is true or false"),
        ('{"partition":0,"offset":1,"row":true,"discard":1}', "discard is true or false"),
        ('{"partition":0,"offset":1,"row":true,"discard":null}', "discard is true or false"),
        ('{"partition":0,"offset":7,"record":"a"}', "is there twice"),
        ('{"partition":0,"offset":7,"row":true}', "is there twice"),
        ("[" * 100_000, "no repair"),
    ],
)
def test_a_file_that_states_no_repairs_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"partition":0,"offset":7,"record":"a"}\n\n' + line)

    with pytest.raises(Misconfigured) as caught:
        read_repairs(path)

    (found,) = caught.value.problems
    assert found.startswith(f"{path}:3: ")
    assert problem in found


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_replay_ends_before_the_letters_that_it_sends(partitions: int) -> None:
    runtime = MemoryRuntime()
    runtime.cluster.create_topic(DEAD, partitions)
    runtime.put_connector(**tolerant(**WRONG))
    deliver(runtime, "c/a.csv", CSV)
    before = sorted(one["record"] for one in letters(runtime))
    found = RedeliveryResult()

    # Fewer at once than there are: the rest is read while the first ones are sent.
    replace(open_redelivery(runtime, "c"), letters_ahead=1).run({}, found)

    assert (found.records, found.bad, found.left) == (0, len(before), 0)
    after = letters(runtime)
    assert sorted(one["record"] for one in after) == before
    assert {one["attempt"] for one in after} == {2}


# -- crashes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [None, True, False], ids=["kill", "committed", "not_committed"])
def test_a_replay_that_ends_at_any_step_loses_and_doubles_nothing(lost: bool | None) -> None:  # noqa: FBT001
    step, ended = 0, 0
    while True:
        step += 1
        runtime = runtime_with(CSV, **WRONG)
        runtime.put_connector(**tolerant(**RIGHT))
        before, fault = len(values(runtime)), Fault(runtime.cluster, step, lost)
        listen(runtime.cluster, fault)
        try:
            open_dead_letters(runtime, "c").replay(letters_per_transaction=2)
        except (Killed, SinkUnavailable):
            ended += 1
        listen(runtime.cluster, lambda _name: None)

        replay(runtime)
        replay(runtime)

        names = [json.loads(value or b"")["name"] for value in values(runtime)[before:]]
        assert names == ["b", "d\ne", "h"], step
        assert [one["record"] for one in letters(runtime)] == ["5,f,g"], step
        if fault.calls < step:
            break
    assert ended >= (3 if lost is None else 2)


@dataclass
class Fault:
    """Ends the process at the call `step`, or loses the answer where that is a commit."""

    cluster: Cluster
    step: int
    lost: bool | None
    calls: int = 0

    def __call__(self, name: str) -> None:
        self.calls += 1
        if self.calls != self.step:
            return
        if self.lost is None:
            raise Killed(name)
        if name in ("commit", "mark"):
            self.cluster.lose_commit_answer(committed=self.lost)


def listen(cluster: Cluster, on_call: Callable[[str], None]) -> None:
    cluster._on_call = on_call


def test_an_earlier_replay_is_fenced() -> None:
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT))
    other: list[RedeliveryResult] = []

    def on_call(name: str) -> None:
        if name == "commit":
            listen(runtime.cluster, lambda _name: None)
            other.append(replay(runtime))

    listen(runtime.cluster, on_call)
    before = len(values(runtime))
    with pytest.raises(Exception, match="took over"):
        replay(runtime)

    assert other[0].records == len(values(runtime)) - before == 3


def test_dead_letters_that_were_deleted_before_a_replay_are_reported(golden: Golden) -> None:
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT))
    runtime.cluster.delete_records(DEAD, 0, 3)

    found = replay(runtime)
    again = replay(runtime)

    assert (found.records, found.bad, found.left) == (1, 0, 0)
    golden(*found.reasons)
    assert "offsets 0 to 2" in found.reasons[0]
    assert again.reasons == []


@pytest.mark.parametrize("killed", [False, True])
def test_every_letter_of_a_queue_that_was_created_again_is_replayed(
    golden: Golden, *, killed: bool
) -> None:
    """Trap: those of the new topic before the former one's position were skipped."""
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT))
    if killed:
        listen(runtime.cluster, kill_at("commit"))
        with suppress(Killed):
            replay(runtime)
        listen(runtime.cluster, lambda _name: None)
    else:
        replay(runtime)
    runtime.cluster.create_topic(DEAD)
    runtime.put_connector(**tolerant(**WRONG))
    deliver(runtime, "c/b.csv", CSV)
    runtime.put_connector(**tolerant(**RIGHT))
    before, listed = len(values(runtime)), letters(runtime)

    found, again = replay(runtime), replay(runtime)

    assert found.records == len(values(runtime)) - before == 3
    assert found.records + found.bad == len(listed)
    assert (again.records, again.reasons) == (0, [])
    golden(*found.reasons)
    assert "was created again: its id was" in found.reasons[0]


def test_a_queue_that_was_created_again_twice_is_compared_with_the_topic_read_last() -> None:
    runtime = runtime_with(CSV, **WRONG)
    replay(runtime)
    runtime.cluster.create_topic(DEAD)
    (second,) = open_dead_letters(runtime, "c").redelivery().broker.present_topics([DEAD]).values()
    assert "was created again" in replay(runtime).reasons[0]
    assert replay(runtime).reasons == []
    runtime.cluster.create_topic(DEAD)

    found, again = replay(runtime), replay(runtime)

    assert f"its id was {second}" in found.reasons[0]
    assert "from offset 0 on are lost" in found.reasons[0]
    assert again.reasons == []


@pytest.mark.parametrize("when", ["during", "killed", "between", "deleted"])
def test_a_topic_that_lost_what_replays_delivered_is_said_once(golden: Golden, when: str) -> None:
    """Trap: "3 records delivered", although the topic was created again behind the first one."""
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT))
    commits = count(1)

    def on_call(name: str) -> None:
        if name == "commit" and next(commits) == 2:
            listen(runtime.cluster, lambda _name: None)
            runtime.cluster.create_topic(TOPIC)
            if when == "killed":
                raise Killed(name)

    queue = open_dead_letters(runtime, "c")
    if when in ("during", "killed"):
        listen(runtime.cluster, on_call)
        with suppress(Killed):
            found = queue.replay(letters_per_transaction=1)
    else:
        queue.replay()
        if when == "deleted":
            runtime.cluster.delete_topic(TOPIC)
        else:
            runtime.cluster.create_topic(TOPIC)
    if when != "during":
        found = queue.replay(letters_per_transaction=1)
    if when == "deleted":
        runtime.cluster.create_topic(TOPIC)

    again = queue.replay()

    golden(*found.reasons)
    assert f"topic {TOPIC}" in found.reasons[-1]
    assert again.reasons == []


def test_a_queue_without_an_id_that_is_shorter_than_its_position_is_refused(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "present_topics", lambda _, names: dict.fromkeys(names, ""))
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT))
    replay(runtime)
    runtime.cluster.create_topic(DEAD)

    for call in (replay, letters):
        with golden.raises(PositionGone, match="created again"):
            call(runtime)


def identity(runtime: MemoryRuntime) -> str:
    return f"{runtime.settings.app_id}.{runtime.ledger.id}.deadletters.c.{DEAD}.0"


def test_a_finished_replay_is_known_after_kafka_deleted_its_offset() -> None:
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT))
    replay(runtime)
    before = values(runtime)
    runtime.cluster.forget_group(identity(runtime))

    replay(runtime)

    assert values(runtime) == before


def test_an_interrupted_replay_whose_offset_is_lost_needs_a_decision() -> None:
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT))
    listen(runtime.cluster, kill_at("commit"))
    with pytest.raises(Killed):
        replay(runtime)
    listen(runtime.cluster, lambda _name: None)
    runtime.cluster.forget_group(identity(runtime))

    with pytest.raises(ProgressUnknown, match="--accept-duplicates"):
        replay(runtime)
    found = open_dead_letters(runtime, "c").replay(accept_duplicates=True)

    assert (found.records, found.bad) == (3, 1)


def kill_at(wanted: str) -> Callable[[str], None]:
    def on_call(name: str) -> None:
        if name == wanted:
            raise Killed(name)

    return on_call


# -- what cannot be decoded again ------------------------------------------------------------------


LARGE = b"x" * 2_000_000


def test_a_record_that_is_too_large_for_the_queue_stays_in_it_without_its_bytes(
    golden: Golden,
) -> None:
    runtime = runtime_with(HEAD + b"1," + LARGE + b",", **RIGHT)

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (0, 0, 1)
    golden(found.reasons[0])
    assert "2000003" in found.reasons[0]
    assert [(one["record"], one["attempt"]) for one in letters(runtime)] == [(None, 2)]


def limit(runtime: MemoryRuntime, topic: str, limit_bytes: int) -> None:
    """Lower the topic's `max.message.bytes`, and with it that of the producers for it."""
    found = runtime.cluster.topics

    def topics(names: list[str]) -> list[TopicFacts]:
        return [
            replace(one, max_message_bytes=limit_bytes) if one.name == topic else one
            for one in found(names)
        ]

    runtime.cluster.__dict__["topics"] = topics
    runtime.expire_topics()


@pytest.mark.parametrize("rejected", [[7], [0], [19], [3, 4, 12]])
def test_a_letter_whose_record_brokers_reject_stays_and_no_other(rejected: list[int]) -> None:
    """So close to the limit that only the brokers judge."""
    rows = [f"x{row},{1_200_000 if row in rejected else 1_000_000}" for row in range(20)]
    wrong = {"csv__schema": "id:int64,t:int64", "message__timestamp": "column:t"}
    runtime = runtime_with(b"id,t\n" + "\n".join(rows).encode(), **wrong)
    runtime.cluster.create_topic(TOPIC, config={"message.timestamp.after.max.ms": "60000"})
    runtime.put_connector(**tolerant(**{**wrong, "csv__schema": "id:string,t:int64"}))

    for attempt in (2, 3):
        found = replay(runtime)

        assert found.left == len(rejected)
        assert all("brokers reject it for topic records" in why for why in found.reasons)
        assert len(found.reasons) == len(rejected)
        delivered = [json.loads(value or b"")["id"] for value in values(runtime)]
        assert delivered == [f"x{row}" for row in range(20) if row not in rejected]
        stay = [(one["record"], one["attempt"]) for one in letters(runtime)]
        assert stay == [(rows[row], attempt) for row in rejected]


def test_a_queue_that_rejects_a_letter_ends_the_replay(golden: Golden) -> None:
    runtime = runtime_with(CSV, **WRONG)
    before = runtime.cluster._log.topics[DEAD]
    before.limits = TopicLimits.of(DEAD, {"cleanup.policy": "compact"})

    with golden.raises(CorruptRecord, match="topic dead"):
        replay(runtime)

    assert len(letters(runtime)) == 4


LONG_KEY = "c/" + "/".join(["region=eu-central-1"] * 40) + "/a.csv"


def test_a_letter_that_the_queue_rejects_without_its_bytes_ends_the_replay_and_stays(
    golden: Golden,
) -> None:
    runtime = runtime_with(CSV, LONG_KEY, **WRONG)
    before = letters(runtime)
    limit(runtime, TOPIC, 1_200)  # of the headers alone, which name the object, there are more

    with golden.raises(CorruptRecord):
        replay(runtime)

    assert len(before) == 4
    assert letters(runtime) == before


def test_a_letter_that_only_the_producer_of_the_topic_cannot_send_whole_loses_its_bytes() -> None:
    runtime = runtime_with(HEAD + b"x," + b"b" * 2_000, **WRONG)
    limit(runtime, TOPIC, 1_500)
    sends: list[str] = []
    listen(runtime.cluster, lambda name: sends.append(name) if name == "send" else None)

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (0, 1, 0)
    (letter,) = letters(runtime)
    assert (letter["record"], letter["attempt"]) == (None, 2)
    assert len(sends) == 1  # a letter whose bytes are known to be too many


# -- rows of objects -------------------------------------------------------------------------------

CAST = {"transforms": "n", "transforms__n__type": "Cast", "transforms__n__spec": "id:int64"}


def test_rows_that_transforms_rejected_are_read_from_the_object_again() -> None:
    runtime = runtime_with(CSV, **CAST)
    assert [one["record"] for one in letters(runtime)] == [None, None, "5,f,g", None]
    delivered = values(runtime)
    runtime.put_connector(**tolerant())

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (3, 1, 0), found.reasons
    assert values(runtime)[len(delivered) :] == [
        b'{"id":"x","name":"b"}',
        b'{"id":"y","name":"d\\ne"}',
        b'{"id":"z","name":"h"}',
    ]


def test_rows_that_are_rejected_again_can_be_replayed_again() -> None:
    runtime = runtime_with(CSV, **CAST)
    again = replay(runtime)
    assert (again.records, again.bad, again.left) == (0, 4, 0)
    assert [one["attempt"] for one in letters(runtime)] == [2] * 4
    runtime.put_connector(**tolerant())

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (3, 1, 0)


def test_a_row_that_is_repaired_is_delivered_as_the_file_says(tmp_path: Path) -> None:
    runtime = runtime_with(CSV, **CAST)
    first, second, *_ = letters(runtime)
    file = repaired(tmp_path / "r.jsonl", first | {"record": "2,b"}, second | {"discard": True})

    found = replay(runtime, file)

    assert (found.records, found.discarded, found.bad, found.left) == (1, 1, 2, 0)
    assert values(runtime)[-1] == b'{"id":2,"name":"b"}'


def parquet_of(ids: list[str]) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ids}), out, row_group_size=2)
    return bytes(out.getvalue())


@pytest.mark.parametrize(
    ("condition", "delivered", "filtered"),
    [("", [b'{"id":"x"}', b'{"id":"y"}'], 0), ("id > 'x'", [b'{"id":"y"}'], 1)],
)
def test_rows_of_parquet_are_read_again_and_filtered(
    condition: str, delivered: list[bytes], filtered: int
) -> None:
    body = parquet_of(["1", "x", "3", "4", "5", "y"])
    runtime = runtime_with(body, "c/a.parquet", input__format="parquet", **CAST)
    before = len(values(runtime))
    keep = {
        "transforms": "f",
        "transforms__f__type": "Filter",
        "transforms__f__predicate": "p",
        "transforms__f__negate": "true",
        "predicates": "p",
        "predicates__p__type": "Condition",
        "predicates__p__condition": condition,
    }
    runtime.put_connector(**tolerant(input__format="parquet", **(keep if condition else {})))

    found = replay(runtime)

    assert (found.filtered, found.bad, found.left) == (filtered, 0, 0), found.reasons
    assert values(runtime)[before:] == delivered


def test_what_the_topic_rejected_is_read_from_the_object_again() -> None:
    runtime = runtime_with(HEAD + b"1," + LARGE, **RIGHT)
    assert [one["record"] for one in letters(runtime)] == [None]  # too large for the queue, too
    again = replay(runtime)
    assert (again.records, again.bad, again.left) == (0, 1, 0)
    runtime.put_connector(**tolerant(**RIGHT, select="id"))

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (1, 0, 0)
    assert values(runtime) == [b'{"id":"1"}']


HALF = HEAD + b'1,a\ny,"d\nq,e"\nz,h\n'


@pytest.mark.parametrize(
    ("body", "first", "then", "named"),
    [
        # Under it a record begins at the same byte, and ends within the one of before.
        (HALF, {}, {"csv__quote__char": "^"}, "csv.quote.char"),
        (HALF, {}, {"csv__header": "false", **RIGHT}, "csv.header, csv.schema"),
        (HALF, {}, {"csv__separator__char": ";", **RIGHT}, "csv.separator.char, csv.schema"),
        (HALF, {}, {"input__format": "text"}, "input.format"),
        (HALF, {}, {"input__format": "bytes"}, "input.format"),
        (HALF, {}, {"character__set": "cp1252"}, "character.set"),
        (HALF, {}, {"file__compression__type": "gzip"}, "file.compression.type"),
        (HALF, {}, {"record__max__bytes": "5"}, "record.max.bytes"),
        (HEAD + b'1,"d\ne",2\n', {"csv__quote__char": "'"}, {}, "csv.quote.char"),
    ],
)
def test_no_row_is_read_where_the_connector_decodes_otherwise_than_the_job(
    body: bytes, first: dict[str, str], then: dict[str, str], named: str, golden: Golden
) -> None:
    runtime = runtime_with(body, **CAST, **first)
    rows = sum(one["record"] is None for one in letters(runtime))
    assert rows
    before = values(runtime)
    runtime.put_connector(**tolerant(**then))

    found = replay(runtime)

    assert (found.records, found.left) == (0, rows)
    expected = (
        f"decodes records otherwise than its revision 1, which the job pins: {named}; restore"
    )
    assert expected in found.reasons[0]
    golden(found.reasons[0])
    assert "--repairs" in found.reasons[0]
    assert values(runtime) == before

    runtime.put_connector(**tolerant(**first))
    again = replay(runtime)

    assert (again.records, again.left) == (rows, 0), again.reasons


def test_another_name_of_a_secret_reads_the_same_rows() -> None:
    encryption = "parquet.encryption.footer.key"
    runtime = runtime_with(parquet_of(["x"]), "c/a.parquet", input__format="parquet", **CAST)
    secret = {encryption: "${env:EXTENTFLOW_OTHER_KEY}"}
    job = runtime.memory.jobs.get(letters(runtime)[0]["job"])
    assert job is not None
    before, _ = runtime.connectors.latest("c")
    runtime.put_connector(**tolerant(input__format="parquet", **secret))
    after, _ = runtime.connectors.latest("c")

    assert before.options_of("parquet") != after.options_of("parquet")
    assert list(changed_keys(before, after, job)) == []


class Forgetful(ConnectorCatalogue):
    """Connectors whose ledger lacks the first revision."""

    def revision(self, name: str, revision: int) -> ConnectorConfig:
        return super().revision(name, 99 if revision == 1 else revision)


def test_no_row_is_read_without_the_revision_that_its_job_pins(golden: Golden) -> None:
    runtime = runtime_with(CSV, **CAST)
    before = values(runtime)
    runtime.put_connector(**tolerant())
    runtime.__dict__["connectors"] = Forgetful(runtime.ledger)

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (0, 1, 3)
    golden(found.reasons[0])
    assert "revision 99" in found.reasons[0]
    assert "--repairs" in found.reasons[0]
    assert values(runtime) == before


def test_a_location_counts_what_its_format_counts(tmp_path: Path, golden: Golden) -> None:
    runtime = runtime_with(parquet_of(["x", "y"]), "c/a.parquet", input__format="parquet", **CAST)
    first, _ = letters(runtime)
    before = values(runtime)
    runtime.put_connector(**tolerant(input__format="text"))

    # One is repaired: the record would be sent as if it stood at the byte 0.
    found = replay(runtime, repaired(tmp_path / "r.jsonl", first | {"record": "x"}))

    assert (found.records, found.left) == (0, 2)
    golden(found.reasons[0])
    assert "row 0" in found.reasons[0]
    assert values(runtime) == before


def test_a_letter_of_no_bytes_stays_with_this_reason(golden: Golden) -> None:
    runtime = runtime_with(HEAD, **WRONG)
    deliver(runtime, "c/b.csv", CSV)
    headers = letter_headers(runtime)
    runtime.cluster.create_topic(DEAD)
    send(runtime, Records(DEAD, values_of(b""), headers=[headers]))

    found = replay(runtime)

    assert (found.records, found.left) == (0, 1)
    golden(found.reasons[0])


def test_a_listing_tells_rows_from_records_that_are_lost(tmp_path: Path) -> None:
    runtime = runtime_with(CSV, **CAST)
    listed = letters(runtime)
    assert [one["row"] for one in listed] == [True, True, False, True]
    runtime.put_connector(**tolerant())

    lines = [one | ({} if one["row"] else {"record": "5,fg"}) for one in listed]
    found = replay(runtime, repaired(tmp_path / "r.jsonl", *lines))

    assert (found.records, found.bad, found.left) == (4, 0, 0), found.reasons


def test_a_value_that_the_topic_rejected_is_not_listed_as_a_record(tmp_path: Path) -> None:
    runtime = runtime_with(
        HEAD + b"1," + b"x" * 600_000, **RIGHT, headers="a=text:" + "y" * 500_000
    )
    (letter,) = letters(runtime)
    assert (letter["record"], letter["row"]) == (None, True)
    runtime.put_connector(**tolerant(**RIGHT))

    found = replay(runtime, repaired(tmp_path / "r.jsonl", letter))

    assert (found.records, found.bad, found.left) == (1, 0, 0), found.reasons


@pytest.mark.parametrize("removed", [False, True])
def test_a_row_of_an_object_that_was_replaced_stays_until_it_is_discarded(
    golden: Golden, *, removed: bool
) -> None:
    """Trap: such letters went round in each replay, and nothing named the way out."""
    runtime = runtime_with(CSV, **CAST)
    runtime.memory_store.put(BUCKET, "c/a.csv", CSV.replace(b"x", b"7"))
    if removed:
        runtime.memory_store.remove(BUCKET, "c/a.csv")
    before = values(runtime)

    found = replay(runtime)

    assert (found.records, found.left) == (0, 4)
    assert values(runtime) == before
    golden(found.reasons[0])
    assert "--discard" in found.reasons[0]


# -- transactions ----------------------------------------------------------------------------------


@dataclass
class Watched:
    """A store that notes whether a transaction was open at its reads, and each may take long."""

    store: ObjectStore
    cluster: Cluster
    open: bool = False
    reads: int = 0
    within: int = 0
    commits: int = 0
    begun: int = 0

    def __post_init__(self) -> None:
        listen(self.cluster, self.note)

    def note(self, name: str) -> None:
        self.begun += name == "send" and not self.open
        self.commits += name == "commit"
        self.open = (self.open or name == "send") and name != "commit"

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        self.reads += 1
        self.within += self.open
        return self.store.read(version, start, end)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the rest of the store
        return getattr(self.store, name)


EXTENTS, EACH = 6, 4


def interleaved() -> MemoryRuntime:
    """A runtime with dead letters of six objects, which take turns in the queue."""
    runtime = runtime_with(HEAD, "c/none.csv", **CAST)
    for number in range(EXTENTS):
        deliver(
            runtime,
            f"c/{number}.csv",
            HEAD + b"".join(b"x%d,%d\n" % (number, at) for at in range(EACH)),
        )
    records = list(runtime.cluster.read_committed(DEAD))
    runtime.cluster.create_topic(DEAD)
    for at in range(EACH):
        for one in records[at::EACH]:
            send(runtime, Records(DEAD, pa.nulls(1, pa.binary()), headers=[list(one.headers)]))
    runtime.put_connector(**tolerant())
    return runtime


@dataclass
class Refusing:
    """A store that raises an error for the reads of one object."""

    store: ObjectStore
    key: str
    error: Exception

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        if version.key == self.key:
            raise self.error
        return self.store.read(version, start, end)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the rest of the store
        return getattr(self.store, name)


@pytest.mark.parametrize("error", [AccessDenied("s3 said 403"), ObjectArchived("in Glacier")])
def test_rows_of_an_object_that_cannot_be_read_stay_and_the_others_are_delivered(
    error: Exception,
) -> None:
    runtime = interleaved()
    before = len(values(runtime))
    runtime.reads = Refusing(runtime.memory_store, "c/2.csv", error)

    found = replay(runtime)

    assert (found.records, found.left) == ((EXTENTS - 1) * EACH, EACH)
    assert str(error) in found.reasons[0]
    assert len(values(runtime)) - before == (EXTENTS - 1) * EACH
    assert {one["object"] for one in letters(runtime)} == {f"s3://{BUCKET}/c/2.csv"}
    assert len(letters(runtime)) == EACH


@pytest.mark.parametrize(
    ("error", "key", "delivered"),
    [
        # Objects are decoded in the order of their jobs: what is decoded at first may stand behind.
        (Permanent("broken"), "c/5.csv", 5),
        (Permanent("broken"), "c/2.csv", 2),
        (Permanent("broken"), "c/0.csv", 0),
        (StoreUnavailable("503"), "c/0.csv", 0),
    ],
)
def test_an_error_of_another_kind_ends_the_replay_behind_what_is_decoded(
    error: Exception, key: str, delivered: int
) -> None:
    runtime = interleaved()
    before = len(values(runtime))
    runtime.reads = Refusing(runtime.memory_store, key, error)

    for _ in range(2):
        with pytest.raises(type(error), match=str(error)):
            replay(runtime)

    assert len(values(runtime)) - before == delivered
    runtime.reads = runtime.memory_store
    assert replay(runtime).records == EXTENTS * EACH - delivered
    assert len(values(runtime)) - before == EXTENTS * EACH


def test_what_was_decoded_before_the_store_became_unavailable_is_delivered() -> None:
    runtime = runtime_with(HEAD + b"x,0\n", "c/0.csv", **CAST)
    deliver(runtime, "c/1.csv", HEAD + b"x,1\n")
    jobs = [one["job"] for one in letters(runtime)]
    runtime.put_connector(**tolerant())
    last = 1 if jobs[0] < jobs[1] else 0  # of what is decoded
    runtime.reads = Refusing(runtime.memory_store, f"c/{last}.csv", StoreUnavailable("503"))
    before = len(values(runtime))

    with pytest.raises(StoreUnavailable):
        replay(runtime)

    assert len(values(runtime)) - before == last  # only what stands before it in the queue


def test_each_extent_is_decoded_once_and_before_any_transaction() -> None:
    runtime = interleaved()
    before = len(values(runtime))
    runtime.reads = store = Watched(runtime.memory_store, runtime.cluster)

    found = replay(runtime)

    assert (found.records, found.left) == (EXTENTS * EACH, 0), found.reasons
    assert [json.loads(one or b"")["name"] for one in values(runtime)[before:]] == [
        str(at) for at in range(EACH) for _ in range(EXTENTS)
    ]
    assert (store.within, store.commits) == (0, 1)
    assert store.reads <= 3 * EXTENTS  # the header, the extent, and what follows it


@pytest.mark.parametrize(("letters_ahead", "bytes_ahead"), [(5, 1_000), (24, 60), (24, 1)])
def test_decoded_letters_are_bounded_and_sent_in_their_order(
    letters_ahead: int, bytes_ahead: int
) -> None:
    runtime = interleaved()
    before = len(values(runtime))
    runtime.reads = store = Watched(runtime.memory_store, runtime.cluster)
    found = RedeliveryResult()

    opened = open_redelivery(runtime, "c")
    replace(opened, letters_ahead=letters_ahead, bytes_ahead=bytes_ahead).run({}, found)

    assert (found.records, found.left) == (EXTENTS * EACH, 0), found.reasons
    assert [json.loads(one or b"")["name"] for one in values(runtime)[before:]] == [
        str(at) for at in range(EACH) for _ in range(EXTENTS)
    ]
    assert store.within == 0
    assert store.commits >= EXTENTS * EACH // 5


def test_a_transaction_ends_when_its_time_is_over() -> None:
    runtime = interleaved()
    store = Watched(runtime.memory_store, runtime.cluster)

    def slow(name: str) -> None:
        store.note(name)
        runtime.ticker.now += 4 * (name == "send")  # transaction.max.seconds is 10

    listen(runtime.cluster, slow)
    found = replay(runtime)

    assert (found.records, store.commits) == (EXTENTS * EACH, EXTENTS * EACH // 3)


def test_what_was_sent_is_not_in_memory_when_the_next_letters_are_decoded() -> None:
    rows = 4
    runtime = runtime_with(HEAD + b"x,y\n" * rows, **CAST)
    runtime.put_connector(**tolerant())
    held: list[int] = []

    def alive() -> int:
        gc.collect()
        return sum(type(one) is _DecodedLetter for one in gc.get_objects())

    opened, others = open_redelivery(runtime, "c"), alive()  # of other tests

    def open_letter(letter: DeadLetter) -> LetterDecoder:
        held.append(alive())
        return opened.open_letter(letter)

    replace(opened, open_letter=open_letter, letters_ahead=rows // 2).run({}, RedeliveryResult())

    assert len(held) > rows
    assert max(held) - others <= rows // 2


def letter_headers(runtime: MemoryRuntime) -> list[tuple[str, bytes | None]]:
    return list(runtime.cluster.read_committed(DEAD)[0].headers)


def values_of(*values: bytes) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def send(runtime: MemoryRuntime, records: Records) -> None:
    sink = runtime.cluster.fence("other", ProducerSettings(exactly_once=False)).open()
    assert not sink.send(records)


def test_dead_letters_of_others_are_left_alone() -> None:
    runtime = runtime_with(CSV, **WRONG)
    send(runtime, Records(DEAD, values_of(b"foreign"), headers=[[("a", None)]]))
    runtime.put_connector(**tolerant(**RIGHT))

    found = replay(runtime)

    assert (found.records, found.bad, found.left) == (3, 1, 0)
    assert "foreign" not in [one["record"] for one in letters(runtime, everything=True)]


def test_a_job_that_the_ledger_lacks_keeps_its_dead_letter() -> None:
    runtime = runtime_with(CSV, **WRONG)
    headers = [
        (name, b"none-0" if name == "__connect.errors.task.id" else value)
        for name, value in letter_headers(runtime)
    ]
    many = MOST_REASONS + 5
    send(runtime, Records(DEAD, values_of(*[b"7,k"] * many), headers=[headers] * many))

    found = replay(runtime)

    assert (found.left, len(found.reasons)) == (many, MOST_REASONS)
    assert found.reasons[0].endswith("the ledger has no job none")


@pytest.mark.parametrize(
    ("changes", "attempt"),
    [
        ({"extentflow.attempt": "\u00b2".encode()}, 2),
        ({"extentflow.attempt": b"9" * 5_000}, 2),
        ({"extentflow.attempt": b"-1"}, 2),
        ({"extentflow.attempt": b"7"}, 8),
    ],
)
def test_an_attempt_that_is_no_number_counts_as_the_first(
    changes: dict[str, bytes], attempt: int
) -> None:
    runtime = runtime_with_headers(changes)

    found = replay(runtime)

    assert (found.records, found.bad) == (0, 1)
    assert [one["attempt"] for one in letters(runtime)] == [attempt]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"extentflow.extent": b"0-99999999"}, "name the extent 0-99999999, and the object has"),
        ({"extentflow.extent": b"20-10"}, "name the extent 20-10, and the object has"),
        ({"extentflow.extent": b"0-" + b"9" * 30}, "name no place of an object"),
        ({"extentflow.extent": b"-5-10"}, "name no place of an object"),
        ({"extentflow.offset": b"9" * 5_000}, "name no place of an object"),
        ({"extentflow.offset": "\u0663".encode()}, "name no place of an object"),
        ({"__connect.errors.task.id": b"no-number"}, "name no place of an object"),
    ],
)
def test_a_place_that_no_object_has_keeps_its_letter(
    changes: dict[str, bytes], reason: str
) -> None:
    runtime = runtime_with_headers(changes)

    found = replay(runtime)

    assert (found.records, found.left) == (0, 1)
    assert reason in found.reasons[0]
    assert len(letters(runtime)) == 1


def runtime_with_headers(changes: dict[str, bytes]) -> MemoryRuntime:
    """A runtime with one dead letter, a row of an object, with these headers changed."""
    runtime = runtime_with(CSV, **CAST)
    headers = list({**dict(letter_headers(runtime)), **changes}.items())
    runtime.cluster.create_topic(DEAD)
    send(runtime, Records(DEAD, pa.nulls(1, pa.binary()), headers=[headers]))
    return runtime


def test_columns_that_the_connector_cannot_convert_end_the_replay_before_their_letter(
    golden: Golden,
) -> None:
    runtime = runtime_with(CSV, **WRONG)
    runtime.put_connector(**tolerant(**RIGHT, select="nope"))

    with golden.raises(UnsupportedType, match="'nope'"):
        replay(runtime)

    assert len(letters(runtime)) == 4


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"errors__tolerance": "none"}, "has no dead letter queue"),
        (
            {"errors__deadletterqueue__context__headers__enable": "false"},
            "do not say which records they hold",
        ),
    ],
)
def test_a_connector_whose_dead_letters_cannot_be_found_is_refused(
    changes: dict[str, str], problem: str
) -> None:
    runtime = MemoryRuntime()
    given = {**tolerant(), **changes}
    if changes.get("errors__tolerance") == "none":
        del given["errors__deadletterqueue__topic__name"]
    runtime.put_connector(**given)

    with pytest.raises(Misconfigured, match=problem):
        replay(runtime)


# -- formats ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fmt", "body", "repair", "expected"),
    [
        ("text", b"a\n\xff\nb", "c", b"c"),
        ("jsonl", b'{"a":1}\n{"a":\n', '{"a":2}', b'{"a":2}'),
        ("json", b'[{"a":1},{"a":nul}]', '{"a": 2}', b'{"a": 2}'),
        ("csv", "a\nü\nx,y".encode("utf-16"), None, b'{"a":"\xc3\xb6"}'),
    ],
)
def test_repaired_records_of_each_line_format_are_delivered(
    tmp_path: Path, fmt: str, body: bytes, repair: str | None, expected: bytes
) -> None:
    runtime = runtime_with(body, key="c/a", input__format=fmt)
    (letter,) = letters(runtime)
    said = {"record": repair} if repair else {"base64": "9gA="}  # in the object's UTF-16
    place = {"partition": letter["partition"], "offset": letter["offset"]}

    found = replay(runtime, repaired(tmp_path / "r.jsonl", place | said))

    assert (found.records, found.bad, found.left) == (1, 0, 0), found.reasons
    assert values(runtime)[-1] == expected


def test_a_replay_uses_a_new_producer_after_each_slow_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = runtime_with(CSV, **WRONG)
    delivered = values(runtime)
    runtime.put_connector(**tolerant(**RIGHT))
    commit, send = MemorySink.commit, MemorySink.send
    slow: list[MemorySink] = []

    def commit_slowly(self: MemorySink, progress: SlotProgress) -> None:
        commit(self, progress)
        slow.append(self)

    def send_unless_spent(self: MemorySink, records: Records) -> Sequence[RejectedRecord]:
        if self in slow:
            raise ProducerSpent("a transaction took 0.14 s to end")
        return send(self, records)

    monkeypatch.setattr(MemorySink, "commit", commit_slowly)
    monkeypatch.setattr(MemorySink, "send", send_unless_spent)

    found = open_dead_letters(runtime, "c").replay(letters_per_transaction=1)

    assert (found.records, found.bad, found.left) == (3, 1, 0)
    assert len(values(runtime)) == len(delivered) + 3
    assert len(slow) == 4
    assert open_dead_letters(runtime, "c").replay().records == 0


def test_discarded_letters_deliver_nothing_and_the_others_stay_as_they_are() -> None:
    runtime = runtime_with(CSV, **WRONG)
    delivered = values(runtime)
    first, second, third, fourth = letters(runtime)
    runtime.put_connector(**tolerant(**RIGHT))  # all but one could be decoded now
    queue = open_dead_letters(runtime, "c")

    found = queue.discard([(0, second["offset"]), (0, third["offset"])])

    assert (found.discarded, found.kept, found.records, found.bad) == (2, 2, 0, 0)
    assert values(runtime) == delivered
    kept = [(one["record"], one["attempt"], one["reason"]) for one in letters(runtime)]
    assert kept == [(one["record"], 1, one["reason"]) for one in (first, fourth)]
    with pytest.raises(Misconfigured, match=f"no dead letter 0/{second['offset']} of connector c"):
        queue.discard([(0, second["offset"])])


@pytest.mark.parametrize("call", range(1, 12))
def test_a_discard_that_is_killed_loses_and_repeats_no_letter(
    call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = runtime_with(CSV, **WRONG)
    before = letters(runtime)
    calls = count(1)

    def killed(_name: str) -> None:
        if next(calls) == call:
            raise Killed

    monkeypatch.setattr(runtime.cluster, "_on_call", killed, raising=True)
    with suppress(Killed, SinkUnavailable):
        open_dead_letters(runtime, "c").discard([(0, before[0]["offset"])])
    monkeypatch.undo()

    replay(runtime)

    left = sorted(one["record"] for one in letters(runtime))
    kept = sorted(one["record"] for one in before[1:])
    assert left in (kept, sorted([before[0]["record"], *kept]))
