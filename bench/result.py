"""What a case found, in the shape that `var/bench/*.json` has.

Owns: names and order of the fields that all cases share. Refuses to know: how anything was
measured, what a case's own figures mean.

    {"case", "scale", "pairs", "rows_per_second": {name: median}, "ratios": {name: median},
     "cpu_seconds_per_million_rows": {name: median}, "worker_peak_rss_bytes",
     ...the case's own..., "machine": {...}}

Fields that mean nothing to a case are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One case's findings. `case` says in words what was run, `figures` are its own fields.

    Rates are records per second of wall time; CPU seconds are user and system time of everything
    that a competitor is made of, without broker and stores.
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
        """Return JSON-ready values; `machine` says where it was measured."""
        shared = {
            "case": self.case,
            "scale": self.scale,
            "pairs": self.pairs,
            "rows_per_second": dict(self.rows_per_second),
            "ratios": dict(self.ratios),
            "cpu_seconds_per_million_rows": dict(self.cpu_seconds_per_million_rows),
            "worker_peak_rss_bytes": self.worker_peak_rss_bytes,
        }
        told = {name: value for name, value in shared.items() if value not in (None, {})}
        return {**told, **self.figures, "machine": dict(machine)}
