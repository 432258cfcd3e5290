"""The comparison of a campaign finds what was planted, and nothing else."""

import gzip
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.faults.comparison import Expectation, Source, Verdict, compare
from tests.faults.console import FIELDS, HEADERS, NO_HEADERS, NULL, RECORDS, parsed
from tests.faults.objects import ARROW, BAD_EVERY, Numbers, Written
from tests.faults.rows import FOUND

ROWS = 400
KEYED = Expectation(key="grp")
Lines = list[str]


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    return Numbers(tmp_path, Random(1))


def source(written: Written, **changes: Any) -> Source:  # noqa: ANN401
    usual = {"label": written.rows.label, "path": written.path, "format": written.format}
    return Source(**{**usual, **changes})


def as_json(row: dict[str, Any]) -> str:
    """Write a row as documented in docs/json.md."""
    fields = []
    for name, value in row.items():
        match value:
            case Decimal():
                text = f"{value:.2f}"
            case datetime():
                text = f'"{value.isoformat(timespec="microseconds")}"'
            case date():
                text = f'"{value.isoformat()}"'
            case _:
                text = json.dumps(value, ensure_ascii=False)
        fields.append(f'"{name}":{text}')
    return f"{{{','.join(fields)}}}"


def printed(values: Sequence[tuple[str | None, str]], partition: int = 0) -> Lines:
    """Return what the console consumer prints of keys and values."""
    return [
        f"Partition:{partition}\x1dOffset:{n}\x1d{NO_HEADERS}\x1d{key or chr(92) + 'N'}\x1d{value}"
        for n, (key, value) in enumerate(values)
    ]


def delivered(written: Written, *, keyed: bool = False) -> Lines:
    rows = written.rows.rows()
    if written.format.startswith("csv"):
        rows = [row for n, row in enumerate(rows) if n % BAD_EVERY != BAD_EVERY - 1]
    return printed([(row["grp"] if keyed else None, as_json(row)) for row in rows])


def table(lines: Lines) -> pa.Table:
    return parsed("topic", RECORDS.join(lines).encode())


def dead_letters(written: Written) -> Lines:
    body = written.body if written.format == "csv" else gzip.decompress(written.body)
    bad = [line for line in body.decode().split("\n") if line.startswith("bad-")]
    reason = f"extentflow.object:s3://b/k{HEADERS}extentflow.reason:not a number"
    return [f"Partition:0\x1dOffset:{n}\x1d{reason}\x1d\\N\x1d{line}" for n, line in enumerate(bad)]


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
def test_an_exact_delivery_has_no_difference(numbers: Numbers, kind: str) -> None:
    written = numbers.write(kind, ROWS)
    dead = table(dead_letters(written)) if kind.startswith("csv") else None

    verdict = compare([source(written)], table(delivered(written)), Expectation(dead=dead))

    assert verdict == Verdict(expected=ROWS, delivered=ROWS)
    assert verdict.ok


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz"])
def test_json_lines_that_passed_through_have_no_difference(numbers: Numbers, kind: str) -> None:
    plain, written = numbers.write("jsonl", ROWS), numbers.write(kind, ROWS)
    lines = [line for line in plain.path.read_text().split("\n") if line]

    verdict = compare([source(plain)], table(printed([(None, line) for line in lines])), KEYED)
    unkeyed = compare(
        [source(plain), source(written, required=False)],
        table(printed([(None, line) for line in lines])),
        Expectation(),
    )

    assert verdict.misplaced > 0  # they have no keys
    assert unkeyed == Verdict(expected=ROWS, delivered=ROWS)


def double_one(lines: Lines) -> Lines:
    return [*lines, lines[7].replace("Offset:7", f"Offset:{len(lines)}")]


def drop_one(lines: Lines) -> Lines:
    return [*lines[:9], *lines[10:]]


def change_field(old: str, new: str) -> Callable[[Lines], Lines]:
    def change(lines: Lines) -> Lines:
        place = next(n for n, line in enumerate(lines) if old in line)
        return [*lines[:place], lines[place].replace(old, new), *lines[place + 1 :]]

    return change


def foreign_row(lines: Lines) -> Lines:
    return [*lines, 'Partition:0\x1dOffset:9999\x1dNO_HEADERS\x1d\\N\x1d{"id":1}']


def without_value(lines: Lines) -> Lines:
    return [f"{lines[0].rpartition(FIELDS)[0]}{FIELDS}{NULL}", *lines[1:]]


def without_value_of_a_row(lines: Lines) -> Lines:
    first, *others = without_value(lines)
    return [
        first.replace("extentflow.reason", f"extentflow.bytes:row{HEADERS}extentflow.reason"),
        *others,
    ]


