"""Servers of this machine, for commands without settings; any setting wins."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.memory_runtime import MemoryRuntime

from extentflow.cli import app, run_command_line
from extentflow.config.ledgers import LedgerAddress
from extentflow.ledger import LedgerOptions, open_ledger
from extentflow.model import Job, ObjectVersion, Plan, job_id
from extentflow.plugins import Registry
from extentflow.wiring.environments import (
    Find,
    FoundServers,
    other_ledger,
    use_running_servers,
)

SERVERS = FoundServers(
    name="the stack of /here",
    parts="Kafka 127.0.0.1:19092",
    variables={
        "EXTENTFLOW_BOOTSTRAP_SERVERS": "127.0.0.1:19092",
        "AWS_ACCESS_KEY_ID": "stack",
        "AWS_REGION": "us-east-1",
    },
    switch="SWITCH=off",
)


class Finders:
    """One package that finds SERVERS, and how often it was asked."""

    def __init__(self, found: FoundServers | None = SERVERS) -> None:
        self.asked = 0
        self.found = found
        self.registry: Registry[Find] = Registry("none", "environment", find=lambda _group: ())
        self.registry.register("stack", self.find)

    def find(self) -> FoundServers | None:
        self.asked += 1
        return self.found

    def use(self, environ: dict[str, str]) -> Sequence[str]:
        notes: list[str] = []
        use_running_servers(notes.append, environ=environ, finders=self.registry)
        return notes


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_running_servers_are_used_and_named_once() -> None:
    finders, environ = Finders(), {"PATH": "/bin", "AWS_REGION": "eu-central-1"}

    first, second = finders.use(environ), finders.use(environ)

    (note,) = first
    assert note.startswith("using the stack of /here: Kafka")
    assert note.endswith("; SWITCH=off leaves it out")
    assert second == []
    assert environ == {"PATH": "/bin", **SERVERS.variables, "AWS_REGION": "eu-central-1"}


@pytest.mark.parametrize(
    "name", ["EXTENTFLOW_BOOTSTRAP_SERVERS", "EXTENTFLOW_LEASE_SECONDS", "EXTENTFLOW_CONFIG"]
)
def test_any_setting_wins_unasked(name: str) -> None:
    finders, environ = Finders(), {name: "given"}

    assert finders.use(environ) == []
    assert environ == {name: "given"}
    assert finders.asked == 0


def test_a_file_of_settings_wins(tmp_path: Path) -> None:
    (tmp_path / "extentflow.properties").write_text("bootstrap.servers=mine:9092\n")
    finders = Finders()

    assert finders.use({}) == []
    assert finders.asked == 0


@pytest.mark.parametrize("name", ["EXTENTFLOW_LOCAL_KAFKA_PORT", "EXTENTFLOW_STACK_S3_ENDPOINT"])
def test_variables_of_the_stack_itself_configure_nothing(name: str) -> None:
    finders, environ = Finders(), {name: "1"}

    assert len(finders.use(environ)) == 1


@pytest.mark.parametrize("name", ["AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL"])
def test_credentials_of_something_else_are_never_mixed_with_a_stack(name: str) -> None:
    finders, environ = Finders(), {name: "mine"}

    (note,) = finders.use(environ)

    assert note.startswith(f"the stack of /here is not used, because {name} is set; unset it")
    assert environ == {name: "mine"}


def test_servers_that_do_not_run_are_named_and_not_used() -> None:
    environ: dict[str, str] = {}
    stopped = FoundServers("the stack of /here", "2 jobs; `extentflow up` starts it", {}, "")

    (note,) = Finders(found=stopped).use(environ)

    assert note.startswith("the stack of /here does not run, and its ledger is not used: 2 jobs")
    assert environ == {}


def test_nothing_is_said_where_nothing_runs() -> None:
    environ: dict[str, str] = {}

    assert Finders(found=None).use(environ) == []
    assert environ == {}


# -- another ledger --------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LedgerAddress:
    """Return the user's own ledger, with one job."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    address = LedgerAddress.in_state_folder({"XDG_STATE_HOME": str(tmp_path)})
    address.path.parent.mkdir()
    ledger = open_ledger(LedgerOptions(url=address.url))
    ledger.admin.create()
    version = ObjectVersion("shop", "a.csv", None, "etag", 1)
    ledger.jobs.register(Job(job_id("c", version), "c", 1, version, "csv", "cluster", Plan(1)))
    return address


def test_an_empty_ledger_beside_the_users_own_names_that(own: LedgerAddress) -> None:
    chosen = LedgerAddress.dynamodb("extentflow", None, None)

    assert other_ledger(chosen) == (
        f"{own.path} records 1 job: EXTENTFLOW_LEDGER_URL={own} uses it"
    )
    assert other_ledger(own) is None
    own.path.unlink()
    assert other_ledger(chosen) is None


@pytest.mark.parametrize("words", [["status"], ["connectors", "list"]])
def test_commands_that_show_nothing_name_the_other_ledger(
    words: list[str],
    own: LedgerAddress,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("extentflow.cli.opening.open_runtime", lambda *_, **__: MemoryRuntime())

    assert run_command_line(app, words) == 0
    assert f"note: {own.path} records 1 job" in capsys.readouterr().err


def test_a_missing_ledger_names_the_other_one(
    own: LedgerAddress,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EXTENTFLOW_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("EXTENTFLOW_LEDGER_URL", f"sqlite:///{tmp_path}/other.db")

    assert run_command_line(app, ["status"]) == 2
    assert f"note: {own.path} records 1 job" in capsys.readouterr().err
