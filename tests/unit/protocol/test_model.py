"""Every state of the protocol's model: none is bad, and from each one the work can be finished.

Breaking any single rule leads to a bad state. 73,000 states, 2 s on one core; what is marked
`exhaustive` visits 300,000 more.
"""

import pytest
from tests.unit.protocol.model import Rule, Size, explore

SOUND = [
    (Size(extents=2, crashes=1), 24_000),
    (Size(chunks=3, crashes=1), 3_900),
    (Size(chunks=1, crashes=1, pauses=1), 29_000),
    (Size(slots=1, crashes=1, pauses=1, forgets=1), 14_900),
]
LARGE = [
    (Size(crashes=1, pauses=1), 67_000),
    (Size(extents=2, chunks=1, crashes=1, pauses=1), 160_000),
    (Size(slots=1, crashes=2, pauses=1, forgets=1), 76_000),
]

OVERTAKEN = Size(slots=1, crashes=1, pauses=1)
CRASHED = Size(slots=1, crashes=1)
FORGOTTEN = Size(slots=1, crashes=1, forgets=1)
BROKEN = {
    Rule.FENCE: (OVERTAKEN, "visible twice"),
    Rule.SETTLE: (CRASHED, "visible twice"),
    Rule.SETTLE_IF_OURS: (OVERTAKEN, "no group was lost"),
    Rule.MISSING_IS_UNKNOWN: (FORGOTTEN, "visible twice"),
    Rule.PROOF_OF_THE_CLAIM: (FORGOTTEN, "visible twice"),
    Rule.ANY_LOWER_EPOCH: (Size(slots=1, crashes=2), "over and over"),
    Rule.NEVER_BACK: (Size(chunks=3, crashes=1), "visible twice"),
    Rule.MARK: (CRASHED, "no group was lost"),
    Rule.CLAIM_UNCLAIMED: (Size(), "visible twice"),
    Rule.CLAIM_POSITION: (Size(), "visible twice"),
    Rule.CLAIM_SLOT: (OVERTAKEN, "no group was lost"),
    Rule.RELEASE_BY_FENCER: (Size(), "visible twice"),
    Rule.FINISH_BY_CLAIM: (OVERTAKEN, "visible twice"),
    Rule.CONFIRM_FIRST: (Size(extents=2), "over and over"),
    Rule.OFFSET_ALWAYS: (CRASHED, "visible twice"),
}


@pytest.mark.parametrize(
    ("size", "states"),
    [*SOUND, *(pytest.param(*large, marks=pytest.mark.soak) for large in LARGE)],
)
def test_no_state_of_the_protocol_is_bad(size: Size, states: int) -> None:
    finding = explore(size)

    assert (finding.problem, finding.path) == ("", ())
    assert finding.states > states


@pytest.mark.parametrize("rule", Rule)
def test_breaking_a_rule_ends_badly(rule: Rule) -> None:
    size, problem = BROKEN[rule]

    finding = explore(size, rule)

    assert problem in finding.problem
    assert finding.path
