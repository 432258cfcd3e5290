"""Each guard of the protocol is needed: without it, random schedules break a promise.

The explorer drives the implementation (`Slots`, `run_extent`, the ledger's conditions); a test
removes one guard from it. `test_schedules` tests that progress needs its claim, where progress
arrives late; conditions on the owner of a slot only avoid idle leases.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.explore_world import Scenario, explore_some
from tests.support.scenarios import RANDOM_SCENARIOS

from extentflow.delivery import slots
from extentflow.delivery.settlements import settlement_of
from extentflow.delivery.slots import Slots
from extentflow.ledger import extent_store as extents
from extentflow.ledger.items import Attr
from extentflow.testing import broker

SEEDS_PER_STEP, STEPS = 40, 10
Remove = Callable[[pytest.MonkeyPatch], None]
ALWAYS = Attr("no-such-attribute").not_exists()


def without_condition(name: str) -> Remove:
    """Let every write through that the condition `name` of the ledger would refuse."""
    return lambda patch: patch.setattr(extents, name, lambda *_: ALWAYS)


def without_fence(patch: pytest.MonkeyPatch) -> None:
    """A new producer neither fences the one before it nor aborts its transaction."""

    def no_fence(log: Any, identity: str) -> int:  # noqa: ANN401 - a double's private class
        slot = log.slots.setdefault(identity, broker._Slot())
        slot.epoch = slot.epoch or 1
        return int(slot.epoch)

    patch.setattr(broker._Log, "fence", no_fence)


def without_settlement(patch: pytest.MonkeyPatch) -> None:
    """The new owner frees the extent where the ledger has it, whatever Kafka holds."""
    found = settlement_of

    def unchanged(lease: Any, item: Any, committed: Any) -> Any:  # noqa: ANN401 - as it is
        settlement = found(lease, item, committed)
        if settlement is None:
            return None
        return replace(
            settlement,
            position=item.position,
            records=item.records,
            bad=item.bad,
            done=False,
            unknown=False,
        )

    patch.setattr(slots, "settlement_of", unchanged)


def without_epoch_of_proof(patch: pytest.MonkeyPatch) -> None:
    """The group's offset is believed whatever epoch wrote it, and a missing group is nothing."""
    found = settlement_of

    def believing(lease: Any, item: Any, committed: Any) -> Any:  # noqa: ANN401 - as it is
        if committed is not None and item.claim is not None:
            committed = replace(committed, epoch=item.claim.epoch)
        settlement = found(lease, item, committed)
        return settlement and replace(settlement, unknown=False)

    patch.setattr(slots, "settlement_of", believing)


def without_mark(patch: pytest.MonkeyPatch) -> None:
    """A new owner claims before its epoch is in Kafka."""
    patch.setattr(broker.MemoryFence, "mark", lambda *_: None)


def without_doubt(patch: pytest.MonkeyPatch) -> None:
    """After a commit without an answer, the extent is handed back at the position before it."""
    found = Slots.hand_back

    def certain(slots: Slots, claim: Any, **totals: Any) -> None:  # noqa: ANN401 - as it is
        own = slots._own
        if own is not None:
            own.in_doubt, own.position = False, 0
        found(slots, claim, **totals)

    patch.setattr(Slots, "hand_back", certain)
    patch.setattr(Slots, "drop", lambda _slots: None)


GUARDS: dict[str, Remove] = {
    "the fence": without_fence,
    "the settlement": without_settlement,
    "the epoch of the proof": without_epoch_of_proof,
    "the mark": without_mark,
    "doubt about a commit": without_doubt,
    "a claim needs a free extent as it was read": without_condition("_is_free"),
    "claims, settlements and ends of claims need the slot's epoch": without_condition("_has_epoch"),
}


# Found by few schedules only.
RARE = {"the epoch of the proof", "a claim needs a free extent as it was read"}
REMOVED = [
    pytest.param(remove, id=name, marks=[pytest.mark.exhaustive] if name in RARE else [])
    for name, remove in GUARDS.items()
]


@pytest.mark.parametrize("remove", REMOVED)
def test_removing_a_guard_is_found(remove: Remove, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch)

    assert finds(), "no schedule breaks a promise"


def finds() -> bool:
    scenarios: list[Scenario] = list(RANDOM_SCENARIOS.values())
    for step in range(STEPS):
        seeds = range(step * SEEDS_PER_STEP, (step + 1) * SEEDS_PER_STEP)
        for scenario in scenarios:
            try:
                explore_some(scenario, seeds, 0.15)
            except Exception:  # noqa: BLE001 - whatever breaks: a promise, or an invariant
                return True
    return False


@pytest.mark.exhaustive
def test_with_all_guards_nothing_is_found() -> None:
    """The control: the same schedules break nothing."""
    for scenario in RANDOM_SCENARIOS.values():
        explore_some(scenario, range(SEEDS_PER_STEP), 0.15)
