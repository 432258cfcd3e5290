"""Connectors that do not exist, and several that are stored together."""

from collections.abc import Callable

import pytest
from tests.support.golden import Golden

from extentflow.errors import Misconfigured
from extentflow.ledger import ConnectorState
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

    assert [(one.name, one.revision) for one in stored] == [
        ("orders", 1),  # unchanged
        ("inner", 1),
        ("other", 1),
    ]
    assert [[found.name for found in one.overlapping] for one in stored] == [[], ["orders"], []]
    assert listed.count("connectors") == 1  # it reads each connector


def test_a_stored_connector_is_that_which_get_and_list_return(connectors: Connectors) -> None:
    stored = connectors.put({**ORDERS, "aws.s3.prefix": "in/"})

    assert (stored.state, stored.revision) == (ConnectorState.RUNNING, 2)
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

    assert [one.name for one in stored.earlier] == ["made"]
    assert stored.overlapping == ()


def test_no_connector_is_stored_where_one_is_wrong() -> None:
    ledger = MemoryLedger()

    with pytest.raises(Misconfigured):
        Connectors(ledger).put_all([ORDERS, {**ORDERS, "name": "b", "topic": "no topic"}])

    assert not list(ledger.connectors.list())
