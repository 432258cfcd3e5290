"""`SUITE=plain`: what users write, alone: JSON of row dicts, and JSON made column by column.

Owns: this comparison. Refuses to know: extentflow, which `parquet-json` compares with both.
"""

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import local
from bench.lane import Lane
from bench.pairs import alternate
from bench.result import Result
from bench.stand import Stand, Terms

NAME = "plain"
LINEITEM_SCALE = 0.1


def measure(terms: Terms) -> Result:
    """Alternate the two ways to write it."""
    scale = LINEITEM_SCALE * terms.scale
    data = tpch.lineitem(terms.data, scale)
    rows = pq.read_metadata(data.path).num_rows
    with (
        Stand.open(terms, NAME) as stand,
        Lane.start("bench.lanes.plain", stand.rig.environment) as plain,
    ):
        laps = alternate(
            {
                "rows": local(stand, plain, data, rows, writer="rows"),
                "columns": local(stand, plain, data, rows, writer="columns"),
            },
            terms.pairs,
            terms.notify,
        )
    return Result(
        case=f"lineitem Parquet, scale {scale:g}, pyarrow and confluent-kafka, at least once",
        scale=terms.scale,
        pairs=terms.pairs,
        rows_per_second=laps.rates(),
        ratios={"columns_to_rows": laps.ratio("columns", "rows")},
        cpu_seconds_per_million_rows=laps.costs(),
    )
