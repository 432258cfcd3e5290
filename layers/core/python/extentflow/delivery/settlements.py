"""What a slot's new owner writes about the extent of its predecessor, by what Kafka states.

Tests: unit/delivery/test_slots.py
"""

from dataclasses import replace

from extentflow.kafka import SlotProgress
from extentflow.ledger import ExtentItem, Lease, Settlement


def settlement_of(
    lease: Lease, item: ExtentItem, committed: SlotProgress | None
) -> Settlement | None:
    """Return the outcome of the previous owner's claim; None if it had none."""
    claim = item.claim
    # Any lower epoch counts, not only the previous one: a worker may die between lease and
    # settlement.
    if claim is None or claim.slot != lease.number or claim.epoch >= lease.epoch:
        return None
    unchanged = Settlement(**item.totals)
    if claim.at_least_once:
        return unchanged  # its commits are in the ledger only, so that Kafka can lose none
    if committed is None or committed.epoch != claim.epoch:
        # A missing group or another epoch proves nothing: retention, a deletion or a rebuilt
        # broker may have lost a commit. The extent fails; only a replay may accept duplicates.
        return replace(unchanged, unknown=True)
    if (committed.job, committed.extent) != (item.job, item.ordinal):
        return unchanged  # the marker or an earlier extent: no commit since the claim
    if not committed.done and committed.position <= item.position:
        return unchanged
    return Settlement(
        committed.position,
        committed.records,
        committed.bad,
        committed.done,
        filtered=committed.filtered,
    )
