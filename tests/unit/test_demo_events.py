"""What `make demo-events` uploads and announces is what it says."""

import csv
import gzip
import io
import json

import pytest
from demo.eventpath import notification
from demo.eventrows import as_csv, as_gzip, as_half_a_gzip, as_json_lines

from extentflow.arrivals.notifications import news_of
from extentflow.model import ObjectVersion

NUMBERS = range(7, 300)


@pytest.mark.parametrize("key", ["in/1.jsonl", "in/a b+c%25 ü☃.csv"])
def test_a_notification_names_the_exact_object_in_s3s_own_dialect(key: str) -> None:
    version = ObjectVersion(bucket="b", key=key, version_id=None, etag="abc", size=12)

    news = news_of(notification(version))

    (arrival,) = news.arrivals
    assert not news.unreadable
    assert (arrival.bucket, arrival.key, arrival.etag, arrival.size) == ("b", key, "abc", 12)


def test_objects_hold_every_number_once_in_each_format() -> None:
    lines = [json.loads(line)["n"] for line in as_json_lines(NUMBERS).splitlines()]
    rows = [int(row["n"]) for row in csv.DictReader(io.StringIO(as_csv(NUMBERS).decode()))]

    assert lines == rows == list(NUMBERS)
    assert gzip.decompress(as_gzip(NUMBERS)) == as_json_lines(NUMBERS)


def test_the_corrupt_object_cannot_be_read_to_its_end() -> None:
    with pytest.raises(EOFError):
        gzip.decompress(as_half_a_gzip(NUMBERS))
