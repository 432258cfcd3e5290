"""Bad records of CSV on a real broker: listed, repaired, and delivered exactly once."""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.delivery import PROGRAM, Delivery
from tests.support.waiting import AWAITED_SECONDS

from extentflow.kafka import ProducerSettings, Records, RejectedRecord, Sink, SlotProgress
from extentflow.kafka.broker import KafkaBroker, KafkaFence
from extentflow.services.composition import open_dead_letters

if TYPE_CHECKING:
    pass

ROWS = [f"{'x' if number % 3 else ''}{number},n{number}" for number in range(60)]
WRONG = "id:int64,name:string"
RIGHT = "id:string,name:string"
BAD = [row for row in ROWS if row.startswith("x")]


class Killed(BaseException):
    """The end of a process."""


@dataclass
class DyingSink:
    """A sink whose process ends at one of its commits, before or after it."""

    sink: Sink
    commits: int
    after: bool

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        return self.sink.send(records)

    def commit(self, progress: SlotProgress) -> None:
        self.commits -= 1
        if self.commits == 0 and not self.after:
            raise Killed
        self.sink.commit(progress)
        if self.commits == 0:
            raise Killed

    def abort(self) -> None:
        self.sink.abort()

    def close(self) -> None:
        """Leave the transaction open, as a killed process does."""


@dataclass
class DyingFence:
    """A fence whose sink dies."""

    fence: KafkaFence
    open_with: Callable[[Sink], Sink]

    def read(self) -> SlotProgress | None:
        return self.fence.read()

    def mark(self, progress: SlotProgress) -> None:
        self.fence.mark(progress)

    def open(self) -> Sink:
        return self.open_with(self.fence.open())

    def close(self) -> None:
        self.fence.close()


class DyingBroker(KafkaBroker):
    """A cluster on which the process ends at the second commit."""

    after = False
    opened: list[Sink]

    def fence(self, identity: str, client: ProducerSettings) -> KafkaFence:
        def dying(sink: Sink) -> Sink:
            self.opened.append(sink)
            return DyingSink(sink, 2, self.after)

        fence = super().fence(identity, client)
        return DyingFence(fence, dying)  # type: ignore[return-value]


def delivered(delivery: Delivery) -> list[str]:
    return sorted(str(json.loads(value)["id"]) for value in delivery.values())


def arranged(delivery: Delivery, partitions: int) -> dict[str, str]:
    """Deliver an object whose bad records are in the queue; return the corrected connector."""
    delivery.put("rows.csv", "\n".join(["id,name", *ROWS]).encode())
    config = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": delivery.make_topic("dead", partitions),
    }
    delivery.connector({**config, "csv.schema": WRONG})
    (job,) = delivery.run().jobs
    assert (job.records, job.bad) == (len(ROWS) - len(BAD), len(BAD))
    return {**config, "csv.schema": RIGHT}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.long
def test_a_replay_killed_before_a_commit_delivers_each_record_once(
    delivery: Delivery,
    after: bool,  # noqa: FBT001 - a parameter
) -> None:
    before = arranged(delivery, 1)
    delivery.connector(before)
    runtime = delivery.runtime
    settings = delivery.settings
    dying = DyingBroker({"bootstrap.servers": settings.bootstrap_servers})
    dying.after, dying.opened = after, []
    whole, runtime.__dict__["broker"] = runtime.broker, dying

    with pytest.raises(Killed):
        open_dead_letters(runtime, delivery.connector_name).replay(letters_per_transaction=7)
    runtime.__dict__["broker"] = whole
    rest = open_dead_letters(runtime, delivery.connector_name).replay(letters_per_transaction=7)
    again = open_dead_letters(runtime, delivery.connector_name).replay()

    assert rest.records == len(BAD) - (14 if after else 7)
    assert (again.records, again.bad, again.left) == (0, 0, 0)
    assert delivered(delivery) == sorted(row.partition(",")[0] for row in ROWS)
    for sink in dying.opened:
        sink.close()


@pytest.mark.long
def test_dead_letters_are_listed_repaired_and_delivered_by_commands(
    delivery: Delivery, tmp_path: Path
) -> None:
    arranged(delivery, 3)

    listing = command(delivery, "dead-letters", "--json", "--limit", "1000")
    letters = [json.loads(line) for line in listing.splitlines()]
    assert sorted(one["record"] for one in letters) == sorted(BAD)
    file = tmp_path / "repairs.jsonl"
    repairs = [one | {"record": one["record"].removeprefix("x")} for one in letters]
    file.write_text("".join(json.dumps(one) + "\n" for one in repairs))
    replay = ("replay-dead-letters", "--repairs", str(file), "--json")
    first, second = (json.loads(command(delivery, *replay)) for _ in range(2))

    assert (first["records"], second["records"]) == (len(BAD), 0)
    assert delivered(delivery) == sorted(map(str, range(len(ROWS))))
    assert command(delivery, "dead-letters", "--json") == ""
    assert "has no dead letter left; --all" in command(delivery, "dead-letters", said=True)


def command(delivery: Delivery, *words: str, said: bool = False) -> str:
    """Return what a command writes to its output; `said`: to its error output."""
    done = subprocess.run(
        [str(PROGRAM), *words, "--connector", delivery.connector_name],
        env=delivery.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=AWAITED_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr if said else done.stdout
