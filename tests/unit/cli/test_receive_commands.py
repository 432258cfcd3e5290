"""`extentflow receive`: mistakes before it listens, and sources that change."""

import json
import logging
from pathlib import Path

import pytest
from tests.support.memory_delivery import Ticker

from extentflow.cli import app, run_command_line
from extentflow.cli.receive_commands import ListenOptions, Responder, SourcesFile
from extentflow.http.requests import HttpRequest
from extentflow.testing.services import MemoryQueue

OPEN = json.dumps([{"open": True}])


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXTENTFLOW_CONFIG", raising=False)
    monkeypatch.setenv("EXTENTFLOW_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("EXTENTFLOW_RECEIVER_OPEN_ALLOWED", "true")
    monkeypatch.setenv("EXTENTFLOW_LEDGER_URL", f"sqlite:///{tmp_path}/ledger.db")
    (tmp_path / "sources.json").write_text(OPEN)


@pytest.mark.parametrize(
    ("arguments", "environment", "reported"),
    [
        (["--sources", "none.json"], {}, "--sources none.json: no such file; correct the path"),
        (
            ["--sources", "sources.json"],
            {"EXTENTFLOW_RECEIVER_OPEN_ALLOWED": "false"},
            "sources: open: a public endpoint needs a proof",
        ),
        (
            ["--sources", "sources.json", "--host", "0.0.0.0"],  # noqa: S104 - refused
            {},
            "sources: open: a public endpoint needs a proof",
        ),
        (
            ["--sources", "sources.json", "--tls-key", "key.pem"],
            {},
            "--tls-key and --tls-client-ca go with --tls-certificate",
        ),
        (
            ["--sources", "sources.json", "--tls-certificate", "sources.json"],
            {},
            "--tls-certificate: sources.json: ",
        ),
        (
            ["--sources", "sources.json"],
            {"EXTENTFLOW_LEDGER_URL": "dynamodb://extentflow"},
            "dynamodb://extentflow keeps no notifications; set ledger.url=postgresql://",
        ),
        (["--sources", "sources.json"], {}, "it does not exist; `extentflow init` creates it"),
    ],
)
def test_a_mistake_is_reported_before_it_listens(
    arguments: list[str],
    environment: dict[str, str],
    reported: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)

    assert run_command_line(app, ["receive", *arguments]) == 2

    assert reported in capsys.readouterr().err


def post() -> HttpRequest:
    return HttpRequest("POST", "/", {}, b'{"Records": []}')


def test_changed_sources_are_used_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, queue = tmp_path / "sources.json", MemoryQueue(Ticker().read)
    answer = Responder(SourcesFile(path, open_allowed=True), queue).answer

    assert answer(post()).status == 200
    path.write_text(json.dumps([{"secret_path": "0123456789abcdef"}]))
    assert answer(post()).status == 403
    path.write_text("[")
    with caplog.at_level(logging.ERROR):
        assert answer(post()).status == 503
    path.unlink()
    assert answer(post()).status == 503
    path.write_text(OPEN)
    assert answer(post()).status == 200

    assert len(queue.messages) == 2
    assert "write a JSON list of objects" in caplog.text


def test_a_notification_is_acknowledged_only_when_it_is_stored(tmp_path: Path) -> None:
    queue = MemoryQueue(Ticker().read)
    answer = Responder(SourcesFile(tmp_path / "sources.json", open_allowed=True), queue).answer
    queue.failures = 1

    assert answer(post()).status == 503
    assert answer(post()).status == 200
    assert len(queue.messages) == 1


def test_responses_are_counted_by_their_class(tmp_path: Path) -> None:
    path = tmp_path / "sources.json"
    responder = Responder(SourcesFile(path, open_allowed=True), MemoryQueue(Ticker().read))

    for _ in range(2):
        responder.answer(post())
    path.write_text(json.dumps([{"secret_path": "0123456789abcdef"}]))
    responder.answer(post())
    path.unlink()
    responder.answer(post())

    lines = responder.metrics.text().splitlines()
    assert [one for one in lines if not one.startswith("#")] == [
        "extentflow_status2xx_total 2.0",
        "extentflow_status4xx_total 1.0",
        "extentflow_status5xx_total 1.0",
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_addresses_of_the_loopback_interface_are_known(host: str) -> None:
    assert ListenOptions(host=host).loopback()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "grid.example.com"])  # noqa: S104 - values
def test_other_addresses_are_on_a_network(host: str) -> None:
    assert not ListenOptions(host=host).loopback()


def test_a_secret_path_in_clear_text_is_noted_once_for_each_content_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sources.json"
    secret, signed = "0123456789abcdef", {"access_key_id": "A", "secret_access_key": "b"}
    noted = f"--sources {path}: secret_path can be read on the network, without TLS; give"

    def notes(*sources: dict[str, str], clear_text: bool = True) -> int:
        path.write_text(json.dumps(sources))
        file = SourcesFile(path, open_allowed=False, clear_text=clear_text)
        for _ in range(2):
            file.read()
        printed = " ".join(capsys.readouterr().err.split())
        assert secret not in printed
        return printed.count(noted)

    assert notes({"secret_path": secret}) == 1
    assert notes({"secret_path": secret}, clear_text=False) == 0
    assert notes(signed) == 0
    assert notes(signed, {"secret_path": secret}) == 1
