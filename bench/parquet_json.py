"""`SUITE=parquet-json`: one process, Parquet to JSON, exactly once, against typical user code."""

import pyarrow.parquet as pq
from demo import tpch

from bench.competitors import compared, local, ours
from bench.pairs import alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import Stand, Terms

NAME = "parquet-json"
LINEITEM_SCALE = 0.5  # row dicts take their time


def measure(terms: Terms) -> Result:
    """Alternate our process, reading from S3, and the two of `plain`, reading a file."""
    scale = LINEITEM_SCALE * terms.scale
    data = tpch.lineitem(terms.data, scale)
    rows = pq.read_metadata(data.path).num_rows
    with (
        Stand.open(terms, NAME) as stand,
        WarmProcess.start("bench.processes.ours", stand.rig.environment, "here") as here,
        WarmProcess.start("bench.processes.plain", stand.rig.environment) as plain,
    ):
        runs = alternate(
            {
                "one_process": ours(stand, here, data, rows),
                "plain": local(stand, plain, data, rows, writer="rows"),
                "plain_columns": local(stand, plain, data, rows, writer="columns"),
            },
            terms.pairs,
            terms.notify,
        )
    return compared(
        f"lineitem Parquet, scale {scale:g}, JSON values, one process, exactly once",
        terms,
        runs,
        ratios={
            "one_process_to_plain": runs.ratio("one_process", "plain"),
            "one_process_to_plain_columns": runs.ratio("one_process", "plain_columns"),
        },
        workers=["one_process"],
    )
