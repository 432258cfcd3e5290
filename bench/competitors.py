"""The competitors of a comparison, and runs of each to a topic of its own."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from demo.tpch import DataSet

from bench.pairs import Run, Runs
from bench.process import WarmProcess
from bench.result import Result
from bench.stand import Stand, Terms

Competitor = Callable[[], Run]

EXACTLY_ONCE: Mapping[str, str] = MappingProxyType({"delivery.guarantee": "exactly_once"})
AT_LEAST_ONCE: Mapping[str, str] = MappingProxyType({"delivery.guarantee": "at_least_once"})
TEXT: Mapping[str, str] = MappingProxyType({"input.format": "text"})


def ours(
    stand: Stand,
    process: WarmProcess,
    data: DataSet,
    rows: int,
    config: Mapping[str, str] = EXACTLY_ONCE,
) -> Competitor:
    """Return extentflow, which reads the data set's object from the S3 server."""
    topic = stand.topic()
    return _filling(stand, topic, rows, _asking(stand, process, data, topic, config))


def new_objects(stand: Stand, process: WarmProcess, data: DataSet, rows: int) -> Competitor:
    """Return extentflow, by run or data source, with an object per run that was not delivered.

    Reading a delivered object would deliver nothing.
    """
    topic = stand.topic()
    connector, key = stand.connector(topic, EXACTLY_ONCE), stand.upload(data.path)
    ask = lambda: process.ask(connector=connector, key=stand.copy(key))  # noqa: E731
    return _filling(stand, topic, rows, ask)


def from_file(
    stand: Stand, process: WarmProcess, data: DataSet, rows: int, config: Mapping[str, str]
) -> Competitor:
    """Return extentflow reading the data set's file, without an S3 server on the same cores."""
    topic = stand.topic()
    place = {"endpoint.type": "localfile", "directory": str(data.path.parent)}
    connector = stand.connector(topic, {**config, **place})
    return _filling(
        stand, topic, rows, lambda: process.ask(connector=connector, key=data.path.name)
    )


def dropping(stand: Stand, process: WarmProcess, data: DataSet, rows: int) -> Competitor:
    """Return extentflow on workers that discard their records."""
    ask = _asking(stand, process, data, stand.topic(), EXACTLY_ONCE)
    return lambda: _lap(rows, ask())


def delivery(
    stand: Stand, process: WarmProcess, data: DataSet, config: Mapping[str, str]
) -> Callable[[], dict[str, Any]]:
    """Return extentflow judged by its own report only."""
    return _asking(stand, process, data, stand.topic(), config)


def local(
    stand: Stand,
    process: WarmProcess,
    data: DataSet,
    rows: int,
    **request: Any,  # noqa: ANN401 - JSON values
) -> Competitor:
    """Return a competitor that reads the local file; `request` extends its request."""
    topic = stand.topic()
    bootstrap = stand.rig.kafka["bootstrap.servers"]
    return _filling(
        stand,
        topic,
        rows,
        lambda: process.ask(path=str(data.path), topic=topic, bootstrap=bootstrap, **request),
    )


def compared(
    case: str, terms: Terms, runs: Runs, ratios: Mapping[str, float], workers: Sequence[str]
) -> Result:
    """Return the result of a comparison; `workers` are the competitors whose memory counts."""
    return Result(
        case=case,
        scale=terms.scale,
        pairs=terms.pairs,
        rows_per_second=runs.rates(),
        ratios=ratios,
        cpu_seconds_per_million_rows=runs.costs(),
        worker_peak_rss_bytes=runs.peak_rss_bytes(workers),
        figures={"rows_per_second_least_and_most": runs.spread()},
    )


def _asking(
    stand: Stand, process: WarmProcess, data: DataSet, topic: str, config: Mapping[str, str]
) -> Callable[[], dict[str, Any]]:
    """Return runs of one connector, which keep clients warm."""
    connector, key = stand.connector(topic, config), stand.upload(data.path)
    return lambda: process.ask(connector=connector, key=key)


def _filling(stand: Stand, topic: str, rows: int, ask: Callable[[], dict[str, Any]]) -> Competitor:
    """Return runs that also wait until the topic has all records."""

    def run() -> Run:
        with stand.filling(topic, rows):
            answer = ask()
        return _lap(rows, answer)

    return run


def _lap(rows: int, answer: Mapping[str, Any]) -> Run:
    if answer.get("records", rows) != rows:
        raise RuntimeError(f"{answer['records']:,} records of {rows:,}")
    peak = answer.get("worker_peak_rss_bytes", 0)
    return Run(rows, answer["seconds"], answer["cpu_seconds"], peak)
