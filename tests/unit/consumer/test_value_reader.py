"""Values of records as rows: columnar ones, JSON, Avro of a registry, and what is none of these."""

import io
import json
from dataclasses import replace

import fastavro
import pyarrow as pa
import pytest
from tests.support.golden import Golden

from extentflow.columnar import ENCODING, ENCODINGS, ROWS, BatchFacts
from extentflow.columnar.encryption import ColumnEncryption
from extentflow.columnar.schemas import identity
from extentflow.columnar.values import encoder
from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.consumer.value_reader import ValueReader
from extentflow.errors import AccessDenied, CorruptRecord, Misconfigured
from extentflow.formats.parquet.column_keys import MasterKeys
from extentflow.kafka.reading import ConsumedRecord

ROWS_OF = pa.record_batch({"id": pa.array(range(5)), "text": ["a", None, "ä", "", "e"]})
AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def record(value: bytes | None, offset: int = 0, **headers: bytes) -> ConsumedRecord:
    return ConsumedRecord(2, offset, None, value, list(headers.items()), 77)


def columnar(
    encoding: str = "arrow", offset: int = 0, rows: pa.RecordBatch = ROWS_OF
) -> ConsumedRecord:
    facts = BatchFacts(
        encoding=encoding,
        rows=rows.num_rows,
        schema=identity(rows.schema),
        batch=f"batch-{offset}",
        object="s3://b/k",
        version="v",
        extent="0-9",
        first=0,
        last=4,
        unit="row",
    )
    value = encoder(encoding, "none", rows.schema)(rows)
    return ConsumedRecord(2, offset, None, value.to_pybytes(), facts.headers(), 77)


def in_avro(number: int) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(dict(AVRO)), {"id": number})
    return b"\0\0\0\0\7" + body.getvalue()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_columnar_value_is_a_batch_of_its_own(encoding: str) -> None:
    first, second = ValueReader().read("t", [columnar(encoding, 3), columnar(encoding, 9)])

    assert first.rows.equals(ROWS_OF)
    assert (first.offset, second.offset, first.partition, first.timestamp) == (3, 9, 2, 77)
    assert second.facts is not None
    assert second.facts.batch == "batch-9"


def test_encrypted_columns_are_read_with_keys_and_denied_with_their_place(golden: Golden) -> None:
    keys = MasterKeys((("k", b"0123456789abcdef"),))
    own = ColumnEncryption(("text",), "k", keys)
    value = encoder("parquet", "none", ROWS_OF.schema, own)(ROWS_OF).to_pybytes()
    facts = BatchFacts.of(columnar("parquet").headers)
    assert facts is not None
    encrypted = record(value, 7, **dict(replace(facts, encrypted=("text",)).headers()))

    (whole,) = ValueReader(keys=keys).read("t", [encrypted])
    (some,) = ValueReader(["id"]).read("t", [encrypted])
    (joined,) = ValueReader(["id", "elsewhere"], lenient=True).read("t", [encrypted])

    assert whole.rows.equals(ROWS_OF)
    assert some.rows.equals(joined.rows)
    for reader in (ValueReader(), ValueReader(["text"]), ValueReader(["text"], lenient=True)):
        with golden.raises(AccessDenied, match=r"t\[2\].*offset 7"):
            list(reader.read("t", [encrypted]))


def test_columns_are_chosen_in_the_order_in_which_they_are_asked_for() -> None:
    (both,) = ValueReader(["text", "id"]).read("t", [columnar()])
    (some,) = ValueReader(["lacking", "text"], lenient=True).read("t", [columnar()])
    (none,) = ValueReader(["lacking"], lenient=True).read("t", [columnar()])

    assert both.rows.schema.names == ["text", "id"]
    assert some.rows.schema.names == ["text"]
    assert (none.rows.num_rows, none.rows.num_columns) == (5, 0)
    with pytest.raises(Misconfigured, match=r"t\[2\] offset 0: .*lacking"):
        list(ValueReader(["lacking"]).read("t", [columnar()]))
    with pytest.raises(Misconfigured, match=r"t\[2\] offset 0 .*lacking"):
        list(ValueReader(["lacking"]).read("t", [record(b'{"id":1}')]))


def test_consecutive_values_of_one_kind_are_one_batch() -> None:
    values = [b'{"id":0}', b'{"id":1}', None, b'{"id":2}']
    records = [record(value, offset) for offset, value in enumerate(values)]

    found = list(ValueReader().read("t", [*records, columnar(offset=4), record(b'{"id":9}', 7)]))

    assert [batch.rows.column("id").to_pylist() for batch in found] == [[0, 1, 2], [*range(5)], [9]]
    assert [list(batch.offsets) for batch in found] == [[0, 1, 3], [], [7]]


