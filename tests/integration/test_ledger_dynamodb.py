"""DynamoLedger fulfils the ledger's contract on DynamoDB Local."""

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.model import OperationModel
from tests.contracts.ledger import LEASE_SECONDS, Scene, fresh, unregistered
from tests.contracts.ledger_contract import LedgerContract
from tests.contracts.ledger_faults import LostResponseContract, at_once, together
from tests.support.waiting import running_seconds

from extentflow.delivery.slots import SlotPolicy, Slots
from extentflow.errors import LedgerUnavailable, Misconfigured
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim, ExtentItem, JobProgress, LedgerOptions, Settlement
from extentflow.ledger.dynamodb import KEY_SCHEMA, DynamoLedger
from extentflow.ledger.dynamodb_calls import connect
from extentflow.ledger.extent_store import FIELDS, extent_key
from extentflow.ledger.items import Write, lay_out
from extentflow.model import ExtentState, JobState
from extentflow.retry import Clock, RetryPolicy
from extentflow.testing.broker import MemoryBroker

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from extentflow_local.stack.stack import Stack

WRITES = ("PutItem", "UpdateItem", "TransactWriteItems")
IMPATIENT = RetryPolicy(total_seconds=0.0)


@dataclass
class BusyClient:
    """Connects clients of which two out of three writes fail with a conflict or throttling."""

    sent: int = 0

    def connect(self, options: LedgerOptions) -> "DynamoDBClient":
        client = connect(options)
        for operation in WRITES:
            client.meta.events.register(f"before-send.dynamodb.{operation}", self._stall)
        return client

    def _stall(self, **_: object) -> None:
        self.sent += 1
        code = ("TransactionCanceledException", "ThrottlingException", "")[self.sent % 3]
        if code:
            response: Any = {
                "Error": {"Code": code, "Message": "injected"},
                "CancellationReasons": [{"Code": "None"}, {"Code": "TransactionConflict"}],
                "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {}},
            }
            raise ClientError(response, "injected")


@dataclass
class LossyClient:
    """Connects clients that lose the response to a successful write."""

    pending: int = 0
    lost: int = 0

    def connect(self, options: LedgerOptions) -> "DynamoDBClient":
        client = connect(options)
        for operation in WRITES:
            client.meta.events.register(f"response-received.dynamodb.{operation}", self._drop)
        return client

    def _drop(self, *, parsed_response: dict[str, Any] | None, **_: object) -> None:
        succeeded = parsed_response is not None and "Error" not in parsed_response
        if self.pending and succeeded:
            self.pending -= 1
            self.lost += 1
            raise ReadTimeoutError(endpoint_url="injected")


@dataclass
class ReadClient:
    """Connects clients that count the items which queries and scans read."""

    read: int = 0

    def connect(self, options: LedgerOptions) -> "DynamoDBClient":
        client = connect(options)
        for operation in ("Query", "Scan"):
            client.meta.events.register(f"after-call.dynamodb.{operation}", self._count)
        return client

    def _count(self, *, parsed: dict[str, Any], **_: object) -> None:
        self.read += parsed["ScannedCount"]


@dataclass
class CountedClient:
    """Connects clients whose requests are counted."""

    sent: int = 0

    def connect(self, options: LedgerOptions) -> "DynamoDBClient":
        client = connect(options)
        client.meta.events.register("before-send.dynamodb", self._count)
        return client

    def _count(self, **_: object) -> None:
        self.sent += 1


