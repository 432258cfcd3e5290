"""Parquet footers: what is refused before the first record, and what the message says."""

import base64
import gzip
import io
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from tests.laws.laws import decoded
from tests.laws.parquet_bytes import (
    INT32,
    INT64,
    MAP,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    Column,
    Element,
    parquet_file,
)
from tests.laws.parquet_cases import ONE_COLUMN, wide_table, written
from tests.support.golden import Golden

from extentflow.errors import (
    CorruptObject,
    ExtentflowError,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.compact_protocol import BINARY
from extentflow.formats.parquet.footer import Footers, read_footer
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.formats.parquet.thrift_tree import read_struct, write_struct
from extentflow.testing.stores import MemorySource

BODY = written(wide_table(300), row_group_size=100)


def footer_of(body: bytes) -> bytes:
    return body[-8 - int.from_bytes(body[-8:-4], "little") : -8]


def with_footer(body: bytes, footer: bytes) -> bytes:
    """Return the body's pages under another footer."""
    pages = body[: -8 - len(footer_of(body))]
    return pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def refusal(body: bytes) -> ExtentflowError:
    with pytest.raises(ExtentflowError) as caught:
        read_footer(MemorySource(body))
    assert str(caught.value).startswith("s3://memory/object")
    return caught.value


@pytest.mark.parametrize("kept", [1, 4, 11, 12, 1000, len(BODY) - 1])
def test_a_truncated_file_is_corrupt(kept: int) -> None:
    error = refusal(BODY[:kept])

    assert isinstance(error, CorruptObject | UnsupportedFormat)
    assert isinstance(error, CorruptObject) or kept < 4


def test_a_truncated_file_is_reported_as_truncated_parquet(golden: Golden) -> None:
    golden(str(refusal(BODY[:-5])))


def test_another_compression_is_named_with_its_remedy() -> None:
    error = refusal(gzip.compress(BODY))

    assert isinstance(error, UnsupportedFormat)
    assert "gzip" in str(error)


def test_something_else_is_no_parquet() -> None:
    error = refusal(b"a,b\n" * 100)

    assert isinstance(error, UnsupportedFormat)
    assert "set input.format" in str(error)


@pytest.mark.parametrize("length", [0, 1, len(BODY) - 8, len(BODY), 2**31, 2**32 - 1])
def test_a_footer_of_a_false_length_is_corrupt(length: int) -> None:
    body = BODY[:-8] + length.to_bytes(4, "little") + b"PAR1"

    assert isinstance(refusal(body), CorruptObject)


def test_bytes_behind_the_footer_are_not_ignored() -> None:
    error = refusal(with_footer(BODY, footer_of(BODY) + b"\0" * 5))

    assert isinstance(error, CorruptObject)
    assert "5 unexpected bytes in its footer" in str(error)


def test_a_file_that_does_not_begin_with_its_magic_is_corrupt(golden: Golden) -> None:
    source = MemorySource(b"PARX" + BODY[4:])

    with golden.raises(CorruptObject, match=r"s3://memory/object\[0-4\).*'PARX'.*PAR1"):
        decoded(Parquet(FormatOptions(), Footers()), source, (0, len(BODY)))


def _metadata_file(metadata: pq.FileMetaData) -> bytes:
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    return bytes(sink.getvalue().to_pybytes())


def _footers_of_two(first: bytes, second: bytes) -> bytes:
    """Return a footer with the row groups of both files."""
    metadata = pq.read_metadata(pa.BufferReader(first))
    metadata.append_row_groups(pq.read_metadata(pa.BufferReader(second)))
    return footer_of(_metadata_file(metadata))


def test_a_footer_that_miscounts_its_rows_is_corrupt(golden: Golden) -> None:
    footer, rows, more = footer_of(BODY), bytes.fromhex("16d804"), bytes.fromhex("16da04")

    error = refusal(with_footer(BODY, footer.replace(rows, more, 1)))

    golden(str(error))
    assert "301" in str(error)


def test_a_footer_that_states_no_rows_is_read_by_its_row_groups(golden: Golden) -> None:
    """Old versions of a writer in Rust stated none; DuckDB reads such files, too."""
    footer, rows, none = footer_of(BODY), bytes.fromhex("16d804"), bytes.fromhex("1600")
    body = with_footer(BODY, footer.replace(rows, none, 1))

    result = decoded(Parquet(FormatOptions()), MemorySource(body), (0, len(body)))

    assert result.rows == wide_table(300).to_pylist()
    # Nothing but lists does not show how many rows there are.
    lists = written(pa.table({"l": [[n] for n in range(300)]}))
    where = footer_of(lists)
    assert rows in where
    golden(str(refusal(with_footer(lists, where.replace(rows, none, 1)))))


def test_row_groups_that_overlap_are_corrupt() -> None:
    body = with_footer(BODY, _footers_of_two(BODY, BODY))

    error = refusal(body)

    assert isinstance(error, CorruptObject)
    assert "row group 3 at [4-" in str(error)


def test_row_groups_behind_the_footer_are_corrupt() -> None:
    other = written(wide_table(3_000), row_group_size=1_500)

    assert isinstance(refusal(with_footer(BODY, footer_of(other))), CorruptObject)


def test_a_summary_of_other_files_is_rejected() -> None:
    metadata = pq.read_metadata(pa.BufferReader(BODY))
    metadata.set_file_path("part-0.parquet")

    error = refusal(with_footer(BODY, footer_of(_metadata_file(metadata))))

    assert isinstance(error, UnsupportedFormat)
    assert "part-0.parquet" in str(error)


class _Keys(pe.KmsClient):  # type: ignore[misc]
    """Keys that are their own names."""

    wrapped: ClassVar[dict[str, bytes]] = {}

    def __init__(self, _: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, name: str) -> bytes:
        self.wrapped[name] = bytes(key_bytes)
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped_key)


