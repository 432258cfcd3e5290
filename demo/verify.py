"""Read a topic and compare it with the source: every record exactly once."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from demo.tpch import Truth, number
from extentflow.kafka.reading import read_committed

LINE_RECORDS = 500_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """The content of a topic against the source; `wrong` names samples that differ."""

    records: int
    distinct: int
    duplicates: int
    missing: int
    foreign: int
    samples: int
    wrong: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the topic has every row once, and the sampled rows are correct in every field."""
        clean = self.duplicates == self.missing == self.foreign == 0
        return clean and self.samples > 0 and not self.wrong


def verify(
    kafka: Mapping[str, str], topic: str, truth: Truth, *, notify: Callable[[str], object]
) -> Verdict:
    """Read all committed records of `topic` and compare them with the source's rows.

    `notify` gets a line for every LINE_RECORDS records.
    """
    identities: list[int] = []
    wrong: list[str] = []
    samples = 0
    for batch in read_committed(kafka, topic):
        before = len(identities) // LINE_RECORDS
        for record in batch:
            identity = number(orjson.loads(record.value or b"null"))
            identities.append(identity)
            if identity in truth.samples:
                samples += 1
                wrong += _differences(identity, record.value or b"", truth.samples[identity])
        if len(identities) // LINE_RECORDS > before:
            notify(f"verifying: {len(identities):,} of {truth.rows:,} records")
    found = np.array(identities, np.int64)
    distinct = np.unique(found)
    return Verdict(
        records=len(found),
        distinct=len(distinct),
        duplicates=len(found) - len(distinct),
        missing=len(np.setdiff1d(truth.identities, distinct, assume_unique=True)),
        foreign=len(np.setdiff1d(distinct, truth.identities, assume_unique=True)),
        samples=samples,
        wrong=tuple(wrong),
    )


def _differences(identity: int, value: bytes, expected: dict[str, Any]) -> list[str]:
    """Compare one record with its source row; decimals and floats are compared as text."""
    row = json.loads(value, parse_float=str)
    return [
        f"row {identity}, {name}: expected {expected.get(name)!r}, found {row.get(name)!r}"
        for name in expected.keys() | row.keys()
        if row.get(name) != expected.get(name)
    ]
