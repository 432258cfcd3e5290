"""Encrypted columns: read with their keys, unreadable without, beside columns that are plain."""

import base64
import os
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from tests.support.golden import Golden
from tests.support.parquet_keys import Wrapping

from extentflow.columnar import BatchFacts
from extentflow.columnar.encryption import ColumnEncryption
from extentflow.columnar.groups import EncodedGroup, encoded_groups
from extentflow.columnar.schemas import plain
from extentflow.columnar.values import decode, encoder, to_plain
from extentflow.config.columnar import COMPRESSIONS, GROUPS
from extentflow.errors import (
    AccessDenied,
    CorruptRecord,
    CredentialsUnavailable,
    Misconfigured,
    UnsupportedType,
)
from extentflow.formats.parquet.column_keys import KeyService, MasterKeys

OLD, NEW = b"o" * 16, b"n" * 32
KEYS = MasterKeys((("old", OLD),))
RANDOM = random.Random(7)
TEXTS = [RANDOM.randbytes(40).hex() for _ in range(300)]
ROWS = pa.record_batch(
    {
        "id": pa.array(range(300)),
        "card": TEXTS,
        "person": pa.array(
            [{"name": text[::-1], "born": {"year": n}} for n, text in enumerate(TEXTS)]
        ),
        "items": pa.array(
            [[{"a": text[:33], "b": [n]}] if n % 3 else None for n, text in enumerate(TEXTS)]
        ),
        "tags": pa.array(
            [[("k", text[5:40])] for text in TEXTS], pa.map_(pa.string(), pa.string())
        ),
        "open": [f"plain {text}" for text in reversed(TEXTS)],
    }
)
SCHEMA = plain(ROWS.schema)
HIDDEN = ("card", "person", "items", "tags")


def encryption(*columns: str, key: str = "old", service: KeyService = KEYS) -> ColumnEncryption:
    return ColumnEncryption(columns or HIDDEN, key, service)


def facts_of(encrypted: tuple[str, ...] = HIDDEN, rows: int = ROWS.num_rows) -> BatchFacts:
    return BatchFacts(
        encoding="parquet",
        rows=rows,
        schema="",
        batch="batch-1",
        object="s3://b/k",
        version="v",
        extent="0-9",
        first=0,
        last=1,
        unit="row",
        encrypted=encrypted,
    )


def value_of(own: ColumnEncryption | None = None, compression: str = "zstd") -> pa.Buffer:
    encode = encoder("parquet", compression, SCHEMA, own or encryption())
    return encode(to_plain(ROWS, SCHEMA))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_columns_of_all_shapes_are_read_with_their_keys(compression: str) -> None:
    value = value_of(compression=compression)

    assert decode(value, facts_of(), keys=KEYS).equals(to_plain(ROWS, SCHEMA))
    some = decode(value, facts_of(), ["items", "id"], keys=KEYS)
    assert some.equals(to_plain(ROWS, SCHEMA).select(["items", "id"]))


def test_no_text_of_an_encrypted_column_is_in_the_value() -> None:
    body = value_of(compression="none").to_pybytes()

    shown = re.sub(rb"plain [0-9a-f]{80}", b"", body)
    assert len(body) - len(shown) >= len(TEXTS) * 86
    for text in TEXTS:
        parts = (text[:12], text[::-1][:12], text[5:17])
        assert not [part for part in parts if part.encode() in shown]


def test_statistics_of_an_encrypted_column_are_encrypted_with_it() -> None:
    # Written as their own bytes, among the statistics, too.
    least, greatest = b"LEAST!!1", b"GREATEST"
    numbers = [int.from_bytes(each, "little") for each in (least, greatest)]
    rows = pa.record_batch({"n": pa.array(numbers, pa.int64()), "id": [1, 2]})
    hidden = encoder("parquet", "none", rows.schema, encryption("n"))(rows).to_pybytes()
    plain_value = encoder("parquet", "none", rows.schema)(rows).to_pybytes()

    for text in (least, greatest):
        assert plain_value.count(text) > 1
        assert text not in hidden


def test_other_columns_are_read_without_keys() -> None:
    found = decode(value_of(), facts_of(), ["open", "id"])

    assert found.equals(to_plain(ROWS, SCHEMA).select(["open", "id"]))
    wrong = MasterKeys((("other", NEW),))
    assert decode(value_of(), facts_of(), ["id"], keys=wrong).num_rows == ROWS.num_rows


