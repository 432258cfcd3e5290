"""`SUITE=plain`: typical user code: JSON from row dicts, and JSON built from columns."""

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import local
from bench.pairs import alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import Stand, Terms

NAME = "plain"
LINEITEM_SCALE = 0.1


def measure(terms: Terms) -> Result:
    """Alternate the two variants."""
    scale = LINEITEM_SCALE * terms.scale
    data = tpch.lineitem(terms.data, scale)
    rows = pq.read_metadata(data.path).num_rows
    with (
        Stand.open(terms, NAME) as stand,
        WarmProcess.start("bench.processes.plain", stand.rig.environment) as plain,
    ):
        runs = alternate(
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
        rows_per_second=runs.rates(),
        ratios={"columns_to_rows": runs.ratio("columns", "rows")},
        cpu_seconds_per_million_rows=runs.costs(),
    )
