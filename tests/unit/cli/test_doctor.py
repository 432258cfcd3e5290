"""What doctor makes of slots that were left behind, and of errors."""

from collections.abc import Mapping

import pytest
from tests.support.world import World

from extentflow.cli.doctor import Finding, retention, slots, trouble
from extentflow.errors import (
    AccessDenied,
    ExtentflowError,
    Misconfigured,
    SinkUnavailable,
)
from extentflow.settings import WorkerSettings
from extentflow.sink import ClientSettings
from extentflow.testing.broker import MemoryBroker
from extentflow.wiring import Site

DAY = 24 * 3600.0


class Configured(MemoryBroker):
    """A cluster whose brokers tell their configuration, or refuse to."""

    def __init__(self, config: Mapping[str, str] | ExtentflowError) -> None:
        super().__init__({"records": 1})
        self._config = config

    def config(self) -> Mapping[str, str]:
        if isinstance(self._config, ExtentflowError):
            raise self._config
        return self._config


def left(days: float, config: Mapping[str, str] | ExtentflowError | None = None) -> Site:
    """Return a site whose ledger has an extent that a worker left so many days ago."""
    usual = {"offsets.retention.minutes": "10080"}
    world = World(broker=Configured(usual if config is None else config))
    (extent,) = world.extents(world.job(b"abc"))
    world.slots().claim(extent, ClientSettings())
    world.ticker.sleep(3 + days * DAY)
    site = Site(WorkerSettings(bootstrap_servers="127.0.0.1:1"))
    # Where cached properties keep what was made, so that nothing else is.
    site.__dict__.update(ledger=world.ledger, broker=world.broker)
    return site


@pytest.mark.parametrize(
    ("days", "verdict"),
    [(0, "ok"), (3.4, "ok"), (3.6, "warning"), (6.9, "warning"), (7.1, "problem")],
)
def test_an_extent_left_longer_than_kafka_remembers_is_a_problem(days: float, verdict: str) -> None:
    found = retention(left(days))

    assert found.verdict == verdict
    assert "7 days" in found.fact
    assert bool(found.remedy) == (verdict != "ok")


def test_a_cluster_that_forgets_sooner_is_taken_at_its_word() -> None:
    found = retention(left(2, {"offsets.retention.minutes": "1440"}))

    assert found.verdict == "problem"
    assert "for 1 days, and an extent was left 2.0 days ago" in found.fact
    assert "--accept-duplicates" in found.remedy


def test_a_cluster_that_does_not_say_is_taken_for_a_usual_one() -> None:
    assert retention(left(8, {})).verdict == "problem"


def test_a_configuration_that_may_not_be_read_is_no_problem() -> None:
    found = retention(left(0, Misconfigured("not allowed")))

    assert (found.verdict, found.fact) == ("warning", "not allowed")


@pytest.mark.parametrize(("days", "verdict"), [(-1, "ok"), (0.1, "warning")])
def test_slots_left_with_an_extent_are_told(days: float, verdict: str) -> None:
    assert slots(left(days)).verdict == verdict


def test_an_error_is_a_fact_and_what_to_do() -> None:
    assert trouble("objects", AccessDenied("s3://b: refused; allow s3:GetObject")) == Finding(
        "objects", "problem", "s3://b: refused", "allow s3:GetObject"
    )
    assert trouble("topic", Misconfigured(["t1 is not there; create it", "t2 is odd"])) == Finding(
        "topic", "problem", "t1 is not there; t2 is odd", "create it"
    )


def test_a_server_that_does_not_answer_is_to_be_started() -> None:
    found = trouble("Kafka cluster", SinkUnavailable("no answer; last: refused"))

    assert found.fact == "no answer; last: refused"
    assert found.remedy == "start it, or correct its address"
