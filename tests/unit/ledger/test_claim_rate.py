"""A model of many workers that claim extents of one job, whose item every claim checks.

DynamoDB cancels a transaction that has an item of another one in progress. docs/operations.md has
the figures.
"""

import heapq
from dataclasses import replace
from random import Random

import pytest

from extentflow.ledger import LedgerOptions
from extentflow.ledger.server_calls import retry_policy

WORKERS = 100
REFUSAL_SECONDS = 0.005
MODELLED_SECONDS = 300.0


def achieved(extent_seconds: float, transaction_seconds: float) -> float:
    """Return the share of extents that these workers begin, of what they could without waiting."""
    random = Random(1)
    policy = replace(retry_policy(LedgerOptions("table")), jitter=random.random)
    tries = [(random.random() * extent_seconds, worker, 0) for worker in range(WORKERS)]
    heapq.heapify(tries)
    free_at, claims = 0.0, 0
    while tries[0][0] < MODELLED_SECONDS:
        now, worker, refused = heapq.heappop(tries)
        if now >= free_at:
            free_at, claims, refused = now + transaction_seconds, claims + 1, 0
            again = free_at + extent_seconds * random.uniform(0.9, 1.1)
        else:
            refused += 1
            again = now + REFUSAL_SECONDS + policy.pause_seconds(refused)
        heapq.heappush(tries, (again, worker, refused))
    return claims * extent_seconds / (WORKERS * MODELLED_SECONDS)


@pytest.mark.parametrize(
    ("extent_seconds", "transaction_seconds", "least"),
    [(2.9, 0.01, 0.98), (1.4, 0.01, 0.82), (0.8, 0.01, 0.53), (2.9, 0.02, 0.87)],
)
def test_a_hundred_workers_may_share_a_job(
    extent_seconds: float, transaction_seconds: float, least: float
) -> None:
    assert achieved(extent_seconds, transaction_seconds) >= least
