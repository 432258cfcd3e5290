"""Every command reports wrong worker settings before it does anything else."""

from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.cli import app, run_command_line

COMMANDS = [
    ["init"],
    ["doctor"],
    ["plan", "-c", "orders"],
    ["run", "-c", "orders"],
    ["replay", "abc"],
]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.delenv("EXTENTFLOW_CONFIG", raising=False)
    monkeypatch.delenv("EXTENTFLOW_BOOTSTRAP_SERVERS", raising=False)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_command_without_settings_names_the_missing_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert run_command_line(app, arguments) == 2

    out, err = capsys.readouterr()
    assert out == ""
    golden(err)
    assert "bootstrap.servers" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "abc"],
        ["dismiss", "abc"],
        ["connectors", "list"],
        ["connectors", "show", "orders"],
        ["pause", "orders"],
    ],
    ids=" ".join,
)
def test_a_command_that_asks_no_broker_needs_none(
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    code = run_command_line(app, arguments)

    err = capsys.readouterr().err
    assert code == 2  # of the missing ledger, or connector
    assert "bootstrap.servers" not in err
    assert ("there is no connector orders" if arguments[0] == "pause" else "no ledger yet") in err


def test_all_wrong_settings_are_named_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    monkeypatch.setenv("EXTENTFLOW_BOOTSTRAP_SERVERS", "nowhere")
    monkeypatch.setenv("EXTENTFLOW_LEASE_SECONDS", "soon")
    monkeypatch.setenv("EXTENTFLOW_LEASE_SECOND", "3")

    assert run_command_line(app, ["status"]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    golden(lines[0])
    assert "EXTENTFLOW_LEASE_SECOND" in lines[0]
    assert {line.split("=")[0] for line in lines[1:]} == {
        "error: EXTENTFLOW_BOOTSTRAP_SERVERS",
        "error: EXTENTFLOW_LEASE_SECONDS",
    }


def test_a_file_of_the_current_folder_is_named_and_counts_only_if_it_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "extentflow.properties"
    path.write_text(
        f"bootstrap.servers=127.0.0.1:1\nledger.url=sqlite:///{tmp_path}/ledger.db\n", "utf-8"
    )
    path.chmod(0o600)

    run_command_line(app, ["connectors", "list"])
    assert capsys.readouterr().err.count(f"using the settings in {path}") == 1

    path.chmod(0o666)
    assert run_command_line(app, ["connectors", "list"]) == 2
    assert f"{path}: everybody may write it" in " ".join(capsys.readouterr().err.split())
