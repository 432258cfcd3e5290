"""Write the measured part of `docs/cost.md`: what a terabyte and a million objects cost.

bench/recorded ──rates──> seconds, requests ──PRICES──> dollars
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cost.md"

TB, MILLION = 1e12, 1e6
# A worker's function: 1,769 MiB, one vCPU, arm64.
WORKER_GIB = 1_769 / 1_024
# What is sent to a broker in another zone is billed on both sides; of three zones two are others.
OTHER_ZONES, SIDES = 2 / 3, 2


@dataclass(frozen=True, slots=True)
class Prices:
    """List prices of us-east-1 in dollars, November 2026; other regions differ."""

    lambda_gib_second: float = 0.0000133334
    lambda_million_requests: float = 0.20
    dynamodb_million_writes: float = 0.625
    dynamodb_million_reads: float = 0.125
    sqs_million_requests: float = 0.40
    s3_million_gets: float = 0.40
    zone_gb_per_side: float = 0.01


PRICES = Prices()


@dataclass(frozen=True, slots=True)
class Payload:
    """A kind of object, with sizes that depend on the data only.

    Bytes per row of the object, of its records, and what lz4 leaves of them; measured on TPC-H.
    """

    name: str
    case: str
    rate: str
    row_bytes: float
    record_bytes: float
    compressed: float
    extent_bytes: float


PAYLOADS = (
    Payload("text (orders as CSV)", "lines", "from_s3", 113.6, 113.6, 0.457, 100 << 20),
    Payload("Parquet as JSON (lineitem)", "parquet-json", "one_process", 33.5, 370.0, 0.245, 32e6),
)

# Of an extent: a claim and a completion, each a transaction of three items, which counts double.
EXTENT_WRITES = 12
EXTENT_READS = 8
# Of an object: register, plan, close, publish, each also in the index.
JOB_WRITES = 8
SQS_REQUESTS_PER_EXTENT = 3
GET_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """Dollars by service for one terabyte, or for a million objects."""

    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self.parts.values())


def terabyte(payload: Payload, rows_per_second: float, prices: Prices = PRICES) -> Cost:
    """Return what a terabyte of large objects costs at a measured rate of one worker."""
    rows = TB / payload.row_bytes
    extents = TB / payload.extent_bytes
    seconds = rows / rows_per_second
    sent_gb = rows * payload.record_bytes * payload.compressed / 1e9
    return Cost(
        {
            "Lambda": seconds * WORKER_GIB * prices.lambda_gib_second
            + extents / MILLION * prices.lambda_million_requests,
            "DynamoDB": extents
            / MILLION
            * (
                EXTENT_WRITES * prices.dynamodb_million_writes
                + EXTENT_READS * prices.dynamodb_million_reads
            ),
            "SQS, S3": extents / MILLION * SQS_REQUESTS_PER_EXTENT * prices.sqs_million_requests
            + TB / GET_BYTES / MILLION * prices.s3_million_gets,
            "between zones": sent_gb * OTHER_ZONES * SIDES * prices.zone_gb_per_side,
        }
    )


def million_objects(small: Mapping[str, Any], prices: Prices = PRICES) -> Cost:
    """Return what a million objects of one extent cost, by the counted requests."""
    by_operation = small["ledger_requests_by_operation"]
    # Each transaction writes three items, and each change of a job also the index.
    writes = EXTENT_WRITES + JOB_WRITES
    reads = by_operation["GetItem"] + by_operation["Query"]
    # A planner's share of ten notifications, and a worker: a second each, with its own memory.
    seconds = 0.1 + WORKER_GIB
    return Cost(
        {
            "Lambda": MILLION * seconds * prices.lambda_gib_second
            + 1.1 * prices.lambda_million_requests,
            "DynamoDB": writes * prices.dynamodb_million_writes
            + reads * prices.dynamodb_million_reads,
            "SQS, S3": 2 * SQS_REQUESTS_PER_EXTENT * prices.sqs_million_requests
            + 2 * prices.s3_million_gets,
            "EventBridge": 1.0,
        }
    )


def measured(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the measured part of the page."""
    return "\n".join(_table(results))


def _table(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    known = [one for one in PAYLOADS if one.case in results]
    costs = {
        f"1 TB of {one.name}": terabyte(one, results[one.case]["rows_per_second"][one.rate])
        for one in known
    }
    for one in known:
        rate = results[one.case]["rows_per_second"][one.rate]
        hours = TB / one.row_bytes / rate / 3600
        yield (
            f"One worker delivers {rate:,} rows per second of {one.name}:"
            f" {rate * one.row_bytes / 1e6:.0f} MB of the object,"
            f" {hours:.1f} worker hours per terabyte."
        )
    if "small-objects" in results:
        costs["1,000,000 objects of 10 kB"] = million_objects(results["small-objects"])
        counted = results["small-objects"]["ledger_requests_per_object"]
        yield f"A small object takes {counted:g} requests to the ledger."
    services = list(dict.fromkeys(name for cost in costs.values() for name in cost.parts))
    yield ""
    yield f"| dollars | {' | '.join(services)} | total |"
    yield f"|---{'|---:' * (len(services) + 1)}|"
    for name, cost in costs.items():
        cells = [f"{cost.parts[one]:.2f}" if one in cost.parts else "-" for one in services]
        yield f"| {name} | {' | '.join(cells)} | **{cost.total:.2f}** |"
