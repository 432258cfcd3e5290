"""What is submitted to functions, as messages or to one Spark run, and what is opened for it."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.config.connector import ConnectorConfig
from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured
from extentflow.model import ObjectVersion
from extentflow.queue import MOST_ADDRESSES
from extentflow.services.composition import open_submissions
from extentflow.services.submissions import _backfill, _bucket_and_key, _takes_one_run
from extentflow.wiring import Runtime

EVENTS = Path(__file__).parents[3] / "events"
ORDERS = ConnectorConfig(name="orders", topic="orders", s3_bucket="shop")


def settings(application: str | None) -> WorkerSettings:
    """Return settings under which more than 10 bytes are large."""
    return WorkerSettings(
        bootstrap_servers="127.0.0.1:1",
        spark_application_id=application,
        spark_threshold_bytes=10,
    )


def objects(*sizes: int) -> list[ObjectVersion]:
    return [ObjectVersion("shop", f"in/{n}", None, "etag", size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("asked", "engine", "application", "sizes", "by_one_run"),
    [
        ("auto", "auto", "app", (6, 5), True),
        ("auto", "auto", "app", (5, 5), False),
        ("auto", "auto", None, (6, 5), False),
        ("auto", "auto", "app", (11,), False),
        ("auto", "lambda", "app", (6, 5), False),
        ("auto", "spark", "app", (1, 1), True),
        ("lambda", "spark", "app", (6, 5), False),
        ("spark", "lambda", None, (1,), True),
    ],
)
def test_the_option_decides_then_the_connector_then_the_size(
    asked: str, engine: str, application: str | None, sizes: tuple[int, ...], *, by_one_run: bool
) -> None:
    config = replace(ORDERS, engine=engine)

    assert _takes_one_run(settings(application), config, objects(*sizes), asked) is by_one_run


@pytest.mark.parametrize("event", ["aws-s3-test", "http-api-probe", "aws-s3-removed"])
def test_a_notification_of_no_object_says_what_it_is(golden: Golden, event: str) -> None:
    """Trap: of a test notification, a list in Python's notation was printed."""
    document = (EVENTS / f"{event}.json").read_text()
    submissions = open_submissions(Runtime(settings(None)))

    with golden.raises(Misconfigured, match="nothing to submit"):
        submissions.submit_event(document, name=f"{event}.json")


def test_every_backfill_has_an_id_of_its_own() -> None:
    first, second = (_backfill(ORDERS, ["s3://shop/in/"]) for _ in range(2))

    assert first.id != second.id
    assert first.addresses == ("s3://shop/in/",)


def test_too_many_addresses_for_one_run_are_rejected_with_a_remedy(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=f"{MOST_ADDRESSES + 1}"):
        _backfill(ORDERS, ["s3://shop/in/"] * (MOST_ADDRESSES + 1))


def test_a_connector_with_secrets_in_variables_is_not_sent_to_spark(golden: Golden) -> None:
    config = replace(ORDERS, engine="spark", secret_access_key="${env:GRID_SECRET}")

    files = replace(ORDERS, engine="spark", endpoint_type="localfile", s3_bucket=None)
    for one in (config, files):
        assert not _takes_one_run(settings("app"), one, objects(6, 5), "auto")
    with golden.raises(
        Misconfigured,
        match=r"aws.secret.access.key=\$\{env:GRID_SECRET\}.*`extentflow run`",
    ):
        _backfill(config, ["s3://shop/in/"])


@pytest.mark.parametrize("address", ["s3://shop/in/a.csv", "s3a://shop/in/a.csv"])
def test_an_object_is_named_by_bucket_and_key(address: str) -> None:
    assert _bucket_and_key(address) == ("shop", "in/a.csv")


@pytest.mark.parametrize(
    "address", ["shop/in/a.csv", "file://shop/a", "s3://shop", "s3://shop/in/"]
)
def test_an_address_without_bucket_or_key_is_rejected(address: str, golden: Golden) -> None:
    with golden.raises(Misconfigured, match="s3://bucket/key"):
        _bucket_and_key(address)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            {"engine": "emr", "addresses": ["s3://shop/a"]},
            "--engine emr: write auto, lambda or spark",
        ),
        ({"engine": "spark", "addresses": ["s3://shop/a"]}, "goes with --connector"),
    ],
)
def test_an_unknown_engine_is_rejected(words: dict[str, object], problem: str) -> None:
    with pytest.raises(Misconfigured, match=problem):
        open_submissions(Runtime(settings(None))).submit(**words)  # type: ignore[arg-type]
