"""`SUITE=scaling`: one and two worker processes, to the broker, and to a sink that drops records.

Owns: this comparison. Refuses to know: how workers work. Where broker and workers share two cores,
only the dropping sink shows what a second worker adds.
"""

from contextlib import ExitStack

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import Competitor, compared, dropping, ours
from bench.lane import Lane
from bench.pairs import alternate
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
    with Stand.open(terms, NAME) as stand, ExitStack() as lanes:
        for sink, engine in SINKS.items():
            for word, count in PROCESSES.items():
                lane = Lane.start("bench.lanes.ours", stand.rig.environment, f"{engine}:{count}")
                run = ours if sink == "broker" else dropping
                competitors[f"{sink}_{word}"] = run(stand, lanes.enter_context(lane), data, rows)
        laps = alternate(competitors, terms.pairs, terms.notify)
    two_to_one = {sink: (f"{sink}_two", f"{sink}_one") for sink in SINKS}
    return compared(
        f"lineitem Parquet, scale {terms.scale:g}, JSON values, one and two processes",
        terms,
        laps,
        ratios={
            **{f"{sink}_two_to_one": laps.ratio(*pair) for sink, pair in two_to_one.items()},
            **{
                f"{sink}_cpu_two_to_one": laps.cost_ratio(*pair)
                for sink, pair in two_to_one.items()
            },
        },
        workers=list(competitors),
    )
