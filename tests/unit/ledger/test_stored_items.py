"""The items of the table, attribute by attribute: what is stored today stays readable and writable.

Existing tables hold these images. A change of one of them needs a migration, not a new image here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import Any, cast

import pytest

from extentflow.ledger import (
    Claim,
    ClaimMark,
    ConnectorState,
    ConnectorVersion,
    ExtentItem,
    JobProgress,
    Lease,
    LedgerOptions,
    Settlement,
    SlotItem,
)
from extentflow.ledger.dynamodb import DynamoLedger
from extentflow.model import ExtentState, Job, JobState, ObjectVersion, Plan
from extentflow.retry import Clock, RetryPolicy

NOW = 1_700_000_000

Image = dict[str, Any]


@dataclass
class RecordingTable:
    """A DynamoDB client that applies updates to items in wire form and checks no condition."""

    items: dict[tuple[str, str], Image] = field(default_factory=dict)

    def get_item(self, *, Key: Image, **_: object) -> Image:  # noqa: N803 - AWS's name
        item = self.items.get(self._key(Key))
        return self._answer({"Item": item} if item else {})

    def update_item(self, **request: Any) -> Image:  # noqa: ANN401
        before, after = self._apply(request)
        returned = {"ALL_OLD": before, "ALL_NEW": after}.get(request["ReturnValues"])
        return self._answer({"Attributes": returned} if returned else {})

    def transact_write_items(self, *, TransactItems: list[Image], **_: object) -> Image:  # noqa: N803
        for entry in TransactItems:
            if "Update" in entry:
                self._apply(entry["Update"])
        return self._answer({})

    def query(self, **request: Any) -> Image:  # noqa: ANN401
        values = request["ExpressionAttributeValues"]
        if request.get("IndexName") == "jobs":
            assert request["KeyConditionExpression"] == "listing = :listing"
            found = [i for i in self.items.values() if i.get("listing") == values[":listing"]]
        else:
            prefix = values.get(":sk", {"S": ""})["S"]
            found = [
                item
                for item in self.items.values()
                if item["pk"] == values[":pk"] and item["sk"]["S"].startswith(prefix)
            ]
        return self._answer({"Items": found})

    def image(self, pk: str, sk: str) -> Image:
        return self.items[pk, sk]

    def put(self, image: Image) -> None:
        self.items[self._key(image)] = image

    def _apply(self, request: Mapping[str, Any]) -> tuple[Image, Image]:
        before = self.items.get(self._key(request["Key"]), {})
        after = {**request["Key"], **before}
        names = request.get("ExpressionAttributeNames", {})
        values = request.get("ExpressionAttributeValues", {})
        verbs = re.split(r"\b(SET|REMOVE|ADD)\b ", request["UpdateExpression"])[1:]
        for verb, clause in zip(verbs[::2], verbs[1::2], strict=True):
            for part in clause.strip().split(", "):
                name, _, value = part.replace(" = ", " ").partition(" ")
                attribute = names[name]
                if verb == "REMOVE":
                    after.pop(attribute, None)
                elif verb == "SET":
                    after[attribute] = values[value]
                else:
                    held = int(after.get(attribute, {"N": "0"})["N"])
                    after[attribute] = {"N": str(held + int(values[value]["N"]))}
        self.items[self._key(request["Key"])] = after
        return before, after

    @staticmethod
    def _key(item: Image) -> tuple[str, str]:
        return item["pk"]["S"], item["sk"]["S"]

    @staticmethod
    def _answer(content: Image) -> Image:
        headers = {"date": formatdate(NOW, usegmt=True)}
        return {**content, "ResponseMetadata": {"HTTPHeaders": headers}}


@pytest.fixture
def table() -> RecordingTable:
    return RecordingTable()


@pytest.fixture
def ledger(table: RecordingTable) -> DynamoLedger:
    stopped = RetryPolicy(clock=Clock(lambda: 0.0, lambda: 0.0))
    return DynamoLedger(
        LedgerOptions("ledger"), retry=stopped, connect=cast("Any", lambda _: table)
    )


VERSION = ObjectVersion("landing", "in/ü.csv", None, "abc", 10_000)
JOB = Job(
    id="0123456789abcdef0123",
    connector="orders",
    revision=3,
    version=VERSION,
    format="csv",
    cluster="cluster-1",
    plan=Plan(target_bytes=8_388_608),
    generation=1,
    ordered=True,
    created=1_699_999_999.25,
)
JOB_IMAGE: Image = {
    "pk": {"S": "JOB#0123456789abcdef0123"},
    "sk": {"S": "JOB"},
    "connector": {"S": "orders"},
    "revision": {"N": "3"},
    "version": {
        "M": {
            "bucket": {"S": "landing"},
            "key": {"S": "in/ü.csv"},
            "etag": {"S": "abc"},
            "size": {"N": "10000"},
        }
    },
    "format": {"S": "csv"},
    "cluster": {"S": "cluster-1"},
    "target_bytes": {"N": "8388608"},
    "generation": {"N": "1"},
    "ordered": {"BOOL": True},
    "created": {"N": "1699999999.25"},
    "state": {"S": "PLANNING"},
    "reason": {"S": ""},
    "reopened": {"N": "0"},
    "count": {"N": "0"},
    "cursor": {"N": "0"},
    "covered": {"N": "-1"},
    "cut_version": {"N": "1"},
    "ended": {"N": "0.0"},
    "listing": {"S": "PLANNING#orders"},
    "planned": {"BOOL": False},
}
VERSIONED_IMAGE: Image = {"M": {**JOB_IMAGE["version"]["M"], "version_id": {"S": "v1"}}}
RUNNING_IMAGE: Image = {
    **JOB_IMAGE,
    "state": {"S": "RUNNING"},
    "count": {"N": "2"},
    "cursor": {"N": "10000"},
    "listing": {"S": "RUNNING#orders"},
    "planned": {"BOOL": True},
}
FAILED_IMAGE: Image = {
    **RUNNING_IMAGE,
    "state": {"S": "FAILED"},
    "reason": {"S": "not readable"},
    "ended": {"N": "1700000000.0"},
    "listing": {"S": "ENDED#orders"},
}
PUBLISHED_IMAGE: Image = {**FAILED_IMAGE, "listing": {"S": "FAILED#orders"}}
RUNNING = replace(JOB, plan=Plan(8_388_608, 2, 10_000)).in_state(JobState.RUNNING)
FAILED = RUNNING.in_state(JobState.FAILED, "not readable", ended=float(NOW))

MARK = ClaimMark(slot=7, epoch=2, nonce="nonce-1", message="message-1")
MARK_IMAGE: Image = {
    "M": {
        "slot": {"N": "7"},
        "epoch": {"N": "2"},
        "nonce": {"S": "nonce-1"},
        "message": {"S": "message-1"},
    }
}
CLAIMED = ExtentItem(JOB.id, 1, start=100, end=200, position=0, attempts=1, claim=MARK)
PENDING_IMAGE: Image = {
    "pk": {"S": "JOB#0123456789abcdef0123"},
    "sk": {"S": "EXTENT#00000001"},
    "state": {"S": "PENDING"},
    "start": {"N": "100"},
    "end": {"N": "200"},
    "position": {"N": "0"},
    "records": {"N": "0"},
    "bad": {"N": "0"},
    "filtered": {"N": "0"},
    "attempts": {"N": "1"},
    "error": {"S": ""},
    "progress_unknown": {"BOOL": False},
}
CLAIMED_IMAGE: Image = {**PENDING_IMAGE, "claim": MARK_IMAGE}
DONE_IMAGE: Image = {
    **PENDING_IMAGE,
    "state": {"S": "DONE"},
    "position": {"N": "200"},
    "records": {"N": "5"},
    "bad": {"N": "2"},
    "filtered": {"N": "3"},
    "attempts": {"N": "0"},
    "last": {"M": {"nonce": {"S": "nonce-1"}, "verdict": {"S": "DONE"}}},
}
BAD_IMAGE: Image = {
    **PENDING_IMAGE,
    "state": {"S": "FAILED"},
    "error": {"S": "bad line"},
    "last": {"M": {"nonce": {"S": "nonce-1"}, "verdict": {"S": "FAILED"}}},
}
LEASE = Lease("cluster-1", 7, 2, "worker-1")
CLAIM = Claim(LEASE, JOB.extent(1, 100, 200), MARK, CLAIMED)
SLOT_IMAGE: Image = {
    "pk": {"S": "SLOTS#cluster-1"},
    "sk": {"S": "00000007"},
    "epoch": {"N": "2"},
    "owner": {"S": "worker-1"},
    "until": {"N": "1700000030.5"},
}
WORKING_IMAGE: Image = {
    **SLOT_IMAGE,
    "working": {
        "M": {
            "job": {"S": "0123456789abcdef0123"},
            "ordinal": {"N": "1"},
            "nonce": {"S": "nonce-1"},
        }
    },
}
LEDGER_IMAGE: Image = {
    "pk": {"S": "META"},
    "sk": {"S": "LEDGER"},
    "id": {"S": "c0ffee"},
    "table": {"S": "ledger"},
    "app_id": {"S": "shop"},
}
CONNECTOR_IMAGE: Image = {
    "pk": {"S": "CONNECTORS"},
    "sk": {"S": "orders"},
    "revision": {"N": "1"},
}
REVISION_IMAGE: Image = {
    "pk": {"S": "CONNECTOR#orders"},
    "sk": {"S": "CONFIG#00000001"},
    "name": {"S": "orders"},
    "revision": {"N": "1"},
    "config": {"M": {"topic": {"S": "orders"}, "input.format": {"S": "csv"}}},
}
CONFIG = {"topic": "orders", "input.format": "csv"}


class TestWrites:
    def test_identity(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        identity = ledger.id
        ledger.bind("shop")

        assert table.image("META", "LEDGER") == {**LEDGER_IMAGE, "id": {"S": identity}}
        assert re.fullmatch("[0-9a-f]{12}", identity)

    def test_identity_of_a_table_that_was_bound_first(
        self, ledger: DynamoLedger, table: RecordingTable
    ) -> None:
        ledger.bind("shop")

        identity = ledger.id

        assert table.image("META", "LEDGER") == {**LEDGER_IMAGE, "id": {"S": identity}}

    def test_connector(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        ledger.connectors.put("orders", CONFIG)

        assert table.image("CONNECTORS", "orders") == CONNECTOR_IMAGE
        assert table.image("CONNECTOR#orders", "CONFIG#00000001") == REVISION_IMAGE

    def test_connector_that_is_paused_or_deleted(
        self, ledger: DynamoLedger, table: RecordingTable
    ) -> None:
        ledger.connectors.put("orders", CONFIG)
        ledger.connectors.set_state("orders", ConnectorState.PAUSED)
        ledger.connectors.delete("orders")

        image = table.image("CONNECTORS", "orders")
        assert {**image, "deleted": ""} == {
            **CONNECTOR_IMAGE,
            "state": {"S": "PAUSED"},
            "deleted": "",
        }
        assert list(image["deleted"]) == ["S"]

    def test_job(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        ledger.jobs.register(JOB)

        assert table.image(f"JOB#{JOB.id}", "JOB") == JOB_IMAGE

    def test_job_of_a_versioned_bucket(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        ledger.jobs.register(replace(JOB, version=replace(VERSION, version_id="v1")))

        image = table.image(f"JOB#{JOB.id}", "JOB")
        assert image == {**JOB_IMAGE, "version": VERSIONED_IMAGE}

    def test_job_with_what_planning_found(
        self, ledger: DynamoLedger, table: RecordingTable
    ) -> None:
        found = replace(JOB, plan=replace(JOB.plan, compression="gzip", facts="id:int64"))

        registered = ledger.jobs.register(found)

        image = table.image(f"JOB#{JOB.id}", "JOB")
        assert image == {**JOB_IMAGE, "compression": {"S": "gzip"}, "facts": {"S": "id:int64"}}
        assert registered == ledger.jobs.get(JOB.id) == found

    def test_job_with_a_limit_of_bad_records(
        self, ledger: DynamoLedger, table: RecordingTable
    ) -> None:
        stored = ledger.jobs.register(replace(JOB, most_bad=0))

        image = table.image(f"JOB#{JOB.id}", "JOB")
        assert image == {**JOB_IMAGE, "most_bad": {"N": "0"}}
        assert (stored.most_bad, ledger.jobs.get(JOB.id)) == (0, stored)

    def test_job_from_plan_to_published_end(
        self, ledger: DynamoLedger, table: RecordingTable
    ) -> None:
        ledger.jobs.register(JOB)
        ledger.jobs.plan(JOB.id, count=2, cursor=10_000, complete=True)
        running = table.image(f"JOB#{JOB.id}", "JOB")
        ended = ledger.jobs.end(JOB.id, JobState.FAILED, "not readable")
        failed = table.image(f"JOB#{JOB.id}", "JOB")
        ledger.jobs.mark_published(ended)

        assert running == RUNNING_IMAGE
        assert failed == FAILED_IMAGE
        assert table.image(f"JOB#{JOB.id}", "JOB") == PUBLISHED_IMAGE

    def test_first_claim(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put(SLOT_IMAGE)

        claim = ledger.extents.claim(
            LEASE,
            JOB.extent(1, 100, 200),
            ExtentItem(JOB.id, 1),
            nonce="nonce-1",
            message="message-1",
            lease_seconds=30.5,
        )

        assert claim is not None
        assert table.image(f"JOB#{JOB.id}", "EXTENT#00000001") == CLAIMED_IMAGE
        assert table.image("SLOTS#cluster-1", "00000007") == WORKING_IMAGE

    def test_committed_chunk(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put(CLAIMED_IMAGE)

        ledger.extents.advance(CLAIM, position=150, records=3, bad=1, filtered=2, lease_seconds=30)

        assert table.image(f"JOB#{JOB.id}", "EXTENT#00000001") == {
            **CLAIMED_IMAGE,
            "position": {"N": "150"},
            "records": {"N": "3"},
            "bad": {"N": "1"},
            "filtered": {"N": "2"},
            "attempts": {"N": "0"},
        }

    def test_completed_extent(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put(CLAIMED_IMAGE)
        table.put(WORKING_IMAGE)

        ledger.extents.complete(CLAIM, position=200, records=5, bad=2, filtered=3)

        assert table.image(f"JOB#{JOB.id}", "EXTENT#00000001") == DONE_IMAGE
        assert table.image("SLOTS#cluster-1", "00000007") == SLOT_IMAGE
        assert table.image(f"JOB#{JOB.id}", "COUNT#1") == {
            "pk": {"S": f"JOB#{JOB.id}"},
            "sk": {"S": "COUNT#1"},
            "done": {"N": "1"},
            "records": {"N": "5"},
            "bad": {"N": "2"},
            "filtered": {"N": "3"},
            "bytes": {"N": "100"},
        }

    def test_failed_extent(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put(CLAIMED_IMAGE)

        ledger.extents.fail(CLAIM, position=0, records=0, bad=0, filtered=0, error="bad line")

        assert table.image(f"JOB#{JOB.id}", "EXTENT#00000001") == BAD_IMAGE
        assert table.image(f"JOB#{JOB.id}", "COUNT#1") == {
            "pk": {"S": f"JOB#{JOB.id}"},
            "sk": {"S": "COUNT#1"},
            "failed": {"N": "1"},
        }

    def test_extent_with_unknown_progress(
        self, ledger: DynamoLedger, table: RecordingTable
    ) -> None:
        table.put(CLAIMED_IMAGE)

        ledger.slots.settle(LEASE, CLAIMED, Settlement(0, 0, 0, unknown=True))

        image = table.image(f"JOB#{JOB.id}", "EXTENT#00000001")
        assert image["error"]["S"].startswith("progress unknown")
        assert {**image, "error": {"S": ""}} == {
            **PENDING_IMAGE,
            "state": {"S": "FAILED"},
            "progress_unknown": {"BOOL": True},
        }

    def test_released_slot(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put(SLOT_IMAGE)

        ledger.slots.release(LEASE)

        assert table.image("SLOTS#cluster-1", "00000007") == {
            **SLOT_IMAGE,
            "owner": {"S": ""},
            "until": {"N": "0.0"},
        }

    def test_leased_slot(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        ledger.slots.lease(SlotItem("cluster-1", 7), owner="worker-1", lease_seconds=30)

        image = table.image("SLOTS#cluster-1", "00000007")
        assert image == {**SLOT_IMAGE, "epoch": {"N": "1"}, "until": {"N": "1700000030.0"}}

    def test_notes(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        ledger.notes.remember("listing#orders", {"token": "a/b"})
        ledger.notes.remember("stop#run", {"stop": "true"}, keep_seconds=3600.5)

        assert table.image("NOTES", "listing#orders") == {
            "pk": {"S": "NOTES"},
            "sk": {"S": "listing#orders"},
            "facts": {"M": {"token": {"S": "a/b"}}},
        }
        # Expiry counts whole seconds, rounded up: DynamoDB ignores other values.
        assert table.image("NOTES", "stop#run") == {
            "pk": {"S": "NOTES"},
            "sk": {"S": "stop#run"},
            "facts": {"M": {"stop": {"S": "true"}}},
            "expires": {"N": "1700003601"},
        }


class TestReads:
    def test_identity(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put(LEDGER_IMAGE)

        assert (ledger.id, ledger.bind("other")) == ("c0ffee", "shop")

    def test_identity_of_a_table_that_is_named_by_its_arn(self, table: RecordingTable) -> None:
        table.put(LEDGER_IMAGE)
        arn = "arn:aws:dynamodb:eu-central-1:111122223333:table/ledger"

        ledger = DynamoLedger(LedgerOptions(arn), connect=cast("Any", lambda _: table))

        assert ledger.id == "c0ffee"

    def test_identity_of_an_earlier_version(
        self, ledger: DynamoLedger, table: RecordingTable
    ) -> None:
        before = {key: value for key, value in LEDGER_IMAGE.items() if key != "table"}
        table.put(before)

        assert ledger.id == "c0ffee"
        assert table.image("META", "LEDGER") == LEDGER_IMAGE

    def test_connector(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put({**CONNECTOR_IMAGE, "state": {"S": "STOPPED"}})
        table.put(REVISION_IMAGE)

        assert ledger.connectors.get("orders") == ConnectorVersion("orders", 1, CONFIG)
        assert ledger.connectors.state("orders") is ConnectorState.STOPPED

    def test_deleted_connector(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put({**CONNECTOR_IMAGE, "deleted": {"S": "token"}})
        table.put(REVISION_IMAGE)

        assert ledger.connectors.get("orders") is None
        assert list(ledger.connectors.names()) == ["orders"]

    @pytest.mark.parametrize(
        ("image", "job"),
        [
            (JOB_IMAGE, JOB),
            (
                {**JOB_IMAGE, "version": VERSIONED_IMAGE},
                replace(JOB, version=replace(VERSION, version_id="v1")),
            ),
            (RUNNING_IMAGE, RUNNING),
            (FAILED_IMAGE, FAILED),
            (PUBLISHED_IMAGE, replace(FAILED, published=True)),
            # Items of before this attribute was added.
            ({name: JOB_IMAGE[name] for name in JOB_IMAGE if name != "ended"}, JOB),
        ],
    )
    def test_job(self, ledger: DynamoLedger, table: RecordingTable, image: Image, job: Job) -> None:
        table.put(image)

        stored = ledger.jobs.get(JOB.id)

        assert repr(stored) == repr(job)
        assert list(ledger.jobs.list("orders", job.state)) == [job]

    @pytest.mark.parametrize(
        ("image", "item"),
        [
            (CLAIMED_IMAGE, CLAIMED),
            (PENDING_IMAGE, replace(CLAIMED, claim=None)),
            (
                DONE_IMAGE,
                ExtentItem(
                    JOB.id, 1, ExtentState.DONE, 100, 200, 200, records=5, bad=2, filtered=3
                ),
            ),
            (
                {**BAD_IMAGE, "progress_unknown": {"BOOL": True}},
                ExtentItem(
                    JOB.id,
                    1,
                    ExtentState.FAILED,
                    100,
                    200,
                    attempts=1,
                    error="bad line",
                    progress_unknown=True,
                ),
            ),
        ],
    )
    def test_extent(
        self, ledger: DynamoLedger, table: RecordingTable, image: Image, item: ExtentItem
    ) -> None:
        table.put(image)

        assert repr(ledger.extents.get(JOB.id, 1)) == repr(item)
        assert list(ledger.extents.list(JOB.id)) == [item]

    def test_extent_of_an_earlier_version_without_filtered(
        self, ledger: DynamoLedger, table: RecordingTable
    ) -> None:
        table.put({name: value for name, value in DONE_IMAGE.items() if name != "filtered"})

        found = ledger.extents.get(JOB.id, 1)

        assert (found.records, found.bad, found.filtered) == (5, 2, 0)

    def test_counters(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        key = {"pk": {"S": f"JOB#{JOB.id}"}}
        table.put({**key, "sk": {"S": "COUNT#1"}, "done": {"N": "2"}, "records": {"N": "5"}})
        table.put({**key, "sk": {"S": "COUNT#2"}, "failed": {"N": "1"}, "bytes": {"N": "7"}})

        progress = ledger.jobs.progress(JOB.id)

        assert repr(progress) == repr(JobProgress(done=2, failed=1, records=5, bad=0, bytes=7))

    def test_slot(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        table.put(WORKING_IMAGE)

        slot = ledger.slots.get("cluster-1", 7)

        expected = SlotItem("cluster-1", 7, 2, "worker-1", 1_700_000_030.5, (JOB.id, 1))
        assert repr(slot) == repr(expected)

    def test_notes(self, ledger: DynamoLedger, table: RecordingTable) -> None:
        note = {"pk": {"S": "NOTES"}, "facts": {"M": {"token": {"S": "a"}}}}
        table.put({**note, "sk": {"S": "kept"}})
        table.put({**note, "sk": {"S": "over"}, "expires": {"N": "1699999999"}})

        assert ledger.notes.recall("kept") == {"token": "a"}
        assert ledger.notes.recall("over") is None
