"""`SUITE=data-source`: reading the data source against `extentflow run`, both on Spark.

Owns: this comparison. Refuses to know: how competitors work.
"""

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import anew, compared
from bench.lane import Lane
from bench.pairs import alternate
from bench.result import Result
from bench.settings import CORES
from bench.stand import Stand, Terms

NAME = "data-source"


def measure(terms: Terms) -> Result:
    """Alternate the two, each lap over new copies of lineitem at `scale`."""
    data = tpch.lineitem(terms.data, terms.scale)
    rows = pq.read_metadata(data.path).num_rows
    with (
        Stand.open(terms, NAME) as stand,
        Lane.start("bench.lanes.ours", stand.rig.environment, "spark") as engine,
        Lane.start("bench.lanes.source", stand.rig.environment) as source,
    ):
        laps = alternate(
            {
                "run": anew(stand, engine, data, rows),
                "data_source": anew(stand, source, data, rows),
            },
            terms.pairs,
            terms.notify,
        )
    return compared(
        f"lineitem Parquet, scale {terms.scale:g}, JSON values, exactly once, Spark local[{CORES}]",
        terms,
        laps,
        ratios={"data_source_to_run": laps.ratio("data_source", "run")},
        workers=["run"],
    )
