"""Filters at the start of a chain: row groups without a record that passes are not read."""

import datetime as dt
import math
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.laws.parquet_bytes import (
    BYTE_ARRAY,
    DOUBLE,
    INT64,
    OPTIONAL,
    REQUIRED,
    UTF8,
    Column,
    Element,
    one_column,
    parquet_file,
)
from tests.laws.parquet_cases import written
from tests.support.chains import BASE, SECRETS, Converted, chain
from tests.support.golden import Golden

from extentflow.config.parsing import parse
from extentflow.errors import UnsupportedType
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.formats.parquet.prefetch import LARGEST_GAP_BYTES
from extentflow.model import Extent
from extentflow.testing.stores import MemorySource
from extentflow.wiring import options
from extentflow.wiring.extents import pipeline


@dataclass(frozen=True)
class Read:
    """What a connector makes of a file, and which bytes of it were read."""

    made: Converted
    reads: Sequence[tuple[int, int]]

    @property
    def facts(self) -> tuple[Any, ...]:
        return self.made.payloads, self.made.locations, self.made.filtered, self.made.bad


def connector(condition: str, *, negate: bool = True, **more: str) -> dict[str, str]:
    kept = {"type": "Filter", "predicate": "p_1", "negate": str(negate).lower()}
    return chain(kept=kept, p_1={"type": "Condition", "condition": condition}) | more


def read(
    body: bytes,
    config: dict[str, str],
    *,
    prune: bool = True,
    position: int = 0,
    gap_bytes: int = LARGEST_GAP_BYTES,
) -> Read:
    whole = parse({**BASE, "input.format": "parquet", **config})
    chosen = options.format_options(whole, "parquet", "none")
    chosen = chosen if prune else replace(chosen, excludes=None)
    own = options.own_options(whole, "parquet", SECRETS)
    fmt = Parquet(chosen, Footers(), 0, own, gap_bytes=gap_bytes)
    source = MemorySource(body)
    extent = Extent("job", 0, "c", source.version, 0, len(body), "parquet")
    made = pipeline(whole, extent, source, fmt, partitions=lambda _: 4, look_up=SECRETS, store=None)
    return Read(Converted(list(made.convert(extent, position))), source.reads)


ROWS, GROUP_ROWS = 2_000, 100


