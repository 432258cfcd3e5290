"""MemoryLedger fulfils the contract, calls hooks and injects faults."""

from dataclasses import dataclass, field
from functools import partial

import pytest
from tests.contracts.ledger import Scene
from tests.contracts.ledger_contract import LedgerContract

from extentflow.errors import LedgerUnavailable
from extentflow.ledger.extent_store import EXTENT
from extentflow.ledger.job_store import JOB
from extentflow.testing.ledger import MemoryLedger


@dataclass(frozen=True)
class MemoryWorld:
    ledger: MemoryLedger = field(default_factory=MemoryLedger)

    def elsewhere(self) -> MemoryLedger:
        return self.ledger

    def another_table(self) -> MemoryLedger:
        return MemoryLedger()

    def lose_answer(self, name: str) -> None:
        self.ledger.lose_answer(name)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


class TestContract(LedgerContract):
    pass


class TestHooks:
    def test_every_operation_yields_before_it_takes_effect(self) -> None:
        ledger = MemoryLedger()
        scene = Scene(ledger)
        job, lease = scene.job(), scene.lease()
        calls: list[tuple[str, int]] = []
        extents = partial(ledger.items.query, f"{JOB}{job.id}", EXTENT)
        ledger.on_call = lambda name: calls.append((name, len([*extents()])))

        scene.advance(scene.claim(lease, scene.extent(job)), 10)

        assert calls == [("extent", 0), ("claim", 0), ("advance", 1), ("renew", 1)]

    def test_a_callback_may_use_the_ledger_itself(self) -> None:
        ledger = MemoryLedger()
        scene = Scene(ledger)
        seen: list[str] = []

        def look(name: str) -> None:
            if name == "register":
                seen.append(ledger.slots.get(scene.cluster, 0).owner)

        ledger.on_call = ledger.on_answer = look
        scene.planning()

        assert seen == ["", ""]

    def test_an_error_raised_before_the_call_leaves_no_effect(self) -> None:
        ledger = MemoryLedger()
        scene = Scene(ledger)
        job, lease = scene.job(), scene.lease()
        ledger.refuse("claim")

        with pytest.raises(LedgerUnavailable, match="claim"):
            scene.claim(lease, scene.extent(job))

        assert list(ledger.extents.list(job.id)) == []
        assert scene.claim(lease, scene.extent(job)).item.attempts == 1

    def test_a_lost_response_leaves_its_effect(self) -> None:
        ledger = MemoryLedger()
        scene = Scene(ledger)
        job, lease = scene.job(), scene.lease()
        ledger.lose_answer("claim")

        with pytest.raises(LedgerUnavailable, match="claim"):
            scene.claim(lease, scene.extent(job))

        assert scene.slot(lease).working == (job.id, 0)

    def test_the_clock_is_injected(self) -> None:
        ledger = MemoryLedger(clock=lambda: 1_000.0)

        lease = Scene(ledger).lease()

        assert ledger.now() == 1_000.0
        assert ledger.slots.get(lease.cluster, 0).until == 1_030.0
