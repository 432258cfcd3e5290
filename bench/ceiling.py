"""`SUITE=ceiling`: throughput of our Kafka client for payloads in memory: lines, and JSON rows."""

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import local
from bench.data import line_count
from bench.pairs import alternate
from bench.process import WarmProcess
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
        WarmProcess.start("bench.processes.payloads", stand.rig.environment) as ceiling,
    ):
        runs = alternate(
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
        rows_per_second=runs.rates(),
        cpu_seconds_per_million_rows=runs.costs(),
    )
