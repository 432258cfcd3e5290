"""Records to rows in a task, and what a task's errors tell the driver."""

import base64
import io
import pickle
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.support.columnar_records import as_parquet, columnar, encrypted
from tests.support.golden import Golden
from tests.support.kafka_rows import kafka_rows
from tests.support.registry import RegistryDouble, registry_double

from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.config.registry import RegistryOptions
from extentflow.engines.spark import ERROR_NOTE, typed_error
from extentflow.errors import (
    AccessDenied,
    CorruptRecord,
    ExtentflowError,
    IncompatibleSchema,
    Misconfigured,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.export.lake import lake_options
from extentflow.export.lake.lake_options import ValueOptions
from extentflow.export.lake.lake_rows import (
    DecodedRows,
    RowReader,
    SchemaGrown,
    grown_columns,
    rows_in_arrow,
)
from extentflow.formats.parquet.column_keys import MasterKeys
from extentflow.kafka.reading import ConsumedRecord
from extentflow.wiring.value_access import ProcessAccess

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
    options = ValueOptions(keys="${env:CARD_KEYS}", access=ProcessAccess())
    sent = pickle.dumps(RowReader(CARDS.schema, options, spark=False))
    monkeypatch.setenv("CARD_KEYS", f"cards: {SECRET}")

    received: RowReader = pickle.loads(sent)  # noqa: S301 - our own
    (rows,) = received.rows(iter([kafka_rows("orders", [card_record(7)])]))

    assert rows.rows.equals(CARDS)


@pytest.mark.parametrize("columns", [None, ("card",), ("id", "card")])
def test_without_keys_the_place_the_columns_and_the_way_out_are_named(
    columns: Sequence[str] | None,
    golden: Golden,
) -> None:
    options = ValueOptions(columns=None if columns is None else tuple(columns))

    with pytest.raises(AccessDenied) as caught:
        read(CARDS.schema, options, card_record(7))

    said = str(caught.value)
    golden(said)
    assert "orders[0]" in said
    assert "--keys" in said
    assert "name only other columns (--column" in said


def test_columns_that_are_not_asked_for_need_no_key() -> None:
    found = read(CARDS.select(["id"]).schema, ValueOptions(columns=("id",)), card_record(7))

    assert found.to_pydict() == {"id": [1, 2]}


def test_keys_that_are_written_down_are_refused(golden: Golden) -> None:
    with golden.raises(Misconfigured, match="--keys") as caught:
        ValueOptions(keys=f"cards:{SECRET}", access=ProcessAccess()).open_keys()

    assert SECRET not in str(caught.value)


AVRO: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
WIDER = {
    **AVRO,
    "fields": [
        *AVRO["fields"],
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["a", "b"]}},
    ],
}


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    # A later double may get the port of an earlier one.
    lake_options._schemas.cache_clear()
    with registry_double() as double:
        yield double


def of(registry: RegistryDouble, **options: Any) -> ValueOptions:  # noqa: ANN401
    where = RegistryOptions(urls=(registry.url,))
    return ValueOptions(registry=where, access=ProcessAccess(), **options)


