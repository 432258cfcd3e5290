"""`extentflow peek`: columns, first records and cut of local files, with nothing configured."""

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.golden import Golden

from extentflow.cli import app, run_command_line


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXTENTFLOW_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def peeked(captured: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, object]:
    assert run_command_line(app, ["peek", *words, "--json"]) == code
    found = json.loads(captured.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_first_records_are_shown_as_they_would_be_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.csv").write_text("id,total\n1,9.90\n2,5.00\n3,1.00\n")

    found = peeked(capsys, "orders.csv", "--limit", "2", "--set", "message.key=column:id")

    assert found["columns"] == {"id": "string", "total": "string"}
    assert found["records"] == [
        {"topic": "peek", "key": "1", "value": '{"id":"1","total":"9.90"}'},
        {"topic": "peek", "key": "2", "value": '{"id":"2","total":"5.00"}'},
    ]
    assert (found["format"], found["format_source"]) == ("csv", "extension .csv")
    assert found["extents"] == [[0, 30]]


def test_a_stored_connector_is_shown_with_its_own_keys_and_without_brokers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.csv").write_text("id,total\n1,9.90\n")
    (tmp_path / "shop.properties").write_text(
        f"name=shop\ntopic=sales\nendpoint.type=localfile\ndirectory={tmp_path}/in\n"
        "message.key=column:id\n"
    )
    assert run_command_line(app, ["connectors", "put", "shop.properties"]) == 0
    capsys.readouterr()

    found = peeked(capsys, "-c", "shop")

    assert found["records"] == [
        {"topic": "sales", "key": "1", "value": '{"id":"1","total":"9.90"}'}
    ]
    assert run_command_line(app, ["peek", "-c", "shop", "--topic", "t"]) == 2
    assert "--connector names a stored one" in capsys.readouterr().err
    assert run_command_line(app, ["peek", "-c", "absent"]) == 2
    assert run_command_line(app, ["peek"]) == 2
    assert "give the address of an object, or --connector NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address", ["\u00f6rders.csv", pytest.param(".", marks=pytest.mark.variant)]
)
def test_a_name_that_the_locale_lacks_is_an_error_with_the_variable_that_helps(
    tmp_path: Path, address: str
) -> None:
    (tmp_path / "\u00f6rders.csv").write_text("id\n1\n")
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "extentflow", "peek", address]

    refused = subprocess.run(command, env=plain, capture_output=True, check=False)
    helped = subprocess.run(
        command, env=plain | {"PYTHONUTF8": "1"}, capture_output=True, check=False
    )

    assert refused.returncode == 2
    assert b"names of files as ascii; set PYTHONUTF8=1" in refused.stderr
    assert helped.returncode == 0, helped.stderr


def test_a_folder_of_temporary_files_may_have_any_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n")
    folder = tmp_path / "a b%41:#?@"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    assert peeked(capsys, "orders.csv")["columns"] == {"id": "string"}
    assert list(tmp_path.rglob("*.db")) == list(folder.iterdir()) == []


def test_columns_of_parquet_and_the_cut_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"id": pa.array(range(400), pa.int64()), "name": ["x"] * 400})
    pq.write_table(table, tmp_path / "data", row_group_size=100)

    found = peeked(capsys, "data", "--set", "extent.bytes=1", "--limit", "1", "--topic", "orders")

    assert (found["format"], found["format_source"]) == ("parquet", "content")
    assert found["columns"] == {"id": "int64", "name": "string"}
    assert found["records"] == [{"topic": "orders", "key": None, "value": '{"id":0,"name":"x"}'}]
    assert isinstance(found["extents"], list)
    assert len(found["extents"]) == 4


def test_bytes_that_are_no_text_are_base64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "image").write_bytes(b"\xff\x00")

    found = peeked(capsys, "image", "--set", "input.format=bytes", "--set", "message.key=object")

    assert found["records"] == [{"topic": "peek", "key": "image", "value": {"base64": "/wA="}}]


def test_a_filter_that_drops_everything_shows_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.csv").write_text("id\n" + "1\n" * 100_000)
    drop = (
        *("transforms=drop", "transforms.drop.type=Filter", "transforms.drop.predicate=every"),
        *("predicates=every", "predicates.every.type=TopicNameMatches"),
        "predicates.every.pattern=peek",
    )

    found = peeked(capsys, "orders.csv", *(word for one in drop for word in ("--set", one)))

    assert found["records"] == []
    assert found["filtered"] == found["read"] == 100_000


