"""Parquet footers: what is refused before the first record, and what the message says."""

import base64
import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from tests.laws.laws import chunks, decoded
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

from extentflow.errors import (
    CorruptObject,
    ExtentflowError,
    Misconfigured,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.formats import FormatOptions
from extentflow.formats.parquet import Parquet, ParquetOptions
from extentflow.formats.parquet_footer import Footers, read_footer
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


def test_a_truncated_file_is_reported_as_truncated_parquet() -> None:
    assert "begins as Parquet but does not end with PAR1" in str(refusal(BODY[:-5]))


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


def test_a_file_that_does_not_begin_with_its_magic_is_corrupt() -> None:
    source = MemorySource(b"PARX" + BODY[4:])

    with pytest.raises(CorruptObject, match=r"s3://memory/object\[0-4\) is b'PARX', not PAR1"):
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


def test_a_footer_that_miscounts_its_rows_is_corrupt() -> None:
    footer, rows, more = footer_of(BODY), bytes.fromhex("16d804"), bytes.fromhex("16da04")

    error = refusal(with_footer(BODY, footer.replace(rows, more, 1)))

    assert "states 301 rows, but its row groups contain 300" in str(error)


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

    @pytest.mark.parametrize("kind", ["columns-and-footer", "columns-only"])
    def test_columns_with_keys_of_their_own_are_refused_and_not_touched(
        self, kind: str, tmp_path: Path
    ) -> None:
        """Trap: reading their metadata ends the process, so another one tries."""
        factory = pe.CryptoFactory(_Keys)
        configured = pe.EncryptionConfiguration(**self.KINDS[kind], double_wrapping=False)
        keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), configured)
        table = pa.table({"b": range(9), "a": range(9), "c": range(9)})
        path = tmp_path / "columns.parquet"
        path.write_bytes(written(table, encryption_properties=keys))
        secret = base64.b64encode(_Keys.wrapped["f"]).decode()

        found = subprocess.run(
            [sys.executable, "-c", REFUSE, str(path), secret],
            env={"PYTHONPATH": str(Path("layers/core/python").resolve())},
            capture_output=True,
            text=True,
            check=False,
        )

        assert (found.returncode, found.stderr) == (0, "")
        assert "all its columns must have the key of the footer" in found.stdout


REFUSE = """
import base64, sys
from pathlib import Path
from extentflow.errors import UnsupportedFormat
from extentflow.formats.parquet_footer import read_footer
from extentflow.testing.stores import MemorySource

try:
    read_footer(MemorySource(Path(sys.argv[1]).read_bytes()), base64.b64decode(sys.argv[2]))
except UnsupportedFormat as exc:
    print(exc)
"""

FOOTER_KEY = b"0123456789abcdef"
SECRET = base64.b64encode(FOOTER_KEY).decode()
ENCRYPTED = pa.table({"n": range(3_000), "s": [f"text {n}" for n in range(3_000)]})


def encrypted(**options: Any) -> bytes:  # noqa: ANN401
    keys = pe.create_encryption_properties(FOOTER_KEY, **options)
    return written(ENCRYPTED, encryption_properties=keys, row_group_size=700)


def decrypted(body: bytes, secret: str | None, footers: Footers | None = None) -> pa.Table:
    own = ParquetOptions(encryption_footer_key=secret)
    fmt = Parquet(FormatOptions(window_bytes=2_000), footers or Footers(), 2, own)
    source = MemorySource(body)
    ranges = list(fmt.plan(source, 5_000))
    assert len(ranges) > 1
    found = [chunk.batch for cut in ranges for chunk in chunks(fmt, source, *cut)]
    return pa.Table.from_batches(found)


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("footer", ["encrypted", "plain"])
def test_a_file_with_one_key_is_decrypted_by_ranges(algorithm: str, footer: str) -> None:
    body = encrypted(encryption_algorithm=algorithm, plaintext_footer=footer == "plain")

    assert decrypted(body, SECRET) == ENCRYPTED


def test_a_plain_file_is_read_although_a_key_is_set() -> None:
    assert decrypted(written(ENCRYPTED, row_group_size=700), SECRET) == ENCRYPTED


@pytest.mark.parametrize("footer", ["encrypted", "plain"])
def test_another_key_is_refused(footer: str) -> None:
    body = encrypted(plaintext_footer=footer == "plain")
    other = base64.b64encode(b"another key 16 b").decode()

    with pytest.raises(UnsupportedFormat, match="cannot be decrypted with parquet"):
        decrypted(body, other)


def test_a_footer_that_was_decrypted_is_not_used_without_its_key() -> None:
    footers, body = Footers(), encrypted()
    decrypted(body, SECRET, footers)

    with pytest.raises(UnsupportedFormat, match="encrypted Parquet file"):
        decrypted(body, None, footers)


@pytest.mark.parametrize("secret", ["not base64!", base64.b64encode(b"too short").decode(), ""])
def test_a_secret_that_is_no_key_is_reported_without_it(secret: str) -> None:
    with pytest.raises(Misconfigured, match="not the base64 of 16, 24 or 32 bytes") as caught:
        decrypted(encrypted(), secret)

    assert not secret or secret not in str(caught.value)


def test_a_format_does_not_show_its_key() -> None:
    fmt = Parquet(FormatOptions(), own=ParquetOptions(encryption_footer_key=SECRET))

    assert SECRET not in repr(fmt)


def test_a_damaged_page_of_an_encrypted_file_is_lost_rows() -> None:
    body = bytearray(encrypted())
    body[len(body) // 2] ^= 1
    own = ParquetOptions(encryption_footer_key=SECRET)
    fmt = Parquet(FormatOptions(), Footers(), 0, own)

    found = list(chunks(fmt, MemorySource(bytes(body)), 0, len(body)))

    rows = sum(chunk.batch.num_rows for chunk in found)
    ((bad,),) = [chunk.bad for chunk in found if chunk.bad]
    assert 0 < rows < len(ENCRYPTED)
    assert "are lost" in bad.reason


@pytest.mark.parametrize("values", [91, 101])
def test_a_column_with_another_number_of_values_than_rows_is_corrupt(values: int) -> None:
    """Trap: its page was read to its end, and the values of further pages moved to other rows."""
    element = Element("x", REQUIRED, INT64)
    body = parquet_file([element], [Column(["x"], INT64, list(range(values)))], 100)

    with pytest.raises(CorruptObject, match=f"{values} values in column 'x' of the 100 rows"):
        read_footer(MemorySource(body))


def test_a_map_with_optional_keys_is_rejected_as_such() -> None:
    group = Element("key_value", REPEATED, children=2)
    members = [Element("key", OPTIONAL, INT32), Element("value", OPTIONAL, INT32)]
    elements = [Element("m", OPTIONAL, children=1, converted=MAP), group, *members]
    columns = [Column(["m", "key_value", each.name], INT32, [1], [3], [0]) for each in members]

    with pytest.raises(UnsupportedType, match="a map whose keys are optional"):
        read_footer(MemorySource(parquet_file(elements, columns, 1)))
