"""What the reconciler function gets: owners of its own, queues, territories of connectors."""

from dataclasses import replace
from pathlib import Path

import pytest

from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured
from extentflow.model import ObjectVersion
from extentflow.queue.sqs_queue import SqsQueue
from extentflow.storage.local import LocalStore
from extentflow.storage.s3 import S3Store
from extentflow.testing.broker import MemoryBroker
from extentflow.testing.ledger import MemoryLedger
from extentflow.testing.services import MemoryQueue
from extentflow.wiring import Runtime
from extentflow.wiring.functions import RuntimeContext, open_reconciler

QUEUES = "https://sqs.eu-west-1.amazonaws.com/123456789012"
SETTINGS = WorkerSettings(
    bootstrap_servers="127.0.0.1:1",
    ledger_table="ledger",
    extents_queue_url=f"{QUEUES}/extents",
    arrivals_queue_url=f"{QUEUES}/arrivals",
    arrivals_dlq_url=f"{QUEUES}/arrivals-dead",
)
IN_S3 = {"aws.s3.bucket.name": "shop", "aws.s3.endpoint": "http://127.0.0.1:1"}


@pytest.fixture
def runtime() -> Runtime:
    made = Runtime(SETTINGS)
    made.__dict__.update(ledger=MemoryLedger(), broker=MemoryBroker())
    return made


def put(runtime: Runtime, endpoint_type: str, **changes: str) -> int:
    usual = {"name": "c", "topic": "t", "endpoint.type": endpoint_type}
    return runtime.ledger.connectors.put("c", {**usual, **changes}).revision


def test_every_reconciler_is_an_owner_of_its_own(runtime: Runtime) -> None:
    owners = {open_reconciler(runtime).slots.owner for _ in range(3)}

    assert len(owners) == 3
    assert all(owner.startswith("reconciler-") for owner in owners)


def test_what_stands_still_is_sent_to_the_extents_queue_until_it_is_late(runtime: Runtime) -> None:
    reconciliation = open_reconciler(runtime, late=lambda: True)

    found = reconciliation.router.dispatch.queue
    assert isinstance(found, SqsQueue)
    assert found.url == f"{QUEUES}/extents"
    assert reconciliation.late()


@pytest.mark.parametrize(
    ("endpoint_type", "settles"),
    [("awss3", False), ("storagegrids3", False), ("ontaps3", True)],
)
def test_buckets_that_are_file_systems_too_are_looked_at_twice(
    runtime: Runtime, endpoint_type: str, *, settles: bool
) -> None:
    revision = put(runtime, endpoint_type, **IN_S3)

    listed_prefix = RuntimeContext(runtime).listed_prefix("c", revision)

    assert listed_prefix.settles == settles
    assert isinstance(listed_prefix.store, S3Store)
    assert (listed_prefix.config.bucket, listed_prefix.config.name) == ("shop", "c")


def test_a_directory_is_listed_as_its_planner_pins_it(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1")
    revision = put(runtime, "localfile", directory=str(tmp_path))

    listed_prefix = RuntimeContext(runtime).listed_prefix("c", revision)

    (page,) = listed_prefix.store.pages(
        listed_prefix.config.bucket, listed_prefix.config.prefix, token=None
    )
    (found,) = page.versions
    assert isinstance(listed_prefix.store, LocalStore)
    assert listed_prefix.settles
    assert isinstance(found, ObjectVersion)
    assert found == listed_prefix.store.head(str(tmp_path), "a.csv")


def test_an_unparseable_connector_is_a_problem_and_delays_no_listing(
    runtime: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_bytes(b"1")
    put(runtime, "localfile", directory=str(tmp_path))
    runtime.ledger.connectors.put("b", {"name": "b", "topic": "t", "input.format": "nosuch"})
    found = open_reconciler(runtime)
    dispatch = replace(found.router.dispatch, queue=MemoryQueue(runtime.clock.wall))
    router = replace(found.router, dispatch=dispatch)

    report = replace(found, router=router, publish=lambda _limit: 0).run()

    assert (report.keys_listed, report.listings_finished, report.problems) == (1, ("c",), 1)
    assert "connector b, revision 1, cannot be read: input.format='nosuch'" in caplog.text


def test_a_territory_of_a_revision_that_is_not_there_is_misconfigured(runtime: Runtime) -> None:
    with pytest.raises(Misconfigured, match="no revision 7"):
        RuntimeContext(runtime).listed_prefix("c", 7)
