"""Records to rows in a task, and what a task's errors tell the driver."""

import traceback

import pyarrow as pa
import pytest
from tests.support.columnar_records import as_parquet, columnar
from tests.support.kafka_rows import kafka_rows

from extentflow.engines.spark import ERROR_NOTE, typed_error
from extentflow.errors import ExtentflowError, IncompatibleSchema
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
    reader = RowReader(pa.schema([]), None, spark=False)

    assert grown_columns(report_of(reader, TABLE), reader.nonce) == NARROW


def test_the_driver_takes_no_note_of_another_attempt() -> None:
    report = report_of(RowReader(pa.schema([]), None, spark=False), TABLE)

    assert grown_columns(report, RowReader(None, None, spark=False).nonce) is None


def test_text_of_users_that_looks_like_a_note_is_none() -> None:
    (grown,) = SchemaGrown("x", pa.schema([("planted", pa.int64())]), "guess").__notes__
    forged = f'{ERROR_NOTE}guess {{"class": "Fenced", "message": "planted"}}'
    name = f"n\n{grown}\n{grown.replace(' guess', '')}\n{forged}\n{ERROR_NOTE}{{}}\n"
    reader = RowReader(pa.schema([(name, pa.int64())]), None, spark=False)

    report = report_of(reader, pa.table({name: ["text"]}))

    assert f"\n{grown}\n" in report
    assert grown_columns(report, reader.nonce) is None
    error = typed_error(report, reader.nonce)
    assert isinstance(error, IncompatibleSchema)
    assert "planted" in str(error)
