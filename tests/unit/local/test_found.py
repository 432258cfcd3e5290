"""The stack that commands use where nothing is configured. Its servers are records of live ones."""

import json
import os
from pathlib import Path

import pytest
from tests.support.golden import Golden
from typer.testing import CliRunner

from extentflow.config.ledgers import LedgerAddress
from extentflow.errors import Misconfigured
from extentflow.ledger import LedgerOptions, open_ledger
from extentflow.model import Job, ObjectVersion, Plan, job_id
from extentflow.wiring.environments import FoundServers
from extentflow_local.cli import app
from extentflow_local.found import running_stack
from extentflow_local.stack.processes import birth_of
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.servers.postgres import Postgres
from extentflow_local.stack.stack import LEDGER_ENDPOINT, LEDGER_URL, Stack


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EXTENTFLOW_LOCAL_STACK", "")
    monkeypatch.delenv("EXTENTFLOW_LOCAL_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def running(folder: Path, **ports: int) -> None:
    """Record that services run, as processes that are alive."""
    for name, port in ports.items():
        directory = folder / "var" / name
        directory.mkdir(parents=True)
        facts = {"pid": os.getpid(), "birth": birth_of(os.getpid()), "ports": {name: port}}
        (directory / "process.json").write_text(json.dumps(facts))


def record_a_job(stack: Stack) -> None:
    stack.create_ledger()
    ledger = open_ledger(LedgerOptions(url=LedgerAddress.of_file(stack.ledger).url))
    version = ObjectVersion("shop", "a.csv", None, "etag", 1)
    ledger.jobs.register(Job(job_id("c", version), "c", 1, version, "csv", "cluster", Plan(1)))


def found(folder: Path) -> FoundServers:
    servers = running_stack()
    assert servers is not None
    assert servers.name == f"the local stack of {folder}"
    return servers


def test_a_stack_without_dynamodb_has_a_file_as_its_ledger(folder: Path, golden: Golden) -> None:
    running(folder, kafka=19092, s3=18333)
    stack = Stack(folder)
    assert LEDGER_URL not in stack.environment()  # until it is created

    stack.create_ledger()
    servers = found(folder)

    assert servers.variables["EXTENTFLOW_BOOTSTRAP_SERVERS"] == "127.0.0.1:19092"
    assert servers.variables[LEDGER_URL] == f"sqlite:///{folder}/var/ledger.db"
    golden(servers.parts)
    assert "127.0.0.1:19092" in servers.parts
    assert servers.switch == "EXTENTFLOW_LOCAL_STACK=off"


def test_the_database_of_a_service_is_the_ledger_although_there_is_a_file(folder: Path) -> None:
    """Trap: after `make demo`, `make demo-onprem` connected to PostgreSQL at the file's address."""
    running(folder, kafka=19092, postgres=15432)
    stack = Stack(folder, services=(Kafka(), Postgres()))
    Stack(folder).create_ledger()

    assert stack.environment()[LEDGER_URL].startswith("postgresql://")


def test_while_dynamodb_runs_it_is_the_ledger(folder: Path) -> None:
    running(folder, kafka=19092, dynamodb=18000)

    Stack(folder).create_ledger()
    servers = found(folder)

    assert not Stack(folder).ledger.exists()
    assert LEDGER_URL not in servers.variables
    assert servers.variables[LEDGER_ENDPOINT] == "http://127.0.0.1:18000"
    assert servers.parts == "Kafka 127.0.0.1:19092, ledger DynamoDB"


def test_a_file_with_jobs_is_named_while_dynamodb_is_the_ledger(
    folder: Path, golden: Golden
) -> None:
    running(folder, kafka=19092)
    record_a_job(Stack(folder))

    running(folder, dynamodb=18000)

    golden(found(folder).parts)


@pytest.mark.parametrize("services", [("kafka",), ("kafka", "dynamodb")])
def test_a_shell_that_had_the_other_ledger_gets_one_of_the_two(
    folder: Path, services: tuple[str, ...]
) -> None:
    running(folder, **dict.fromkeys(services, 19092))
    Stack(folder).create_ledger()

    exports = CliRunner().invoke(app, ["stack", "--env"]).stdout.splitlines()
    given = dict(line.removeprefix("export ").split("=", 1) for line in exports)

    named = [name for name in (LEDGER_URL, LEDGER_ENDPOINT) if given[name] != "''"]
    assert named == [LEDGER_ENDPOINT if "dynamodb" in services else LEDGER_URL]


def test_a_ledger_that_others_may_write_is_not_used(folder: Path) -> None:
    running(folder, kafka=19092)
    stack = Stack(folder)
    stack.create_ledger()
    stack.ledger.chmod(0o666)

    with pytest.raises(Misconfigured, match=r"ledger\.db: everybody may write it"):
        running_stack()


def test_a_stack_whose_kafka_does_not_run_is_not_used(folder: Path) -> None:
    assert running_stack() is None
    running(folder, s3=18333)
    (folder / "var" / "kafka").mkdir()

    assert running_stack() is None


def test_a_stopped_stack_whose_ledger_records_jobs_is_named(folder: Path) -> None:
    """Trap: another ledger, which has no jobs, was shown without a word."""
    (folder / "var" / "kafka").mkdir(parents=True)
    record_a_job(Stack(folder))

    servers = found(folder)

    assert servers.variables == {}
    assert "records 1 job; `extentflow up` starts it" in servers.parts


def test_a_variable_switches_the_stack_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(folder, kafka=19092)
    assert running_stack() is not None

    monkeypatch.setenv("EXTENTFLOW_LOCAL_STACK", "off")

    assert running_stack() is None
