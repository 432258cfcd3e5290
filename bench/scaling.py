"""`SUITE=scaling`: one and two worker processes, to the broker and to a discarding sink.

If broker and workers share two cores, only the discarding sink shows the effect of a second
worker.
"""

from contextlib import ExitStack

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import Competitor, compared, dropping, ours
from bench.pairs import alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import Stand, Terms

NAME = "scaling"
SINKS = {"broker": "processes", "dropping": "dropping"}
PROCESSES = {"one": 1, "two": 2}


def measure(terms: Terms) -> Result:
    """Alternate all four, lineitem at `scale`."""
    data = tpch.lineitem(terms.data, terms.scale)
    rows = pq.read_metadata(data.path).num_rows
    competitors: dict[str, Competitor] = {}
    with Stand.open(terms, NAME) as stand, ExitStack() as processes:
        for sink, engine in SINKS.items():
            for word, count in PROCESSES.items():
                process = WarmProcess.start(
                    "bench.processes.ours", stand.rig.environment, f"{engine}:{count}"
                )
                run = ours if sink == "broker" else dropping
                competitors[f"{sink}_{word}"] = run(
                    stand, processes.enter_context(process), data, rows
                )
        runs = alternate(competitors, terms.pairs, terms.notify)
    two_to_one = {sink: (f"{sink}_two", f"{sink}_one") for sink in SINKS}
    return compared(
        f"lineitem Parquet, scale {terms.scale:g}, JSON values, one and two processes",
        terms,
        runs,
        ratios={
            **{f"{sink}_two_to_one": runs.ratio(*pair) for sink, pair in two_to_one.items()},
            **{
                f"{sink}_cpu_two_to_one": runs.cost_ratio(*pair)
                for sink, pair in two_to_one.items()
            },
        },
        workers=list(competitors),
    )
