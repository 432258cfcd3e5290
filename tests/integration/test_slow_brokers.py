"""Delivery to a real broker behind a link of limited bandwidth."""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
import pytest
from tests.support.memory_delivery import TOPIC, World
from tests.support.slow_link import SlowLink, slow_link

from extentflow.background import LeaseRenewer, prefetch
from extentflow.delivery.pipeline import ConvertedChunk, Pipeline
from extentflow.delivery.runner import TransactionLimits, run_extent
from extentflow.delivery.slots import SlotPolicy, Slots
from extentflow.errors import Retryable
from extentflow.model import Extent
from extentflow.retry import Clock
from extentflow.sink import Records
from extentflow.sink.broker import KafkaBroker
from extentflow.testing.ledger import MemoryLedger
from extentflow_local.ports import HOST, free_run
from extentflow_local.services.kafka import Kafka
from extentflow_local.stack import Stack

pytestmark = pytest.mark.outage

MIB = 1 << 20
SECONDS = 40.0
RECORD = 8 << 10


@dataclass(frozen=True)
class Noise:
    """Chunks of one MiB that do not compress; positions are in MiB."""

    def convert(self, extent: Extent, position: int) -> Iterator[ConvertedChunk]:
        for start in range(position, extent.end):
            values = [os.urandom(RECORD) for _ in range(MIB // RECORD)]
            records = Records(TOPIC, pa.array(values, pa.binary()))
            yield ConvertedChunk(records, range(len(values)), (), start + 1)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlowLink]:
    """A broker whose clients are sent to the slow link."""
    ports = free_run(3, random.Random())
    with slow_link(MIB) as link:
        link.target = ports + 2
        properties = {
            "listeners": (
                f"PLAINTEXT://{HOST}:{ports},CONTROLLER://{HOST}:{ports + 1},"
                f"SLOW://{HOST}:{ports + 2}"
            ),
            "advertised.listeners": (
                f"PLAINTEXT://{HOST}:{ports},CONTROLLER://{HOST}:{ports + 1},"
                f"SLOW://{HOST}:{link.port}"
            ),
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SLOW:PLAINTEXT"
            ),
            "auto.create.topics.enable": "true",
        }
        folder = tmp_path_factory.mktemp("slow")
        services = [Kafka(properties=properties, heap="384m")]
        stack = Stack(folder, ports={"kafka": ports}, services=services, free_ports=True)
        with stack as running:
            running.up()
            yield link


@pytest.mark.parametrize("rate_mib", [0.5, 2.0])
def test_most_of_what_a_slow_broker_takes_is_committed(link: SlowLink, rate_mib: float) -> None:
    link.bytes_per_second = rate_mib * MIB
    broker = KafkaBroker({"bootstrap.servers": f"{HOST}:{link.port}"})
    broker.ensure_progress_topic()
    world = World(limits=TransactionLimits(gives_up=False))
    world.ledger = MemoryLedger(f"slow-{rate_mib}", clock=time.time)
    version = world.put(b"0" * 4096)
    request = replace(world.request(version, extent_bytes=4096), cluster=broker.cluster)
    planner = world.planner
    (extent,) = planner.extents(planner.plan(planner.register(request)))
    slots = Slots(
        ledger=world.ledger,
        broker=broker,
        policy=SlotPolicy(count=4),
        app_id="slow",
        owner="worker",
        clock=Clock(),
        random=random.Random(),
    )
    end = time.monotonic() + SECONDS
    worker = replace(
        world.worker(slots),
        clock=Clock(),
        open=lambda _extent: cast("Pipeline", Noise()),
        prefetch=lambda chunks: prefetch(chunks, lambda one: one.payload_bytes, 8 * MIB),
        stopping=lambda: time.monotonic() >= end,
    )

    before = link.passed_bytes
    with LeaseRenewer(slots.renew, 10.0):
        while time.monotonic() < end:
            try:
                run_extent(extent, worker)
            except Retryable:
                continue
    passed = link.passed_bytes - before
    slots.release()

    committed = world.ledger.extents.get(extent.job, 0).position * MIB
    # Compared with what the broker took, not with the rate: a busy machine may not fill the link.
    assert committed >= 0.9 * passed > MIB
