"""The result of a case, in the form of `var/bench/*.json`.

    {"case", "scale", "pairs", "rows_per_second": {name: median}, "ratios": {name: median},
     "cpu_seconds_per_million_rows": {name: median}, "worker_peak_rss_bytes",
     ...fields of the case..., "machine": {...}}

Fields that do not apply to a case are omitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one case. `case` describes what ran, `figures` are its own fields.

    Rates are records per second of wall time; CPU seconds are user and system time of all processes
    of a competitor, without broker and stores.
    """

    case: str
    scale: float
    pairs: int | None = None
    rows_per_second: Mapping[str, int] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    cpu_seconds_per_million_rows: Mapping[str, float] = field(default_factory=dict)
    worker_peak_rss_bytes: int | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """Return JSON-ready values; `machine` describes the machine."""
        shared = {
            "case": self.case,
            "scale": self.scale,
            "pairs": self.pairs,
            "rows_per_second": dict(self.rows_per_second),
            "ratios": dict(self.ratios),
            "cpu_seconds_per_million_rows": dict(self.cpu_seconds_per_million_rows),
            "worker_peak_rss_bytes": self.worker_peak_rss_bytes,
        }
        present = {name: value for name, value in shared.items() if value not in (None, {})}
        return {**present, **self.figures, "machine": dict(machine)}
