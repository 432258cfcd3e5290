"""Values that are joined to files without decoding them."""

import io
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.columnar_records import as_arrow, as_parquet, columnar, encrypted
from tests.support.golden import Golden

from extentflow.columnar import ENCRYPTED
from extentflow.errors import CorruptRecord, Misconfigured
from extentflow.export import stored_values as joining
from extentflow.export.stored_values import JoinedParquet, StoredValue, join_from, stored_value
from extentflow.formats.parquet.column_keys import MasterKeys, decryption_properties
from extentflow.formats.parquet.footer import MAGIC

CODECS = ("NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")
SCALARS: dict[pa.DataType, Any] = {
    pa.bool_(): lambda random: random.random() < 0.5,
    pa.int8(): lambda random: random.randrange(-128, 128),
    pa.int64(): lambda random: random.randrange(-(2**63), 2**63),
    pa.float64(): lambda random: random.choice([random.gauss(0, 1e9), float("inf"), -0.0]),
    pa.string(): lambda random: random.choice(["", "ä", "words " * random.randrange(9)]),
    pa.binary(): lambda random: random.randbytes(random.randrange(9)),
    pa.decimal128(20, 3): lambda random: Decimal(random.randrange(-(10**15), 10**15)) / 1000,
    pa.timestamp("us", "UTC"): lambda random: datetime.fromtimestamp(random.randrange(2**31), UTC),
    pa.date32(): lambda random: datetime.fromtimestamp(random.randrange(2**31), UTC).date(),
}


def random_type(random: Random, depth: int = 2) -> pa.DataType:
    kind = random.randrange(4) if depth else 3
    if kind == 0:
        return pa.list_(random_type(random, depth - 1))
    if kind == 1:
        names = "abc"[: random.randrange(1, 4)]
        return pa.struct([(name, random_type(random, depth - 1)) for name in names])
    if kind == 2:
        return pa.map_(pa.string(), random_type(random, depth - 1))
    return random.choice(list(SCALARS))


def random_value(random: Random, kind: pa.DataType) -> Any:  # noqa: ANN401 - any of Arrow's
    if random.random() < 0.2:
        return None
    if pa.types.is_map(kind):
        count = random.randrange(3)
        return [(str(number), random_value(random, kind.item_type)) for number in range(count)]
    if pa.types.is_list(kind):
        return [random_value(random, kind.value_type) for _ in range(random.randrange(4))]
    if pa.types.is_struct(kind):
        return {field.name: random_value(random, field.type) for field in kind}
    return SCALARS[kind](random)


