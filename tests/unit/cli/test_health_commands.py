"""How findings are printed."""

import pytest
from tests.support.golden import Golden

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
