"""`SUITE=lake`: columnar values into tables on Spark, against JSON rows and `from_json`."""

import shutil
from collections.abc import Callable
from contextlib import ExitStack

import duckdb
import pyarrow.parquet as pq
from demo import tpch

from bench.columnar import LARGE, fill
from bench.pairs import Run, alternate
from bench.process import WarmProcess
from bench.processes.lakes import NAMESPACE
from bench.result import Result
from bench.stand import Stand, Terms
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.toolbox import toolbox

NAME = "lake"
LINEITEM_SCALE = 0.5
# A query takes one to two seconds to start and to commit, whatever it writes.
DELIVERIES = 3
# Records are read in several rounds.
KEPT = {"retention.bytes": "-1"}
# By topic: how it was filled.
KINDS = {"lake": "parquet", "from_json": "rows"}


def measure(terms: Terms) -> Result:
    """Alternate `extentflow lake` of columnar values and a query with `from_json`, by table."""
    scale = LINEITEM_SCALE * terms.scale
    data = tpch.lineitem(terms.data, scale)
    rows = pq.read_metadata(data.path).num_rows * DELIVERIES
    with Stand.open(terms, NAME) as stand, ExitStack() as processes:
        topics = {way: stand.topic({**LARGE, **KEPT}) for way in KINDS}
        fill(stand, data.path, {KINDS[way]: topic for way, topic in topics.items()}, DELIVERIES)
        jars = toolbox(LocalSettings.from_environment()).library("spark-lake").glob("*.jar")
        listed = ",".join(str(jar) for jar in jars)
        spark = processes.enter_context(
            WarmProcess.start("bench.processes.lakes", stand.rig.environment, listed)
        )
        columns = _columns(str(data.path))
        ways = {
            f"{way}_to_{table}": _writing(
                stand,
                spark,
                rows,
                {
                    "way": way,
                    "table": table,
                    "topic": topics[way],
                    "columns": columns,
                },
            )
            for table in ("iceberg", "parquet")
            for way in KINDS
        }
        runs = alternate(ways, terms.pairs, terms.notify)
    return Result(
        case=f"lineitem, {rows:,} rows, out of Kafka into a local folder, Spark, warm",
        scale=terms.scale,
        pairs=terms.pairs,
        rows_per_second=runs.rates(),
        cpu_seconds_per_million_rows=runs.costs(),
        ratios={
            f"lake_to_from_json_{table}": runs.ratio(f"lake_to_{table}", f"from_json_to_{table}")
            for table in ("iceberg", "parquet")
        },
        figures={"rows_per_second_least_and_most": runs.spread()},
    )


def _columns(path: str) -> str:
    """Return the columns as SQL declares them, for `from_json`."""
    with duckdb.connect() as database:
        described = database.execute("DESCRIBE SELECT * FROM read_parquet(?)", [path]).fetchall()
    kinds = {"VARCHAR": "STRING"}
    return ", ".join(f"{name} {kinds.get(kind, kind)}" for name, kind, *_ in described)


def _writing(
    stand: Stand, process: WarmProcess, rows: int, request: dict[str, str]
) -> Callable[[], Run]:
    def run() -> Run:
        # The catalog of a session keeps the folder that it had first.
        to, name = stand.rig.root / "var" / stand.name, stand.fresh().replace("-", "_")
        answer = process.ask(**request, to=str(to), name=name)
        shutil.rmtree(to / NAMESPACE / name)
        if answer["rows"] != rows:
            raise RuntimeError(f"{answer['rows']:,} rows of {rows:,} by {request['way']}")
        return Run(rows, answer["seconds"], answer["cpu_seconds"])

    return run
