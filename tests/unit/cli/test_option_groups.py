"""Options of a kind as one dataclass, and those that commands share."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from tests.support.memory_runtime import MemoryRuntime
from typer import Option
from typer.main import get_command

from extentflow.cli import app, opening, run_command_line
from extentflow.cli.commands import COMMANDS, FORMER
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.errors import Misconfigured

Capture = pytest.CaptureFixture[str]

# Commands that open no settings: of files, and of an object that is only shown.
WITHOUT_SETTINGS = {("connectors",), ("connectors", "validate")}
# Commands whose options have other groups: they write topics out.
EXPORTS = {("ingest",), ("lake",)}
MOST_PARAMETERS = 6


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - typer keeps their types to itself
    """Yield the commands of the library below one, with their names."""
    for name, child in getattr(command, "commands", {}).items():
        if words or name in COMMANDS:
            yield (*words, name), getattr(child, "imported", child)
            yield from commands(getattr(child, "imported", child), (*words, name))


ALL = dict(commands(get_command(app)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadeOptions:
    shade: Annotated[str, Option("--shade", help="Which.")]
    layers: Annotated[list[str] | None, Option("--layer")] = None


def test_a_group_is_made_of_the_options_that_were_given(capsys: Capture) -> None:
    made: list[object] = []
    line = typer.Typer()

    @line.command()
    @expand_options
    def paint(wall: str, *, shades: ShadeOptions, twice: bool = False) -> None:
        """Paint a wall."""
        made.append((wall, shades, twice))

    code = run_command_line(line, ["north", "--layer", "a", "--layer", "b", "--shade", "red"])
    missing = run_command_line(line, ["north"])

    assert (code, missing) == (0, 2)
    assert made == [("north", ShadeOptions(shade="red", layers=["a", "b"]), False)]
    assert "Missing option '--shade'" in capsys.readouterr().err


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_a_short_option_for_help(words: tuple[str, ...], capsys: Capture) -> None:
    assert run_command_line(app, [*words, "-h"]) == 0
    short = capsys.readouterr().out
    assert run_command_line(app, [*words, "--help"]) == 0

    assert short == capsys.readouterr().out
    assert f" {' '.join(words)} " in short.partition("\n")[0]


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_argument_and_option_has_a_text(words: tuple[str, ...]) -> None:
    assert [one.name for one in ALL[words].params if not getattr(one, "help", "")] == []


@pytest.mark.parametrize("words", sorted(ALL.keys() - WITHOUT_SETTINGS - EXPORTS), ids=" ".join)
def test_every_command_that_opens_settings_takes_brokers_and_a_ledger(
    words: tuple[str, ...],
) -> None:
    options = {option for one in ALL[words].params for option in one.opts}

    assert {"--bootstrap-servers", "--ledger"} <= options


@pytest.mark.parametrize("words", sorted(ALL.keys() - EXPORTS), ids=" ".join)
def test_a_command_has_few_parameters(words: tuple[str, ...]) -> None:
    callback = ALL[words].callback
    declared = getattr(callback, "__wrapped__", None)
    declared = getattr(declared, "__wrapped__", declared)
    code = getattr(declared, "__code__", None)

    assert code is None or code.co_argcount + code.co_kwonlyargcount <= MOST_PARAMETERS


def test_options_for_servers_go_over_all_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    """Also where the settings name a ledger in DynamoDB, by other keys than its URL."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EXTENTFLOW_LEDGER_TABLE", "elsewhere")
    monkeypatch.setenv("EXTENTFLOW_BOOTSTRAP_SERVERS", "elsewhere:1")
    given = ServerOptions(bootstrap_servers="here:9092", ledger=f"sqlite:///{tmp_path}/l.db")

    settings = opening.open_runtime(given).settings

    assert settings.bootstrap_servers == "here:9092"
    assert settings.ledger is not None
    assert settings.ledger.url == given.ledger
    assert capsys.readouterr().err == ""


def test_a_ledger_that_cannot_be_read_is_named_by_its_option() -> None:
    given = ServerOptions(bootstrap_servers="here:9092", ledger="http://here")

    with pytest.raises(Misconfigured, match="--ledger="):
        opening.open_runtime(given)


def test_a_command_uses_the_ledger_of_its_option(tmp_path: Path, capsys: Capture) -> None:
    ledger = f"sqlite:///{tmp_path}/absent.db"
    words = ["--bootstrap-servers", "127.0.0.1:1", "--ledger", ledger]

    assert run_command_line(app, ["connectors", "list", *words]) == 2

    assert capsys.readouterr().err.startswith(f"error: ledger {ledger}: it does not exist")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Calls of the services of dead letters."""
    calls: list[tuple[object, ...]] = []

    class Found:
        records = filtered = discarded = bad = left = 0
        moved: tuple[object, ...] = ()
        reasons: tuple[str, ...] = ()

    def redrive(_submissions: object, job: str | None, **words: object) -> Found:
        calls.append((job, words))
        return Found()

    def replay(queue: Any, repairs: Path | None, **words: object) -> Found:  # noqa: ANN401
        calls.append((queue.connector, repairs, words))
        return Found()

    monkeypatch.setattr("extentflow.cli.opening.open_runtime", lambda *_, **__: MemoryRuntime())
    monkeypatch.setattr("extentflow.services.submissions.Submissions.redrive", redrive)
    monkeypatch.setattr("extentflow.services.dead_letter_queues.DeadLetterQueue.replay", replay)
    return calls


@pytest.mark.parametrize(
    ("former", "now"),
    [
        (["replay", "--dlq"], ["redrive"]),
        (["replay", "0123", "--dlq", "--since", "2h"], ["redrive", "0123", "--since", "2h"]),
        (["replay", "--dlq", "--dry-run"], ["redrive", "--dry-run"]),
        (["replay", "--dead-letters", "-c", "c"], ["replay-dead-letters", "-c", "c"]),
        (
            ["replay", "-c", "c", "--accept-duplicates", "--dead-letters"],
            ["replay-dead-letters", "-c", "c", "--accept-duplicates"],
        ),
    ],
    ids=" ".join,
)
def test_a_former_spelling_does_the_same_and_names_the_new_one(
    former: list[str], now: list[str], called: list[tuple[object, ...]], capsys: Capture
) -> None:
    assert run_command_line(app, now) == 0
    expected = capsys.readouterr()
    assert run_command_line(app, former) == 0

    shown = capsys.readouterr()
    first, second = called
    assert first == second
    assert shown.out == expected.out
    hint = shown.err.removesuffix(expected.err)
    assert hint.count("\n") == 1
    assert hint.startswith("note: `extentflow replay --d")
    assert f"is now `extentflow {now[0]}`" in hint


def test_every_former_spelling_leads_to_a_command() -> None:
    assert set(FORMER.values()) <= set(COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "-c", "a", "-c", "b"],
        ["stream", "-c", "a", "--connector", "b"],
        ["run", "x", "--topic", "a", "--topic=b"],
        ["connectors", "show", "a", "--revision", "1", "--revision", "2"],
    ],
    ids=" ".join,
)
def test_a_second_value_of_an_option_that_takes_one_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Trap: the first value was dropped without a word, and its connector was not delivered."""
    assert run_command_line(app, words) == 2
    assert "is given 2 times; give it once" in capsys.readouterr().err