def random_table(random: Random, schema: pa.Schema, rows: int) -> pa.Table:
    columns = [
        pa.array([random_value(random, field.type) for _ in range(rows)], field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def read_values(records: Sequence[Any]) -> list[StoredValue]:
    found = [stored_value("orders", record) for record in records]
    return [value for value in found if value is not None]


def joined(values: Sequence[StoredValue]) -> bytes:
    file = join_from(values[0])
    parts: list[bytes | memoryview] = [file.begin()]
    for value in values:
        assert file.takes(value)
        parts.append(file.append(value))
    return b"".join([*parts, file.end()])


def written_by(random: Random) -> dict[str, Any]:
    return {
        "compression": random.choice(CODECS),
        "use_dictionary": random.random() < 0.5,
        "write_statistics": random.random() < 0.8,
        "data_page_version": random.choice(["1.0", "2.0"]),
        "data_page_size": random.choice([100, 1 << 20]),
        "row_group_size": random.choice([7, 1000]),
        "write_page_index": random.random() < 0.3,
        "write_page_checksum": random.random() < 0.3,
    }


@pytest.mark.parametrize("seed", range(60))
def test_a_joined_file_holds_the_rows_of_all_its_values(seed: int) -> None:
    random = Random(seed)
    names = [f"c{number}" for number in range(random.randrange(1, 6))]
    schema = pa.schema([(name, random_type(random)) for name in names])
    tables = [random_table(random, schema, random.randrange(1, 60)) for _ in range(5)]
    records = [
        columnar(offset, as_parquet(table, **written_by(random)), table.num_rows)
        for offset, table in enumerate(tables)
    ]

    content = joined(read_values(records))

    # Reading decodes each value by itself: Parquet's types are not all of Arrow's.
    expected = pa.concat_tables([pq.read_table(io.BytesIO(one.value or b"")) for one in records])
    assert pq.read_table(io.BytesIO(content)).equals(expected)
    with pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True) as file:
        assert file.read().equals(expected)


def test_statistics_dictionaries_and_codecs_stay_those_of_each_value() -> None:
    tables = [pa.table({"n": [1, 2], "s": ["a", "a"]}), pa.table({"n": [7, 9], "s": ["b", None]})]
    values = [as_parquet(tables[0], compression="ZSTD"), as_parquet(tables[1], compression="GZIP")]
    records = [columnar(offset, value, 2) for offset, value in enumerate(values)]

    found = pq.read_metadata(io.BytesIO(joined(read_values(records))))

    assert (found.num_rows, found.num_row_groups) == (4, 2)
    for group, value in enumerate(values):
        own = pq.read_metadata(io.BytesIO(value)).row_group(0)
        for leaf in range(2):
            there, alone = found.row_group(group).column(leaf), own.column(leaf)
            assert there.statistics.to_dict() == alone.statistics.to_dict()
            assert (there.compression, there.encodings) == (alone.compression, alone.encodings)
            assert there.has_dictionary_page
    below = [("n", "<", 5)]
    rows = pq.read_table(io.BytesIO(joined(read_values(records))), filters=below)
    assert rows.num_rows == 2


def test_the_same_values_make_the_same_bytes() -> None:
    tables = [pa.table({"n": [number, 5]}) for number in range(4)]
    records = [columnar(at, as_parquet(one), 2) for at, one in enumerate(tables)]

    assert joined(read_values(records)) == joined(read_values(records))


def test_places_beyond_four_gigabytes_are_read(tmp_path: Path) -> None:
    table, far = pa.table({"n": [1, 2, 3], "s": ["x", "y", "x"]}), 5 << 30
    (value,) = read_values([columnar(0, as_parquet(table), 3)])
    assert value.footer is not None
    file = JoinedParquet(value.footer, value.schema, _at=far)

    with (tmp_path / "far.parquet").open("wb") as sparse:
        sparse.write(file.begin())
        sparse.seek(far)
        sparse.write(file.append(value))
        sparse.write(file.end())

    assert pq.read_table(tmp_path / "far.parquet").equals(table)


def test_values_of_another_schema_are_not_taken() -> None:
    first, same, other = (
        as_parquet(pa.table({"n": pa.array([1], kind)}))
        for kind in (pa.int64(), pa.int64(), pa.int32())
    )
    values = read_values([columnar(at, one, 1) for at, one in enumerate((first, same, other))])
    arrow = read_values([columnar(9, as_arrow(pa.table({"n": [1]})), 1, encoding="arrow")])[0]

    file = join_from(values[0])

    assert [file.takes(value) for value in (*values, arrow)] == [True, True, False, False]
    assert not join_from(arrow).takes(values[0])


def test_a_file_has_no_more_row_groups_than_their_ordinals_can_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "MOST_GROUPS", 3)
    table = pa.table({"n": [1, 2]})
    values = read_values([columnar(at, as_parquet(table, row_group_size=1), 2) for at in range(2)])

    file = join_from(values[0])
    file.append(values[0])

    assert not file.takes(values[1])


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_joined_stream_holds_the_batches_of_all_its_values(compression: str | None) -> None:
    tables = [pa.table({"n": [at, 2], "l": [[at], None]}) for at in range(4)]
    records = [
        columnar(at, as_arrow(one, compression=compression), 2, encoding="arrow")
        for at, one in enumerate(tables)
    ]

    content = joined(read_values(records))

    with pa.ipc.open_stream(content) as stream:
        assert stream.read_all().equals(pa.concat_tables(tables))


