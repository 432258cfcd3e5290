"""Options of the data source: what they mean, and every mistake at once."""

import pytest

from extentflow.errors import Misconfigured
from extentflow.spark.query_options import ReadOptions, StreamOptions

ENVIRON = {"EXTENTFLOW_BOOTSTRAP_SERVERS": "env:9092", "EXTENTFLOW_APP_ID": "shop"}


def read(environ: dict[str, str] | None = None, **options: str) -> ReadOptions:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return ReadOptions.read(given, ENVIRON if environ is None else environ)


def test_one_connector_and_all_of_its_objects_unless_said_otherwise() -> None:
    found = read(connector="orders")

    assert (found.connector, found.addresses) == ("orders", ())
    assert (found.mode, found.replay) == ("FAILFAST", True)
    assert found.parallelism >= 1
    assert (found.settings.bootstrap_servers, found.settings.app_id) == ("env:9092", "shop")


def test_options_win_over_the_environment() -> None:
    found = read(connector="orders", bootstrap__servers="option:9092")

    assert (found.settings.bootstrap_servers, found.settings.app_id) == ("option:9092", "shop")


def test_an_option_is_enough_where_the_environment_says_nothing() -> None:
    assert read({}, connector="c", bootstrap__servers="b:1").settings.bootstrap_servers == "b:1"


@pytest.mark.parametrize(
    ("options", "addresses"),
    [
        ({"path": "s3://shop/in/"}, ("s3://shop/in/",)),
        ({"paths": '["s3://shop/a", "s3://shop/b"]'}, ("s3://shop/a", "s3://shop/b")),
    ],
)
def test_paths_are_addresses(options: dict[str, str], addresses: tuple[str, ...]) -> None:
    found = ReadOptions.read({"connector": "orders", **options}, ENVIRON)

    assert found.addresses == addresses


def test_options_are_spelled_in_any_case_as_everywhere_in_spark() -> None:
    found = ReadOptions.read(
        {"Connector": "orders", "MODE": "permissive", "Replay": "FALSE", "PARALLELISM": "7"},
        ENVIRON,
    )

    assert (found.mode, found.replay, found.parallelism) == ("PERMISSIVE", False, 7)


def test_every_wrong_option_is_reported_at_once() -> None:
    with pytest.raises(Misconfigured) as caught:
        read({}, mode="sloppy", replay="maybe", parallelism="0", lease__second="3", connectr="c")

    problems = "\n".join(caught.value.problems)
    for part in (
        "option connector: missing; write the connector's name, as .option(",
        '"orders")',
        "option mode='sloppy': write FAILFAST or PERMISSIVE",
        "option replay='maybe': write true or false",
        "option parallelism='0': write a whole number",
        "bootstrap.servers",
        "option lease.second: no such option; did you mean lease.seconds?",
        "option connectr: no such option; did you mean connector?",
    ):
        assert part in problems


QUEUES = {"extents.queue.url": "http://sqs/extents", "extents.dlq.url": "http://sqs/dead"}


def stream(**options: str) -> StreamOptions:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return StreamOptions.read({"run": "r", **given}, ENVIRON)


@pytest.mark.parametrize(
    ("options", "listing"),
    [
        ({}, True),
        (QUEUES, False),
        ({**QUEUES, "work": "auto"}, False),
        ({**QUEUES, "work": "listing"}, True),
        ({**QUEUES, "work": "QUEUE"}, False),
    ],
)
def test_a_stream_drains_the_queue_where_there_is_one(
    options: dict[str, str],
    listing: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert stream(**options).listing is listing


def test_a_stream_has_bounds_by_default() -> None:
    found = stream()

    assert (found.connector, found.run) == (None, "r")
    assert (found.most_extents, found.most_seconds, found.listing_seconds) == (1_024, 60.0, 60.0)
    assert found.parallelism >= 1


def test_every_wrong_stream_option_is_reported_at_once() -> None:
    with pytest.raises(Misconfigured) as caught:
        stream(work="queue", connector="orders", path="s3://shop/")

    problems = "\n".join(caught.value.problems)
    for part in (
        "extents.queue.url is not set, which work=queue needs",
        "extents.dlq.url is not set",
        "a stream has no path",
        "option connector goes with work=listing",
    ):
        assert part in problems
