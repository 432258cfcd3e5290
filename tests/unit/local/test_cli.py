"""The commands around a stack that does not run; with servers they are tested under integration."""

import json
from pathlib import Path

from typer.testing import CliRunner

from extentflow.errors import Misconfigured
from extentflow_local.cli import app
from extentflow_local.stack.stack import SERVICES


def test_a_stack_that_does_not_run_is_shown_as_stopped(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["stack", "--dir", str(tmp_path)])

    assert result.exit_code == 0
    assert result.stdout.count("stopped") == len(SERVICES)
    assert "export" not in result.stdout


def test_paths_are_not_broken_where_the_output_is_piped(tmp_path: Path) -> None:
    root = tmp_path / ("a folder with a long name" * 5)

    result = CliRunner().invoke(app, ["stack", "--dir", str(root)])

    lines = [line for line in result.stdout.splitlines() if str(root) in line]
    assert len(lines) == len(SERVICES)
    assert all(line.rstrip().endswith(".log") for line in lines)


def test_programs_get_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["stack", "--json", "--dir", str(tmp_path)])

    assert json.loads(result.stdout) == {"services": {}, "environment": {}}


def test_down_reports_that_nothing_ran(tmp_path: Path) -> None:
    people = CliRunner().invoke(app, ["down", "--dir", str(tmp_path)])
    programs = CliRunner().invoke(app, ["down", "--json", "--dir", str(tmp_path)])

    assert people.stdout.startswith(
        f"no service of the stack runs in {tmp_path}; start it there with"
    )
    assert json.loads(programs.stdout) == {"stopped": []}


def test_an_unknown_service_is_left_to_the_main_command_line_to_report(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["up", "kafak", "--dir", str(tmp_path)])

    assert isinstance(result.exception, Misconfigured)
    assert "kafka, s3, dynamodb, sqs, aws" in str(result.exception)
