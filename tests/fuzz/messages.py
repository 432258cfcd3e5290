"""Targets `messages` and `ledger`: what queues, the table and consumer groups return."""

import json
from collections.abc import Callable
from dataclasses import asdict
from email.utils import formatdate
from random import Random
from typing import Any, cast

from tests.fuzz.mutations import (
    INTERESTING,
    TEXTS,
    change_bytes,
    change_document,
    pack,
    unpack,
    write_json,
)
from tests.fuzz.targets import Target
from tests.unit.ledger import test_stored_items as stored

from extentflow.delivery.resume import PointLog
from extentflow.discovery import stalled_jobs
from extentflow.discovery.listing import POSITIONS, SEEN
from extentflow.engines import submitted_runs as submitted
from extentflow.errors import ExtentflowError
from extentflow.kafka import SlotProgress
from extentflow.ledger import LedgerOptions
from extentflow.ledger.dynamodb import DynamoLedger
from extentflow.model import Extent, ObjectVersion
from extentflow.queue.consumer import read_extent
from extentflow.queue.dispatch import body_of
from extentflow.retry import Clock, RetryPolicy
from extentflow.spark import drain

_VERSION = ObjectVersion("landing", "in/ü 1.csv", "v1", "abc", 10_000)
_EXTENT = Extent("0123456789abcdef0123", 3, "orders", _VERSION, 100, 200, "csv")
_EXTENT_DOCUMENT = _EXTENT.to_message()
_PROGRESS_DOCUMENT = asdict(SlotProgress(3, _EXTENT.job, 3, 150, 5, 1, done=True))
_JOB_CHARACTERS = 100
_BODIES = [body_of(_EXTENT).encode(), json.dumps(_PROGRESS_DOCUMENT).encode()]


def _message(random: Random) -> bytes:
    which = random.randrange(2)
    if random.random() < 0.3:
        return change_bytes(random, _BODIES[which], _BODIES)
    document = change_document(random, (_EXTENT_DOCUMENT, _PROGRESS_DOCUMENT)[which])
    return write_json(document).encode("utf-8", "surrogatepass")


def _run_message(data: bytes) -> str:
    body = data.decode("utf-8", "surrogateescape")
    extent = read_extent(body)
    if extent is not None:
        assert read_extent(body_of(extent)) == extent
        assert extent.uri.encode()
        return "extent"
    try:
        progress = SlotProgress.from_metadata(body)
    except ValueError:  # documented; the sink makes it ProgressUnknown
        return "refused: ValueError"
    # As the owner of a slot uses it.
    assert progress.position + progress.records + progress.bad + progress.epoch is not None
    # A job's id is short; another text may grow beyond what a broker takes.
    if len(progress.job) < _JOB_CHARACTERS:
        assert SlotProgress.from_metadata(progress.to_metadata()) == progress
    return "progress"


MESSAGES = Target("messages", 24, _message, _run_message)

# -- ledger ----------------------------------------------------------------------------------------

_JOB = stored.JOB.id


def _notes(facts: dict[str, str]) -> stored.Image:
    content = {name: {"S": text} for name, text in facts.items()}
    return {"pk": {"S": "NOTES"}, "sk": {"S": "n"}, "facts": {"M": content}}


_RUN = {"subject": "s", "connector": "c", "job": "", "number": "1", "addresses": '["s3://b/"]'}
_RESUME = {"content": "10", "compressed": "5", "state": "c$@<O0000100000000000"}
_ROUND = json.dumps(asdict(drain.ListingProgress()))
_WATCH = {"seen": "x", "claims": "", "since": "1.5", "resent": "0", "resent_at": "0.0"}
_READS: dict[str, tuple[stored.Image, Callable[[DynamoLedger], object]]] = {
    "job": (stored.PUBLISHED_IMAGE, lambda ledger: ledger.jobs.get(_JOB)),
    "jobs": (stored.RUNNING_IMAGE, lambda ledger: list(ledger.jobs.list("orders"))),
    "versioned": (
        {**stored.JOB_IMAGE, "version": stored.VERSIONED_IMAGE},
        lambda ledger: ledger.jobs.get(_JOB),
    ),
    "close": (stored.RUNNING_IMAGE, lambda ledger: ledger.jobs.close(_JOB)),
    "extent": (stored.CLAIMED_IMAGE, lambda ledger: ledger.extents.get(_JOB, 1)),
    "extents": (stored.DONE_IMAGE, lambda ledger: list(ledger.extents.list(_JOB))),
    "progress": (
        {"pk": {"S": "p"}, "sk": {"S": "COUNT#1"}, "done": {"N": "1"}, "bytes": {"N": "7"}},
        lambda ledger: ledger.jobs.progress(_JOB),
    ),
    "slot": (stored.WORKING_IMAGE, lambda ledger: ledger.slots.get("cluster-1", 7)),
    "identity": (stored.LEDGER_IMAGE, lambda ledger: (ledger.id, ledger.bind("x"))),
    "state": (
        {**stored.CONNECTOR_IMAGE, "state": {"S": "PAUSED"}},
        lambda ledger: ledger.connectors.state("orders"),
    ),
    "connector": (stored.CONNECTOR_IMAGE, lambda ledger: ledger.connectors.get("orders")),
    "revision": (stored.REVISION_IMAGE, lambda ledger: ledger.connectors.get("orders", 1)),
    "listing": (_notes({"place": "b/p", "token": "t"}), lambda led: POSITIONS.read(led.notes, "n")),
    "seen": (_notes({"etag": "e", "size": "1"}), lambda led: SEEN.read(led.notes, "n")),
    "watch": (_notes(_WATCH), lambda led: stalled_jobs.MARKS.read(led.notes, "n")),
    "round": (_notes({"behind": "3"}), lambda led: stalled_jobs.ROUNDS.read(led.notes, "n")),
    "run": (
        _notes({**_RUN, "then": "functions", "begun": "1.0"}),
        lambda led: submitted.RUNS.read(led.notes, "n"),
    ),
    "runs-of": (_notes({"runs": "a,b"}), lambda led: submitted.RUNS_OF.read(led.notes, "n")),
    "rounds": (_notes({"orders": _ROUND}), lambda led: drain.recall(cast("Any", led), "n")),
    "resume": (_notes(_RESUME), lambda led: PointLog.open(led.notes, _EXTENT, 100)),
}


