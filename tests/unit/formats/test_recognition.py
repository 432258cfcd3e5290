"""Formats by content, where neither a setting nor the extension decides."""

import gzip
import io

import pyarrow as pa
import pytest
from pyarrow import parquet

from extentflow.formats.recognition import recognised_format


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


def test_compressed_content_is_recognised_too() -> None:
    packed = gzip.compress(b'{"a": 1}\n{"a": 2}\n' * 100_000)

    assert recognised_format(packed[:1000], packed[-4:], "gzip") == "jsonl"