def half_a_row(lines: Lines) -> Lines:
    return [*lines[:-1], lines[-1][:-10]]


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (double_one, {"duplicates": 1}),
        (drop_one, {"missing": 1}),
        (change_field('"flag":true', '"flag":false'), {"changed": 1}),
        (change_field('"flag":null', '"flag":false'), {"changed": 1}),
        (change_field('"note":"plain', '"note":"plaim'), {"changed": 1}),
        (change_field('"amount":7', '"amount":8'), {"changed": 1}),
        (change_field('"ratio":', '"ratio":0.5,"more":'), {"changed": 1}),
        (change_field('"day":"20', '"day":"21'), {"changed": 1}),
        (change_field("T0", "T1"), {"changed": 1}),
        (change_field('"grp":', '"group":'), {"changed": 1}),
        (foreign_row, {"foreign": 1}),
        (half_a_row, {"foreign": 1, "missing": 1}),
    ],
)
def test_a_planted_difference_is_found(
    numbers: Numbers, plant: Callable[[Lines], Lines], found: dict[str, int]
) -> None:
    written = numbers.write("parquet", ROWS)

    verdict = compare([source(written)], table(plant(delivered(written))), Expectation())

    names = ("duplicates", "missing", "changed", "foreign", "misplaced", "miscounted")
    assert {name: getattr(verdict, name) for name in names if getattr(verdict, name)} == found
    assert not verdict.ok
    assert verdict.samples


def test_a_number_that_passed_through_a_double_is_found(numbers: Numbers) -> None:
    written = numbers.write("parquet", 4)
    rounded = [line.replace("740993", "740992") for line in delivered(written)]

    verdict = compare([source(written)], table(rounded), Expectation())

    assert not verdict.ok


@pytest.mark.parametrize(
    ("plant", "found"),
    [(double_one, "duplicates"), (drop_one, "missing"), (change_field("🚀", "X"), "changed")],
)
def test_planted_differences_of_text_are_found(
    numbers: Numbers, plant: Callable[[Lines], Lines], found: str
) -> None:
    whole, part = numbers.write("txt.gz", ROWS), numbers.write("txt", ROWS)
    sources = [source(whole, format="txt"), source(part)]
    bodies = [part.path.read_text().split("\n"), gunzipped(whole)]
    lines = printed([(None, line) for body in bodies for line in body])

    clean = compare(sources, table(lines), Expectation(text=True))
    verdict = compare(sources, table(plant(lines)), Expectation(text=True))

    assert clean == Verdict(expected=2 * ROWS, delivered=2 * ROWS)
    assert getattr(verdict, found) == 1


def gunzipped(written: Written) -> Lines:
    return gzip.decompress(written.body).decode().split("\n")


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (double_one, "duplicates"),
        (drop_one, "missing"),
        (change_field("bad-", "worse-"), "missing"),
    ],
)
def test_planted_differences_of_dead_letters_are_found(
    numbers: Numbers, plant: Callable[[Lines], Lines], found: str
) -> None:
    written = numbers.write("csv", 20 * BAD_EVERY)
    dead = table(plant(dead_letters(written)))

    verdict = compare([source(written)], table(delivered(written)), Expectation(dead=dead))

    assert getattr(verdict, found) == 1


def test_a_dead_letter_without_its_reason_is_found(numbers: Numbers) -> None:
    written = numbers.write("csv", ROWS)
    dead = [line.replace("extentflow.reason", "reason") for line in dead_letters(written)]

    verdict = compare([source(written)], table(delivered(written)), Expectation(dead=table(dead)))

    assert verdict.changed == len(dead) > 0


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda lines: lines, ""),
        (double_one, "duplicates"),
        (drop_one, "missing"),
        (change_field('"flag":true', '"flag":false'), "changed"),
        (change_field("extentflow.reason", "reason"), "changed"),
        (without_value, "changed"),
        (without_value_of_a_row, ""),
        (foreign_row, "foreign"),
    ],
)
def test_planted_differences_of_refused_records_are_found(
    numbers: Numbers, plant: Callable[[Lines], Lines], found: str
) -> None:
    written = numbers.write("parquet", ROWS)
    lines = delivered(written)
    refused = [n for n, row in enumerate(written.rows.rows()) if row["note"] is None]
    good = [line for n, line in enumerate(lines) if n not in refused]
    letter = f"extentflow.version:etag{HEADERS}extentflow.row:{{}}{HEADERS}extentflow.reason:no key"
    dead = [lines[n].replace(NO_HEADERS, letter.format(n)) for n in refused]
    how = Expectation(dead=table(plant(dead)), refused="note IS NULL")

    pinned = source(written, pin="etag", first=written.rows.first)
    verdict = compare([pinned], table(good), how)
    mixed = compare([pinned], table(lines), how)

    names = ("duplicates", "missing", "changed", "foreign", "misplaced", "miscounted")
    assert [name for name in names if getattr(verdict, name)] == ([found] if found else [])
    assert verdict.expected == ROWS
    assert mixed.foreign >= len(refused)


def test_a_wrong_key_and_a_key_in_two_partitions_are_found(numbers: Numbers) -> None:
    written = numbers.write("parquet", ROWS)
    lines = delivered(written, keyed=True)
    elsewhere = [lines[0].replace("Partition:0", "Partition:1"), *lines[1:]]
    wrong = [lines[0].replace("\x1dg", "\x1dx"), *lines[1:]]

    assert compare([source(written)], table(lines), KEYED).ok
    assert compare([source(written)], table(elsewhere), KEYED).misplaced == 1
    assert compare([source(written)], table(wrong), KEYED).misplaced == 1


