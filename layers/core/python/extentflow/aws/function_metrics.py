"""Metrics of a function in CloudWatch's embedded metric format, one document per set of dimensions.

    service                     every value
    connector                   values other than 0, of the connectors in `metrics.connectors`
    service, version            values other than 0 of a published version

CloudWatch bills each metric of each connector, by the hours in which it was written: a 0 says
nothing that its absence does not. Needs Powertools, which functions have.

Tests: unit/functions/test_metrics.py
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from extentflow.metric_table import CONNECTOR, SERVICE, VERSION, MetricEntry

SERVICE_VARIABLE = "POWERTOOLS_SERVICE_NAME"
VERSION_VARIABLE = "AWS_LAMBDA_FUNCTION_VERSION"
UNPUBLISHED = "$LATEST"


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """The dimensions of a document, beside its `service` if it is part of that's total."""

    total: bool
    connector: str = ""
    version: str = ""


@dataclass
class FunctionMetrics:
    """Collects what one invocation counts, and writes it at its end.

    `connectors` returns patterns for the names of connectors with metrics of their own; it is
    called at most once.
    """

    connectors: Callable[[], tuple[str, ...]] = tuple
    _found: dict[_Dimensions, list[tuple[MetricEntry, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @contextmanager
    def written(self) -> Iterator[None]:
        """Write what is counted within the block, also if it raises."""
        self._found.clear()
        try:
            yield
        finally:
            for dimensions, values in self._found.items():
                _write(dimensions, values)
            self._found.clear()

    def add(
        self, values: Mapping[MetricEntry, float], *, connector: str = "", total: bool = True
    ) -> None:
        """Count values, those of a connector beside the function's total.

        Without `total`, they are in that already.
        """
        for metric, value in values.items():
            measured = bool(value and connector and metric.per_connector)
            numbered = bool(value and metric.per_version and total)
            dimensions = _Dimensions(
                total=total,
                connector=connector if measured and self._measures(connector) else "",
                version=_version() if numbered else "",
            )
            if total or dimensions.connector:
                self._found[dimensions].append((metric, float(value)))

    def _measures(self, connector: str) -> bool:
        return any(fnmatchcase(connector, one) for one in self._patterns)

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        return self.connectors()


def _version() -> str:
    """Return the number of the published version that runs, "" of one that is not."""
    version = os.environ[VERSION_VARIABLE]
    return "" if version == UNPUBLISHED else version


def _write(dimensions: _Dimensions, values: list[tuple[MetricEntry, float]]) -> None:
    # Functions have Powertools; the library's other users need not.
    from aws_lambda_powertools.metrics import EphemeralMetrics  # noqa: PLC0415

    service = os.environ[SERVICE_VARIABLE]
    document = EphemeralMetrics(service=service if dimensions.total else "")
    if not dimensions.total:
        document.add_dimension(CONNECTOR, dimensions.connector)
    elif dimensions.connector:
        document.add_dimensions(**{CONNECTOR: dimensions.connector})
    if dimensions.version:
        document.add_dimensions(**{SERVICE: service, VERSION: dimensions.version})
    for metric, value in values:
        document.add_metric(name=metric.name, unit=metric.unit.value, value=value)
    document.flush_metrics()
