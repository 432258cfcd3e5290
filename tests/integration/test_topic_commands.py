"""`extentflow tail` and `extentflow count` on a real broker: rows, whatever a record holds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.columnar_delivery import numbers, parquet
from tests.support.columnar_topics import Topics, Value, columnar, rows_of
from tests.support.delivery import Delivery
from tests.support.real import run_here

from extentflow.cli import app, run_command_line

if TYPE_CHECKING:
    pass

INCOMPLETE = 1


@dataclass(frozen=True)
class Ended:
    """What a command ended with."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class CommandLine:
    """Commands of this process, with the settings of a delivery."""

    delivery: Delivery
    monkeypatch: pytest.MonkeyPatch
    captured: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Ended:
        with self.monkeypatch.context() as patch:
            for name, text in self.delivery.environment.items():
                if name.startswith("EXTENTFLOW_"):
                    patch.setenv(name, text)
            self.captured.readouterr()
            code = run_command_line(app, words)
        return Ended(code, *self.captured.readouterr())

    def counted(self, *words: str) -> dict[str, Any]:
        ended = self("count", *words, "--json")
        assert ended.out, ended.err
        return {**json.loads(ended.out), "code": ended.code}


@pytest.fixture
def line(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    assert delivery.runtime.ledger.id
    return CommandLine(delivery, monkeypatch, capsys)


def write(delivery: Delivery, values: Sequence[Value], topic: str = "") -> str:
    topic = topic or delivery.topic
    Topics(delivery.settings.bootstrap_servers).write({topic: values})
    return topic


def in_json(start: int, end: int) -> list[Value]:
    return [Value(n % 4, b'{"id":%d,"even":%d}' % (n, n % 2 == 0)) for n in range(start, end)]


@pytest.mark.parametrize("encoding", ["arrow", pytest.param("parquet", marks=pytest.mark.variant)])
def test_tail_shows_the_last_rows_of_columnar_values(line: CommandLine, encoding: str) -> None:
    topic = write(line.delivery, [columnar(rows_of(0, 50), 1, encoding=encoding)])
    # Later, so that it is the last one whatever its partition.
    write(line.delivery, [columnar(rows_of(50, 55), 0, encoding=encoding)])

    last, seven = line("tail", topic, "-n", "1"), line("tail", topic, "-n", "7")
    placed = line("tail", topic, "-n", "6", "--json")
    some = line("tail", topic, "-n", "2", "--column", "id")
    every = line("tail", topic, "-n", "1000")

    assert last.lines == [{"id": 54, "text": "row 54"}]
    assert [row["id"] for row in seven.lines] == [48, 49, 50, 51, 52, 53, 54]
    assert [(one["partition"], one["offset"], one["row"]) for one in placed.lines] == [
        (1, 0, 49),
        *((0, 0, row) for row in range(5)),
    ]
    assert json.loads(placed.lines[-1]["value"]) == {"id": 54, "text": "row 54"}
    assert some.lines == [{"id": 53}, {"id": 54}]
    assert [row["id"] for row in every.lines] == [*range(55)]
    assert {ended.code for ended in (last, seven, placed, some, every)} == {0}


def test_tail_shows_the_first_rows_where_they_are_asked_for(line: CommandLine) -> None:
    topic = write(line.delivery, [columnar(rows_of(0, 50), 1), columnar(rows_of(50, 90), 1)])

    first = line("tail", topic, "--from-beginning", "-n", "52", "--column", "id")

    assert [row["id"] for row in first.lines] == [*range(52)]


@pytest.mark.long
def test_tail_shows_values_of_rows_as_they_are(line: CommandLine) -> None:
    topic = write(line.delivery, [*in_json(0, 200), Value(0, b"no JSON \xff")])

    shown = line("tail", topic, "-n", "300")
    some = line("tail", topic, "-n", "8")
    placed = line("tail", topic, "-n", "300", "--json").lines

    assert len(shown.out.splitlines()) == 201
    assert '{"id":7,"even":0}' in shown.out
    assert "no JSON \\xff" in shown.out
    assert len(some.out.splitlines()) == 8
    assert sum(isinstance(one["value"], dict) for one in placed) == 1
    assert line("count", topic).out.startswith(f"topic {topic}: 201 rows in 201 Kafka records")


@pytest.mark.long
def test_topics_without_rows_and_without_existence(line: CommandLine) -> None:
    topic, absent = line.delivery.topic, f"absent-{line.delivery.name}"

    empty, beginning = line("tail", topic), line("tail", topic, "--from-beginning")
    counted = line.counted(topic)
    keyed = line.counted(topic, "--key", "id")

    note = f"note: topic {topic} has no committed record\n"
    assert (empty.code, empty.out, empty.err) == (0, "", note)
    assert (beginning.code, beginning.out, beginning.err) == (0, "", note)
    assert (counted["code"], counted["rows"], counted["records"]) == (0, 0, 0)
    assert (keyed["distinct"], keyed["doubled"]) == (0, 0)
    for words in (("tail", absent), ("count", absent), ("tail", absent, "--from-beginning")):
        ended = line(*words)
        assert (ended.code, ended.out) == (2, "")
        assert f"topic {absent} does not exist" in ended.err
        assert "--create-topic" not in ended.err


@pytest.mark.variant
def test_topics_of_column_groups_are_named_where_the_base_is_asked_for(line: CommandLine) -> None:
    base = line.delivery.name
    names = [line.delivery.make_topic(f"{base}.{group}", 1) for group in ("b", "a")]

    ended = [
        line(*words)
        for words in (("tail", base), ("count", base, "--verify", line.delivery.address))
    ]

    for one in ended:
        assert (one.code, one.out) == (2, "")
        assert f"there are topics {', '.join(sorted(names))}" in one.err


def test_rows_and_doubled_keys_are_counted(line: CommandLine) -> None:
    values = [columnar(rows_of(0, 50), 1), columnar(rows_of(40, 60), 2), *in_json(55, 65)]
    topic = write(line.delivery, values)

    plain, keyed = line.counted(topic), line.counted(topic, "--key", "id")

    assert (plain["rows"], plain["records"], plain["partitions"]) == (80, 12, 4)
    assert plain["distinct"] is None
    assert (keyed["distinct"], keyed["doubled"]) == (65, 15)
    for words in (("count", topic, "--key", "absent"), ("tail", topic, "--column", "absent")):
        ended = line(*words)
        assert (ended.code, ended.out) == (2, "")
        assert "no column absent; the value has only id, " in ended.err


def arranged(line: CommandLine, **config: str) -> tuple[str, str, str]:
    """Deliver an object of two; return the topic and the addresses of both."""
    delivery = line.delivery
    own = {key.replace("__", "."): text for key, text in config.items()}
    first = delivery.put("a.parquet", parquet(numbers(0, 500)))
    delivery.connector(own)
    assert run_here(delivery).ok
    second = delivery.put("b.parquet", parquet(numbers(500, 700)))
    root = f"s3://{delivery.bucket}/"
    return delivery.topic, root + first, root + second


@pytest.mark.long
@pytest.mark.parametrize(
    "encoding",
    [*(pytest.param(one, marks=pytest.mark.variant) for one in ("none", "arrow")), "parquet"],
)
def test_rows_are_verified_against_objects(line: CommandLine, encoding: str) -> None:
    topic, first, second = arranged(line, columnar__encoding=encoding)
    connector = ("--connector", line.delivery.connector_name)

    equal = line.counted(topic, "--verify", first, *connector)
    lacking = line.counted(topic, "--verify", first, "--verify", second, *connector)
    shown = line("count", topic, "--verify", first, "--verify", second, *connector)
    endpoint = f"aws.s3.endpoint={line.delivery.stack.endpoint('s3')}"
    otherwise = line("count", topic, "--verify", first, "--set", endpoint, "--set", "select=id")
    assert run_here(line.delivery).ok
    others = line.counted(topic, "--verify", first, *connector)
    both = line.counted(topic, "--verify", line.delivery.address, *connector)
    assert run_here(line.delivery, again=True).ok
    doubled = line.counted(topic, "--verify", line.delivery.address, *connector)

    assert (equal["code"], equal["equal"], equal["expected"]) == (0, True, 500)
    assert (lacking["code"], lacking["missing"], lacking["unexpected"]) == (INCOMPLETE, 200, 0)
    assert shown.code == INCOMPLETE
    assert "DIFFERENT" in shown.out
    assert "200 missing" in shown.out
    assert "no row is equal" in otherwise.err
    if encoding == "none":  # such a topic must hold these objects only
        assert (others["code"], others["unexpected"]) == (INCOMPLETE, 200)
    else:
        assert (others["code"], others["others"]) == (0, 200)
    assert (both["code"], both["expected"], both["found"]) == (0, 700, 700)
    assert (doubled["code"], doubled["missing"], doubled["unexpected"]) == (INCOMPLETE, 0, 700)


@pytest.mark.variant
def test_an_address_is_enough_to_verify_columnar_values(line: CommandLine) -> None:
    """It needs no encoding, stores no connector, and says nothing about deliveries."""
    topic, first, _ = arranged(line, columnar__encoding="parquet")
    write(line.delivery, [Value(0, b'{"id":1}')])
    endpoint = ("--set", f"aws.s3.endpoint={line.delivery.stack.endpoint('s3')}")

    ended = line("count", topic, "--verify", first, *endpoint)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        f"equal: 500 rows in 1 object, 500 of them in topic {topic}, each once; 1 row whose object"
        " no header names\n"
    )
    names = [one.name for one in line.delivery.runtime.ledger.connectors.list(deleted=True)]
    assert names == [line.delivery.connector_name]


