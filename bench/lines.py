"""`SUITE=lines`: one process, lines of text, exactly once; against payloads that stand ready.

Owns: this comparison. Refuses to know: how competitors work.

The ceiling's payloads are in memory, so ours come from a file: the local S3 server keeps text
compressed, and takes more of the cores to unpack it than we take to deliver it. What is left when
they come from there is told beside it.
"""

from demo import tpch

from bench.competitors import TEXT, compared, from_file, local, ours
from bench.data import line_count
from bench.lane import Lane
from bench.pairs import alternate
from bench.result import Result
from bench.stand import Stand, Terms

NAME = "lines"
ORDERS_SCALE = 4  # about as many lines as lineitem has rows


def measure(terms: Terms) -> Result:
    """Alternate one process of ours and the ceiling of our Kafka client."""
    scale = ORDERS_SCALE * terms.scale
    data = tpch.orders(terms.data, scale)
    rows = line_count(data.path)
    with (
        Stand.open(terms, NAME) as stand,
        Lane.start("bench.lanes.ours", stand.rig.environment, "here") as here,
        Lane.start("bench.lanes.payloads", stand.rig.environment) as ceiling,
    ):
        laps = alternate(
            {
                "one_process": from_file(stand, here, data, rows, TEXT),
                "from_s3": ours(stand, here, data, rows, TEXT),
                "ceiling": local(stand, ceiling, data, rows),
            },
            terms.pairs,
            terms.notify,
        )
    return compared(
        f"orders CSV as lines of text, scale {scale:g}, one process, exactly once",
        terms,
        laps,
        ratios={
            "one_process_to_ceiling": laps.ratio("one_process", "ceiling"),
            "from_s3_to_ceiling": laps.ratio("from_s3", "ceiling"),
        },
        workers=["one_process", "from_s3"],
    )
