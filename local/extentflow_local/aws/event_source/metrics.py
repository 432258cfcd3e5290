"""Metrics that functions write to their logs in CloudWatch's embedded metric format.

Format: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from extentflow.metric_table import TABLE
from extentflow.services.metrics import Metric, Metrics


class FunctionMetrics:
    """The metrics in the logs of functions, from now on. Safe from any thread.

    `logs` has the file of each function, which may not exist yet.
    """

    def __init__(self, logs: Mapping[str, Path]) -> None:
        self._metrics = Metrics()
        self._logs = logs
        self._read = {name: _size(path) for name, path in logs.items()}
        self._lock = threading.Lock()

    def text(self) -> str:
        """Read what was added to the logs; return all metrics as a scraper reads them."""
        with self._lock:
            for name in self._logs:
                for line in self._new_lines(name):
                    for metric, value in emitted(line):
                        self._metrics.count(metric, value, function=name)
        return self._metrics.text()

    def _new_lines(self, name: str) -> Iterator[bytes]:
        path = self._logs[name]
        if _size(path) <= self._read[name]:
            return
        with path.open("rb") as log:
            log.seek(self._read[name])
            for line in log:
                if not line.endswith(b"\n"):  # the rest is not written yet
                    return
                self._read[name] += len(line)
                yield line


def emitted(line: bytes) -> Iterator[tuple[Metric, float]]:
    """Yield the metrics in one line of a log, one per value; most lines hold none."""
    if b'"CloudWatchMetrics"' not in line:
        return
    try:
        document: dict[str, Any] = json.loads(line)
    except ValueError:  # a killed process left half of a line before this one
        return
    for directive in document["_aws"]["CloudWatchMetrics"]:
        for found in directive["Metrics"]:
            name = found["Name"]
            values = document[name]
            for value in values if isinstance(values, list) else [values]:
                yield Metric.of(TABLE[name]), float(value)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
