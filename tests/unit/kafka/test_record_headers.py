"""Lists of headers do to columns what plain lists do record by record."""

import random
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest

from extentflow.kafka import Records
from extentflow.kafka.record_headers import HeaderColumns, HeaderLists, by_name

Plain = list[list[tuple[str, bytes | None]]]


def lists_of(plain: Plain, *, before: int = 0) -> HeaderLists:
    """The same headers as columns; `before` records of other headers are cut off."""
    cut: Plain = [[("cut", b"off")] for _ in range(before)]
    whole = cut + plain
    pairs = [pair for record in whole for pair in record]
    return HeaderLists(
        np.array([0, *accumulate(map(len, whole))], np.int64),
        pa.array([name for name, _ in pairs], pa.string()),
        pa.array([value for _, value in pairs], pa.binary()),
    )[before:]


def some(seed: int, count: int) -> Plain:
    generator = random.Random(seed)
    values = [b"", b"x", b"\xff", None]
    return [
        [(generator.choice("abc"), generator.choice(values)) for _ in range(generator.randrange(4))]
        for _ in range(count)
    ]


def plain_of(headers: HeaderLists) -> Plain:
    return [list(each) for each in headers]


@pytest.mark.parametrize("seed", range(20))
def test_operations_are_those_of_plain_lists(seed: int) -> None:
    left, right = some(seed, 7), some(seed + 100, 7)
    headers, other = lists_of(left, before=seed % 3), lists_of(right, before=seed % 2)
    places = [6, 0, 0, 3]
    column = pa.array([b"v", None, b"", None, b"w", b"x", None], pa.binary())

    assert plain_of(headers) == left
    assert len(headers) == len(left)
    assert headers[2] == left[2]
    assert plain_of(headers[2:5]) == left[2:5]
    assert plain_of(headers.take(pa.array(places))) == [left[place] for place in places]
    assert plain_of(headers.joined(other)) == [a + b for a, b in zip(left, right, strict=True)]
    assert plain_of(headers.followed_by(other)) == left + right
    assert plain_of(headers.without(["a", "c"])) == [
        [pair for pair in record if pair[0] == "b"] for record in left
    ]
    assert headers.has("a").to_pylist() == [any(name == "a" for name, _ in r) for r in left]
    values = column.to_pylist()
    assert plain_of(headers.with_header("n", column)) == [
        [*record, ("n", value)] for record, value in zip(left, values, strict=True)
    ]
    assert plain_of(headers.with_header("n", column, lacks_nulls=True)) == [
        [*record, *([] if value is None else [("n", value)])]
        for record, value in zip(left, values, strict=True)
    ]


def test_columns_as_lists_are_the_same_headers() -> None:
    kinds = pa.array([b"a", None, b"c", b"d"], pa.large_binary())
    columns = HeaderColumns([("kind", kinds), ("file", b"f")], 4)[1:]

    assert plain_of(columns.lists()) == [list(each) for each in columns]


def test_no_records_and_no_headers() -> None:
    nothing = HeaderLists.none(0)

    assert plain_of(nothing.joined(nothing).followed_by(HeaderLists.none(2))) == [[], []]
    assert plain_of(HeaderLists.none(3)[1:1]) == []
    assert nothing.nbytes == 0


def test_records_take_their_headers_with_them() -> None:
    plain = some(1, 5)
    records = Records("t", pa.array([b"v"] * 5, pa.binary()), headers=lists_of(plain))

    assert list(map(list, records.slice(1, 4).take([2, 0]).headers or ())) == [plain[3], plain[1]]


def test_the_last_value_of_a_name_counts() -> None:
    assert by_name([("a", b"1"), ("b", None), ("a", b"2")]) == {"a": b"2"}