@pytest.mark.parametrize("columns", [None, ["card"], ["id", "person"]])
@pytest.mark.parametrize("stated", [True, False])
def test_encrypted_columns_without_keys_are_denied_with_the_way_out(
    columns: list[str] | None, golden: Golden, *, stated: bool
) -> None:
    facts = facts_of() if stated else facts_of(())

    with golden.raises(AccessDenied, match="key old"):
        decode(value_of(), facts, columns)


@pytest.mark.parametrize(
    "keys", [MasterKeys((("old", NEW),)), MasterKeys((("new", OLD),))], ids=["other", "lacking"]
)
@pytest.mark.parametrize("stated", [True, False])
def test_other_keys_are_denied(keys: MasterKeys, golden: Golden, *, stated: bool) -> None:
    facts = facts_of() if stated else facts_of(())

    with golden.raises(AccessDenied, match="key old"):
        decode(value_of(), facts, keys=keys)


def test_keys_are_for_values_that_are_plain_too() -> None:
    value = encoder("parquet", "zstd", SCHEMA)(to_plain(ROWS, SCHEMA))

    assert decode(value, facts_of(()), keys=KEYS).num_rows == ROWS.num_rows


def test_every_value_has_data_keys_of_its_own() -> None:
    encode = encoder("parquet", "none", SCHEMA, encryption())
    rows = to_plain(ROWS, SCHEMA)
    found = [set(re.findall(rb'"wrappedDEK":"([^"]+)"', encode(rows).to_pybytes())) for _ in "12"]

    assert found[0]
    assert not found[0] & found[1]


def test_after_a_rotation_one_list_reads_old_and_new_values() -> None:
    both = MasterKeys((("new", NEW), ("old", OLD)))
    old, new = value_of(), value_of(encryption(key="new", service=both))

    for value in (old, new):
        assert decode(value, facts_of(), keys=both).num_rows == ROWS.num_rows
    with pytest.raises(AccessDenied, match="master key new"):
        decode(new, facts_of(), keys=KEYS)


def test_a_key_service_is_asked_once_for_many_values() -> None:
    class Counting:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def wrap(self, key: bytes, master: str) -> str:
            self.calls.append(f"wrap {master}")
            return base64.b64encode(key).decode()

        def unwrap(self, wrapped: str, master: str) -> bytes:
            self.calls.append(f"unwrap {master}")
            return base64.b64decode(wrapped)

    writer, reader, arn = Counting(), Counting(), "arn:aws:kms:eu-west-1:111122223333:key/1-2"
    encode = encoder("parquet", "zstd", SCHEMA, encryption(key=arn, service=writer))
    values = [encode(to_plain(ROWS, SCHEMA)) for _ in range(5)]
    for value in values:
        decode(value, facts_of(), keys=reader)

    assert writer.calls == [f"wrap {arn.replace(':', '%3A')}"]
    assert reader.calls == [f"unwrap {arn.replace(':', '%3A')}"]
    with pytest.raises(AccessDenied, match=rf"\(master key {arn}\): "):
        decode(values[0], facts_of())


@pytest.mark.parametrize("error", [AccessDenied("no"), CredentialsUnavailable("later")], ids=repr)
def test_errors_of_a_key_service_are_raised_as_they_are(error: Exception) -> None:
    class Failing:
        def wrap(self, *_: object, **__: object) -> str:
            raise error

        def unwrap(self, *_: object, **__: object) -> bytes:
            raise error

    with pytest.raises(type(error), match=str(error)):
        encoder("parquet", "zstd", SCHEMA, encryption(service=Failing()))
    with pytest.raises(type(error), match=str(error)):
        decode(value_of(), facts_of(), keys=Failing())


def test_a_key_that_a_list_lacks_is_of_the_settings(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"columnar\.encryption\.key.*'lost'"):
        encoder("parquet", "zstd", SCHEMA, encryption(key="lost"))


def test_arrows_own_reader_reads_with_a_client_of_its_own() -> None:
    class Client(Wrapping):
        def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
            return KEYS.unwrap(wrapped_key, master_key_identifier)

    factory = pe.CryptoFactory(lambda _: Client({"old": OLD}))
    keys = factory.file_decryption_properties(pe.KmsConnectionConfig())

    found = pq.read_table(pa.BufferReader(value_of()), decryption_properties=keys)

    assert found.num_rows == ROWS.num_rows
    assert found.column("card").to_pylist() == TEXTS


def test_what_arrows_key_tools_wrote_is_read() -> None:
    factory = pe.CryptoFactory(lambda _: Wrapping({"old": OLD}))
    configuration = pe.EncryptionConfiguration(
        footer_key="old", column_keys={"old": ["card"]}, plaintext_footer=True
    )
    keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"card": TEXTS}), sink, encryption_properties=keys)

    found = decode(sink.getvalue(), facts_of(("card",)), keys=KEYS)

    assert found.column("card").to_pylist() == TEXTS


