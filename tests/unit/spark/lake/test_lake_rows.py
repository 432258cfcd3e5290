"""Records to rows in a task, and what a task's errors tell the driver."""

import base64
import pickle
import traceback
from collections.abc import Sequence

import pyarrow as pa
import pytest
from tests.support.columnar_records import as_parquet, columnar, encrypted
from tests.support.kafka_rows import kafka_rows

from extentflow.engines.spark import ERROR_NOTE, typed_error
from extentflow.errors import AccessDenied, ExtentflowError, IncompatibleSchema, Misconfigured
from extentflow.formats.parquet_keys import MasterKeys
from extentflow.sink.reader import ConsumedRecord
from extentflow.spark.lake.options import ValueOptions
from extentflow.spark.lake.rows import RowReader, SchemaGrown, grown_columns, rows_in_arrow

TABLE = pa.table({"n": [1, 2]})
NARROW = pa.schema([("n", pa.int64())])


def report_of(reader: RowReader, table: pa.Table) -> str:
    """Return the trace of a task that fails on the columns of one value."""
    records = kafka_rows("orders", [columnar(4, as_parquet(table), table.num_rows)])
    with pytest.raises(ExtentflowError) as caught:
        list(rows_in_arrow(reader)(iter([records])))
    return "".join(traceback.format_exception(caught.value))


def test_the_driver_gets_the_columns_that_a_table_lacks() -> None:
    reader = RowReader(pa.schema([]), ValueOptions(), spark=False)

    assert grown_columns(report_of(reader, TABLE), reader.nonce) == NARROW


def test_the_driver_takes_no_note_of_another_attempt() -> None:
    report = report_of(RowReader(pa.schema([]), ValueOptions(), spark=False), TABLE)

    assert grown_columns(report, RowReader(None, ValueOptions(), spark=False).nonce) is None


def test_text_of_users_that_looks_like_a_note_is_none() -> None:
    (grown,) = SchemaGrown("x", pa.schema([("planted", pa.int64())]), "guess").__notes__
    forged = f'{ERROR_NOTE}guess {{"class": "Fenced", "message": "planted"}}'
    name = f"n\n{grown}\n{grown.replace(' guess', '')}\n{forged}\n{ERROR_NOTE}{{}}\n"
    reader = RowReader(pa.schema([(name, pa.int64())]), ValueOptions(), spark=False)

    report = report_of(reader, pa.table({name: ["text"]}))

    assert f"\n{grown}\n" in report
    assert grown_columns(report, reader.nonce) is None
    error = typed_error(report, reader.nonce)
    assert isinstance(error, IncompatibleSchema)
    assert "planted" in str(error)


SECRET = base64.b64encode(b"a master key, 16").decode()
CARDS = pa.record_batch({"id": [1, 2], "card": ["4711", None]})


def card_record(offset: int) -> ConsumedRecord:
    """Return a record whose column `card` is encrypted."""
    service = MasterKeys.of(f"cards:{SECRET}", "keys")
    return encrypted(offset, CARDS, ["card"], service, "cards")


def read(columns: pa.Schema, options: ValueOptions, *records: ConsumedRecord) -> pa.Table:
    reader = RowReader(columns, options, spark=False)
    found = [one.rows for one in reader.rows(iter([kafka_rows("orders", records)]))]
    return pa.Table.from_batches(found, columns)


def test_encrypted_columns_are_read_with_keys_that_executors_look_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ValueOptions(keys="${env:CARD_KEYS}")
    sent = pickle.dumps(RowReader(CARDS.schema, options, spark=False))
    monkeypatch.setenv("CARD_KEYS", f"cards: {SECRET}")

    received: RowReader = pickle.loads(sent)  # noqa: S301 - our own
    (rows,) = received.rows(iter([kafka_rows("orders", [card_record(7)])]))

    assert rows.rows.equals(CARDS)


@pytest.mark.parametrize("columns", [None, ("card",), ("id", "card")])
def test_without_keys_the_place_the_columns_and_the_way_out_are_named(
    columns: Sequence[str] | None,
) -> None:
    options = ValueOptions(columns=None if columns is None else tuple(columns))

    with pytest.raises(AccessDenied) as caught:
        read(CARDS.schema, options, card_record(7))

    said = str(caught.value)
    assert said.startswith("topic orders[0] offset 7: columns card are encrypted with the master")
    assert "name only other columns" in said


def test_columns_that_are_not_asked_for_need_no_key() -> None:
    found = read(CARDS.select(["id"]).schema, ValueOptions(columns=("id",)), card_record(7))

    assert found.to_pydict() == {"id": [1, 2]}


def test_keys_that_are_written_down_are_refused() -> None:
    with pytest.raises(Misconfigured, match="--keys: a secret is not written down") as caught:
        ValueOptions(keys=f"cards:{SECRET}").open_keys()

    assert SECRET not in str(caught.value)
