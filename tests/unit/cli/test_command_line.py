"""Exit codes and the format of errors, for any command."""

import importlib.metadata
from collections.abc import Callable

import pytest
import typer
from tests.support.golden import Golden

from extentflow.cli import app, commands, run_command_line
from extentflow.errors import (
    AccessDenied,
    Conflict,
    LedgerUnavailable,
    Misconfigured,
    ObjectGone,
    SinkUnavailable,
)
from extentflow.plugins import Registry

Capture = pytest.CaptureFixture[str]


def application(command: Callable[[], object]) -> typer.Typer:
    """Return a command line whose `go` does that, and another one beside it."""
    made = typer.Typer(no_args_is_help=True)
    made.command("go")(command)
    made.command("other")(lambda: None)
    return made


def raising(error: BaseException) -> typer.Typer:
    def command() -> None:
        raise error

    return application(command)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Misconfigured("no topic"), 2),
        (ObjectGone("no bucket"), 2),
        (AccessDenied("no permission"), 2),
        (Conflict("another cluster"), 2),
        (SinkUnavailable("no broker"), 1),
        (LedgerUnavailable("no table"), 1),
    ],
)
def test_an_extentflow_error_is_one_line_and_its_class_sets_the_code(
    error: Exception, code: int, capsys: Capture
) -> None:
    assert run_command_line(raising(error), ["go"]) == code

    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {error}\n")


def test_every_problem_gets_its_line(capsys: Capture) -> None:
    assert run_command_line(raising(Misconfigured(["one", "two"])), ["go"]) == 2

    assert capsys.readouterr().err == "error: one\nerror: two\n"


def test_missing_brokers_are_reported_with_the_local_stack_as_a_way_out(capsys: Capture) -> None:
    error = Misconfigured(["bootstrap.servers: missing; write the Kafka brokers", "another one"])

    assert run_command_line(raising(error), ["go"]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [f"error: {problem}" for problem in error.problems]
    assert "`extentflow up` starts brokers" in "".join(lines[2:])


@pytest.mark.parametrize(
    "error",
    [
        Misconfigured("bootstrap.servers: missing; write the Kafka brokers"),
        SinkUnavailable("localhost:9092: Connect to ipv4#127.0.0.1:9092: Connection refused"),
    ],
)
def test_the_local_stack_is_named_with_the_checkout_where_it_is_not_installed(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: Exception, golden: Golden
) -> None:
    run_command_line(raising(error), ["go"])
    here = capsys.readouterr().err
    monkeypatch.setattr(commands, "PACKAGES", Registry("none", "command", find=lambda _: []))
    run_command_line(raising(error), ["go"])
    elsewhere = capsys.readouterr().err

    assert "`extentflow up` starts " in here
    assert "checkout" not in here
    golden(elsewhere)
    assert "`make setup`" in elsewhere


def test_a_server_that_answers_does_not_lack_the_local_stack(capsys: Capture) -> None:
    error = SinkUnavailable("Kafka at 127.0.0.1:9092: ssl://127.0.0.1: SSL handshake failed")

    assert run_command_line(raising(error), ["go"]) == 1

    assert "note:" not in capsys.readouterr().err


def test_an_unexpected_error_is_one_line_that_names_debug(capsys: Capture, golden: Golden) -> None:
    assert run_command_line(raising(ZeroDivisionError("by zero")), ["go"]) == 1

    golden(capsys.readouterr().err)


@pytest.mark.parametrize("arguments", [["--debug", "go"], ["go", "--debug"]])
@pytest.mark.parametrize(
    ("error", "code"), [(Misconfigured("no topic"), 2), (ZeroDivisionError("by zero"), 1)]
)
def test_debugging_shows_the_trace_before_the_same_line_and_code(
    arguments: list[str], error: Exception, code: int, capsys: Capture
) -> None:
    assert run_command_line(raising(error), arguments) == code

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith("error: ")
    assert str(error) in lines[-1]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_an_interrupt_is_130(error: BaseException) -> None:
    assert run_command_line(raising(error), ["go"]) == 130


@pytest.mark.parametrize("code", [0, 1, 130])
def test_a_command_decides_its_own_code(code: int) -> None:
    assert run_command_line(raising(typer.Exit(code)), ["go"]) == code


def test_a_command_that_returns_is_0() -> None:
    assert run_command_line(application(lambda: "anything"), ["go"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus'; `"),
        (["run"], "give --topic TOPIC, and the command makes a connector of the address, or --c"),
        (["plan"], "Missing option '--connector' / '-c'; `"),
        (["run", "--bogus"], "No such option: --bogus; `"),
        (["tail", "orders", "--count", "3"], "No such option: --count; did you mean --limit? `"),
        (["peek", "a.csv", "--lines", "3"], "No such option: --lines; did you mean --limit? `"),
        (["tail", "a", "--brokers", "b"], "No such option: --brokers; did you mean --bootstrap-s"),
        (["dead-letters", "--limt", "3"], "No such option: --limt; did you mean --limit? `"),
        (["run", "-c", "x", "--cores", "many"], "Invalid value for '--cores': "),
        (["run", "-c", "x", "--cores", "0"], "Invalid value for '--cores': "),
        (["connectors", "put"], "Missing argument "),
        (["connectors", "bogus"], "No such command 'bogus'; `"),
        (["status", "--limit", "x"], "Invalid value for '--limit': "),
        (["status", "--limit", "0"], "Invalid value for '--limit': "),
        (["replay"], "Missing argument "),
        (
            ["run", "a", "--create-topic"],
            "Option '--create-topic' requires an argument; `extentflow r",
        ),
    ],
)
def test_a_misspelled_command_line_is_one_line_that_names_the_help(
    arguments: list[str], message: str, capsys: Capture
) -> None:
    assert run_command_line(app, arguments) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message}")
    assert err.endswith(" --help` shows the usage\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", [["--dry-run"], ["--since", "2h"]])
@pytest.mark.parametrize("what", [["--dead-letters", "-c", "c"], ["-c", "c"], ["job"]])
def test_an_option_of_another_command_is_refused(
    what: list[str], option: list[str], capsys: Capture
) -> None:
    """Trap: `replay --dead-letters --dry-run` delivered."""
    assert run_command_line(app, ["replay", *what, *option]) == 2

    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f"error: No such option: {option[0]}")


@pytest.mark.parametrize("words", [["--dlq"], ["--dead-letters", "--extent", "1"]], ids=" ".join)
def test_a_former_spelling_takes_the_options_of_its_command(
    words: list[str], capsys: Capture
) -> None:
    assert run_command_line(app, ["replay", *words, "-c", "c", "--master", "local"]) == 2

    assert "error: No such option: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["connectors"]])
def test_a_group_without_command_shows_the_help_and_no_error(
    arguments: list[str], capsys: Capture
) -> None:
    assert run_command_line(app, arguments) == 2

    out, err = capsys.readouterr()
    assert "Usage:" in out
    assert err == ""


@pytest.mark.parametrize("command", ["plan", "run", "replay", "status", "init", "doctor"])
def test_every_command_has_help(command: str, capsys: Capture) -> None:
    assert run_command_line(app, [command, "--help"]) == 0

    out = capsys.readouterr().out
    assert "Usage:" in out
    assert "--json" in out


def test_the_version_is_the_installed_one(capsys: Capture) -> None:
    assert run_command_line(app, ["--version"]) == 0

    assert capsys.readouterr().out == f"extentflow {importlib.metadata.version('extentflow')}\n"
