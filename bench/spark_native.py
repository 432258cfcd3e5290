"""`SUITE=spark-native`: Spark's own sink, exactly once and at least once, all on Spark."""

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import AT_LEAST_ONCE, EXACTLY_ONCE, compared, local, ours
from bench.pairs import alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.settings import CORES
from bench.stand import Stand, Terms

NAME = "spark-native"


def measure(terms: Terms) -> Result:
    """Alternate Spark's own sink, exactly once and at least once, lineitem at `scale`."""
    data = tpch.lineitem(terms.data, terms.scale)
    rows = pq.read_metadata(data.path).num_rows
    with (
        Stand.open(terms, NAME) as stand,
        WarmProcess.start("bench.processes.native", stand.rig.environment) as native,
        WarmProcess.start("bench.processes.ours", stand.rig.environment, "spark") as spark,
    ):
        runs = alternate(
            {
                "spark_native": local(stand, native, data, rows),
                "exactly_once": ours(stand, spark, data, rows, EXACTLY_ONCE),
                "at_least_once": ours(stand, spark, data, rows, AT_LEAST_ONCE),
            },
            terms.pairs,
            terms.notify,
        )
    return compared(
        f"lineitem Parquet, scale {terms.scale:g}, JSON values, Spark local[{CORES}]",
        terms,
        runs,
        ratios={
            "extentflow_to_spark_native": runs.ratio("exactly_once", "spark_native"),
            "exactly_once_to_at_least_once": runs.ratio("exactly_once", "at_least_once"),
        },
        workers=["exactly_once", "at_least_once"],
    )
