"""What `make demo-events` uploads and announces is what it says."""

import csv
import gzip
import io
import json

import numpy as np
import pytest
from demo.eventpath import notification
from demo.eventrows import as_csv, as_gzip, as_half_a_gzip, as_json_lines, judge

from extentflow.discovery.notifications import parse_notification
from extentflow.model import ObjectVersion

NUMBERS = range(7, 300)


@pytest.mark.parametrize("key", ["in/1.jsonl", "in/a b+c%25 ü☃.csv"])
def test_a_notification_names_the_exact_object_in_s3s_own_dialect(key: str) -> None:
    version = ObjectVersion(bucket="b", key=key, version_id=None, etag="abc", size=12)

    parsed = parse_notification(notification(version))

    (arrival,) = parsed.arrivals
    assert not parsed.unparseable
    assert (arrival.bucket, arrival.key, arrival.etag, arrival.size) == ("b", key, "abc", 12)


def test_objects_hold_every_number_once_in_each_format() -> None:
    lines = [json.loads(line)["n"] for line in as_json_lines(NUMBERS).splitlines()]
    rows = [int(row["n"]) for row in csv.DictReader(io.StringIO(as_csv(NUMBERS).decode()))]

    assert lines == rows == list(NUMBERS)
    assert gzip.decompress(as_gzip(NUMBERS)) == as_json_lines(NUMBERS)


def test_the_corrupt_object_cannot_be_read_to_its_end() -> None:
    with pytest.raises(EOFError):
        gzip.decompress(as_half_a_gzip(NUMBERS))


@pytest.mark.parametrize(
    ("numbers", "duplicates", "missing", "foreign"),
    [
        ([3, 1, 2, 4], 0, 0, 0),
        ([1, 2, 3, 4, 8], 0, 0, 0),
        ([1, 2, 3, 4, 2], 1, 0, 0),
        ([1, 2, 3, 4, 8, 8], 1, 0, 0),
        ([1, 2, 4], 0, 1, 0),
        ([1, 2, 3, 4, 10], 0, 0, 1),
        ([], 0, 4, 0),
    ],
)
def test_a_row_twice_a_row_too_few_and_a_strange_row_are_counted(
    numbers: list[int], duplicates: int, missing: int, foreign: int
) -> None:
    found = judge("t", np.array(numbers, np.int64), [range(1, 3), range(3, 5)], [range(8, 9)])

    assert (found.expected, found.records) == (4, len(numbers))
    assert (found.duplicates, found.missing, found.foreign) == (duplicates, missing, foreign)