def _table(chance: random.Random) -> pa.Table:
    """Return columns of every kind, most of them sorted, with nulls and whole groups of nulls."""

    def some(values: Sequence[Any], nulls: float) -> list[Any]:
        return [None if chance.random() < nulls or 300 <= at < 400 else value
                for at, value in enumerate(values)]  # fmt: skip

    numbers = sorted(chance.randrange(-50, 50) for _ in range(ROWS))
    floats = [float(each) / 4 for each in numbers]
    for _ in range(20):
        floats[chance.randrange(ROWS)] = chance.choice([math.nan, -0.0, math.inf, 0.0])
    start = dt.datetime(2020, 1, 1)  # noqa: DTZ001
    return pa.table(
        {
            "row": range(ROWS),
            "i": pa.array(some(numbers, 0.05), pa.int32()),
            "every": pa.array(numbers, pa.int16()),
            "same": pa.array([each // 20 for each in numbers], pa.int64()),
            "u": pa.array([each + 2**64 - 100 for each in numbers], pa.uint64()),
            "f": pa.array(some(floats, 0.02)),
            "s": some([f"{each + 50:03}é" * 30 for each in numbers], 0.05),
            "word": pa.array(["few", "more"] * (ROWS // 2)).dictionary_encode(),
            "d": pa.array([Decimal(each) / 4 for each in numbers], pa.decimal128(9, 2)),
            "day": pa.array([start.date() + dt.timedelta(each) for each in numbers]),
            "t": pa.array([start + dt.timedelta(each) for each in numbers], pa.timestamp("ns")),
            "z": pa.array(
                [start + dt.timedelta(each) for each in numbers], pa.timestamp("us", "UTC")
            ),
            "b": some([each > 0 for each in numbers], 0.02),
        }
    )


def _condition(chance: random.Random, depth: int = 2) -> str:
    if depth and chance.random() < 0.5:
        left, right = (_condition(chance, depth - 1) for _ in range(2))
        negated = chance.choice(["", "NOT "])
        return f"{negated}({left} {chance.choice(['AND', 'OR'])} {right})"
    number = chance.randrange(-55, 55)
    name = chance.choice(["i", "every", "same", "f", "d"])
    sign = chance.choice(["=", "<>", "<", "<=", ">", ">="])
    day = dt.date(2020, 1, 1) + dt.timedelta(number)
    return chance.choice(
        [
            f"{name} {sign} {number}",
            f"{name} {sign} {number}",
            f"{name} {sign} {number}.25",
            f"u {sign} {number + 2**64 - 100}" if number < 99 else "b",
            f"i {chance.choice(['', 'NOT '])}IN ({number}, {number + 1}, 7)",
            f"s {sign} '{number + 50:03}'",
            f"s {chance.choice(['', 'NOT '])}LIKE '{number + 50:03}%'",
            f"word {sign} 'few'",
            f"day {sign} '{day}'",
            f"t {sign} '{day} 00:00:00'",
            f"{chance.choice(['i', 's', 'f', 'every'])} IS {chance.choice(['', 'NOT '])}NULL",
            "b",
            "NOT b",
        ]
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(more, marks=pytest.mark.soak) for more in (1, 2))]
)
def test_pruning_changes_nothing_that_is_delivered_or_counted(seed: int) -> None:
    chance = random.Random(seed)
    body = written(
        _table(chance), row_group_size=GROUP_ROWS, write_statistics=True, store_schema=True
    )
    saved = 0
    for _ in range(15):
        config = connector(_condition(chance), negate=chance.random() < 0.6)

        pruned, whole = read(body, config), read(body, config, prune=False)

        assert pruned.facts == whole.facts, config
        assert len(whole.made.payloads) + whole.made.filtered == ROWS
        saved += sum(end - start for start, end in whole.reads)
        saved -= sum(end - start for start, end in pruned.reads)
    assert saved > 2 * len(body)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.variant)])
def test_the_rows_are_those_of_duckdb(seed: int, tmp_path: Path) -> None:
    chance = random.Random(100 + seed)
    # DuckDB compares NaN as the greatest number.
    table = _table(chance).drop_columns(["f"])
    path = tmp_path / "table.parquet"
    path.write_bytes(written(table, row_group_size=GROUP_ROWS, write_statistics=True))
    for _ in range(20):
        condition = _condition(chance)
        if "f " in condition:
            continue

        made = read(path.read_bytes(), connector(condition)).made

        wanted = duckdb.read_parquet(str(path)).filter(condition).order("row").project("row")
        assert [each["row"] for each in made.values] == [row for (row,) in wanted.fetchall()]


SORTED = pa.table(
    {"n": pa.array(range(1_000), pa.int64()), "text": [f"{n:0200}" for n in range(1_000)]}
)
BODY = written(SORTED, row_group_size=100, write_statistics=True)


def test_row_groups_without_a_record_that_passes_are_not_read() -> None:
    found = read(BODY, connector("n >= 250 AND n < 260"))

    group = pq.read_metadata(pa.BufferReader(BODY)).row_group(2)
    pages = [(start, end) for start, end in found.reads if start >= 4 and end < len(BODY)]
    assert [each["n"] for each in found.made.values] == list(range(250, 260))
    assert found.made.filtered == 990
    assert sum(end - start for start, end in pages) <= group.total_byte_size + 1_000


def test_an_extent_whose_rows_are_all_excluded_is_done_without_its_columns() -> None:
    found = read(BODY, connector("n > 5000"))

    assert found.made.payloads == []
    assert found.made.filtered == 1_000
    assert found.made.chunks[-1].next_position == 1_000
    # The footer and the magic at the start.
    assert len(found.reads) == 2