def test_a_schema_declares_the_members_of_json_values() -> None:
    schema = JSON_SCHEMA.read("id:int64,day:date,text:string")
    values = [b'{"text":"2020-01-01","id":1,"other":[]}', b'{"day":"2020-02-01"}']

    (found,) = ValueReader(schema=schema).read(
        "t", [record(one, n) for n, one in enumerate(values)]
    )

    assert found.rows.schema.types == [pa.int64(), pa.date32(), pa.string()]
    assert found.rows.column("text").to_pylist() == ["2020-01-01", None]
    assert found.rows.column("id").to_pylist() == [1, None]


@pytest.mark.parametrize("schema", [None, "id:int64"])
@pytest.mark.parametrize(
    "values",
    [
        [b'{"id":1}', b"x"],
        [b'{"id":1}', b""],
        [b'{"id":1}', b" "],
        [b'{"id":1}', b"[2]"],
        [b'{"id":1}', b'{"id":2}{"id":3}'],
        [b'{"id":', b"1}"],
        [b'{"id":1}', b'{"id":2'],
        [b'{"id":1}', b"[1]"],
        [b'{"id":1}', b"1"],
        # As many objects as values, yet not one in each.
        [b'{"id":1}{"id":2}', b" "],
        [b'{"id":1}\n{"id":2}', b""],
        [b'{"id":', b"1}", b'{"id":2}{"id":3}'],
    ],
    ids=repr,
)
def test_values_that_are_no_json_objects_are_errors_with_their_offsets(
    values: list[bytes], schema: str | None
) -> None:
    reader = ValueReader(schema=None if schema is None else JSON_SCHEMA.read(schema))
    records = [record(value, 40 + offset) for offset, value in enumerate(values)]

    with pytest.raises(CorruptRecord, match=r"topic t\[2\] offset 40"):
        list(reader.read("t", records))


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**30])
def test_whole_numbers_beyond_64_bits_are_exact_or_errors(number: int) -> None:
    try:
        (found,) = ValueReader().read("t", [record(json.dumps({"id": number}).encode())])
    except CorruptRecord:
        return

    assert found.rows.column("id").to_pylist() == [number]
    assert not pa.types.is_floating(found.rows.schema.field("id").type)


def test_avro_values_of_a_registry_are_rows() -> None:
    reader = ValueReader(
        find_schema=lambda number: ("AVRO", json.dumps(AVRO | {"doc": f"{number}"}))
    )

    (found,) = reader.read("t", [record(in_avro(number), number) for number in (5, 6)])

    assert found.rows.to_pylist() == [{"id": 5}, {"id": 6}]
    assert list(found.offsets) == [5, 6]


def test_values_of_a_registry_need_its_schemas() -> None:
    damaged = record(in_avro(5)[:-1] + b"\xff", 8)

    with pytest.raises(Misconfigured, match="registry"):
        list(ValueReader().read("t", [record(in_avro(5))]))
    with pytest.raises(Misconfigured, match="PROTOBUF"):
        list(ValueReader(find_schema=lambda _: ("PROTOBUF", "")).read("t", [record(in_avro(5))]))
    with pytest.raises(CorruptRecord, match=r"t\[2\] offset 8"):
        list(ValueReader(find_schema=lambda _: ("AVRO", json.dumps(AVRO))).read("t", [damaged]))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_damaged_columnar_value_is_an_error_with_its_place(encoding: str) -> None:
    whole = columnar(encoding, 12)
    value = whole.value or b""
    others = [(name, b"4" if name == ROWS else text) for name, text in whole.headers]
    unread = [(name, b"orc" if name == ENCODING else text) for name, text in whole.headers]
    cases = [
        whole._replace(value=value[: len(value) // 2]),
        whole._replace(value=b""),
        whole._replace(value=None),
        whole._replace(headers=others),
        whole._replace(headers=unread),
        whole._replace(headers=[(ENCODING, None)]),
        whole._replace(headers=[(ENCODING, encoding.encode())]),
    ]

    for case in cases:
        with pytest.raises(CorruptRecord, match=r"topic t\[2\] offset 12"):
            list(ValueReader().read("t", [case]))


def test_a_value_of_the_other_encoding_than_its_header_states_is_an_error() -> None:
    for stated, written in (("arrow", "parquet"), ("parquet", "arrow")):
        facts = BatchFacts.of(columnar(stated).headers)
        assert facts is not None
        lying = columnar(written)._replace(headers=replace(facts, encoding=stated).headers())

        with pytest.raises(CorruptRecord, match=r"offset 0"):
            list(ValueReader().read("t", [lying]))
