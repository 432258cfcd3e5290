"""Connectors that do not exist: each operation names the nearest one."""

from collections.abc import Callable

import pytest

from extentflow.errors import Misconfigured
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
    operation: Callable[[Connectors, str], object], connectors: Connectors
) -> None:
    with pytest.raises(Misconfigured, match=r"^there is no connector ordres; did you mean orders"):
        operation(connectors, "ordres")
    with pytest.raises(Misconfigured, match="`extentflow connectors list` shows the connectors"):
        operation(connectors, "xyz")


def test_an_unknown_revision_is_reported_with_the_command_that_shows_the_latest(
    connectors: Connectors,
) -> None:
    with pytest.raises(Misconfigured) as caught:
        connectors.get("orders", 7)

    assert str(caught.value) == (
        "there is no revision 7 of connector orders; `extentflow connectors show orders` shows the"
        " latest one"
    )


def test_a_deleted_connector_is_not_suggested(connectors: Connectors) -> None:
    connectors.delete("orders")

    with pytest.raises(
        Misconfigured,
        match="connector orders is not stored: it was deleted, or `extentflow run --topic` made it",
    ):
        connectors.get("orders")
