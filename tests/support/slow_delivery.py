"""Delivery to a real broker behind a link of limited bandwidth, and how much of it is committed."""

import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pyarrow as pa
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.memory_delivery import TOPIC, World
from tests.support.slow_link import SlowLink, slow_link

from extentflow.background import LeaseRenewer, prefetch
from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.runner import TransactionLimits, run_extent
from extentflow.delivery.slots import SlotPolicy, Slots
from extentflow.errors import Retryable
from extentflow.kafka import Records
from extentflow.kafka.broker import KafkaBroker
from extentflow.model import Extent
from extentflow.retry import Clock
from extentflow.testing.ledger import MemoryLedger
from extentflow_local.stack.ports import HOST, free_run
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.stack import Stack

MIB = 1 << 20
RECORD_BYTES = 8 << 10
OBJECT_BYTES = 4096  # a position counts MiB


@dataclass(frozen=True)
class Noise:
    """Chunks of one MiB that do not compress; positions are in MiB."""

    resumable = False

    def convert(self, extent: Extent, position: int) -> Iterator[ConvertedChunk]:
        for start in range(max(position, extent.start), extent.end):
            values = [os.urandom(RECORD_BYTES) for _ in range(MIB // RECORD_BYTES)]
            records = Records(TOPIC, pa.array(values, pa.binary()))
            yield ConvertedChunk(records, range(len(values)), (), start + 1)


@contextmanager
def broker_behind_link(folder: Path) -> Iterator[SlowLink]:
    """Start a broker whose clients are sent to the link."""
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
        }
        services = [Kafka(properties=properties, heap="384m", quick=True)]
        stack = Stack(folder, ports={"kafka": ports}, services=services, free_ports=True)
        with stack as running:
            running.up()
            # Clients of extentflow create no topics, whatever the broker allows.
            admin = AdminClient({"bootstrap.servers": f"{HOST}:{ports}"})
            for created in admin.create_topics([NewTopic(TOPIC, 4)]).values():
                created.result(30)
            yield link


@dataclass(frozen=True, slots=True)
class Goodput:
    """Bytes that were committed, and bytes that passed the link."""

    committed: int
    passed: int


def deliver_through(link: SlowLink, rate_mib: float, seconds: float, workers: int = 1) -> Goodput:
    """Deliver one extent per worker for `seconds`; `rate_mib` is the rate of each worker."""
    link.bytes_per_second = rate_mib * MIB * workers
    broker = KafkaBroker({"bootstrap.servers": f"{HOST}:{link.port}"})
    broker.ensure_progress_topic()
    world = World(limits=TransactionLimits(gives_up=False))
    world.ledger = MemoryLedger(f"slow-{rate_mib}-{workers}", clock=time.time)
    version = world.put(b"0" * OBJECT_BYTES * workers)
    request = replace(world.request(version, extent_bytes=OBJECT_BYTES), cluster=broker.cluster)
    planner = world.planner
    extents = list(planner.extents(planner.plan(planner.register(request))))
    before, end = link.passed_bytes, time.monotonic() + seconds
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda extent: _deliver(world, broker, extent, end, workers), extents))
    items = [world.ledger.extents.get(extent.job, extent.ordinal) for extent in extents]
    committed = sum(max(0, item.position - item.start) for item in items) * MIB
    return Goodput(committed, link.passed_bytes - before)


def _deliver(world: World, broker: KafkaBroker, extent: Extent, end: float, workers: int) -> None:
    slots = Slots(
        ledger=world.ledger,
        broker=broker,
        policy=SlotPolicy(count=4 * workers),
        app_id="slow",
        owner=f"worker-{extent.ordinal}",
        clock=Clock(),
        random=random.Random(),
    )
    worker = replace(
        world.worker(slots),
        clock=Clock(),
        open=lambda _extent: cast("Pipeline", Noise()),
        prefetch=lambda chunks: prefetch(chunks, lambda one: one.payload_bytes, 8 * MIB),
        stopping=lambda: time.monotonic() >= end,
    )
    with LeaseRenewer(slots.renew, 10.0):
        while time.monotonic() < end:
            try:
                run_extent(extent, worker)
            except Retryable:
                continue
    slots.release()
