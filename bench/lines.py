"""`SUITE=lines`: one process, lines of text, exactly once, against payloads in memory.

The payloads of the ceiling are in memory, so ours come from a file: the local S3 server stores text
compressed, and needs more CPU to decompress it than we need to deliver it. The throughput from that
server is shown beside it.
"""

from demo import tpch

from bench.competitors import TEXT, compared, from_file, local, ours
from bench.data import line_count
from bench.pairs import alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import Stand, Terms

NAME = "lines"
ORDERS_SCALE = 4  # about as many lines as lineitem has rows


def measure(terms: Terms) -> Result:
    """Alternate our process and the ceiling of our Kafka client."""
    scale = ORDERS_SCALE * terms.scale
    data = tpch.orders(terms.data, scale)
    rows = line_count(data.path)
    with (
        Stand.open(terms, NAME) as stand,
        WarmProcess.start("bench.processes.ours", stand.rig.environment, "here") as here,
        WarmProcess.start("bench.processes.payloads", stand.rig.environment) as ceiling,
    ):
        runs = alternate(
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
        runs,
        ratios={
            "one_process_to_ceiling": runs.ratio("one_process", "ceiling"),
            "from_s3_to_ceiling": runs.ratio("from_s3", "ceiling"),
        },
        workers=["one_process", "from_s3"],
    )
