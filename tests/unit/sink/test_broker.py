"""KafkaBroker without a cluster: what it must not do unless a broker answered."""

import pytest

from extentflow.errors import SinkUnavailable
from extentflow.sink import ClientSettings
from extentflow.sink.broker import KafkaBroker
from extentflow.sink.patience import Patience


@pytest.mark.parametrize("exactly_once", [True, False])
def test_there_is_no_fence_until_a_broker_fenced_the_predecessor(*, exactly_once: bool) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    broker = KafkaBroker(nowhere, patience=Patience(fence_seconds=0.2))

    with pytest.raises(SinkUnavailable, match=r"slot app\.ledger\.slot-1: no answer"):
        broker.fence("app.ledger.slot-1", ClientSettings(exactly_once=exactly_once))