class ConflictingClient:
    """Connects clients whose transactions conflict on a shared item, as on DynamoDB.

    DynamoDB cancels a transaction with TransactionConflict where another one in progress has one of
    its items, if both only check it, too. DynamoDB Local runs one after the other instead.
    `hold_seconds` is the time of a transaction on the server.
    """

    def __init__(self, hold_seconds: float) -> None:
        self.conflicts = 0
        self._hold_seconds = hold_seconds
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self._keys = threading.local()

    def connect(self, options: LedgerOptions) -> "DynamoDBClient":
        client = connect(options)
        events = client.meta.events
        events.register("provide-client-params.dynamodb.TransactWriteItems", self._note)
        events.register("before-send.dynamodb.TransactWriteItems", self._begin)
        events.register("response-received.dynamodb.TransactWriteItems", self._end)
        return client

    def _note(self, *, params: dict[str, Any], **_: object) -> None:
        entries = [next(iter(entry.values())) for entry in params["TransactItems"]]
        self._keys.now = {str(entry["Key"]) for entry in entries}

    def _begin(self, **_: object) -> None:
        me = threading.get_ident()
        with self._lock:
            if any(self._held.get(key, me) != me for key in self._keys.now):
                self.conflicts += 1
                response: Any = {
                    "Error": {"Code": "TransactionCanceledException", "Message": "modelled"},
                    "CancellationReasons": [{"Code": "TransactionConflict"}],
                    "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {}},
                }
                raise ClientError(response, "TransactWriteItems")
            self._held |= dict.fromkeys(self._keys.now, me)

    def _end(self, **_: object) -> None:
        time.sleep(self._hold_seconds)
        with self._lock:
            for key in self._keys.now:
                self._held.pop(key, None)


class LateClient:
    """A ledger whose writes can be delayed: the caller gives up, and `arrives` sends them later.

    `before_job_read` is called once, before the next read of a job.
    """

    def __init__(self, options: LedgerOptions) -> None:
        self.ledger = DynamoLedger(options, retry=IMPATIENT, connect=self._connect)
        self.before_job_read: Callable[[], object] | None = None
        self._plain = connect(options)
        self._delays = False
        self._delayed: list[tuple[str, dict[str, Any]]] = []

    def delay(self, call: Callable[[DynamoLedger], object]) -> None:
        self._delays = True
        with pytest.raises(LedgerUnavailable):
            call(self.ledger)
        self._delays = False

    def arrives(self) -> str:
        """Send the delayed request; return the code of its error, "" if it has none."""
        ((operation, params),) = self._delayed
        try:
            getattr(self._plain, xform_name(operation))(**params)
        except ClientError as error:
            return error.response["Error"]["Code"]
        return ""

    def _connect(self, options: LedgerOptions) -> "DynamoDBClient":
        client = connect(options)
        client.meta.events.register("provide-client-params.dynamodb", self._intercept)
        return client

    def _intercept(self, *, params: dict[str, Any], model: OperationModel, **_: object) -> None:
        if self._delays and model.name in WRITES:
            self._delayed.append((model.name, params))
            raise ReadTimeoutError(endpoint_url="delayed")
        is_job_read = model.name == "GetItem" and params["Key"]["sk"] == {"S": "JOB"}
        if is_job_read and self.before_job_read:
            intervene, self.before_job_read = self.before_job_read, None
            intervene()


class DynamoWorld:
    def __init__(self, endpoint: str, table: str, retry: RetryPolicy | None = None) -> None:
        self.endpoint, self.table = endpoint, table
        self.client = LossyClient()
        self.ledger = DynamoLedger(
            LedgerOptions(table, endpoint), retry=retry, connect=self.client.connect
        )
        self._elsewhere = DynamoLedger(LedgerOptions(table, endpoint))

    def elsewhere(self) -> DynamoLedger:
        return self._elsewhere

    def another_table(self) -> DynamoLedger:
        ledger = DynamoLedger(LedgerOptions(f"other-{uuid.uuid4().hex[:12]}", self.endpoint))
        ledger.admin.create()
        return ledger

    def lose_answer(self, name: str) -> None:
        assert name
        self.client.pending += 1


@pytest.fixture(scope="module")
def table(stack: "Stack") -> str:
    name = f"ledger-{uuid.uuid4().hex[:12]}"
    DynamoLedger(LedgerOptions(name, stack.endpoint("dynamodb"))).admin.create()
    return name


