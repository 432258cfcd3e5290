"""The check of columnar topics by `make chaos`: it finds rows that were lost or doubled."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from tests.faults.comparison import Expectation, Source, Verdict, compare
from tests.faults.objects import ARROW, Numbers
from tests.faults.rows import read_rows
from tests.integration.conftest import MakeTopic
from tests.support.columnar_topics import Topics, Value, columnar

ROWS = 600
BATCH_ROWS = 30
LOST, DOUBLED = 5, 11


@pytest.mark.parametrize(
    ("encoding", "groups"),
    [
        pytest.param("parquet", [ARROW.names], id="alone", marks=pytest.mark.variant),
        pytest.param("arrow", [["id", "amount"], ARROW.names], id="groups"),
    ],
)
def test_a_batch_that_is_lost_or_doubled_is_found(
    make_topic: MakeTopic,
    bootstrap_servers: str,
    tmp_path: Path,
    encoding: str,
    groups: list[list[str]],
) -> None:
    written = Numbers(tmp_path, Random(1)).write("parquet", ROWS)
    rows = pa.RecordBatch.from_pylist(written.rows.rows(), ARROW)
    batches = [rows.slice(at, BATCH_ROWS) for at in range(0, ROWS, BATCH_ROWS)]
    source = Source(written.rows.label, written.path, written.format, records=ROWS)

    def verdict(label: str, numbers: list[int]) -> Verdict:
        topics = [make_topic(f"{label}-{at}", partitions=3) for at in range(len(groups))]
        values: dict[str, list[Value]] = {}
        for topic, names in zip(topics, groups, strict=True):
            values[topic] = [
                columnar(batches[n].select(names), n % 3, batch=f"b{n}", encoding=encoding)
                for n in numbers
            ]
        Topics(bootstrap_servers).write(values)
        found = read_rows(bootstrap_servers, topics, Random(2))
        return compare([source], found, Expectation(columnar=True))

    every = [*range(len(batches))]
    exact = verdict("exact", every)
    lost = verdict("lost", [n for n in every if n != LOST])
    doubled = verdict("doubled", [*every, DOUBLED])

    assert exact == Verdict(expected=ROWS, delivered=ROWS)
    assert (lost.missing, lost.miscounted, lost.ok) == (BATCH_ROWS, 1, False)
    assert (doubled.duplicates, doubled.miscounted, doubled.ok) == (BATCH_ROWS, 1, False)