def framed(number: int, body: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + body


def in_avro(number: int, schema: Mapping[str, Any], row: Mapping[str, object]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(dict(schema)), row)
    return framed(number, body.getvalue())


def valued(*values: bytes | None) -> list[ConsumedRecord]:
    return [ConsumedRecord(2, 10 + at, None, value, []) for at, value in enumerate(values)]


def decoded(options: ValueOptions, columns: pa.Schema, *values: bytes | None) -> list[DecodedRows]:
    reader = RowReader(columns, options, spark=True)
    return list(reader.rows(iter([kafka_rows("orders", valued(*values))])))


ID_NOTE_KIND = pa.schema([("id", pa.int64()), ("note", pa.string()), ("kind", pa.string())])


def test_values_of_a_registry_are_rows_of_one_batch_for_each_schema(
    registry: RegistryDouble,
) -> None:
    narrow = registry.add("orders-value", AVRO)
    wide = registry.add("orders-value", WIDER)
    values = [
        *(in_avro(narrow, AVRO, {"id": one}) for one in range(2)),
        in_avro(wide, WIDER, {"id": 2, "note": "n", "kind": "b"}),
        b'{"id": 3, "note": "json"}',
        in_avro(narrow, AVRO, {"id": 4}),
    ]

    found = decoded(
        of(registry, schema=JSON_SCHEMA.read("id:int64,note:string")), ID_NOTE_KIND, *values
    )

    assert [(one.first, one.last) for one in found] == [(10, 11), (12, 12), (13, 13), (14, 14)]
    assert pa.Table.from_batches([one.rows for one in found]).to_pylist() == [
        {"id": 0, "note": None, "kind": None},
        {"id": 1, "note": None, "kind": None},
        {"id": 2, "note": "n", "kind": "b"},
        {"id": 3, "note": "json", "kind": None},
        {"id": 4, "note": None, "kind": None},
    ]


def test_a_schema_is_looked_up_once_in_a_process(registry: RegistryDouble) -> None:
    number = registry.add("orders-value", AVRO)
    columns = pa.schema([("id", pa.int64())])

    for one in range(3):
        decoded(of(registry), columns, in_avro(number, AVRO, {"id": one}))

    assert registry.requests == [
        ("GET", f"/schemas/ids/{number}"),
        ("GET", f"/schemas/ids/{number}/versions"),
    ]


def test_json_of_a_registry_has_the_columns_of_its_schema(
    registry: RegistryDouble, golden: Golden
) -> None:
    members = {"id": {"type": "integer"}, "price": {"type": "number"}}
    number = registry.add("orders-value", {"type": "object", "properties": members}, "JSON")
    columns = pa.schema([("id", pa.int64()), ("price", pa.float64())])
    values = [framed(number, text) for text in (b'{"id": 1}', b'{"id": 2, "price": 0.5}')]

    (found,) = decoded(of(registry), columns, *values)
    (declared,) = decoded(
        of(registry, schema=JSON_SCHEMA.read("id:int64,price:float64")), columns, *values
    )

    assert found.rows.to_pylist() == [{"id": 1, "price": None}, {"id": 2, "price": 0.5}]
    assert declared.rows.equals(found.rows)
    more = framed(number, b'{"id": 3, "more": 1}')
    with golden.raises(CorruptRecord, match="offset 12.*orders-value.*version 1"):
        decoded(of(registry), columns, *values, more)


def test_columns_of_a_registered_schema_that_a_table_lacks_are_reported(
    registry: RegistryDouble,
) -> None:
    number = registry.add("orders-value", WIDER)
    value = in_avro(number, WIDER, {"id": 2, "note": "n", "kind": "b"})

    with pytest.raises(SchemaGrown) as caught:
        decoded(of(registry), pa.schema([("id", pa.int64())]), value)
    (some,) = decoded(of(registry, columns=("id",)), pa.schema([("id", pa.int64())]), value)

    assert caught.value.columns == ID_NOTE_KIND
    assert some.rows.to_pylist() == [{"id": 2}]


@pytest.mark.parametrize(
    ("field", "error", "said"),
    [
        ({"name": "at", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
         UnsupportedType, "column at: Spark cannot hold timestamp"),
        ({"name": "id", "type": "string"}, IncompatibleSchema, "column id is string here"),
        ({"name": "x", "type": {"type": "array", "items": "null"}}, UnsupportedType, ""),
    ],
)  # fmt: skip
def test_columns_without_a_place_in_the_table_are_refused_with_subject_and_version(
    registry: RegistryDouble, field: object, error: type[Exception], said: str
) -> None:
    registry.add("orders-value", AVRO)
    number = registry.add("orders-value", {**AVRO, "fields": [field]})
    named = rf"schema {number} \(orders-value version 2\)"

    with pytest.raises(error, match=rf"orders\[2\] offset 10.*{named}.*{said}"):
        decoded(of(registry), pa.schema([("id", pa.int64())]), framed(number, b"\0"))


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ((b"\0\0\0\0\1\2", b"\0\0\0\0\1"), CorruptRecord,
         r"offset 11: not of the Avro schema 1 \(orders-value"),
        ((b"\0\0\0\0\1\2", b"\0\0\0\0"), CorruptRecord, "offset 11: .* ends before"),
        ((b"\0\0\0\0\1\2", b"\0\0\0\0\7\2"), IncompatibleSchema,
         "offset 11: .* has no schema 7"),
        ((b"\0\0\0\0\2\2",), UnsupportedFormat, r"schema 2 \(.*\) is of the type PROTOBUF"),
        ((b"\0\0\0\0\3{}",), UnsupportedType, r"schema 3 \(.*column a: .*--schema"),
        ((b"\0\0\0\0\1\2", None), CorruptRecord, "offset 11: the record has no value"),
        ((b"{}",), UnsupportedFormat, "offset 10: .*give --schema"),
    ],
)  # fmt: skip
def test_values_that_are_not_of_a_registered_schema_are_refused_with_their_place(
    registry: RegistryDouble,
    values: Sequence[bytes | None],
    error: type[Exception],
    said: str,
) -> None:
    registry.add("orders-value", AVRO)
    registry.add("proto-value", 'syntax = "proto3";', "PROTOBUF")
    registry.add("any-value", {"type": "object", "properties": {"a": {}}}, "JSON")

    with pytest.raises(error, match=r"topic orders\[2\] offset 1.*") as caught:
        decoded(of(registry), pa.schema([("id", pa.int64())]), *values)

    assert re.search(said, str(caught.value)), str(caught.value)


def test_without_a_registry_its_values_are_refused_with_the_way_out(
    registry: RegistryDouble, golden: Golden
) -> None:
    columns = pa.schema([("id", pa.int64())])
    value = in_avro(registry.add("orders-value", AVRO), AVRO, {"id": 2})

    with golden.raises(UnsupportedFormat, match="offset 10.*schema 1.*--registry"):
        decoded(ValueOptions(), columns, value)
    (found,) = decoded(of(registry), columns, value)

    assert found.rows.to_pylist() == [{"id": 2}]


def test_executors_look_up_the_password_and_read_it_again_when_it_was_rotated(
    registry: RegistryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ValueOptions(
        registry=RegistryOptions(urls=(registry.url,), user_info="${env:REGISTRY_USER}"),
        access=ProcessAccess(),
    )
    columns = pa.schema([("id", pa.int64())])
    registry.user_info = "user:first"
    monkeypatch.setenv("REGISTRY_USER", "user:first")
    first = registry.add("orders-value", AVRO)
    decoded(options, columns, in_avro(first, AVRO, {"id": 1}))

    registry.user_info = "user:second"
    monkeypatch.setenv("REGISTRY_USER", "user:second")
    second = registry.add("orders-value", {**AVRO, "doc": "again"})
    (found,) = decoded(options, columns, in_avro(second, AVRO, {"id": 2}))

    assert found.rows.to_pylist() == [{"id": 2}]