@pytest.fixture(scope="module")
def world(stack: "Stack", table: str) -> DynamoWorld:
    return DynamoWorld(stack.endpoint("dynamodb"), table)


@pytest.fixture(scope="module")
def impatient_world(stack: "Stack", table: str) -> DynamoWorld:
    return DynamoWorld(stack.endpoint("dynamodb"), table, IMPATIENT)


class TestContract(LedgerContract):
    """Lost responses are retried by the ledger itself, with the same token if there is one."""


class TestLostResponses:
    """Beyond the contract: an own success is not mistaken for that of another process."""

    def test_a_repeated_deletion_is_recognised_as_own(self, world: DynamoWorld) -> None:
        name = fresh("orders")
        world.ledger.connectors.put(name, {"format": "text"})
        world.lose_answer("delete_connector")

        assert world.ledger.connectors.delete(name)
        assert not world.ledger.connectors.delete(name)

    def test_a_repeated_replay_is_recognised_as_own(self, world: DynamoWorld) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        scene.failed(job)
        world.lose_answer("reopen")

        assert world.ledger.extents.reopen(job.id, 0)
        assert not world.ledger.extents.reopen(job.id, 0)

    def test_the_client_loses_responses(self, world: DynamoWorld) -> None:
        before = world.client.lost
        world.lose_answer("register")

        Scene(world.ledger).planning()

        assert (world.client.lost, world.client.pending) == (before + 1, 0)


class TestLostResponsesWithoutRetries(LostResponseContract):
    """The caller gets LedgerUnavailable and calls again, with a new token."""

    @pytest.fixture
    def world(self, impatient_world: DynamoWorld) -> DynamoWorld:
        return impatient_world


class TestRequestCounts:
    """Requests that the event path sends for every object."""

    def test_listing_connectors_with_cached_revisions_is_one_request(
        self, stack: "Stack", table: str
    ) -> None:
        client, name = CountedClient(), fresh("orders")
        ledger = DynamoLedger(
            LedgerOptions(table, stack.endpoint("dynamodb")), connect=client.connect
        )
        ledger.connectors.put(name, {"format": "text"})
        before = list(ledger.connectors.list())
        client.sent = 0

        assert list(ledger.connectors.list()) == before
        assert client.sent == 1
        ledger.connectors.put(name, {"format": "csv"})
        assert [one.revision for one in ledger.connectors.list() if one.name == name] == [2]

    def test_moving_a_plan_is_a_read_and_a_write(self, stack: "Stack", table: str) -> None:
        client = CountedClient()
        ledger = DynamoLedger(
            LedgerOptions(table, stack.endpoint("dynamodb")), connect=client.connect
        )
        job = Scene(ledger).planning()
        client.sent = 0

        planned = ledger.jobs.plan(job.id, count=1, cursor=job.version.size, complete=True)

        assert client.sent == 2
        assert planned == ledger.jobs.get(job.id)


class TestParallelClaims:
    """Every claim checks the job's item: a transaction on one hot item."""

    @pytest.mark.parametrize("hold_seconds", [None, 0.01])
    @pytest.mark.long
    def test_claims_of_one_job_by_many_workers_all_succeed_within_the_retry_time(
        self, stack: "Stack", table: str, hold_seconds: float | None
    ) -> None:
        client = ConflictingClient(hold_seconds or 0.0)
        ledger = DynamoLedger(
            LedgerOptions(table, stack.endpoint("dynamodb")),
            connect=connect if hold_seconds is None else client.connect,
        )
        scene, workers = Scene(ledger), 64
        job = scene.job(count=workers)
        leases = [scene.lease(number, f"worker-{number}") for number in range(workers)]
        began = running_seconds()

        claims = together(
            lambda number: scene.try_claim(leases[number], scene.extent(job, number)), workers
        )

        assert [claim.extent.ordinal for claim in claims if claim] == list(range(workers))
        assert running_seconds() - began < LedgerOptions("t").retry_seconds
        assert (client.conflicts > 0) is (hold_seconds is not None)


