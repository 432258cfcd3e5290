"""The list of commands: what it says, and what help and completion import."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.support.golden import Golden
from typer.main import get_command, get_group

from extentflow import cli
from extentflow.cli import app, run_command_line
from extentflow.cli.commands import (
    CHECKOUT_COMMANDS,
    COMMANDS,
    LOCAL,
    PACKAGES,
    CommandLine,
    DeferredCommand,
)
from extentflow.errors import Misconfigured
from extentflow.plugins import EntryPoint, Registry

CLI = Path(cli.__file__).parent
HEAVY = {"boto3", "botocore", "confluent_kafka", "numpy", "pyarrow", "pyspark", "sqlalchemy"}

# One process for all, because each takes a third of a second to start.
SHOWN_AND_IMPORTED = """
import contextlib, io, json, os, sys
from extentflow.cli import main

calls, imported = json.loads(sys.argv[1]), {}
for words, completed in calls:
    sys.argv = ["extentflow", *words]
    os.environ.pop("_EXTENTFLOW_COMPLETE", None)
    if completed is not None:
        line = completed.split(" ")
        os.environ |= {
            "_EXTENTFLOW_COMPLETE": "complete_bash",
            "COMP_WORDS": completed,
            "COMP_CWORD": str(len(line) - 1),
        }
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            main()
        except SystemExit as error:
            assert not error.code, (words, completed, error.code)
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & set(HEAVY))
    imported[" ".join([*words, *([completed] if completed else [])])] = [shown.getvalue(), loaded]
print(json.dumps(imported))
"""

greeting, greeting_too, planning = typer.Typer(), typer.Typer(), typer.Typer()


@greeting.command("greet")
@greeting_too.command("greet")
@planning.command("plan")
def _greet() -> None:
    """Greet, at some length, so that a list of commands writes it on more than one line.

    More of it.
    """


def installed(*names: str) -> Registry[typer.Typer]:
    """Return a registry of packages that add commands: objects of this module."""
    entries = [EntryPoint(name, f"{__name__}:{name}", "extentflow-acme 1") for name in names]
    return Registry("example.commands", "command line", find=lambda _: entries)


def first_paragraph(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def command_lines(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 - typer keeps their types to itself
    yield words
    for name, child in getattr(command, "commands", {}).items():
        yield from command_lines(getattr(child, "imported", child), (*words, name))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_help_of_a_command_says(name: str) -> None:
    command = DeferredCommand(name, COMMANDS[name])

    assert command.imported.name == name
    assert COMMANDS[name].summary == first_paragraph(command.imported.help)


def test_help_and_completion_import_no_client_and_no_arrow() -> None:
    whole: Any = get_command(app)
    helps = [[[*words, "--help"], None] for words in command_lines(whole)]
    completions = ["extentflow ", "extentflow connectors ", "extentflow run --"]
    calls = [[["--version"], None], *helps, *([[], line] for line in completions)]

    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            SHOWN_AND_IMPORTED.replace("HEAVY", repr(HEAVY)),
            json.dumps(calls),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert {words: heavy for words, (_, heavy) in found.items() if heavy} == {}
    assert {"run --help", "connectors put --help", "dead-letters --help"} <= set(found)
    assert "Usage: extentflow run [OPTIONS]" in found["run --help"][0]
    assert {"run", "up"} <= set(found["extentflow "][0].split())
    assert set(found["extentflow connectors "][0].split()) == {
        *("delete", "list", "put", "show", "validate")
    }
    assert "--bootstrap-servers" in found["extentflow run --"][0].split()


def test_a_package_adds_commands_which_the_help_lists_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line: Any = CommandLine(
        name="extentflow", packages=installed("greeting"), rich_markup_mode=None
    )

    assert line.list_commands(None) == [*COMMANDS, "greet"]
    with pytest.raises(SystemExit):
        line(["--help"])

    shown = " ".join(capsys.readouterr().out.split())
    assert shown.endswith("that a list of commands writes it on more than one line.")


@pytest.mark.parametrize(
    ("added", "wrong"),
    [
        (["planning"], "command 'plan' of the entry point 'planning'"),
        (["greeting", "greeting_too"], "command 'greet' of the entry point 'greeting_too'"),
    ],
)
def test_two_commands_of_one_name_are_an_error(added: list[str], wrong: str) -> None:
    line: Any = CommandLine(name="extentflow", packages=installed(*added))

    with pytest.raises(Misconfigured, match=wrong):
        line.list_commands(None)


@pytest.mark.parametrize("name", ["up", "down", "stack", "serve"])
def test_a_command_of_the_local_stack_names_the_checkout_where_that_is_not_installed(
    name: str, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    class Without(CommandLine):
        def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - typer's
            super().__init__(packages=installed("greeting"), **attributes)

    without = typer.Typer(cls=Without)
    without.callback()(lambda: None)

    assert run_command_line(without, [name, "--aws"]) == 2

    golden(capsys.readouterr().err)


def test_every_command_of_the_local_stack_is_known_by_name() -> None:
    assert set(get_group(PACKAGES.get(LOCAL)).commands) == CHECKOUT_COMMANDS


def test_a_broken_package_leaves_the_commands_of_the_library() -> None:
    line: Any = CommandLine(name="extentflow", packages=installed("no_such_object"))

    assert isinstance(line.get_command(None, "run"), DeferredCommand)
    with pytest.raises(Misconfigured, match="extentflow-acme 1"):
        line.get_command(None, "greet")


def test_every_module_of_commands_is_named_so_and_no_other_one() -> None:
    declaring = {entry.reference.partition(":")[0] for entry in COMMANDS.values()}

    named = {f"extentflow.cli.{path.stem}" for path in CLI.glob("*_commands.py")}

    assert declaring == named
