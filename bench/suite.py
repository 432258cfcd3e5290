"""The cases by name, and runs of several of them.

A case is a module with `measure(terms) -> Result`; to add one, add the module and a line here.
"""

import importlib
import json
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from demo.rig import CommandError
from rich.console import Console

from bench.machine import machine
from bench.result import Result
from bench.show import show
from bench.stand import Terms

ALL = "all"
MAIN = "main"
"""What `spark-native` was called; its file is still written under that name as well."""


@dataclass(frozen=True, slots=True)
class Case:
    """A named case. `share` is its part of the scale where all run; 0 excludes it there."""

    name: str
    module: str
    share: float
    says: str

    def measure(self, terms: Terms) -> Result:
        """Run the case; its module is imported here, so an import error fails only this case."""
        found: Result = importlib.import_module(self.module).measure(terms)
        return found


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case(
            "spark-native",
            "bench.spark_native",
            1,
            "extentflow on Spark against Spark's own Kafka sink, which guarantees at least once "
            "only. Exactly once against at least once.",
        ),
        Case(
            "data-source",
            "bench.data_source",
            0,
            "Spark's data source against `extentflow run` on Spark. Only if named.",
        ),
        Case(
            "parquet-json",
            "bench.parquet_json",
            0.5,
            "One process, exactly once, from S3. Its competitors use pyarrow and confluent-kafka, "
            "at least once, from a local file: `plain` makes JSON of row dicts with orjson, "
            "`plain columns` with pyarrow's compute functions.",
        ),
        Case(
            "lines",
            "bench.lines",
            1,
            "One process delivers lines of text, exactly once, from a file. `ceiling` sends the "
            "same lines from memory through the same Kafka client. `from s3` reads the local S3 "
            "server, which needs 9 CPU seconds per GB of the same cores to unpack text.",
        ),
        Case(
            "scaling",
            "bench.scaling",
            0.5,
            "One and two worker processes send to the broker, which shares their cores, and to a "
            "sink that discards records.",
        ),
        Case(
            "first-record",
            "bench.first_record",
            1,
            "From the submission of an object until a consumer has its 1,280th committed record. "
            "`warm`: in a worker that ran before. `cold`: from the start of `extentflow run`.",
        ),
        Case(
            "start",
            "bench.start",
            1,
            "From the start of a process to its end: `extentflow --help`, `--version` and "
            "`run --help`, against `python -c pass`.",
        ),
        Case(
            "memory",
            "bench.memory",
            0.1,
            "The peak memory of a Spark worker, new for each shape of object.",
        ),
        Case(
            "planning",
            "bench.planning",
            1,
            "One arrival of a computed object becomes a job and its messages.",
        ),
        Case(
            "columnar",
            "bench.columnar",
            0.5,
            "Values that hold many rows as columns, against a value per row: one process that "
            "delivers a local file, and one that reads the topics.",
        ),
        Case(
            "lake",
            "bench.lake",
            0.5,
            "`extentflow lake` of a topic of columnar values. Its competitor is a streaming query "
            "that reads the same rows as JSON by Spark's `from_json`, and writes them by Spark's "
            "own sink. One warm session, two cores.",
        ),
        Case(
            "export",
            "bench.export",
            0.5,
            "`extentflow export` of a topic of columnar values, against a program that copies the "
            "same values to files of the same size, stored as safely. Both share two cores with "
            "the broker.",
        ),
        Case(
            "ceiling",
            "bench.ceiling",
            1,
            "The throughput of the Kafka client for payloads in memory.",
        ),
        Case(
            "plain",
            "bench.plain",
            1,
            "The two programs that `parquet-json` compares with, against each other.",
        ),
        Case(
            "slow-brokers",
            "bench.slow_brokers",
            0,
            "The share of passed bytes that is committed to a broker behind a slow link. Only if "
            "named.",
        ),
        Case(
            "slow-ledger",
            "bench.slow_ledger",
            0,
            "One process whose ledger delays every response by 200 ms or 1 s, against a prompt "
            "ledger. Only if named.",
        ),
        Case(
            "ledgers",
            "bench.ledgers",
            0,
            "Claims and completions of extents per second with 1, 8 and 64 workers that do nothing "
            "else: SQLite and PostgreSQL against DynamoDB Local. Only if named.",
        ),
        Case(
            "formats",
            "bench.formats",
            0,
            "Every format against a loop over its rows: [formats.md]"
            "(../../docs/formats.md#what-each-format-costs) has the table. "
            "Here is the peak memory of Parquet in shapes that need most of it. Only if named.",
        ),
        Case(
            "small-objects",
            "bench.small_objects",
            0.1,
            "Many small objects through queues and functions, with the cost of each.",
        ),
    )
}
ALIASES = {MAIN: "spark-native", "small": "small-objects"}


def chosen(names: str) -> list[Case]:
    """Return the cases of a comma-separated list; `all` are those with a share.

    Raises:
        KeyError: no such case.
    """
    wanted = [ALIASES.get(name, name) for name in names.split(",") if name]
    if ALL in wanted:
        return [case for case in CASES.values() if case.share]
    return [CASES[name] for name in dict.fromkeys(wanted)]


def run(cases: Sequence[Case], terms: Terms, console: Console, folder: Path) -> list[str]:
    """Run cases, show each result and write it to `folder`; return the names of failed cases.

    If there are several, each takes its share of the scale.
    """
    place = machine()
    broken: list[str] = []
    for case in cases:
        console.rule(case.name)
        share = case.share if len(cases) > 1 else 1.0
        started = time.monotonic()
        try:
            result = case.measure(replace(terms, scale=terms.scale * share))
        except Exception as exc:  # noqa: BLE001 - one broken case does not hide the others
            # The command printed the cause itself.
            message = str(exc) if isinstance(exc, CommandError) else traceback.format_exc()
            console.print(message, markup=False, highlight=False)
            broken.append(case.name)
            continue
        found = result.to_json(place)
        show(case.name, found, console)
        paths = write(case.name, found, folder)
        took = time.monotonic() - started
        console.print(f"{case.name}: {took:.0f} s; {', '.join(map(str, paths))}", highlight=False)
    return broken


def write(name: str, found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write a result under the case's name, and under its former name."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [name, *(old for old in (MAIN,) if ALIASES[old] == name)]
    paths = [folder / f"{one}.json" for one in names]
    for path in paths:
        path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return paths