def test_topics_are_shown_where_transforms_choose_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n2\n")
    router = ("transforms=r", "transforms.r.type=RegexRouter", "transforms.r.regex=pe+k")
    words = [word for one in (*router, "transforms.r.replacement=eu") for word in ("--set", one)]

    assert run_command_line(app, ["peek", "orders.csv", *words]) == 0
    assert capsys.readouterr().out.split().count("eu") == 2

    assert run_command_line(app, ["peek", "orders.csv"]) == 0
    assert "topic" not in capsys.readouterr().out.split()


def test_headers_and_timestamps_are_shown_where_the_connector_sets_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    table = pa.table({"id": [1, 2], "at": pa.array([1_795_680_000_000, None], pa.int64())})
    pq.write_table(table, tmp_path / "orders.parquet")
    settings = ("message.timestamp=column:at", "headers=from=key,number=column:id", "select=id")
    words = ["orders.parquet", *(word for one in settings for word in ("--set", one))]

    found = peeked(capsys, *words)
    assert run_command_line(app, ["peek", *words]) == 0
    shown = " ".join(capsys.readouterr().out.split())

    first = {"topic": "peek", "key": None, "value": '{"id":1}', "timestamp": 1_795_680_000_000}
    second = {"topic": "peek", "key": None, "value": '{"id":2}'}
    assert found["records"] == [
        {**first, "headers": [["from", "orders.parquet"], ["number", "1"]]},
        {**second, "headers": [["from", "orders.parquet"], ["number", "2"]]},
    ]
    assert "key value timestamp (ms) headers" in shown
    golden(shown)
    assert '{"id":1}' in shown


def test_people_see_how_many_records_were_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.csv").write_text("id,state\n1,open\n2,done\n3,done\n")
    drop = (
        *("transforms=drop", "transforms.drop.type=Filter", "transforms.drop.predicate=done"),
        *("predicates=done", "predicates.done.type=Condition"),
        "predicates.done.condition=state = 'done'",
    )

    words = [word for one in drop for word in ("--set", one)]
    assert run_command_line(app, ["peek", "orders.csv", *words]) == 0

    captured = capsys.readouterr()
    assert captured.err == "note: filtered: 2 of the first 3 records\n"
    assert "timestamp" not in captured.out
    assert "headers" not in captured.out


def test_people_get_tables_and_a_word_about_other_objects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b'{"id":1}\n'))

    assert run_command_line(app, ["peek", "*.gz"]) == 0

    out, err = capsys.readouterr()
    assert "a.jsonl.gz: 29 B, format jsonl by extension .jsonl, compression gzip, 1 extent" in out
    assert '{"id":1}' in out
    assert err == "note: the address has more objects; this is the first one\n"


def test_a_line_that_is_an_array_is_one_record_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    (tmp_path / "a.jsonl").write_text('[{"id":1},{"id":2}]\n')

    assert run_command_line(app, ["peek", "a.jsonl"]) == 0
    said = capsys.readouterr().err
    divided = peeked(capsys, "a.jsonl", "--set", "input.format=json")

    golden(said.replace(str(tmp_path), ""))
    assert "is a JSON array" in said
    assert [one["value"] for one in divided["records"]] == ['{"id":1}', '{"id":2}']  # type: ignore[attr-defined]


def test_a_bad_record_is_reported_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.csv").write_text("id,total\n1,9.90\n2\n3,1.00\n")

    assert run_command_line(app, ["peek", "orders.csv"]) == 1

    out, err = capsys.readouterr()
    assert '{"id":"1","total":"9.90"}' in out
    assert "orders.csv" in err
    assert "16" in err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.csv", "no such file or folder"),
        ("notes.xyz", "set input.format"),
        ("empty", "there is no object below"),
    ],
)
def test_what_cannot_be_shown_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    (tmp_path / "notes.xyz").write_text("some words\n")
    (tmp_path / "empty").mkdir()

    assert run_command_line(app, ["peek", name]) == 2

    assert said in capsys.readouterr().err


def test_an_empty_object_has_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.csv").touch()

    found = peeked(capsys, "empty.csv")

    assert (found["records"], found["extents"]) == ([], [])


def test_nothing_stays_behind(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n")

    assert run_command_line(app, ["peek", "orders.csv"]) == 0

    assert [path.name for path in tmp_path.iterdir()] == ["orders.csv"]