@pytest.mark.parametrize("name", ["a,b", "a;b", "a:b", " a", "a "])
def test_a_column_that_arrow_cannot_name_is_refused_not_left_plain(
    name: str, golden: Golden
) -> None:
    schema = pa.schema([(name, pa.string()), ("a", pa.string())])

    with golden.raises(UnsupportedType, match=r"columnar\.encryption\.columns"):
        encoder("parquet", "none", schema, encryption(name))


def test_columns_with_one_path_in_parquet_are_refused() -> None:
    schema = pa.schema([("a.b", pa.string()), ("a", pa.struct({"b": pa.string()}))])

    for name in schema.names:
        with pytest.raises(UnsupportedType, match=r"a\.b: several columns"):
            encoder("parquet", "none", schema, encryption(name))


def test_a_column_with_a_dot_is_encrypted() -> None:
    rows = pa.record_batch({"a.b": TEXTS, "c": TEXTS})
    value = encoder("parquet", "none", rows.schema, encryption("a.b"))(rows)

    assert decode(value, facts_of(("a.b",)), keys=KEYS).equals(rows)
    with pytest.raises(AccessDenied):
        decode(value, facts_of(("a.b",)))


# -- column groups ---------------------------------------------------------------------------------


def groups_of(text: str, *columns: str) -> list[EncodedGroup]:
    return encoded_groups(
        SCHEMA, GROUPS.read(text), "parquet", "none", encryption=encryption(*columns)
    )


def test_each_group_encrypts_its_own_columns() -> None:
    first, second, third = groups_of("a: id, card; b: open; c: *", "tags", "card")

    assert (first.encrypted, second.encrypted, third.encrypted) == (("card",), (), ("tags",))
    rows = to_plain(ROWS, SCHEMA)
    with pytest.raises(AccessDenied):
        decode(first.value(rows), facts_of(first.encrypted))
    assert decode(second.value(rows), facts_of(())).column("open").equals(rows.column("open"))
    found = decode(third.value(rows), facts_of(third.encrypted), keys=KEYS)
    assert found.column("tags").equals(rows.column("tags"))


def test_a_column_that_there_is_not_is_no_column_to_leave_plain(golden: Golden) -> None:
    with golden.raises(UnsupportedType, match=r"columnar\.encryption\.columns"):
        groups_of("a: *", "Card", "card")


# -- damage ----------------------------------------------------------------------------------------

_DAMAGED = """
import random, sys
sys.path[:0] = {paths!r}
from tests.unit.columnar.test_encryption import KEYS, facts_of, value_of
from extentflow.columnar.values import decode
from extentflow.errors import AccessDenied, CorruptRecord

body, rng, found = value_of().to_pybytes(), random.Random(3), set()
for _ in range(400):
    at = rng.choice([rng.randrange(len(body)), len(body) - 1 - rng.randrange(6000)])
    changed = bytearray(body)
    changed[at] ^= 1 << rng.randrange(8)
    for columns, keys in ((None, KEYS), (None, None), (["open"], None), (["card"], KEYS)):
        for facts in (facts_of(), facts_of(())):
            try:
                decode(bytes(changed), facts, columns, keys=keys)
            except (AccessDenied, CorruptRecord) as exc:
                found.add(type(exc).__name__)
print(sorted(found))
"""


def test_damaged_values_are_errors_and_end_no_process() -> None:
    code = _DAMAGED.format(paths=[path for path in sys.path if path])

    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[3],
        env=dict(os.environ),
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() == "['AccessDenied', 'CorruptRecord']"


def test_damaged_pages_with_the_right_keys_are_corrupt(golden: Golden) -> None:
    body = bytearray(value_of(encryption("card"), "none").to_pybytes())
    where = pq.ParquetFile(pa.BufferReader(bytes(body))).metadata.row_group(0).column(0)
    body[where.data_page_offset + where.total_compressed_size + 500] ^= 1

    with golden.raises(CorruptRecord, match="batch-1"):
        decode(bytes(body), facts_of(("card",)), keys=KEYS)


def test_nothing_shows_a_key() -> None:
    secret = base64.b64encode(OLD).decode()
    keys = MasterKeys.of(f"old:{secret}", "keys")

    assert keys == KEYS
    assert "oooo" not in repr(encryption()) + repr(keys)
    with pytest.raises(Misconfigured) as caught:
        MasterKeys.of(f"old:{secret}, old:{secret}", "keys")
    assert secret not in str(caught.value)
    assert replace(encryption(), key="x").key == "x"