class TestLateRequests:
    """A request that was delayed on its way arrives after its sender continued."""

    @pytest.fixture
    def late(self, world: DynamoWorld) -> LateClient:
        return LateClient(LedgerOptions(world.table, world.endpoint))

    def test_a_late_clearing_does_not_clear_a_later_claim_of_the_slot(
        self, world: DynamoWorld, late: LateClient
    ) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        first = scene.claim(scene.lease(), extent)
        lease = scene.lease()
        late.delay(lambda ledger: ledger.slots.settle(lease, None, None))
        world.ledger.slots.settle(lease, first.item, Settlement(0, 0, 0))
        scene.claim(lease, extent)

        assert late.arrives() == "ConditionalCheckFailedException"

        assert scene.slot(lease).working == (extent.job, 0)

    def test_a_late_clearing_does_not_clear_what_the_next_owner_settles(
        self, world: DynamoWorld, late: LateClient
    ) -> None:
        scene = Scene(world.ledger)
        extent = scene.extent(scene.job())
        scene.claim(scene.lease(), extent)
        former = scene.lease()
        late.delay(lambda ledger: ledger.slots.settle(former, None, None))
        lease = scene.lease()

        assert late.arrives() == "ConditionalCheckFailedException"

        assert scene.slot(lease).working == (extent.job, 0)

    def test_a_late_closing_does_not_end_a_job_that_ended_otherwise(
        self, world: DynamoWorld, late: LateClient
    ) -> None:
        job = Scene(world.ledger).job(count=0)
        late.delay(lambda ledger: ledger.jobs.close(job.id))
        ended = world.ledger.jobs.end(job.id, JobState.CANCELLED, "called off")

        assert late.arrives() == "ConditionalCheckFailedException"

        assert world.ledger.jobs.get(job.id) == ended

    def test_a_replay_with_a_stale_read_of_the_extent_changes_nothing(
        self, world: DynamoWorld, late: LateClient
    ) -> None:
        scene = Scene(world.ledger)
        job = scene.job()
        scene.failed(job)
        late.before_job_read = lambda: world.ledger.extents.reopen(job.id, 0)

        assert not late.ledger.extents.reopen(job.id, 0)

        current = world.ledger.jobs.get(job.id)
        assert current is not None
        assert current.reopened == 1
        assert world.ledger.jobs.progress(job.id) == JobProgress()

    def test_a_late_claim_is_refused_once_the_extent_moved(
        self, world: DynamoWorld, late: LateClient
    ) -> None:
        scene = Scene(world.ledger)
        extent, lease = scene.extent(scene.job()), scene.lease()
        seen = scene.item(extent)
        late.delay(
            lambda ledger: ledger.extents.claim(
                lease, extent, seen, nonce="late", lease_seconds=LEASE_SECONDS
            )
        )
        scene.hand_back(scene.claim(lease, extent), 10)

        assert late.arrives() == "TransactionCanceledException"

        assert scene.item(extent).claim is None

    def test_a_late_renewal_does_not_occupy_a_released_slot(
        self, world: DynamoWorld, late: LateClient
    ) -> None:
        lease = Scene(world.ledger).lease()
        late.delay(lambda ledger: ledger.slots.renew(lease, lease_seconds=LEASE_SECONDS))
        world.ledger.slots.release(lease)

        assert late.arrives() == "ConditionalCheckFailedException"


