"""Options of the data source: what they mean, and every mistake at once."""

import pytest

from extentflow.errors import Misconfigured
from extentflow.spark.options import ReadOptions

ENVIRON = {"EXTENTFLOW_BOOTSTRAP_SERVERS": "env:9092", "EXTENTFLOW_APP_ID": "shop"}


def read(environ: dict[str, str] | None = None, **options: str) -> ReadOptions:
    given = {name.replace("__", "."): text for name, text in options.items()}
    return ReadOptions.read(given, ENVIRON if environ is None else environ)


def test_one_connector_and_all_of_its_objects_unless_said_otherwise() -> None:
    found = read(connector="orders")

    assert (found.connector, found.addresses) == ("orders", ())
    assert (found.permissive, found.replay) == (False, True)
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

    assert (found.permissive, found.replay, found.parallelism) == (True, False, 7)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(Misconfigured) as caught:
        read({}, mode="sloppy", replay="maybe", parallelism="0", lease__second="3")

    told = "\n".join(caught.value.problems)
    for part in (
        "option connector is missing",
        "mode=SLOPPY: it is FAILFAST or PERMISSIVE",
        "replay is true or false",
        "parallelism=0",
        "bootstrap.servers",
        "EXTENTFLOW_LEASE_SECOND: no such setting",
    ):
        assert part in told