class TestEncryption:
    """Encrypted files are refused before anything looks at their columns."""

    KINDS: ClassVar[dict[str, dict[str, Any]]] = {
        "everything": {"footer_key": "f", "uniform_encryption": True},
        "columns-and-footer": {"footer_key": "f", "column_keys": {"c": ["a"]}},
        "columns-only": {"footer_key": "f", "column_keys": {"c": ["a"]}, "plaintext_footer": True},
        "plain-footer": {"footer_key": "f", "uniform_encryption": True, "plaintext_footer": True},
    }

    @pytest.mark.parametrize("kind", sorted(KINDS))
    def test_an_encrypted_file_is_rejected_with_a_remedy(self, kind: str) -> None:
        factory = pe.CryptoFactory(_Keys)
        keys = factory.file_encryption_properties(
            pe.KmsConnectionConfig(), pe.EncryptionConfiguration(**self.KINDS[kind])
        )

        error = refusal(written(ONE_COLUMN, encryption_properties=keys))

        assert isinstance(error, UnsupportedFormat)
        assert "encrypted" in str(error)
        assert "decrypt it" in str(error)


@pytest.mark.parametrize("values", [91, 101])
def test_a_column_with_another_number_of_values_than_rows_is_corrupt(
    values: int, golden: Golden
) -> None:
    """Trap: its page was read to its end, and the values of further pages moved to other rows."""
    element = Element("x", REQUIRED, INT64)
    body = parquet_file([element], [Column(["x"], INT64, list(range(values)))], 100)

    with golden.raises(CorruptObject, match=f"{values}.*'x'.*100"):
        read_footer(MemorySource(body))


def test_a_map_with_optional_keys_is_rejected_as_such(golden: Golden) -> None:
    group = Element("key_value", REPEATED, children=2)
    members = [Element("key", OPTIONAL, INT32), Element("value", OPTIONAL, INT32)]
    elements = [Element("m", OPTIONAL, children=1, converted=MAP), group, *members]
    columns = [Column(["m", "key_value", each.name], INT32, [1], [3], [0]) for each in members]

    with golden.raises(UnsupportedType):
        read_footer(MemorySource(parquet_file(elements, columns, 1)))


# -- columns that Arrow cannot read ----------------------------------------------------------------


WIDE = pa.table(
    {
        "a": pa.array(["x", None], pa.large_string()),
        "l": pa.array([[1, 2], []], pa.list_(pa.int64())),
        "i128": pa.array([1, 2], pa.int8()),
        "z": pa.array([3, None], pa.duration("us")),
    }
)


def int128() -> bytes:
    """Return a file whose Arrow schema has an integer of 128 bits, as Polars writes it."""
    sink = io.BytesIO()
    pq.write_table(WIDE, sink)
    body = sink.getvalue()
    tree, _ = read_struct(footer_of(body))
    (pair,) = (one for one in tree.structs(5) if one.get(1) == b"ARROW:schema")
    message = bytearray(base64.b64decode(pair.get(2)))
    # No other number of the schema is 8: the bits of the integer.
    places = [at for at in range(0, len(message), 4) if message[at : at + 4] == b"\x08\0\0\0"]
    for place in places:
        changed = message[:place] + (128).to_bytes(4, "little") + message[place + 4 :]
        try:
            pa.ipc.read_schema(pa.BufferReader(bytes(changed)))
        except pa.ArrowNotImplementedError:
            pair.set(2, BINARY, base64.b64encode(changed))
            return with_footer(body, write_struct(tree))
        except (pa.ArrowException, OSError):
            continue
    raise AssertionError("no integer of 8 bits in the schema")


@pytest.mark.parametrize("select", [(), ("i128",), ("a", "i128")])
def test_a_column_of_a_type_that_arrow_lacks_is_named(
    select: tuple[str, ...], golden: Golden
) -> None:
    source = MemorySource(int128())

    with golden.raises(UnsupportedType, match="column 'i128'.*select"):
        Parquet(FormatOptions(select=select)).schema(source)


@pytest.mark.parametrize("select", [("a",), ("z", "l"), ("a", "l", "z")])
def test_other_columns_than_those_that_arrow_lacks_can_be_selected(select: tuple[str, ...]) -> None:
    body = int128()
    fmt = Parquet(FormatOptions(select=select))

    result = decoded(fmt, MemorySource(body), (0, len(body)))

    kept = [name for name in WIDE.column_names if name in select]
    assert fmt.schema(MemorySource(body)).types == WIDE.select(kept).schema.types
    assert result.rows == WIDE.select(kept).to_pylist()
    assert result.bad == []
