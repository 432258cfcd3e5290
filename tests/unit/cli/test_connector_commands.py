"""`extentflow connectors validate`: every problem at once, without servers or settings."""

import io
import json
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow.cli import app, run_command_line

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


def test_one_name_in_several_files_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        file.write_text(json.dumps(GOOD), encoding="utf-8")

    assert run_command_line(app, ["connectors", "validate", *map(str, files)]) == 2

    golden(capsys.readouterr().err)
