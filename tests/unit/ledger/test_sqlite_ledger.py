"""SqlLedger fulfils the ledger's contract on SQLite."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.ledger_contract import LedgerContract

from extentflow.errors import Misconfigured
from extentflow.ledger import LedgerOptions, sql
from extentflow.ledger.sql import SqlLedger, file_system


def opened(path: Path) -> SqlLedger:
    ledger = SqlLedger(LedgerOptions(url=f"sqlite:///{path}"))
    ledger.admin.create()
    return ledger


class LostCommits:
    """Lets commits of a ledger take effect and fail."""

    def __init__(self, ledger: SqlLedger) -> None:
        self.pending = 0
        dialect: Any = ledger._items.calls._engine().dialect
        self._commit = dialect.do_commit
        dialect.do_commit = self.commit

    def commit(self, connection: Any) -> None:  # noqa: ANN401 - the driver's
        self._commit(connection)
        if self.pending:
            self.pending -= 1
            error = sqlite3.OperationalError("the response was lost (injected)")
            error.sqlite_errorname = "SQLITE_IOERR"
            raise error


@dataclass(frozen=True)
class SqliteWorld:
    folder: Path
    ledger: SqlLedger
    lost: LostCommits
    numbers: Iterator[int] = field(default_factory=count)

    def elsewhere(self) -> SqlLedger:
        return SqlLedger(LedgerOptions(url=f"sqlite:///{self.folder / 'ledger.db'}"))

    def another_table(self) -> SqlLedger:
        return opened(self.folder / f"{next(self.numbers)}.db")

    def lose_answer(self, name: str) -> None:
        _ = name
        self.lost.pending += 1


@pytest.fixture
def world(tmp_path: Path) -> SqliteWorld:
    ledger = opened(tmp_path / "ledger.db")
    return SqliteWorld(tmp_path, ledger, LostCommits(ledger))


class TestContract(LedgerContract):
    pass


class TestFiles:
    def test_a_path_without_a_ledger_names_the_command_that_creates_it(
        self, tmp_path: Path
    ) -> None:
        ledger = SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'none.db'}"))

        with pytest.raises(Misconfigured, match="extentflow init"):
            ledger.jobs.get("none")

    def test_a_file_that_is_no_database_is_refused_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "orders.csv"
        path.write_text("id,name\n" * 1_000)
        ledger = SqlLedger(LedgerOptions(url=f"sqlite:///{path}"))

        with pytest.raises(Misconfigured, match=r"orders\.csv.*not a database"):
            ledger.jobs.get("none")

    def test_a_moved_file_stays_the_same_ledger(self, tmp_path: Path) -> None:
        first = opened(tmp_path / "first.db").id
        (tmp_path / "first.db").rename(tmp_path / "second.db")

        assert SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'second.db'}")).id == first

    def test_a_copied_file_is_refused_until_it_is_adopted(self, tmp_path: Path) -> None:
        original = opened(tmp_path / "first.db")
        with sqlite3.connect(tmp_path / "first.db") as source:
            source.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
        source.close()
        copy = SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'copy.db'}"))

        with pytest.raises(Misconfigured, match="a copy of"):
            _ = copy.id
        assert copy.admin.create()

        assert copy.id != original.id

    def test_a_newer_layout_is_refused(self, tmp_path: Path) -> None:
        ledger = opened(tmp_path / "ledger.db")
        with sqlite3.connect(tmp_path / "ledger.db") as session:
            session.execute("UPDATE extentflow_layout SET version = 99")
        session.close()

        with pytest.raises(Misconfigured, match="layout 99"):
            _ = SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'ledger.db'}")).id
        with pytest.raises(Misconfigured, match="layout 99"):
            ledger.admin.create()


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/me/x.db", "ext4"), ("/mnt/share/x.db", "nfs4"), ("/mnt/a b/x.db", "fuse.sshfs")],
)
def test_the_file_system_of_a_path_is_that_of_the_innermost_mount(
    tmp_path: Path, path: str, kind: str
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda / ext4 rw 0 0\n"
        "host:/x /mnt/share nfs4 rw 0 0\n"
        "me@host:/ /mnt/a\\040b fuse.sshfs rw 0 0\n"
    )

    assert file_system(Path(path), mounts) == kind


def test_a_file_on_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "file_system", lambda _: "nfs4")
    ledger = SqlLedger(LedgerOptions(url=f"sqlite:///{tmp_path / 'ledger.db'}"))

    with pytest.raises(Misconfigured, match=r"nfs4.*postgresql://"):
        ledger.admin.create()
