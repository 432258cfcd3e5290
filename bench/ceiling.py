"""`SUITE=ceiling`: what our Kafka client takes where payloads stand ready: lines, and JSON of rows.

Owns: this measurement. Refuses to know: where payloads come from.
"""

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import local
from bench.data import line_count
from bench.lane import Lane
from bench.pairs import alternate
from bench.result import Result
from bench.stand import Stand, Terms

NAME = "ceiling"
ORDERS_SCALE = 1
LINEITEM_SCALE = 0.25  # as many rows


def measure(terms: Terms) -> Result:
    """Alternate the two kinds of payloads, exactly once, one process."""
    lineitem = tpch.lineitem(terms.data, LINEITEM_SCALE * terms.scale)
    orders = tpch.orders(terms.data, ORDERS_SCALE * terms.scale)
    rows, lines = pq.read_metadata(lineitem.path).num_rows, line_count(orders.path)
    with (
        Stand.open(terms, NAME) as stand,
        Lane.start("bench.lanes.payloads", stand.rig.environment) as ceiling,
    ):
        laps = alternate(
            {
                "lines": local(stand, ceiling, orders, lines),
                "json": local(stand, ceiling, lineitem, rows),
            },
            terms.pairs,
            terms.notify,
        )
    return Result(
        case=f"payloads in memory, {lines:,} lines and {rows:,} rows as JSON, exactly once",
        scale=terms.scale,
        pairs=terms.pairs,
        rows_per_second=laps.rates(),
        cpu_seconds_per_million_rows=laps.costs(),
    )