@pytest.mark.long
def test_all_columns_of_an_object_are_verified(line: CommandLine) -> None:
    """Where the topic begins with an object of fewer columns."""
    delivery = line.delivery
    delivery.put("a.parquet", parquet(numbers(0, 100).select(["id"])))
    delivery.connector({"columnar.encoding": "arrow"})
    assert run_here(delivery).ok
    later = delivery.put("b.parquet", parquet(numbers(100, 200)))
    assert run_here(delivery).ok
    uri = f"s3://{delivery.bucket}/{later}"
    connector = ("--connector", delivery.connector_name)
    assert line.counted(delivery.topic, "--verify", uri, *connector)["code"] == 0

    # The same ids, other values of another column.
    other = numbers(100, 200).set_column(1, "text", pa.array(["changed"] * 100))
    delivery.put("b.parquet", parquet(other))

    found = line.counted(delivery.topic, "--verify", uri, *connector)
    assert (found["code"], found["missing"]) == (INCOMPLETE, 100)


def test_options_that_exclude_each_other_are_errors(line: CommandLine) -> None:
    topic = line.delivery.topic

    for words in (
        ("tail", topic, "--follow", "--from-beginning"),
        ("count", topic, "--connector", "x"),
        ("count", topic, "--key", "id", "--verify", "s3://b/k"),
        ("count", topic, "--verify", f"{line.delivery.address}absent", "--connector", "absent"),
        ("tail", topic, "-n", "0"),
    ):
        assert line(*words).code == 2, words
