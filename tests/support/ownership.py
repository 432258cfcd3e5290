"""Arrange `Slots` over doubles: workers at work, dead, and replaced by others."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from tests.support.memory_delivery import TOPIC, World

from extentflow.delivery.slots import SlotPolicy, Slots
from extentflow.errors import LedgerUnavailable
from extentflow.kafka import Broker, ProducerSettings, Records, SlotProgress
from extentflow.ledger import Claim, SlotItem
from extentflow.model import Extent
from extentflow.retry import Clock
from extentflow.testing.broker import MemoryBroker

CLIENT = ProducerSettings()
LEASE_SECONDS, GRACE_SECONDS = 3.0, 0.75
ONE = SlotPolicy(count=1, lease_seconds=LEASE_SECONDS, wait_seconds=1)
TWO = replace(ONE, count=2)


class Scene(World):
    """A job of extents of four records; claims that have to succeed; looks at ledger and Kafka."""

    def extent(
        self, ordinal: int = 0, *, body: bytes = b"abcdefgh", ordered: bool = False
    ) -> Extent:
        return self.extents(self.job(body, ordered=ordered))[ordinal]

    def of(
        self,
        owner: str,
        policy: SlotPolicy = TWO,
        *,
        broker: Broker | None = None,
        clock: Clock | None = None,
        submit: Callable[[Callable[[], None]], None] = lambda call: call(),
    ) -> Slots:
        return Slots(
            ledger=self.ledger,
            broker=broker or self.broker,
            policy=policy,
            app_id="app",
            owner=owner,
            clock=clock or self.ticker.clock,
            random=Random(owner),
            submit=submit,
        )

    def claim(self, slots: Slots, extent: Extent) -> Claim:
        claim = slots.claim(extent, CLIENT)
        assert isinstance(claim, Claim)
        return claim

    def send(self, slots: Slots, *values: bytes) -> None:
        slots.sink.send(Records(TOPIC, pa.array(values, pa.binary())))

    def deliver(self, slots: Slots, claim: Claim, upto: int) -> None:
        """Send and commit one record per place from the claim's position."""
        start = claim.item.position
        self.send(slots, *(b"%d" % place for place in range(start, upto)))
        slots.commit(claim, position=upto, records=upto, bad=0, filtered=0)

    def die_after_commit(self, slots: Slots, claim: Claim, upto: int) -> None:
        """Commit to Kafka, and never report to the ledger."""
        self.ledger.refuse("advance")
        self.deliver(slots, claim, upto)

    def die_while_completing(self, slots: Slots, claim: Claim, upto: int) -> None:
        self.ledger.refuse("complete")
        self.send(slots, *(b"%d" % place for place in range(upto)))
        with pytest.raises(LedgerUnavailable):
            slots.complete(claim, position=upto, records=upto, bad=0, filtered=0)

    def outlast_the_lease(self) -> None:
        self.ticker.now += LEASE_SECONDS + GRACE_SECONDS + 0.1

    def slot(self, number: int) -> SlotItem:
        return self.ledger.slots.get(self.broker.cluster, number)

    def group(self, number: int) -> SlotProgress | None:
        return self.broker.group(f"app.ledger.slot-{number}")

    def put_group(self, number: int, progress: SlotProgress) -> None:
        """Let a group say something else, as a broker's does that was rebuilt."""
        group = (progress.position, progress.to_metadata())
        self.broker._log.slots[f"app.ledger.slot-{number}"].group = group

    def forget_group(self, number: int) -> None:
        self.broker.forget_group(f"app.ledger.slot-{number}")

    def meanwhile(self, operation: str, happens: Callable[[], object]) -> MemoryBroker:
        """Return the broker as seen by a worker to whom something happens before an operation."""
        left = [happens]

        def on_call(name: str) -> None:
            if name == operation and left:
                left.pop()()

        broker = MemoryBroker(on_call=on_call)
        broker._log = self.broker._log
        return broker
