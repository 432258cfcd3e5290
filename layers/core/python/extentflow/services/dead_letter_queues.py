"""The dead letters of a connector: list them, and deliver them after a repair."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from extentflow.delivery.received_letters import KEEP, DeadLetter, Repair
from extentflow.delivery.redelivery import LETTERS_PER_TRANSACTION, Redelivery, RedeliveryResult
from extentflow.errors import Misconfigured, TopicAbsent
from extentflow.jobs import preflight
from extentflow.ledger import Ledger

# All repairs are held in memory.
MOST_REPAIR_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """The dead letters of one connector in its dead letter queue topic.

    `ledger` opens the ledger, and `redelivery` the replay; see `open_redelivery`. `require_app`
    binds the ledger to this process's `app.id`.
    """

    connector: str
    ledger: Callable[[], Ledger]
    redelivery: Callable[[], Redelivery]
    require_app: Callable[[], None]

    def list(self, *, everything: bool = False) -> Iterator[DeadLetter]:
        """Yield the dead letters that no replay has passed, or all that the topic still has.

        Raises Misconfigured, SinkUnavailable.
        """
        queue = self.redelivery()
        try:
            ends = queue.ends()
        except TopicAbsent as exc:  # the names of other topics would mislead
            raise TopicAbsent(
                f"connector {self.connector} has no dead letters: topic {queue.topic}, its dead"
                " letter queue, does not exist; `extentflow run` with --create-topic partitions=1"
                " creates it before it delivers"
            ) from exc
        for partition, end in ends.items():
            yield from queue.letters(partition, 0 if everything else queue.unread(partition), end)

    def replay(
        self,
        repairs: Path | None = None,
        *,
        accept_duplicates: bool = False,
        letters_per_transaction: int = LETTERS_PER_TRANSACTION,
    ) -> RedeliveryResult:
        """Decode the dead letters again under the latest revision, and deliver what they hold.

        `repairs` is a file of JSON lines as `repair_line` writes them. Exactly once: a replay that
        was interrupted continues, one that is repeated delivers nothing twice. Raises as
        `Redelivery.run`.
        """
        preflight.require_running(self.ledger(), self.connector)
        self.require_app()
        queue = self.redelivery()
        known = {} if repairs is None else read_repairs(repairs)
        found = RedeliveryResult()
        queue.run(
            known,
            found,
            accept_duplicates=accept_duplicates,
            letters_per_transaction=letters_per_transaction,
        )
        return found

    def discard(self, places: Collection[tuple[int, int]]) -> RedeliveryResult:
        """Discard the dead letters at these partitions and offsets; deliver nothing.

        The others are sent to the queue again as they are, behind the ones that are there. Raises
        Misconfigured where one is not there any more, otherwise as `Redelivery.run`.
        """
        missing = {*places} - {(one.partition, one.offset) for one in self.list()}
        if missing:
            partition, offset = min(missing)
            raise Misconfigured(
                f"there is no dead letter {partition}/{offset} of connector {self.connector}; "
                f"`extentflow dead-letters -c {self.connector}` shows them"
            )
        self.require_app()
        queue = replace(self.redelivery(), others=KEEP)
        found = RedeliveryResult()
        repairs = dict.fromkeys(places, Repair(None))
        queue.run(repairs, found, partitions={partition for partition, _ in places})
        return found


def repair_line(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as one line of a repair file: correct `record`, or `base64`.

    With `row`, a replay reads its record from the object, and the line need not state it. Then
    `record` is null: the bytes of the dead letter, if any, are those of a value.
    """
    line: dict[str, Any] = {"partition": letter.partition, "offset": letter.offset}
    raw = None if letter.is_row else letter.raw
    try:
        line["record"] = None if raw is None else raw.decode()
    except UnicodeDecodeError:
        line["base64"] = b64encode(raw or b"").decode()
    where = letter.text("extentflow.offset") or letter.text("extentflow.row")
    return line | {
        "object": letter.text("extentflow.object"),
        "version": letter.text("extentflow.version"),
        "location": where,
        "row": letter.is_row,
        "reason": letter.reason,
        "attempt": letter.attempt,
        "job": letter.job,
    }


def read_repairs(path: Path) -> dict[tuple[int, int], Repair]:
    """Return the repairs of a file by partition and offset. Raises Misconfigured with all problems.

    A line has `partition`, `offset`, and one of `record` (text), `base64`, or `discard`: true. One
    with `row`: true may have none of these: the row is read from its object.
    """
    try:
        if path.stat().st_size > MOST_REPAIR_BYTES:
            raise Misconfigured(f"{path}: larger than 256 MiB; repair fewer records at a time")
        lines = path.read_bytes().splitlines()
    except OSError as exc:
        raise Misconfigured(f"{path}: cannot be read ({exc.strerror}); correct the path") from exc
    found: dict[tuple[int, int], Repair] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            place, repair = _repair(json.loads(line))
        except (KeyError, RecursionError, TypeError, ValueError) as exc:
            problems.append(
                f"{path}:{number}: no repair ({exc}); write partition, offset and record"
            )
            continue
        if place in found:
            problems.append(
                f"{path}:{number}: partition {place[0]}, offset {place[1]} is there twice"
            )
        found[place] = repair
    if problems:
        raise Misconfigured(problems)
    return found


def _repair(line: Any) -> tuple[tuple[int, int], Repair]:  # noqa: ANN401 - of JSON
    place = line["partition"], line["offset"]
    if not all(type(number) is int for number in place):
        raise ValueError("partition and offset are numbers")
    if type(discard := line.get("discard", False)) is not bool:
        raise ValueError("discard is true or false")
    if discard:
        return place, Repair(None)
    if isinstance(text := line.get("record"), str):
        raw = text.encode()
    elif isinstance(text := line.get("base64"), str):
        raw = b64decode(text, validate=True)
    elif line.get("row") is True and line.get("record") is None and "base64" not in line:
        return place, Repair(None, row=True)
    else:
        raise ValueError("neither record nor base64 is a text")
    if not raw:
        raise ValueError('the record is empty; to deliver nothing, write "discard": true')
    return place, Repair(raw)
