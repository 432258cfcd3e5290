"""`extentflow connectors`: every problem at once, and what is true of a stored connector."""

import io
import json
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.cli import app, output, run_command_line
from extentflow.ledger import LedgerOptions, open_ledger

GOOD = {"name": "orders", "topic": "orders", "aws.s3.bucket.name": "bucket"}
BAD = {
    "name": "two words",
    "tpic": "orders",
    "aws.s3.bucket.name": "s3://bucket",
    "input.format": "cvs",
    "producer.linger.ms": "soon",
    "producer.acks": "1",
    "producer.compression.type": "brotli",
}


def written(tmp_path: Path, config: dict[str, str]) -> str:
    path = tmp_path / "connector.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def test_a_valid_connector_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, GOOD)

    assert run_command_line(app, ["connectors", "validate", file]) == 0

    assert "connector orders is valid" in capsys.readouterr().out


def test_all_problems_are_named_at_once_the_kafka_clients_among_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(app, ["connectors", "validate", written(tmp_path, BAD)]) == 2

    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert all(line.startswith("error: ") for line in lines)
    for name in (*BAD, "topic"):
        assert sum(line.startswith((f"error: {name}:", f"error: {name}=")) for line in lines) == 1


def test_a_variable_that_is_not_set_here_is_named_when_a_connector_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("EXTENTFLOW_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("GRID_KEY", "key")
    monkeypatch.delenv("GRID_SECRET", raising=False)
    keys = {
        "aws.access.key.id": "${env:GRID_KEY}",
        "aws.secret.access.key": "${env:GRID_SECRET}",
    }

    assert run_command_line(app, ["connectors", "put", written(tmp_path, GOOD | keys)]) == 0

    said = capsys.readouterr().err
    assert "connector orders: aws.secret.access.key=${env:GRID_SECRET}: not set here" in said
    assert "GRID_KEY" not in said


def test_programs_get_the_verdict_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = run_command_line(app, ["connectors", "validate", "--json", written(tmp_path, GOOD)])
    valid = json.loads(capsys.readouterr().out)
    bad = run_command_line(app, ["connectors", "validate", "--json", written(tmp_path, BAD)])
    out, err = capsys.readouterr()
    invalid = json.loads(out)

    assert err == ""
    assert (good, valid) == (0, {"valid": True, "problems": [], "name": "orders"})
    assert (bad, invalid["valid"], len(invalid["problems"])) == (2, False, 8)


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("c.txt", b"name=orders", "unknown kind of file"),
        ("c.yaml", b"\xff\xfe", "not UTF-8"),
        ("c.yaml", b"- a list", "no mapping"),
        ("c.json", b'{"name": ', "not JSON"),
        ("c.properties", b"", "name: missing"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    name: str, body: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_bytes(body)

    assert run_command_line(app, ["connectors", "validate", str(file)]) == 2

    assert message in capsys.readouterr().err


def test_an_unreadable_file_is_reported_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.json"
    file.write_bytes(b'{"name": ')

    assert run_command_line(app, ["connectors", "validate", "--json", str(file)]) == 2

    out, err = capsys.readouterr()
    (problem,) = json.loads(out)["problems"]
    assert "not JSON" in problem
    assert err == ""


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    assert run_command_line(app, ["connectors", "put", "no-such.json"]) == 2

    golden(capsys.readouterr().err)


def test_a_directory_is_no_connector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(app, ["connectors", "validate", str(tmp_path)]) == 2

    assert "cannot be read (Is a directory)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", [json.dumps(GOOD), "".join(f"{key}={value}\n" for key, value in GOOD.items())]
)
def test_the_standard_input_is_a_connector(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    assert run_command_line(app, ["connectors", "validate", "-"]) == 0

    assert "-: connector orders is valid" in capsys.readouterr().out


def test_problems_of_several_files_are_named_at_once_and_none_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{name}.json" for name in ("one", "two", "three")]
    bodies = [{**GOOD, "tpic": "x"}, GOOD, {**GOOD, "input.format": "cvs"}]
    for file, body in zip(files, bodies, strict=True):
        file.write_text(json.dumps(body), encoding="utf-8")

    assert run_command_line(app, ["connectors", "put", *map(str, files)]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(".json: ")[0] for line in lines] == [
        f"error: {tmp_path}/one",
        f"error: {tmp_path}/three",
    ]


class Shell:
    """Commands over a ledger of files, without brokers; `out` and `err` are what they wrote."""

    def __init__(self, folder: Path, captured: pytest.CaptureFixture[str]) -> None:
        self.file = written(
            folder,
            {"name": "orders", "topic": "o", "endpoint.type": "localfile", "directory": "/no/such"},
        )
        self._words = ["--ledger", f"sqlite:///{folder}/ledger.db"]
        open_ledger(LedgerOptions(url=f"sqlite:///{folder}/ledger.db")).admin.create()
        self._captured = captured
        self.ledger = open_ledger(LedgerOptions(url=f"sqlite:///{folder}/ledger.db"))

    def run(self, *words: str) -> int:
        code = run_command_line(app, [*words, *self._words])
        self.out, self.err = self._captured.readouterr()
        return code


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXTENTFLOW_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setattr(output.out, "_width", 120)
    return Shell(tmp_path, capsys)


def test_a_stored_connector_is_enabled_and_delivers_nothing_by_itself(
    shell: Shell, golden: Golden
) -> None:
    """Trap: it was called RUNNING, as a connector of Kafka Connect that delivers."""
    codes = [shell.run("connectors", "put", shell.file)]
    golden(shell.out)
    golden(shell.err)
    codes.append(shell.run("connectors", "list"))
    golden(shell.out)
    codes += [shell.run("pause", "orders"), shell.run("connectors", "put", shell.file)]
    golden(shell.out)
    codes += [shell.run("connectors", "put", shell.file, "--json")]
    stored = json.loads(shell.out)
    codes += [shell.run("resume", "orders"), shell.run("connectors", "show", "orders")]

    assert codes == [0] * 7
    assert stored == {"name": "orders", "revision": 1, "state": "PAUSED"}
    assert shell.out.splitlines()[:2] == ["# orders, revision 1, ENABLED", "# no open job"]


def test_a_connector_of_a_command_is_listed_and_shown_as_not_stored(
    shell: Shell, golden: Golden
) -> None:
    shell.ledger.connectors.put("made", {**GOOD, "name": "made"}, listed=False)

    codes = [shell.run("connectors", "list")]
    listed = shell.out
    golden(shell.err)
    codes.append(shell.run("connectors", "list", "--all"))
    golden(shell.out)
    codes.append(shell.run("connectors", "show", "made"))

    assert codes == [0] * 3
    assert "made" not in listed
    assert shell.out.startswith("# made, revision 1, ENABLED, not stored (")


def test_a_value_of_several_lines_is_shown_in_one(shell: Shell) -> None:
    """Trap: the second line looked like a key that the connector does not have."""
    shell.ledger.connectors.put("made", {**GOOD, "name": "made", "object.key": "a\ntopic=b"})

    assert shell.run("connectors", "show", "made") == 0

    assert "object.key=a\\ntopic=b" in shell.out.splitlines()


def test_one_name_in_several_files_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        file.write_text(json.dumps(GOOD), encoding="utf-8")

    assert run_command_line(app, ["connectors", "validate", *map(str, files)]) == 2

    golden(capsys.readouterr().err)
