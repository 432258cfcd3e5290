"""Every command reports wrong worker settings before it does anything else."""

import pytest
from tests.support.golden import Golden

from extentflow.cli import app, run_command_line

COMMANDS = [
    ["init"],
    ["doctor"],
    ["status"],
    ["status", "abc"],
    ["plan", "-c", "orders"],
    ["run", "-c", "orders"],
    ["replay", "abc"],
    ["connectors", "list"],
    ["connectors", "show", "orders"],
    ["connectors", "delete", "orders"],
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
