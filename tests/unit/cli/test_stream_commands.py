"""`extentflow stream`: wrong options are reported before Spark starts."""

import pytest

from extentflow.cli import app, run_command_line
from extentflow.cli.stream_commands import WRITTEN
from extentflow.spark.query_options import STREAM

NOT_SET = "is not set, which --work=queue needs; give the queue's URL, or --work=listing"
ALL_OR_NONE = "the queue holds every connector's extents, and none of them may be left lying"


def run(*arguments: str) -> int:
    return run_command_line(app, ["stream", *arguments])


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.delenv("EXTENTFLOW_CONFIG", raising=False)
    monkeypatch.setenv("EXTENTFLOW_BOOTSTRAP_SERVERS", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--work", "x"], ["--work='x': write auto, listing or queue"]),
        (
            ["--work", "queue", "-c", "orders"],
            [
                f"extents.queue.url {NOT_SET}",
                f"extents.dlq.url {NOT_SET}",
                f"--connector goes with --work=listing: {ALL_OR_NONE}",
            ],
        ),
        (
            ["--listing-interval-seconds", "1e-9", "--max-seconds-per-trigger", "1e20"],
            [
                "--max-seconds-per-trigger='1e+20': write a number of seconds, 1 or more",
                "--listing-interval-seconds='1e-09': write a number of seconds, 0 or more",
            ],
        ),
        (
            ["--receipts", "parquet"],
            ["--receipts parquet needs --receipts-option path=FOLDER"],
        ),
    ],
)
def test_mistakes_name_options_as_they_were_written(
    arguments: list[str], reported: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2

    assert capsys.readouterr().err.splitlines() == [f"error: {line}" for line in reported]


def test_every_option_of_the_data_source_can_be_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("--help")

    shown = capsys.readouterr().out
    assert {key.name for key in STREAM} - set(WRITTEN) == {"run"}  # every start has another one
    assert all(option in shown for option in WRITTEN.values())
    assert "…" not in shown
