"""`SUITE=data-source`: the Spark data source against `extentflow run`, both on Spark."""

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import compared, new_objects
from bench.pairs import alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.settings import CORES
from bench.stand import Stand, Terms

NAME = "data-source"


def measure(terms: Terms) -> Result:
    """Alternate the two, each run with new copies of lineitem at `scale`."""
    data = tpch.lineitem(terms.data, terms.scale)
    rows = pq.read_metadata(data.path).num_rows
    with (
        Stand.open(terms, NAME) as stand,
        WarmProcess.start("bench.processes.ours", stand.rig.environment, "spark") as engine,
        WarmProcess.start("bench.processes.source", stand.rig.environment) as source,
    ):
        runs = alternate(
            {
                "run": new_objects(stand, engine, data, rows),
                "data_source": new_objects(stand, source, data, rows),
            },
            terms.pairs,
            terms.notify,
        )
    return compared(
        f"lineitem Parquet, scale {terms.scale:g}, JSON values, exactly once, Spark local[{CORES}]",
        terms,
        runs,
        ratios={"data_source_to_run": runs.ratio("data_source", "run")},
        workers=["run"],
    )