def test_rows_out_of_their_objects_order_are_found(numbers: Numbers) -> None:
    written = numbers.write("parquet", ROWS)
    rows = [(None, as_json(row)) for row in written.rows.rows()]
    rows[3], rows[4] = rows[4], rows[3]

    verdict = compare([source(written)], table(printed(rows)), Expectation(ordered=True))

    assert (verdict.misplaced, verdict.missing) == (1, 0)


def test_of_a_replaced_version_a_part_is_enough_if_the_ledger_counts_the_same(
    numbers: Numbers,
) -> None:
    old, new = numbers.write("parquet", ROWS), numbers.write("parquet", ROWS)
    lines = delivered(old)[:30] + delivered(new)

    def verdict(records: int) -> Verdict:
        replaced = source(old, required=False, records=records)
        return compare([replaced, source(new, records=ROWS)], table(lines), Expectation())

    assert verdict(30).ok
    assert verdict(29).miscounted == 1


def test_equal_uploads_are_there_once_for_each_job(numbers: Numbers) -> None:
    written = numbers.write("parquet", ROWS)
    lines = delivered(written)
    copies = [*lines, *delivered(written)]
    twice = [line.replace("Offset:", "Offset:1000") for line in copies[ROWS:]]

    def verdict(*printed_lines: str) -> Verdict:
        both = source(written, records=2 * ROWS, least=2, most=2)
        return compare([both], table(list(printed_lines)), Expectation())

    assert verdict(*lines, *twice) == Verdict(expected=2 * ROWS, delivered=2 * ROWS)
    assert verdict(*lines, *twice[1:]).missing == 1
    assert verdict(*lines, *twice, lines[0].replace("Offset:0", "Offset:9")).duplicates == 1


# -- rows of columnar values ----------------------------------------------------------------------

COLUMNAR = Expectation(columnar=True, key="grp", ordered=True)
BATCH_ROWS = 50
Rows = list[dict[str, Any]]


def consumed(written: Written) -> Rows:
    """Return rows as `read_rows` does: a partition for each `grp`, batches of BATCH_ROWS."""
    return [
        {
            "topic": "topic",
            "partition": int(row["grp"].removeprefix("g")) % 4,
            "position": n // BATCH_ROWS,
            "row": n % BATCH_ROWS,
            "shaped": True,
            **row,
        }
        for n, row in enumerate(written.rows.rows())
    ]


def test_columnar_rows_of_an_exact_delivery_have_no_difference(numbers: Numbers) -> None:
    written, others = numbers.write("parquet", ROWS), numbers.write("csv", ROWS)
    good = [row for n, row in enumerate(consumed(others)) if n % BAD_EVERY != BAD_EVERY - 1]
    rows = pa.Table.from_pylist([*consumed(written), *good], FOUND)

    verdict = compare([source(written), source(others)], rows, COLUMNAR)

    assert verdict == Verdict(expected=len(rows), delivered=len(rows))


def lose_a_batch(rows: Rows) -> Rows:
    return rows[:BATCH_ROWS] + rows[2 * BATCH_ROWS :]


def double_a_batch(rows: Rows) -> Rows:
    return [*rows, *({**row, "position": 99} for row in rows[-BATCH_ROWS:])]


def change(name: str, value: object) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        at = next(n for n, row in enumerate(rows) if row[name] != value)
        return [*rows[:at], {**rows[at], name: value}, *rows[at + 1 :]]

    return change


def swap_two_of_a_partition(rows: Rows) -> Rows:
    first, second = [n for n, row in enumerate(rows) if row["partition"] == 0][:2]
    places = ("position", "row")
    swapped = list(rows)
    for here, there in ((first, second), (second, first)):
        swapped[here] = {**rows[here], **{name: rows[there][name] for name in places}}
    return swapped


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda rows: rows[:-1], {"missing": 1}),
        (lose_a_batch, {"missing": BATCH_ROWS}),
        (double_a_batch, {"duplicates": BATCH_ROWS, "misplaced": 4}),
        *(
            (change(one.name, None), {"changed": 1})
            for one in ARROW
            if one.name not in {"id", "object", "grp"}
        ),
        (change("ratio", 0.5), {"changed": 1}),
        (change("amount", Decimal("0.01")), {"changed": 1}),
        (change("shaped", value=False), {"changed": 1}),
        (change("id", None), {"missing": 1, "foreign": 1}),
        (change("partition", 9), {"misplaced": 1}),
        (swap_two_of_a_partition, {"misplaced": 1}),
    ],
)
def test_a_planted_difference_of_columnar_rows_is_found(
    numbers: Numbers, plant: Callable[[Rows], Rows], found: dict[str, int]
) -> None:
    written = numbers.write("parquet", ROWS)
    rows = pa.Table.from_pylist(plant(consumed(written)), FOUND)

    verdict = compare([source(written)], rows, COLUMNAR)

    names = ("duplicates", "missing", "changed", "foreign", "misplaced", "miscounted")
    assert {name: getattr(verdict, name) for name in names if getattr(verdict, name)} == found
    assert verdict.samples
