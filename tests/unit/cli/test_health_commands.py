"""How findings are printed."""

import json
from pathlib import Path

import pytest
from tests.support.aws_answers import Client, account, refused
from tests.support.golden import Golden
from tests.support.planned import DEV

from extentflow.cli import app, run_command_line
from extentflow.cli.health_commands import show_findings
from extentflow.services.health import Finding

FINDINGS = [
    Finding("clock", "ok", "+0 s against the ledger's server"),
    Finding("topic", "problem", "t is\nnot there " + "x" * 300, "create it [with] 8 partitions"),
]


def test_a_pipe_gets_a_line_per_check(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    show_findings(FINDINGS, terminal=False)

    golden(*capsys.readouterr().out.splitlines())


def test_a_terminal_gets_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_findings(FINDINGS[:1], terminal=True)

    head, rule, row = (line for line in capsys.readouterr().out.splitlines() if line.strip())
    assert head.split() == ["check", "fact", "what", "to", "do"]
    assert set(rule.strip()) == {"─"}
    assert row.split() == ["clock", "ok", "+0", "s", "against", "the", "ledger's", "server"]


def synthesised(folder: Path) -> None:
    path = folder / "cdk.out" / "extentflow-dev.template.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"Metadata": DEV.metadata(), "Resources": {}}))


@pytest.mark.parametrize("taken", [False, True])
def test_a_stage_is_checked_in_its_own_region_before_its_deployment(
    taken: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers, regions = account("empty"), set()
    if taken:
        answers["s3", "head_bucket"] = refused("403")

    def open_client(service: str, region: str | None = None) -> Client:
        regions.add(region)
        return Client(service, answers)

    monkeypatch.setattr("extentflow.services.account_checks.open_client", open_client)
    monkeypatch.chdir(tmp_path)
    synthesised(tmp_path)

    code = run_command_line(app, ["doctor", "--stage", "dev"])

    said = capsys.readouterr().out
    assert code == (1 if taken else 0)
    assert regions == {"eu-central-1"}
    assert ("choose another name" in said) == taken


@pytest.mark.parametrize("words", [["--stage", "dev"], ["--stage", "dev", "--deployed", "dev"]])
def test_a_stage_that_cannot_be_checked_is_refused(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_command_line(app, ["doctor", *words]) == 2

    golden(capsys.readouterr().err.replace(str(tmp_path), "."))