def test_dictionaries_of_a_stream_replace_those_of_the_value_before() -> None:
    tables = [
        pa.table({"d": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["c", "a"])
    ]
    records = [columnar(at, as_arrow(one), 2, encoding="arrow") for at, one in enumerate(tables)]

    with pa.ipc.open_stream(joined(read_values(records))) as stream:
        found = stream.read_all()["d"].to_pylist()

    assert found == ["a", "b", "c", "a"]


def messages(value: bytes) -> list[tuple[str, bytes]]:
    """Return the kind and the bytes of each message of a stream, without its end."""
    source, found = pa.BufferReader(value), []
    with suppress(EOFError):
        while True:
            start = source.tell()
            kind = pa.ipc.read_message(source).type
            found.append((kind, value[start : source.tell()]))
    return found


@pytest.mark.parametrize("order", ["lacking", "behind", "delta first"])
def test_a_value_never_takes_the_dictionary_of_the_value_before(order: str, golden: Golden) -> None:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    words = pa.array(["c", "d", "c"]).dictionary_encode()
    longer = pa.DictionaryArray.from_arrays(words.indices, pa.array(["c", "d", "e"]))
    with pa.ipc.new_stream(sink, pa.table({"d": words}).schema, options=options) as made:
        made.write_table(pa.table({"d": words}))
        made.write_table(pa.table({"d": longer}))
    schema, first, batch, delta, _ = (content for _, content in messages(sink.getvalue()))
    value = {
        "lacking": schema + batch,
        "behind": schema + batch + first,
        "delta first": schema + delta + batch,
    }[order]

    with golden.raises(CorruptRecord, match="offset 7"):
        read_values([columnar(7, value, 3, encoding="arrow")])


def test_nested_dictionaries_are_joined() -> None:
    kind = pa.list_(pa.struct([("t", pa.dictionary(pa.int8(), pa.string()))]))
    tables = [pa.table({"l": pa.array([[{"t": "a"}, {"t": word}], None], kind)}) for word in "bc"]
    records = [columnar(at, as_arrow(one), 2, encoding="arrow") for at, one in enumerate(tables)]

    with pa.ipc.open_stream(joined(read_values(records))) as stream:
        found = stream.read_all()["l"].to_pylist()

    assert found == [[{"t": "a"}, {"t": "b"}], None, [{"t": "a"}, {"t": "c"}], None]


GOOD = as_parquet(pa.table({"n": [1, 2]}))
STREAM = as_arrow(pa.table({"n": [1, 2]}))
KEYS = MasterKeys((("cards", b"a master key, 16"),))
CARDS = pa.record_batch({"id": [1, 2], "card": ["4711", None]})


def test_a_value_with_encrypted_columns_is_a_file_of_its_own_that_keys_read() -> None:
    records = [encrypted(offset, CARDS, ["card"], KEYS, "cards") for offset in range(2)]
    values = read_values(records)
    file = join_from(values[0])

    content = b"".join([file.begin(), file.append(values[0]), file.end()])

    assert content == records[0].value
    assert not file.takes(values[1])
    (plain,) = read_values([columnar(2, GOOD, 2)])
    assert not file.takes(plain)
    assert not join_from(plain).takes(values[0])
    source = io.BytesIO(content)
    found = pq.read_table(source, decryption_properties=decryption_properties(KEYS))
    assert found.to_batches() == [CARDS]
    assert pq.read_table(io.BytesIO(content), columns=["id"]).to_pydict() == {"id": [1, 2]}


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (as_parquet(pa.table({"n": [1, 2]})), "parquet"),
        (as_arrow(pa.table({"n": [1, 2]})), "arrow"),
    ],
)
def test_a_plain_value_whose_header_states_encrypted_columns_is_refused(
    value: bytes, encoding: str, golden: Golden
) -> None:
    record = columnar(41, value, 2, encoding=encoding)
    stated = [*record.headers, (ENCRYPTED, b'["n"]')]

    with golden.raises(CorruptRecord, match=r"offset 41.*extentflow\.encrypted"):
        stored_value("orders", record._replace(headers=stated))


def test_an_encrypted_value_whose_header_states_none_is_refused() -> None:
    value = encrypted(0, CARDS, ["card"], KEYS, "cards").value

    with pytest.raises(CorruptRecord, match=r"offset 41: .*encrypted"):
        stored_value("orders", columnar(41, value, 2))


@pytest.mark.parametrize(
    ("value", "rows", "encoding", "why"),
    [
        (GOOD, 3, "parquet", "has 2 rows, and its header states 3"),
        (GOOD[:-4] + b"PARE", 2, "parquet", "no Parquet file in plain text"),
        (b"nonsense", 2, "parquet", "cannot be read as parquet"),
        (b"", 2, "parquet", "cannot be read as parquet"),
        (MAGIC + GOOD[40:], 2, "parquet", "columns at"),
        (None, 2, "parquet", "is null"),
        (STREAM, 5, "arrow", "has 2 rows, and its header states 5"),
        (STREAM[:-60], 2, "arrow", "cannot be read as arrow"),
        (STREAM + b"more", 2, "arrow", "cannot be read as arrow"),
        (b"", 2, "arrow", "cannot be read as arrow"),
        (GOOD, 2, "arrow", "cannot be read as arrow"),
    ],
)
def test_a_corrupt_value_is_refused_with_its_place_and_a_way_out(
    value: bytes | None, rows: int, encoding: str, why: str
) -> None:
    record = columnar(41, value, rows, partition=3, encoding=encoding)

    with pytest.raises(CorruptRecord) as caught:
        stored_value("orders", record)

    assert str(caught.value).startswith("topic orders[3] offset 41: ")
    assert why in str(caught.value)
    assert "--accept-gap" in str(caught.value)


@pytest.mark.parametrize("damage", range(400))
def test_damage_to_a_footer_is_refused_or_changes_only_what_it_states(damage: int) -> None:
    random = Random(damage)
    value = bytearray(GOOD)
    length = int.from_bytes(value[-8:-4], "little")
    at = len(value) - 8 - random.randrange(length)
    value[at] ^= 1 << random.randrange(8)

    try:
        found = stored_value("orders", columnar(0, bytes(value), 2))
    except CorruptRecord:
        return

    assert found is not None
    assert found.rows == 2
    joined([found, found])


def test_a_row_is_refused_by_naming_the_command_that_writes_rows() -> None:
    record = columnar(7, b'{"n": 1}', 1)._replace(headers=())

    with pytest.raises(Misconfigured, match=r"orders\[0\] offset 7: .*`extentflow lake`"):
        stored_value("orders", record)


def test_a_tombstone_has_no_rows() -> None:
    assert stored_value("orders", columnar(7, None, 1)._replace(headers=())) is None
