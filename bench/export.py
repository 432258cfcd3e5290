"""`SUITE=export`: columnar values that become files unread, against copying the same bytes."""

from collections.abc import Callable
from contextlib import ExitStack

import pyarrow.parquet as pq
from demo import tpch

from bench.columnar import fill
from bench.pairs import Run, alternate
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import BUCKET, Stand, Terms

NAME = "export"
LINEITEM_SCALE = 0.5
# So that the topic has about a gigabyte.
DELIVERIES = 12
KEPT = {"retention.bytes": "-1"}


def measure(terms: Terms) -> Result:
    """Alternate `extentflow export` and copying, into a folder and into the S3 server."""
    scale = LINEITEM_SCALE * terms.scale
    data = tpch.lineitem(terms.data, scale)
    rows = pq.read_metadata(data.path).num_rows * DELIVERIES
    with Stand.open(terms, NAME) as stand, ExitStack() as processes:
        stand.rig.create_bucket(BUCKET)
        topic = stand.topic(KEPT)
        fill(stand, data.path, {"parquet": topic}, DELIVERIES)
        size = stand.rig.logged_bytes(topic)
        environment = stand.rig.environment
        start = WarmProcess.start
        process = processes.enter_context(start("bench.processes.exports", environment))
        ways = {
            f"{way}_to_{place}": _writing(stand, process, topic, rows, (way, place))
            for place in ("folder", "s3")
            for way in ("export", "copy")
        }
        runs = alternate(ways, terms.pairs, terms.notify)
    return Result(
        case=f"{size / 1e9:.2f} GB of columnar values (Parquet, lineitem), one process",
        scale=terms.scale,
        pairs=terms.pairs,
        rows_per_second=runs.rates(),
        cpu_seconds_per_million_rows=runs.costs(),
        ratios={
            f"export_to_copy_{place}": runs.ratio(f"export_to_{place}", f"copy_to_{place}")
            for place in ("folder", "s3")
        },
        figures={
            "megabytes_per_second": {
                name: round(rate * size / rows / 1e6) for name, rate in runs.rates().items()
            },
            "rows_per_second_least_and_most": runs.spread(),
        },
    )


def _writing(
    stand: Stand, process: WarmProcess, topic: str, rows: int, how: tuple[str, str]
) -> Callable[[], Run]:
    way, place = how
    scratch = stand.rig.root / "var"

    def run() -> Run:
        name = stand.fresh()
        answer = process.ask(
            way=way,
            topic=topic,
            to=f"s3://{BUCKET}/{name}/" if place == "s3" else str(scratch / name),
            bootstrap=stand.rig.kafka["bootstrap.servers"],
            endpoint=stand.rig.s3_endpoint,
            scratch=str(scratch),
        )
        stand.remove_all(f"{name}/")
        return Run(rows, answer["seconds"], answer["cpu_seconds"])

    return run
