"""Sizes, times, tables, one-line errors, JSON and log lines."""

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from extentflow.cli import output
from extentflow.model import JobState, Plan


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
        (0.4, "0 B"),
    ],
)
def test_sizes_have_a_binary_unit(count: float, text: str) -> None:
    assert output.size(count) == text


@pytest.mark.parametrize(
    ("number", "of", "counted", "done"),
    [
        (0, 1, "0 extents", "0 of 1 extent is done"),
        (1, 1, "1 extent", "1 of 1 extent is done"),
        (1, 2, "1 extent", "1 of 2 extents are done"),
        (2_000, 3_000, "2,000 extents", "2,000 of 3,000 extents are done"),
    ],
)
def test_counts_agree_with_what_they_count(number: int, of: int, counted: str, done: str) -> None:
    assert output.counted(number, "extent") == counted
    assert output.done_of(number, of, "extent") == done


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (4.21, "4.2 s"),
        (59.94, "59.9 s"),
        (60, "1:00"),
        (187, "3:07"),
        (3599.9, "59:59"),
        (3600, "1:00:00"),
        (3723, "1:02:03"),
        (360_000, "100:00:00"),
    ],
)
def test_durations_have_the_usual_notation(seconds: float, text: str) -> None:
    assert output.duration(seconds) == text


def test_an_error_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    output.complain("s3://bucket/[key]\nwith a newline and a long tail " + "x" * 500)

    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: s3://bucket/[key] with a newline and a long tail {'x' * 500}\n"


FORGED = "data/\x1b[2J\x9b31m\r\u202ekey\x07"
SHOWN = r"data/\x1b[2J\x9b31m\r\u202ekey\x07"


def test_control_characters_of_a_key_never_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.say(FORGED)
    output.print_table(("object",), [(FORGED + "\nforged",)])
    output.note(FORGED)
    output.complain(FORGED.replace("\r", ""))

    out, err = capsys.readouterr()
    assert out.splitlines()[0] == SHOWN
    assert SHOWN + r"\nforged" in out
    assert err.splitlines() == [f"note: {SHOWN}", f"error: {SHOWN}".replace(r"\r", "")]


def test_log_lines_show_control_characters_escaped() -> None:
    stream = io.StringIO()
    with fresh_logging():
        output.show_logs(debug=False, stream=stream)
        logging.getLogger("extentflow.x").warning("cannot read %s", FORGED)

    assert stream.getvalue() == f"warning: cannot read {SHOWN}\n"


def test_a_table_keeps_what_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("object", "state"), [("s3://bucket/[red]key[/red]", JobState.DONE)])

    out = capsys.readouterr().out
    assert "s3://bucket/[red]key[/red]" in out
    assert "DONE" in out


def test_a_name_between_colons_is_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:shop"

    output.print_table(("object",), [("in/:smile:.csv",)])
    output.say(f"secret {arn}")
    output.note(f"secret {arn}")

    shown = capsys.readouterr()
    assert "in/:smile:.csv" in shown.out
    assert f"secret {arn}" in shown.out
    assert f"secret {arn}" in shown.err


def test_a_long_cell_is_folded_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("object",), [("k" * 10_000,)])

    assert capsys.readouterr().out.count("k") == 10_000


def test_what_is_piped_has_a_row_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    key = "s3://bucket/" + "a key of many words " * 50  # as long as S3 lets it be
    output.print_table(("object", "state"), [(key, JobState.DONE)])

    assert sum(1 for line in capsys.readouterr().out.splitlines() if line.strip()) == 3


def test_programs_get_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"state": JobState.DONE, "plan": Plan(1, 2, 3), "key": "ümläut ☃"})

    out = capsys.readouterr().out
    assert json.loads(out) == {
        "state": "DONE",
        "plan": {
            "target_bytes": 1,
            "count": 2,
            "cursor": 3,
            "covered": -1,
            "cut_version": 1,
            "compression": "",
            "facts": "",
        },
        "key": "ümläut ☃",
    }
    assert out.isascii()


# -- log lines ------------------------------------------------------------------------------------


@contextmanager
def fresh_logging() -> Iterator[None]:
    """Logging of a process without handlers."""
    root = logging.getLogger()
    level, handlers, root.handlers = root.level, root.handlers, []
    yield
    root.handlers = handlers
    root.setLevel(level)


def said(*, debug: bool) -> list[str]:
    """Return what people see of a few log lines."""
    stream = io.StringIO()
    with fresh_logging():
        output.show_logs(debug=debug, stream=stream)
        logging.getLogger("extentflow.delivery.runner").warning("trying again")
        logging.getLogger("extentflow.delivery.runner").debug("details")
        logging.getLogger("extentflow.kafka").critical("FAIL [thrd:main]: connection refused")
        logging.getLogger("py4j.java_gateway").error("There was an exception while executing")
        logging.getLogger("urllib3").warning("pool is full")
        logging.getLogger("botocore").error("something broke")
        logging.getLogger("botocore").debug("headers")
    return stream.getvalue().splitlines()


def test_our_warnings_are_shown_without_those_of_kafka_and_spark_clients() -> None:
    assert said(debug=False) == ["warning: trying again", "error: something broke"]


def test_debugging_shows_the_kafka_clients_lines_too() -> None:
    assert said(debug=True) == [
        "WARNING extentflow.delivery.runner: trying again",
        "DEBUG extentflow.delivery.runner: details",
        "CRITICAL extentflow.kafka: FAIL [thrd:main]: connection refused",
        "ERROR py4j.java_gateway: There was an exception while executing",
        "WARNING urllib3: pool is full",
        "ERROR botocore: something broke",
    ]