def _wire(random: Random) -> stored.Image:
    """Return a value as DynamoDB holds some: always valid in its wire form."""
    match random.randrange(7):
        case 0:
            digits = random.choice(INTERESTING)
            return {"N": str(digits) if abs(digits) < 10**37 else "1"}
        case 1:
            return {"N": random.choice(("1.5", "-0.25", "1E+120", "-1", "9" * 38))}
        case 2:
            return {"BOOL": random.random() < 0.5}
        case 3:
            return {"NULL": True}
        case 4:
            return random.choice(({"M": {}}, {"L": []}, {"L": [{"N": "1"}]}, {"SS": ["a"]}))
        case _:
            text = random.choice([*TEXTS, "9" * 400, "[" * 1_500, "-1", "1.5", "inf", "nan"])
            return {"S": text.encode("utf-8", "replace").decode()}


def _damaged(random: Random, image: stored.Image) -> stored.Image:
    name = random.choice(list(image))
    value = image[name]
    if "M" in value and value["M"] and random.random() < 0.7:
        return {**image, name: {"M": _damaged(random, value["M"])}}
    if random.random() < 0.2:
        return {other: image[other] for other in image if other != name}
    if random.random() < 0.2:
        return {**image, random.choice(("x", "", "é")): _wire(random)}
    if "S" in value and random.random() < 0.4:
        data = change_bytes(random, value["S"].encode())
        return {**image, name: {"S": data.decode("utf-8", "replace")}}
    return {**image, name: _wire(random)}


def _item(random: Random) -> bytes:
    read = random.choice(list(_READS))
    image = _READS[read][0]
    for _ in range(random.choice((1, 1, 2))):
        keys = {name: image[name] for name in ("pk", "sk")}
        rest = {name: value for name, value in image.items() if name not in keys}
        # Keys of an item are those that were asked for.
        image = {**keys, **_damaged(random, rest)} if rest else image
    return pack({"read": read, "item": image}, b"")


class _OneItem:
    """A DynamoDB client whose every read returns the same item, and whose writes are refused."""

    def __init__(self, item: stored.Image) -> None:
        self._item = item

    def get_item(self, **_: object) -> stored.Image:
        return self._answer({"Item": self._item})

    def query(self, **_: object) -> stored.Image:
        return self._answer({"Items": [self._item]})

    def scan(self, **_: object) -> stored.Image:
        return self._answer({"Items": [self._item]})

    def update_item(self, **_: object) -> stored.Image:
        return self._answer({"Attributes": self._item})

    @staticmethod
    def _answer(content: stored.Image) -> stored.Image:
        headers = {"date": formatdate(stored.NOW, usegmt=True)}
        return {**content, "ResponseMetadata": {"HTTPHeaders": headers}}


def _run_item(data: bytes) -> str:
    given, _ = unpack(data)
    client = _OneItem(given["item"])
    stopped = RetryPolicy(clock=Clock(lambda: 0.0, lambda: 0.0))
    connect = cast("Any", lambda _: client)
    ledger = DynamoLedger(LedgerOptions("ledger"), retry=stopped, connect=connect)
    try:
        _READS[given["read"]][1](ledger)
    except ExtentflowError as exc:
        assert "ledger" in str(exc), "names the ledger"
        raise
    return f"read {given['read']}"


LEDGER = Target("ledger", 16, _item, _run_item)