class TestContention:
    def test_conflicts_and_throttling_are_retried(self, world: DynamoWorld) -> None:
        client = BusyClient()
        quick = RetryPolicy(first_pause_seconds=0.001)
        ledger = DynamoLedger(
            LedgerOptions(world.table, world.endpoint), retry=quick, connect=client.connect
        )
        scene = Scene(ledger)
        job, lease = scene.job(10), scene.lease()

        for ordinal in range(10):
            scene.complete(scene.claim(lease, scene.extent(job, ordinal)))

        assert ledger.jobs.close(job.id).state is JobState.DONE
        assert ledger.jobs.progress(job.id).done == 10
        assert client.sent > 60


class TestPages:
    def test_listings_continue_after_the_first_page(self, world: DynamoWorld) -> None:
        """A page ends at 1 MB."""
        job, large = fresh("job"), "x" * 100_000
        for ordinal in range(25):
            item = ExtentItem(job, ordinal, start=0, end=1, error=large)
            write = Write(extent_key(job, ordinal), sets=lay_out(item, FIELDS))
            world.ledger._items.update("storing a large item", write)

        listed = [item.ordinal for item in world.ledger.extents.list(job)]

        assert listed == list(range(25))


class TestPublishing:
    def test_unpublished_ends_are_found_without_reading_other_jobs(
        self, stack: "Stack", table_name: str
    ) -> None:
        client = ReadClient()
        ledger = DynamoLedger(
            LedgerOptions(table_name, stack.endpoint("dynamodb")), connect=client.connect
        )
        ledger.admin.create()
        ledger.connectors.put("orders", {})
        jobs = [
            ledger.jobs.register(unregistered(created=float(number))) for number in range(1, 21)
        ]
        ended = [ledger.jobs.end(job.id, JobState.CANCELLED, "called off") for job in jobs[:10]]
        for job in ended[1:]:
            ledger.jobs.mark_published(job)

        client.read = 0
        waiting = list(ledger.jobs.unpublished(100))

        assert waiting == ended[:1]
        assert client.read == 2  # the connector's name, the job


class TestTable:
    @pytest.fixture
    def fresh_ledger(self, stack: "Stack", table_name: str) -> DynamoLedger:
        return DynamoLedger(LedgerOptions(table_name, stack.endpoint("dynamodb")))

    def test_a_created_table_exists(self, fresh_ledger: DynamoLedger) -> None:
        assert not fresh_ledger.admin.exists()

        fresh_ledger.admin.create()

        assert fresh_ledger.admin.exists()

    def test_a_created_table_has_no_problems(self, fresh_ledger: DynamoLedger) -> None:
        fresh_ledger.admin.create()

        description = fresh_ledger.admin.describe()

        assert (description.status, description.problems) == ("ACTIVE", ())
        assert description.expiry
        assert description.recovery is None  # DynamoDB Local has none

    def test_creating_again_changes_nothing(
        self, stack: "Stack", fresh_ledger: DynamoLedger, table_name: str
    ) -> None:
        fresh_ledger.admin.create()
        job = Scene(fresh_ledger).job()
        again = DynamoLedger(LedgerOptions(table_name, stack.endpoint("dynamodb")))

        again.admin.create()

        assert again.id == fresh_ledger.id
        assert again.jobs.get(job.id) == job

    def test_creators_at_the_same_moment_agree_on_the_id(
        self, stack: "Stack", table_name: str
    ) -> None:
        creators = [
            DynamoLedger(LedgerOptions(table_name, stack.endpoint("dynamodb"))) for _ in range(8)
        ]

        at_once([ledger.admin.create for ledger in creators])

        assert len({ledger.id for ledger in creators}) == 1

    def test_a_table_created_elsewhere_gets_its_id_at_first_use(
        self, stack: "Stack", table_name: str, dynamodb: "DynamoDBClient"
    ) -> None:
        dynamodb.create_table(
            TableName=table_name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            KeySchema=KEY_SCHEMA,
        )
        users = [
            DynamoLedger(LedgerOptions(table_name, stack.endpoint("dynamodb"))) for _ in range(8)
        ]

        identities = together(lambda number: users[number].id, len(users))

        assert len(set(identities)) == 1
        (problem,) = users[0].admin.describe().problems
        assert "index" in problem

    def test_a_missing_table_is_named_with_its_remedy(self, fresh_ledger: DynamoLedger) -> None:
        for operation in (
            fresh_ledger.now,
            lambda: fresh_ledger.id,
            fresh_ledger.admin.describe,
            lambda: fresh_ledger.jobs.get("x"),
            lambda: list(fresh_ledger.jobs.list()),
            lambda: Scene(fresh_ledger).lease(),
        ):
            with pytest.raises(Misconfigured, match=r"table ledger-.*no such table"):
                operation()

    def test_a_table_of_another_shape_is_refused(
        self, fresh_ledger: DynamoLedger, table_name: str, dynamodb: "DynamoDBClient"
    ) -> None:
        dynamodb.create_table(
            TableName=table_name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "orderId", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "orderId", "KeyType": "HASH"}],
        )

        with pytest.raises(Misconfigured) as raised:
            fresh_ledger.admin.create()

        assert "orderId" in raised.value.problems[0]
        assert "index" in raised.value.problems[1]

    def test_an_unreachable_endpoint_is_ledger_unavailable(self, table_name: str) -> None:
        ledger = DynamoLedger(LedgerOptions(table_name, "http://127.0.0.1:9"), retry=IMPATIENT)

        with pytest.raises(LedgerUnavailable, match=r"http://127\.0\.0\.1:9"):
            ledger.now()


