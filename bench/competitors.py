"""Who runs against whom: laps of each competitor, to a topic of its own.

Owns: what each lane is asked, that every record arrived, what is told of all their laps. Refuses to
know: who is compared.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from demo.tpch import DataSet

from bench.lane import Lane
from bench.pairs import Lap, Laps
from bench.result import Result
from bench.stand import Stand, Terms

Competitor = Callable[[], Lap]

EXACTLY_ONCE: Mapping[str, str] = MappingProxyType({"delivery.guarantee": "exactly_once"})
AT_LEAST_ONCE: Mapping[str, str] = MappingProxyType({"delivery.guarantee": "at_least_once"})
TEXT: Mapping[str, str] = MappingProxyType({"input.format": "text"})


def ours(
    stand: Stand,
    lane: Lane,
    data: DataSet,
    rows: int,
    config: Mapping[str, str] = EXACTLY_ONCE,
) -> Competitor:
    """Return extentflow, reading the data set's object from the S3 server."""
    topic = stand.topic()
    return _filling(stand, topic, rows, _asking(stand, lane, data, topic, config))


def anew(stand: Stand, lane: Lane, data: DataSet, rows: int) -> Competitor:
    """Return extentflow, run or read, with an object that nobody has delivered, each lap.

    Reading one again would deliver nothing.
    """
    topic = stand.topic()
    connector, key = stand.connector(topic, EXACTLY_ONCE), stand.upload(data.path)
    ask = lambda: lane.ask(connector=connector, key=stand.copy(key))  # noqa: E731
    return _filling(stand, topic, rows, ask)


def from_file(
    stand: Stand, lane: Lane, data: DataSet, rows: int, config: Mapping[str, str]
) -> Competitor:
    """Return extentflow, reading the data set's file: no S3 server takes a share of the cores."""
    topic = stand.topic()
    place = {"endpoint.type": "localfile", "directory": str(data.path.parent)}
    connector = stand.connector(topic, {**config, **place})
    return _filling(stand, topic, rows, lambda: lane.ask(connector=connector, key=data.path.name))


def dropping(stand: Stand, lane: Lane, data: DataSet, rows: int) -> Competitor:
    """Return extentflow on workers whose records go nowhere."""
    ask = _asking(stand, lane, data, stand.topic(), EXACTLY_ONCE)
    return lambda: _lap(rows, ask())


def delivery(
    stand: Stand, lane: Lane, data: DataSet, config: Mapping[str, str]
) -> Callable[[], dict[str, Any]]:
    """Return extentflow where only its own words count: what the lane says of each run."""
    return _asking(stand, lane, data, stand.topic(), config)


def local(stand: Stand, lane: Lane, data: DataSet, rows: int, **request: Any) -> Competitor:  # noqa: ANN401 - JSON values
    """Return a competitor that reads the local file; `request` is what else its lane needs."""
    topic = stand.topic()
    bootstrap = stand.rig.kafka["bootstrap.servers"]
    return _filling(
        stand,
        topic,
        rows,
        lambda: lane.ask(path=str(data.path), topic=topic, bootstrap=bootstrap, **request),
    )


def compared(
    case: str, terms: Terms, laps: Laps, ratios: Mapping[str, float], workers: Sequence[str]
) -> Result:
    """Return what a comparison found; `workers` are the competitors whose memory is ours."""
    return Result(
        case=case,
        scale=terms.scale,
        pairs=terms.pairs,
        rows_per_second=laps.rates(),
        ratios=ratios,
        cpu_seconds_per_million_rows=laps.costs(),
        worker_peak_rss_bytes=laps.peak_rss_bytes(workers),
        figures={"rows_per_second_least_and_most": laps.spread()},
    )


def _asking(
    stand: Stand, lane: Lane, data: DataSet, topic: str, config: Mapping[str, str]
) -> Callable[[], dict[str, Any]]:
    """Return runs of one connector, so that clients stay warm from one to the next."""
    connector, key = stand.connector(topic, config), stand.upload(data.path)
    return lambda: lane.ask(connector=connector, key=key)


def _filling(stand: Stand, topic: str, rows: int, ask: Callable[[], dict[str, Any]]) -> Competitor:
    """Return laps that ask, and that end with the topic's records there."""

    def lap() -> Lap:
        with stand.filling(topic, rows):
            answer = ask()
        return _lap(rows, answer)

    return lap


def _lap(rows: int, answer: Mapping[str, Any]) -> Lap:
    if answer.get("records", rows) != rows:
        raise RuntimeError(f"{answer['records']:,} records of {rows:,}")
    peak = answer.get("worker_peak_rss_bytes", 0)
    return Lap(rows, answer["seconds"], answer["cpu_seconds"], peak)
