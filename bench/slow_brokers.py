"""`SUITE=slow-brokers`: what is committed to a broker behind a link of limited bandwidth."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.slow_delivery import MIB, broker_behind_link, deliver_through

from bench.result import Result
from bench.stand import Terms

SECONDS = 120.0
CASES = ((0.25, 1), (0.5, 1), (1.0, 1), (2.0, 1), (8.0, 1), (0.25, 16), (0.5, 16))


def measure(terms: Terms) -> Result:
    """Deliver for some time at each rate, with one worker and with several."""
    seconds = SECONDS * terms.scale
    shares: dict[str, Any] = {}
    with TemporaryDirectory() as folder, broker_behind_link(Path(folder)) as link:
        for rate, workers in CASES:
            found = deliver_through(link, rate, seconds, workers)
            name = f"{rate:g}_mib_per_second_{workers}_{'worker' if workers == 1 else 'workers'}"
            shares[name] = {
                "committed_to_passed": round(found.committed / found.passed, 3),
                "committed_mib_per_second": round(found.committed / MIB / seconds, 3),
            }
            terms.notify(f"{name}: {shares[name]}")
    least = min(each["committed_to_passed"] for each in shares.values())
    return Result(
        case=f"records that do not compress, {seconds:g} s at each rate per worker",
        scale=terms.scale,
        figures={"least_share_committed": least, **shares},
    )
