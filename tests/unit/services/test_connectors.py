"""Connectors that do not exist, and several that are stored together."""

from collections.abc import Callable, Mapping

import pytest
from tests.support.golden import Golden
from tests.support.memory_runtime import MemoryRuntime

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import BucketGone, Misconfigured, StoreUnavailable
from extentflow.kafka import ProducerSettings
from extentflow.ledger import Claim, ConnectorState
from extentflow.model import Job, ObjectVersion, Plan
from extentflow.services.connectors import Connectors
from extentflow.testing.ledger import MemoryLedger

ORDERS = {"name": "orders", "topic": "orders", "aws.s3.bucket.name": "shop"}


@pytest.fixture
def connectors() -> Connectors:
    found = Connectors(MemoryLedger())
    found.put(ORDERS)
    return found


@pytest.mark.parametrize(
    "operation",
    [Connectors.get, Connectors.delete, Connectors.pause, Connectors.resume, Connectors.stop],
    ids=lambda operation: operation.__name__,
)
def test_an_unknown_connector_is_reported_with_the_nearest_name(
    operation: Callable[[Connectors, str], object], connectors: Connectors, golden: Golden
) -> None:
    with golden.raises(Misconfigured, match="connector ordres"):
        operation(connectors, "ordres")
    with golden.raises(Misconfigured, match="`extentflow connectors list`"):
        operation(connectors, "xyz")


def test_an_unknown_revision_is_reported_with_the_command_that_shows_the_latest(
    connectors: Connectors,
    golden: Golden,
) -> None:
    with pytest.raises(Misconfigured) as caught:
        connectors.get("orders", 7)

    golden(caught.value)
    assert "revision 7" in str(caught.value)


def test_a_deleted_connector_is_not_suggested(connectors: Connectors, golden: Golden) -> None:
    connectors.delete("orders")

    with golden.raises(
        Misconfigured,
        match="connector orders.*`extentflow run --topic`",
    ):
        connectors.get("orders")


def test_connectors_that_are_stored_together_name_those_before_that_read_the_same() -> None:
    ledger = MemoryLedger()
    listed: list[str] = []
    ledger.on_call = listed.append
    connectors = Connectors(ledger)
    connectors.put(ORDERS)
    listed.clear()
    inner = {**ORDERS, "name": "inner", "aws.s3.prefix": "in/"}

    stored = connectors.put_all([ORDERS, inner, {**inner, "name": "other", "topic": "other"}])

    assert [(one.name, one.revision, one.unchanged) for one in stored] == [
        ("orders", 1, True),
        ("inner", 1, False),
        ("other", 1, False),
    ]
    assert [[found.name for found in one.overlapping] for one in stored] == [[], ["orders"], []]
    assert listed.count("connectors") == 1  # it reads each connector


def test_a_stored_connector_is_that_which_get_and_list_return(connectors: Connectors) -> None:
    stored = connectors.put({**ORDERS, "aws.s3.prefix": "in/"})

    assert (stored.state, stored.revision) == (ConnectorState.ENABLED, 2)
    assert stored == connectors.get("orders")
    assert [stored] == connectors.list()


def test_a_connector_that_delivers_again_what_a_command_delivered_is_named() -> None:
    ledger = MemoryLedger()
    connectors = Connectors(ledger)
    ledger.connectors.put("made", {**ORDERS, "name": "made"}, listed=False)
    ledger.connectors.put("idle", {**ORDERS, "name": "idle"}, listed=False)
    version = ObjectVersion("shop", "a.csv", None, "etag", 1)
    ledger.jobs.register(Job("job", "made", 1, version, "csv", "cluster", Plan(target_bytes=1)))

    stored = connectors.put(ORDERS)

    (made,) = stored.earlier
    assert made.name == "made"
    assert made.command == "`extentflow run s3://shop/ --topic orders`"
    assert stored.overlapping == ()


def looks(errors: Mapping[str, Exception]) -> Callable[[ConnectorConfig], None]:
    """Return a look at connectors' buckets that raises the error of a connector's name."""

    def look(config: ConnectorConfig) -> None:
        if config.name in errors:
            raise errors[config.name]

    return look


def test_no_connector_is_stored_where_a_bucket_does_not_exist(golden: Golden) -> None:
    ledger = MemoryLedger()
    gone = BucketGone("bucket shpo does not exist")
    connectors = Connectors(ledger, looks({"mistyped": gone}))

    with golden.raises(Misconfigured, match="connector mistyped is not stored: bucket shpo"):
        connectors.put_all([ORDERS, {**ORDERS, "name": "mistyped"}])

    assert not list(ledger.connectors.list(deleted=True))


def test_a_connector_whose_objects_only_other_machines_reach_is_stored() -> None:
    ledger = MemoryLedger()
    files = {"name": "files", "topic": "t", "endpoint.type": "localfile", "directory": "/no/such"}
    errors = {"files": BucketGone("no folder"), "orders": StoreUnavailable("no route")}

    stored = Connectors(ledger, looks(errors)).put_all([ORDERS, files])

    assert [(one.name, one.unchecked) for one in stored] == [
        ("orders", "no route"),
        ("files", "no folder"),
    ]
    assert [one.name for one in ledger.connectors.list()] == ["files", "orders"]


def test_a_connector_of_a_command_is_found_where_every_one_is_asked_for() -> None:
    ledger = MemoryLedger()
    connectors = Connectors(ledger)
    connectors.put(ORDERS)
    ledger.connectors.put("made", {**ORDERS, "name": "made"}, listed=False)

    every = {one.name: one.stored for one in connectors.list(every=True)}

    assert [one.name for one in connectors.list()] == ["orders"]
    assert every == {"orders": True, "made": False}
    assert connectors.get("made", every=True).stored is False
    with pytest.raises(Misconfigured):
        connectors.get("made")


def test_a_connector_has_the_number_of_its_jobs_that_are_open_and_in_work() -> None:
    runtime = MemoryRuntime()
    runtime.put_connector()
    runtime.put_connector("idle")
    planned = runtime.planner().plan(runtime.job("c/a.txt"))
    runtime.job("c/b.txt")
    extent = next(iter(runtime.planner().pending(planned)))
    held = runtime.slots("worker").claim(extent, ProducerSettings())

    def jobs() -> list[tuple[str, int, int]]:
        listed = Connectors(runtime.memory).list()
        return [(one.name, one.open_jobs, one.jobs_in_work) for one in listed]

    during = jobs()
    runtime.ticker.sleep(3_600)  # the lease ends

    assert isinstance(held, Claim)
    assert during == [("c", 2, 1), ("idle", 0, 0)]
    assert jobs() == [("c", 2, 0), ("idle", 0, 0)]


def test_no_connector_is_stored_where_one_is_wrong() -> None:
    ledger = MemoryLedger()

    with pytest.raises(Misconfigured):
        Connectors(ledger).put_all([ORDERS, {**ORDERS, "name": "b", "topic": "no topic"}])

    assert not list(ledger.connectors.list())
