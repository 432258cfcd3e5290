"""`SUITE=slow-ledger`: one process whose ledger responds late, against one with a prompt ledger.

One extent, and its seconds without those of planning, so that the benchmark measures commits.
Claiming and completing an extent wait for some responses, however large it is: with a slow ledger,
small extents cost more.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import compared, delivery
from bench.counting import RequestCounter
from bench.pairs import Run, alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import Stand, Terms

NAME = "slow-ledger"
LINEITEM_SCALE = 6
ENDPOINT = "EXTENTFLOW_LEDGER_ENDPOINT"
ONE_EXTENT = {"extent.bytes": str(1 << 40)}
DELAYS = {"prompt": 0.0, "late_by_200_ms": 0.2, "late_by_1_s": 1.0}


def measure(terms: Terms) -> Result:
    """Alternate three processes whose ledgers differ in the delay of each response."""
    scale = LINEITEM_SCALE * terms.scale
    data = tpch.lineitem(terms.data, scale)
    rows = pq.read_metadata(data.path).num_rows
    with Stand.open(terms, NAME) as stand, ExitStack() as stack:
        competitors = {}
        for name, delay in DELAYS.items():
            proxy = RequestCounter(stand.rig.environment[ENDPOINT], delay_seconds=delay)
            around = {**stand.rig.environment, ENDPOINT: stack.enter_context(proxy).endpoint}
            process = WarmProcess.start("bench.processes.ours", around, "here")
            warm = stack.enter_context(process)
            competitors[name] = _extent(delivery(stand, warm, data, ONE_EXTENT), rows)
        runs = alternate(competitors, terms.pairs, terms.notify)
    return compared(
        f"lineitem Parquet, scale {scale:g}, JSON values, one process, one extent, exactly once",
        terms,
        runs,
        ratios={f"{name}_to_prompt": runs.ratio(name, "prompt") for name in list(DELAYS)[1:]},
        workers=list(DELAYS),
    )


def _extent(deliver: Callable[[], dict[str, Any]], rows: int) -> Callable[[], Run]:
    def run() -> Run:
        answer = deliver()
        if answer["records"] != rows:
            raise RuntimeError(f"{answer['records']:,} records of {rows:,}")
        peak = answer["worker_peak_rss_bytes"]
        return Run(rows, answer["extent_seconds"], answer["cpu_seconds"], peak)

    return run
