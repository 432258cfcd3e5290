"""The comparison of a reader under retention finds what was planted, and nothing else."""

from collections import Counter

import pytest
from tests.faults.retention import Reading

# Of partition 0: offsets 0 to 4 were read, 5 to 9 deleted before that, 10 to 12 read.
READ = [*range(5), *range(10, 13)]


def reading(
    read: list[int], *, gap: tuple[int, int] = (5, 10), cut: int = 10, perhaps: tuple[int, ...] = ()
) -> Reading:
    return Reading(
        Counter((0, one) for one in read), {(0, one) for one in perhaps}, {(0, *gap)}, {(0, cut)}
    )


@pytest.mark.parametrize(
    ("found", "differences"),
    [
        (reading(READ), {}),
        (reading(READ[:-1], perhaps=(12,)), {}),
        (reading([*range(4), *range(10, 13)]), {"missing": 1}),
        (reading(READ, gap=(5, 9)), {"missing": 1, "changed": 1}),
        (reading(READ[:-1]), {"missing": 1}),
        (reading([*READ, 12]), {"duplicates": 1}),
        (reading([*READ, 13]), {"foreign": 1}),
        (reading(READ, gap=(4, 10)), {"changed": 1}),
        (reading([*range(5), 11, 12], gap=(5, 11)), {"missing": 1, "changed": 1}),
    ],
)
def test_a_gap_covers_deleted_records_only_and_all_others_are_read_once(
    found: Reading, differences: dict[str, int]
) -> None:
    deleted, left = [(0, one) for one in range(10)], [(0, one) for one in range(10, 13)]

    verdict = found.verdict(deleted, left)

    names = ("missing", "duplicates", "foreign", "changed")
    assert {one: getattr(verdict, one) for one in names if getattr(verdict, one)} == differences
    assert bool(verdict.samples) == bool(differences)