# -- restored tables ------------------------------------------------------------------------------


def copied(world: DynamoWorld) -> DynamoLedger:
    """Copy all items to a new table, as a restored backup has them."""
    options = LedgerOptions(f"restored-{uuid.uuid4().hex[:12]}", world.endpoint)
    ledger = DynamoLedger(options)
    ledger.admin._create_table()
    ledger.admin._await_active()
    client = connect(options)
    for page in client.get_paginator("scan").paginate(TableName=world.table):
        for item in page["Items"]:
            client.put_item(TableName=options.table, Item=item)
    return ledger


def test_a_restored_table_is_refused_until_it_is_adopted(stack: "Stack", table: str) -> None:
    world = DynamoWorld(stack.endpoint("dynamodb"), table)
    before = world.ledger.id
    Scene(world.ledger).job()
    restored = copied(world)

    with pytest.raises(Misconfigured, match=f"a copy of table {table}.*extentflow init"):
        _ = restored.id
    warnings = restored.admin.create()

    assert restored.id not in ("", before)
    assert world.elsewhere().id == before
    assert any("jobs are open" in warning for warning in warnings)
    assert restored.admin.create() == ()


def test_what_was_in_work_when_the_backup_was_made_becomes_unknown(
    stack: "Stack", table: str
) -> None:
    world = DynamoWorld(stack.endpoint("dynamodb"), table)
    scene = Scene(world.ledger)
    job = scene.job()
    extent = scene.extent(job)
    broker = MemoryBroker({"records": 1}, cluster=job.cluster)
    slots = partial(
        Slots,
        broker=broker,
        policy=SlotPolicy(count=1, lease_seconds=LEASE_SECONDS),
        app_id="app",
        clock=Clock(),
        random=Random(),
    )
    bound = world.ledger.bind("app")
    worker = slots(ledger=world.ledger, owner="before", app_id=bound)
    claim = worker.claim(extent, ProducerSettings())
    assert isinstance(claim, Claim)
    restored = copied(world)
    # After the backup: the extent is done, and its slot works on others under the same epoch.
    worker.complete(claim, position=extent.end, records=5, bad=0, filtered=0)
    restored.admin.create()

    slots(ledger=restored, owner="after", app_id=bound).evict("before")

    item = restored.extents.get(extent.job, extent.ordinal)
    assert (item.state, item.progress_unknown) == (ExtentState.FAILED, True)
