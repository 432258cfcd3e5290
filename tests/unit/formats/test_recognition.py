"""Formats by content, where neither a setting nor the extension decides."""

import bz2
import gzip
import io

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.laws.compression_cases import END_MARKER, bgzf, snappy

from extentflow.formats.recognition import recognised_compression, recognised_format


def parquet_object() -> bytes:
    out = io.BytesIO()
    parquet.write_table(pa.table({"a": [1]}), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"a": 1}\n{"a": 2}\n', "jsonl"),
        (b'{"a": 1}\n', "jsonl"),
        (b'{"a": 1}', "jsonl"),
        (b'\n\xef\xbb\xbf{"a": 1}'[1:], "jsonl"),
        (b"[1, 2]\n[3, 4]\n", "jsonl"),
        (b'{\n  "a": 1\n}\n', "json"),
        (b'[{"a": 1},\n{"a": 2}]', "json"),
        (b"[1, 2]\n", "json"),
        (b'{"a": 1}{"a": 2}\n{"a": 3}', "json"),
        (b'{"a": "' + b"x" * 100_000 + b'"}\n{}', "json"),
        ('\ufeff{"a": 1}\n{"a": 2}\n'.encode("utf-16-le"), "jsonl"),
        (parquet_object(), "parquet"),
        (b"Obj\x01\x04\x14avro.codec", "avro"),
        (b"\xfd7zXZ\x00\x00\x04", "xz"),
        (b"PK\x03\x04", "zip"),
        (bytes(257) + b"ustar", "tar"),
        (b"a,b\n1,2\n", None),
        (b"{not json, but text", "json"),
        (b"plain text", None),
        (b"", None),
    ],
)
def test_a_format_is_recognised_by_content_and_text_is_never_guessed(
    body: bytes, name: str | None
) -> None:
    assert recognised_format(body[: 64 << 10], body[-4:]) == name


LINES = '{"a": "é"}\n{"a": 2}\n'


@pytest.mark.parametrize(
    ("body", "charset", "name"),
    [
        (LINES.encode("utf-16-le"), "UTF-16LE", "jsonl"),
        (LINES.encode("utf-16-be"), "UTF-16BE", "jsonl"),
        (LINES.encode("utf-16-be"), "UTF-16", "jsonl"),
        (LINES.encode("utf-16"), "UTF-16", "jsonl"),
        (LINES.encode("utf-32-be"), "UTF-32BE", "jsonl"),
        (LINES.encode("cp500"), "cp500", "jsonl"),
        (b'[{"a": "\xe9"},\n{}]'.decode("latin-1").encode("cp037"), "cp037", "json"),
        (LINES.encode("latin-1"), "ISO-8859-1", "jsonl"),
        # Whatever lines are written in, binary formats are not.
        (b"Obj\x01\x04\x14avro.codec", "cp500", "avro"),
        (parquet_object(), "UTF-16LE", "parquet"),
        ("a,b\n1,2\n".encode("cp500"), "cp500", None),
        # Decoding states why it refuses these: the mark, the byte order, the character set.
        (("\ufeff" + LINES).encode("utf-16-le"), "UTF-8", "jsonl"),
        (LINES.encode("utf-16-be"), None, "jsonl"),
        (LINES.encode(), "UTF-16", "jsonl"),
    ],
)
def test_a_format_is_recognised_in_the_configured_character_set(
    body: bytes, charset: str | None, name: str | None
) -> None:
    assert recognised_format(body[: 64 << 10], body[-4:], charset=charset) == name


def test_a_character_that_the_sample_cuts_off_counts_for_none() -> None:
    body = ('{"a": "' + "é" * 100 + '"}\n{}\n{"b": "é"}').encode("utf-16-le")

    assert recognised_format(body[:-5], b"", charset="UTF-16LE") == "jsonl"


def test_compressed_content_is_decoded_by_the_configured_character_set() -> None:
    packed = gzip.compress((LINES * 100_000).encode("cp500"))

    assert recognised_format(packed[:1000], packed[-4:], "gzip", "cp500") == "jsonl"


def test_compressed_content_is_recognised_too() -> None:
    packed = gzip.compress(b'{"a": 1}\n{"a": 2}\n' * 100_000)

    assert recognised_format(packed[:1000], packed[-4:], "gzip") == "jsonl"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (gzip.compress(b"a,b", mtime=0), "gzip"),
        (pa.compress(b"a,b", "zstd", asbytes=True), "zstd"),
        (b"\x50\x2a\x4d\x18\x01\0\0\0x" + pa.compress(b"a,b", "zstd", asbytes=True), "zstd"),
        (bz2.compress(b"a,b"), "bzip2"),
        (pa.Codec("lz4").compress(b"a,b", asbytes=True), "lz4"),
        (snappy(b"a,b"), "snappy"),
        (bgzf(b"a,b\n" * 9, lambda: 5)[0], "bgzf"),
        # Without the last block, only gzip reads it.
        (bgzf(b"a,b\n" * 9, lambda: 5)[0].removesuffix(END_MARKER), "gzip"),
        (b"\xfd7zXZ\x00\x00\x04", "none"),
        (b"PK\x03\x04", "none"),
        (parquet_object(), "none"),
        (b"a,b\n", "none"),
        (b"", "none"),
    ],
)
def test_a_compression_is_recognised_by_content(body: bytes, name: str) -> None:
    assert recognised_compression(body[:264], body[-28:]) == name
