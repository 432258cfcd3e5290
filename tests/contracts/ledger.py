"""Arranges jobs, leases and claims for the ledger's contract, on any implementation.

A suite provides the fixture `world` and inherits `ledger_contract.LedgerContract`.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from extentflow.errors import LedgerUnavailable
from extentflow.ledger import Claim, ExtentItem, Lease, Ledger, SlotItem
from extentflow.model import Extent, Job, ObjectVersion, Plan, job_id

LEASE_SECONDS = 30.0
EXTENT_BYTES = 100

Answer = TypeVar("Answer")


class LedgerUnderTest(Protocol):
    """A ledger, and the means to intervene."""

    @property
    def ledger(self) -> Ledger:
        """The ledger as one process sees it."""
        ...

    def elsewhere(self) -> Ledger:
        """Return the same ledger as another process sees it."""
        ...

    def another_table(self) -> Ledger:
        """Return a ledger over a table of its own."""
        ...

    def lose_answer(self, name: str) -> None:
        """Let the next `name` of `ledger` take effect and lose its response."""
        ...


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def insist(call: Callable[[], Answer]) -> Answer:
    """Do what callers do after LedgerUnavailable: call again with the same arguments."""
    for _ in range(5):
        try:
            return call()
        except LedgerUnavailable:
            continue
    return call()


def unregistered(*, ordered: bool = False, connector: str = "orders", created: float = 0.0) -> Job:
    version = ObjectVersion("bucket", fresh("key"), None, "etag", 10_000)
    return Job(
        id=job_id(connector, version),
        connector=connector,
        revision=1,
        version=version,
        format="text",
        cluster="cluster",
        plan=Plan(target_bytes=EXTENT_BYTES),
        ordered=ordered,
        created=created,
    )


@dataclass(frozen=True)
class Scene:
    """Arranges jobs, leases and claims on one ledger, under unique names."""

    ledger: Ledger
    cluster: str = field(default_factory=lambda: fresh("cluster"))

    def planning(self, *, ordered: bool = False) -> Job:
        return self.ledger.jobs.register(unregistered(ordered=ordered))

    def job(self, count: int = 1, *, ordered: bool = False) -> Job:
        job = self.planning(ordered=ordered)
        return self.ledger.jobs.plan(
            job.id, count=count, cursor=count * EXTENT_BYTES, complete=True
        )

    def extent(self, job: Job, ordinal: int = 0) -> Extent:
        return job.extent(ordinal, ordinal * EXTENT_BYTES, (ordinal + 1) * EXTENT_BYTES)

    def lease(self, number: int = 0, owner: str = "worker") -> Lease:
        seen = self.ledger.slots.get(self.cluster, number)
        taken = self.ledger.slots.lease(seen, owner=owner, lease_seconds=LEASE_SECONDS)
        assert taken is not None
        return taken[0]

    def try_claim(
        self,
        lease: Lease,
        extent: Extent,
        *,
        seen: ExtentItem | None = None,
        nonce: str = "",
    ) -> Claim | None:
        return self.ledger.extents.claim(
            lease,
            extent,
            seen or self.item(extent),
            nonce=nonce or fresh("nonce"),
            message="message-1",
            lease_seconds=LEASE_SECONDS,
        )

    def claim(self, lease: Lease, extent: Extent) -> Claim:
        claim = self.try_claim(lease, extent)
        assert claim is not None
        return claim

    def advance(self, claim: Claim, position: int) -> None:
        self.ledger.extents.advance(
            claim,
            position=position,
            records=position,
            bad=1,
            filtered=0,
            lease_seconds=LEASE_SECONDS,
        )

    def complete(self, claim: Claim, position: int = EXTENT_BYTES) -> None:
        self.ledger.extents.complete(claim, position=position, records=position, bad=2, filtered=0)

    def fail(self, claim: Claim, position: int = 0) -> None:
        self.ledger.extents.fail(
            claim, position=position, records=position, bad=0, filtered=0, error="bad line"
        )

    def hand_back(self, claim: Claim, position: int, *, keep_attempt: bool = True) -> None:
        self.ledger.extents.hand_back(
            claim, position=position, records=position, bad=1, filtered=0, keep_attempt=keep_attempt
        )

    def failed(self, job: Job, ordinal: int = 0) -> Extent:
        extent = self.extent(job, ordinal)
        self.fail(self.claim(self.lease(), extent))
        return extent

    def item(self, extent: Extent) -> ExtentItem:
        return self.ledger.extents.get(extent.job, extent.ordinal)

    def slot(self, lease: Lease) -> SlotItem:
        return self.ledger.slots.get(lease.cluster, lease.number)
