"""Evaluates the alarms of a synthesised template over metrics, as CloudWatch does.

    log line of a function ──emitted──> Point ─┐
    results of invocations, queues ────────────┴─> rings(alarm, points): when it rings, or None

Periods are aligned to multiples of their length, and a value counts only after its period has ended
and DELAY_SECONDS for its delivery are over: an alarm never rings earlier on AWS because of that.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from extentflow.metric_table import CONNECTOR

DELAY_SECONDS = 60.0
ALARM = "AWS::CloudWatch::Alarm"
LAMBDA = "AWS/Lambda"

_TERM = re.compile(r"FILL\((\w+), 0\)")
_SHARE = "100 * FILL(part, 0) / whole"
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
}
_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "Sum": sum,
    "Maximum": max,
    "SampleCount": len,
}


@dataclass(frozen=True)
class Point:
    """One value of a metric; `owner` is its only dimension's value, as the template writes it.

    That of a connector begins with `connector=`: its name may be that of a function.
    """

    namespace: str
    metric: str
    owner: str
    at: float
    value: float


@dataclass(frozen=True)
class Series:
    """One metric of an alarm with its statistic."""

    namespace: str
    metric: str
    owner: str
    statistic: str
    period: float

    def value(self, points: Iterable[Point], start: float) -> float | None:
        """Return the statistic of the period that begins at `start`; None without data."""
        values = [
            point.value
            for point in points
            if (point.namespace, point.metric, point.owner)
            == (self.namespace, self.metric, self.owner)
            and start <= point.at < start + self.period
        ]
        return float(_STATISTICS[self.statistic](values)) if values else None


@dataclass(frozen=True)
class Alarm:
    """One alarm of a template: its series are added up, or the first is a `share` of the second."""

    name: str
    series: tuple[Series, ...]
    compared: str
    threshold: float
    periods: int
    breaching: int
    missing: str
    share: bool = False

    @property
    def period(self) -> float:
        return self.series[0].period

    def breaches(self, points: Sequence[Point], start: float) -> bool:
        """Whether the period that begins at `start` counts towards the alarm."""
        values = [one.value(points, start) for one in self.series]
        present = [value for value in values if value is not None]
        if self.share:
            part, whole = values
            present = [100 * (part or 0) / whole] if whole else []
        if not present:
            return self.missing == "breaching"
        return _COMPARED[self.compared](sum(present), self.threshold)

    def rings(self, points: Sequence[Point], *, until: float) -> float | None:
        """Return when it rings first, between 0 and `until`; None if it does not."""
        ended = self.period
        while ended + DELAY_SECONDS <= until:
            starts = [ended - self.period * back for back in range(1, self.periods + 1)]
            found = [self.breaches(points, start) for start in starts if start >= 0]
            if sum(found) >= self.breaching:
                return ended + DELAY_SECONDS
            ended += self.period
        return None


def alarms(template: Mapping[str, Any]) -> Iterator[Alarm]:
    """Yield the alarms of a template.

    Raises:
        ValueError: an alarm is of a kind that this module does not evaluate.
    """
    for name, resource in template["Resources"].items():
        if resource["Type"] == ALARM:
            yield _alarm(name, resource["Properties"])


def _alarm(name: str, given: Mapping[str, Any]) -> Alarm:
    metrics = [one["MetricStat"] for one in given.get("Metrics", []) if "MetricStat" in one]
    expressions = [one["Expression"] for one in given.get("Metrics", []) if "Expression" in one]
    if expressions:
        ids = {one["Id"] for one in given["Metrics"] if "MetricStat" in one}
        (expression,) = expressions
        if expression == _SHARE:
            named = {one["Id"]: one.get("MetricStat") for one in given["Metrics"]}
            metrics = [named["part"], named["whole"]]
        elif _TERM.sub("", expression).strip(" +") or {*_TERM.findall(expression)} != ids:
            raise ValueError(f"{name}: {expression}: only sums of FILL(metric, 0) are evaluated")
    else:
        stat = {key: given[key] for key in ("Period", "Statistic")}
        metrics = [{"Metric": given, "Period": stat["Period"], "Stat": stat["Statistic"]}]
    return Alarm(
        name=re.sub(r"^Alarms(\w+)[0-9A-F]{8}$", r"\1", name),
        series=tuple(map(_series, metrics)),
        compared=given["ComparisonOperator"],
        threshold=given["Threshold"],
        periods=given["EvaluationPeriods"],
        breaching=given.get("DatapointsToAlarm", given["EvaluationPeriods"]),
        missing=given["TreatMissingData"],
        share=_SHARE in expressions,
    )


def _series(stat: Mapping[str, Any]) -> Series:
    metric = stat["Metric"]
    (dimension,) = metric["Dimensions"]
    return Series(
        metric["Namespace"],
        metric["MetricName"],
        owner_of(dimension["Value"]),
        stat["Stat"],
        float(stat["Period"]),
    )


def owner_of(value: object) -> str:
    """Return a dimension's value as text: itself, or the logical id that it refers to."""
    match value:
        case str():
            return value
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]}:
            return name
    raise ValueError(f"{value}: an unknown dimension")


def emitted(line: Mapping[str, Any], at: float) -> Iterator[Point]:
    """Yield the metrics of a log line in CloudWatch's embedded metric format, as of `at`.

    Those with two dimensions are left out: no alarm that this module evaluates has them.
    """
    for directive in line["_aws"]["CloudWatchMetrics"]:
        alone = [one[0] for one in directive["Dimensions"] if len(one) == 1]
        owners = [line[one] if one != CONNECTOR else f"{one}={line[one]}" for one in alone]
        for owner, metric in product(owners, directive["Metrics"]):
            values = line[metric["Name"]]
            for value in values if isinstance(values, list) else [values]:
                yield Point(directive["Namespace"], metric["Name"], owner, at, value)


def metric_lines(log: str) -> list[dict[str, Any]]:
    """Return the lines of a function's log that hold metrics, in order."""
    lines = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    return [line for line in lines if "_aws" in line]


def first_alarm(
    found: Iterable[Alarm], points: Sequence[Point], *, until: float
) -> tuple[float, str] | None:
    """Return when the first alarm rings, and its name."""
    times = ((alarm.rings(points, until=until), alarm.name) for alarm in found)
    return min(((at, name) for at, name in times if at is not None), default=None)
