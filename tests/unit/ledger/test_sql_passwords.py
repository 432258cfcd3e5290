"""The password of a SQL ledger is looked up for every connection, and again once it was rotated."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import sqlalchemy as sa
from tests.support.golden import Golden

from extentflow.errors import Misconfigured
from extentflow.ledger import LedgerOptions
from extentflow.ledger.sql import SqlLedger
from extentflow.ledger.sql_calls import _connect


class DriverError(Exception):
    """What the driver raises."""


class Driver:
    """The driver's module."""

    Error = DriverError


@dataclass
class Server:
    """A dialect whose server takes one password."""

    taken: str
    said: str = "FATAL: password authentication failed"
    loaded_dbapi: type[Driver] = Driver
    given: list[dict[str, Any]] = field(default_factory=list)

    def connect(self, *arguments: object, **parameters: object) -> str:
        self.given.append(parameters)
        if parameters["password"] != self.taken:
            raise DriverError(self.said)
        return f"connected to {arguments[0]}"


@dataclass
class Kept:
    """A password of a service, and the one in the cache."""

    cached: str
    current: str

    def __call__(self, *, refresh: bool = False) -> str:
        self.cached = self.current if refresh else self.cached
        return self.cached


def connect(server: Server, password: Kept) -> str:
    dialect = cast("sa.Dialect", server)
    return str(_connect(dialect.connect, password, dialect, None, ("db",), {"user": "me"}))


def test_a_connection_has_the_current_password() -> None:
    server = Server("first")

    assert connect(server, Kept("first", "first")) == "connected to db"
    assert server.given == [{"user": "me", "password": "first"}]


def test_a_password_that_was_rotated_since_it_was_cached_is_read_again() -> None:
    assert connect(Server("second"), Kept("first", "second")) == "connected to db"


@pytest.mark.parametrize(
    ("said", "tries"), [("password authentication failed", 1), ("the server is starting up", 1)]
)
def test_another_error_or_the_same_password_is_not_tried_again(said: str, tries: int) -> None:
    server = Server("third", said)

    with pytest.raises(DriverError, match=said):
        connect(server, Kept("first", "first"))

    assert len(server.given) == tries


def test_a_password_that_only_this_parser_finds_is_refused_and_not_shown(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"ledger\.url") as caught:
        SqlLedger(LedgerOptions(url="postgresql://me:secret@db/l"))

    assert "secret" not in str(caught.value)
