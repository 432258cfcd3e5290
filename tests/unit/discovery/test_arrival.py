"""An arrival's fields survive the queue."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extentflow.discovery import Arrival, Dialect, documents
from extentflow.discovery.notifications import ParsedNotification, parse_notification

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ARRIVALS = st.builds(
    Arrival,
    bucket=TEXT,
    key=TEXT,
    dialect=st.sampled_from(Dialect),
    version_id=st.none() | TEXT.filter(lambda text: text != "null"),
    etag=st.none() | TEXT.filter(lambda text: '"' not in text),
    size=st.none() | st.integers(0, 2**53),
    sequencer=st.none() | TEXT,
    event_time=st.none() | st.floats(0, 4e9),
    endpoint=st.none() | TEXT,
    region=st.none() | TEXT,
)


@given(ARRIVALS)
def test_an_arrival_is_the_same_after_the_queue(arrival: Arrival) -> None:
    body = json.dumps(arrival.to_message())

    assert Arrival.from_message(json.loads(body)) == arrival
    assert parse_notification(body) == ParsedNotification((arrival,))


def test_what_is_unknown_takes_no_room() -> None:
    message = Arrival("shop", "in/a.csv", Dialect.LISTING).to_message()

    assert message == {
        "v": 1,
        "source": "arrival",
        "bucket": "shop",
        "key": "in/a.csv",
        "dialect": "listing",
    }


def test_its_address_names_the_version() -> None:
    assert Arrival("shop", "a b", Dialect.AWS).uri == "s3://shop/a b"
    assert Arrival("shop", "a", Dialect.AWS, version_id="7").uri == "s3://shop/a?versionId=7"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:01.250Z", 1.25),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01T00:00:01", 1.0),
        ("soon", None),
        ("", None),
        (7, None),
    ],
)
def test_times_are_seconds_of_utc(text: object, seconds: float | None) -> None:
    assert documents.moment(text) == seconds


@pytest.mark.parametrize("value", [True, -1, 1.0, "1", None])
def test_a_size_is_a_whole_number(value: object) -> None:
    assert documents.size(value) is None


@pytest.mark.parametrize("value", [True, float("inf"), float("nan"), "1", None])
def test_seconds_are_a_finite_number(value: object) -> None:
    assert documents.seconds(value) is None