@pytest.mark.parametrize("position", [1, 150, 299, 300, 999])
def test_only_rows_behind_the_position_are_counted(position: int) -> None:
    found = read(BODY, connector("n > 5000"), position=position)

    assert found.made.filtered == 1_000 - position
    assert found.made.chunks[-1].next_position == 1_000


def test_a_column_that_is_missing_is_reported_although_no_row_is_read(golden: Golden) -> None:
    with golden.raises(UnsupportedType, match="'nope'"):
        read(BODY, connector("n > 5000 AND nope = 1"))


def test_only_filters_before_other_transforms_prune() -> None:
    """After `renamed`, the column n is another one."""
    steps = chain(
        renamed={"type": "ReplaceField", "renames": "n:m,text:n"},
        kept={"type": "Filter", "predicate": "p_1", "negate": "true"},
        p_1={"type": "Condition", "condition": "n LIKE '%5'"},
    )

    assert len(read(BODY, steps).made.payloads) == 100


# -- statistics that are no values -----------------------------------------------------------------


def test_texts_that_were_cut_off_are_bounds_and_no_values() -> None:
    """Writers store the first bytes of the least text, and of the greatest one with one added."""
    texts = [b"abcdef", b"abcxyz"]
    column = Column(["s"], BYTE_ARRAY, texts, statistics=(b"abc", b"abd", 0))
    body = parquet_file([Element("s", REQUIRED, BYTE_ARRAY, converted=UTF8)], [column], 2)

    for condition, passing in [
        ("s = 'abcdef'", 1),
        ("s <> 'abc'", 2),
        ("s > 'abcw'", 1),
        ("s < 'abc'", 0),
        ("s >= 'abd'", 0),
        ("s IN ('abc', 'abd')", 0),
    ]:
        found = read(body, connector(condition))
        assert (len(found.made.payloads), found.made.filtered) == (passing, 2 - passing), condition


@pytest.mark.parametrize("negate", ["true", "false"])
@pytest.mark.parametrize(
    "condition", ["f < 5", "f <> 1", "NOT f > 0", "f >= 1", "f IN (1, 2)", "NOT f IN (9)", "f = 1"]
)
@pytest.mark.parametrize("bounds", [(1.0, 2.0), (1.0, 1.0), (math.nan, math.nan), (1.0, math.nan)])
def test_nan_is_never_excluded_by_bounds_that_do_not_count_it(
    bounds: tuple[float, float],
    condition: str,
    negate: str,
) -> None:
    low, high = map(_double, bounds)
    values = [1.0, math.nan, 1.0 if bounds[1] == 1.0 else 2.0]
    body = one_column(Element("f", REQUIRED, DOUBLE), values, statistics=(low, high, 0))
    config = connector(condition, negate=negate == "true")

    assert read(body, config).facts == read(body, config, prune=False).facts


def _double(value: float) -> bytes:
    return struct.pack("<d", value)


@pytest.mark.parametrize("negate", ["true", "false"])
@pytest.mark.parametrize("condition", ["n = 1", "NOT n = 1", "n IS NULL", "n IS NOT NULL", "n > 0"])
@pytest.mark.parametrize("nulls", [0, None])
def test_nulls_are_exact_whether_or_not_they_are_counted(
    condition: str,
    negate: str,
    nulls: int | None,
) -> None:
    one = (1).to_bytes(8, "little")
    values = [1, 1, 1] if nulls == 0 else [1, None, 1]
    body = one_column(Element("n", OPTIONAL, INT64), values, statistics=(one, one, nulls))
    config = connector(condition, negate=negate == "true")

    assert read(body, config).facts == read(body, config, prune=False).facts


def test_a_file_without_statistics_is_read_as_a_whole() -> None:
    body = written(SORTED, row_group_size=100)

    assert read(body, connector("n > 990")).made.filtered == 991


def test_rows_are_delivered_as_they_are_in_groups_that_are_read() -> None:
    made = read(BODY, connector("n = 777", select="n")).made

    assert [orjson.loads(each or b"") for each in made.payloads] == [{"n": 777}]
    assert made.locations == [777]
