"""The scheme of the URL selects DynamoDB or the ledger of an installed package."""

import sys

import pytest
from tests.support.golden import Golden

from extentflow import plugins
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured
from extentflow.ledger import LEDGERS, Ledger, LedgerOptions, open_ledger
from extentflow.ledger.dynamodb import DynamoLedger
from extentflow.plugins import EntryPoint, Registry
from extentflow.testing.ledger import MemoryLedger
from extentflow.wiring import Runtime
from extentflow.wiring.options import ledger_options


class ToyLedger(MemoryLedger):
    """A ledger as a package provides it: a factory that takes options."""

    def __init__(self, options: LedgerOptions) -> None:
        super().__init__(options.table)
        self.options = options


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:8000", "https://db.example"])
def test_without_a_url_the_ledger_is_dynamodb(endpoint: str | None) -> None:
    assert isinstance(open_ledger(LedgerOptions("orders", endpoint)), DynamoLedger)


def test_an_entry_point_is_found_beside_the_built_in_ledger() -> None:
    toy = EntryPoint("toy", f"{__name__}:ToyLedger", "extentflow-toy 1.0")
    ledgers: Registry[object] = Registry(plugins.LEDGERS, "ledger", find=lambda _: [toy])

    assert ledgers.names() == ["dynamodb", "postgresql", "sqlite", "toy"]
    assert ledgers.get("dynamodb") is DynamoLedger


def test_a_scheme_opens_the_ledger_of_that_name_with_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Registered for this test only: messages list the names of all ledgers.
    monkeypatch.setattr(LEDGERS, "_loaded", dict(LEDGERS._loaded))
    LEDGERS.register("toy-of-a-test", ToyLedger)
    settings = WorkerSettings(
        bootstrap_servers="127.0.0.1:1",
        ledger_url=LedgerAddress("toy-of-a-test:///var/orders"),
        retry_timeout_seconds=2.0,
    )

    ledger: Ledger = Runtime(settings).ledger

    assert isinstance(ledger, ToyLedger)
    assert ledger.options == LedgerOptions(url="toy-of-a-test:///var/orders", retry_seconds=2.0)


def test_a_scheme_without_a_ledger_is_named_with_the_ledgers_there_are(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="ledger.url.*'mysql'"):
        open_ledger(LedgerOptions(url="mysql://db"))


def test_the_settings_of_a_url_reach_dynamodb_and_a_password_is_looked_up_when_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEDGER_SECRET", "first")
    url = "dynamodb://orders?region=eu-central-1&endpoint=http://127.0.0.1:8000"
    dynamodb = WorkerSettings(bootstrap_servers="a:1", ledger_url=LedgerAddress.parse(url))
    settings = WorkerSettings(
        bootstrap_servers="a:1",
        ledger_url=LedgerAddress.parse("postgresql://me@db/ledgers"),
        ledger_password="${env:LEDGER_SECRET}",
    )
    look_up = Runtime(settings).secrets

    options = ledger_options(settings, look_up)
    monkeypatch.setenv("LEDGER_SECRET", "rotated")

    assert ledger_options(dynamodb, look_up) == LedgerOptions(
        "orders", "http://127.0.0.1:8000", "eu-central-1"
    )
    assert options.url == "postgresql://me@db/ledgers"
    assert options.password is not None
    assert options.password() == "rotated"
    assert "rotated" not in repr((settings, options))


def test_a_package_that_a_ledger_lacks_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    monkeypatch.setattr(LEDGERS, "_loaded", {})
    monkeypatch.delitem(sys.modules, "extentflow.ledger.sql", raising=False)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)

    with golden.raises(Misconfigured, match="postgresql://"):
        open_ledger(LedgerOptions(url="postgresql://me@db/ledgers"))


def test_a_driver_that_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(Misconfigured, match=r"psycopg.*requirements/plugins\.in"):
        open_ledger(LedgerOptions(url="postgresql://me@db/ledgers")).jobs.get("none")
