"""What first bytes show, and refusals that say what to set."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
import zstandard
from pyarrow import orc, parquet
from tests.laws.laws import decoded
from tests.support.golden import Golden

from extentflow import formats
from extentflow.errors import UnsupportedFormat
from extentflow.formats import FormatOptions
from extentflow.formats.csv.csv_format import open_csv
from extentflow.formats.json.jsonl_format import JsonlOptions, open_jsonl
from extentflow.formats.magic import TAIL_BYTES, needs_tail, recognise, require_signature
from extentflow.formats.text.line_format import LineFormat
from extentflow.formats.text.text_format import TEXT as TEXT_FORMAT
from extentflow.formats.text.text_format import open_text
from extentflow.model import ObjectVersion
from extentflow.testing.stores import MemorySource

TEXT = b"a,b\n1,2\n" * 50
TABLE = pa.table({"a": [1, 2]})
VERSION = ObjectVersion("bucket", "key", None, "etag", 10)


def written(write: str) -> bytes:
    out = io.BytesIO()
    if write == "parquet":
        parquet.write_table(TABLE, out)
    elif write == "orc":
        orc.write_table(TABLE, out)
    elif write in ("zip", "xlsx"):
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("a.csv" if write == "zip" else "[Content_Types].xml", TEXT)
    else:
        with tarfile.open(fileobj=out, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("a.csv"))
    return out.getvalue()


OBJECTS = {
    "gzip": gzip.compress(TEXT),
    "zstd": zstandard.ZstdCompressor().compress(TEXT),
    "bzip2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "lz4": pa.Codec("lz4").compress(TEXT, asbytes=True),
    "snappy": b"\xff\x06\x00\x00sNaPpY" + TEXT,
    "zip": written("zip"),
    "tar": written("tar"),
    "parquet": written("parquet"),
    "orc": written("orc"),
    "xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
    "xlsx": written("xlsx"),
    "arrow": b"ARROW1\0\0" + TEXT,
    "avro": b"Obj\x01\x04\x14avro.codec" + TEXT,
}
SETTINGS = {
    "gzip": "set file.compression.type=gzip",
    "zstd": "set file.compression.type=zstd",
    "parquet": "set input.format=parquet",
    "arrow": "set input.format=arrow",
    "avro": "set input.format=avro",
    "orc": "set input.format=orc",
}


@pytest.mark.parametrize("name", sorted(OBJECTS))
@pytest.mark.parametrize(
    "opened",
    [open_text, open_jsonl, partial(open_jsonl, own=JsonlOptions(validate=False)), open_csv],
)
@pytest.mark.parametrize("validate", [True, False])
def test_another_kind_of_object_is_rejected_before_its_first_record(
    name: str,
    opened: Callable[[FormatOptions], LineFormat],
    validate: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    body = OBJECTS[name]
    fmt = opened(FormatOptions(validate_text=validate))

    with pytest.raises(UnsupportedFormat, match=f"memory/object begins as {name} ") as caught:
        decoded(fmt, MemorySource(body), (len(body) // 2, len(body)))

    assert SETTINGS.get(name, "") in str(caught.value)


@pytest.mark.parametrize("charset", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("html", "<html><body><table><tr><td>id</td></tr></table></body></html>"),
        ("html", "\r\n  <!DOCTYPE html>\n<html>"),
        ("html", '<TABLE border="1">\n<tr>'),
        ("html", "<!-- 503 -->\n<html>"),
        ("xml", '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>'),
        ("html", '<meta charset="utf-8"><p>503'),
        ("xml or html", "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"),
        ("xml or html", "<h1>Not found</h1>"),
        ("xml or html", "<center>\r\n<h1>502 Bad Gateway</h1></center>"),
        ("xml or html", '<soap:Envelope xmlns:soap="urn:x">\n'),
        ("xml or html", "<Error/>"),
        ("PGP", "-----BEGIN PGP MESSAGE-----\n\nhQEM"),
        ("age", "age-encryption.org/v1\n-> X25519"),
        ("Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
    ],
)
def test_a_page_of_markup_is_no_csv_and_no_json(name: str, text: str, charset: str) -> None:
    body = text.encode(charset)
    options = FormatOptions(charset=charset if charset == "utf-16-le" else None)

    for fmt in (open_csv(options), open_jsonl(options)):
        with pytest.raises(UnsupportedFormat, match=f"begins as {name} .* says {fmt.name}; "):
            decoded(fmt, MemorySource(body), (0, len(body)))
    assert decoded(open_text(options), MemorySource(body), (0, len(body))).rows
    packed = gzip.compress(body)
    gzipped = open_csv(replace(options, compression="gzip"))
    with pytest.raises(UnsupportedFormat, match=name):
        decoded(gzipped, MemorySource(packed), (0, len(packed)))


@pytest.mark.parametrize(
    "header", [b"<TICKER>,<DATE>", b"<tables>,x", b"<,>", b"<xml>,x", b"<DATE>\t<TIME>,<P>"]
)
def test_names_in_angle_brackets_are_a_header(header: bytes) -> None:
    body = header + b"\n1,2\n"

    assert len(decoded(open_csv(FormatOptions()), MemorySource(body), (0, len(body))).rows) == 1


@pytest.mark.parametrize("name", [name for name, body in OBJECTS.items() if not needs_tail(body)])
def test_decompressed_content_is_checked_too(name: str) -> None:
    packed = gzip.compress(OBJECTS[name])

    with pytest.raises(UnsupportedFormat, match=f"holds {name} .* within gzip"):
        decoded(
            open_text(FormatOptions(compression="gzip")), MemorySource(packed), (0, len(packed))
        )


@pytest.mark.parametrize(
    "body",
    [
        b"PAR1,name\n1,2\n",
        b"ORCHARD,name\n",
        b"BZh,9\n",
        b"BZh91,x\n",
        b"PK,1\n",
        b"Obj1\n",
        b"\x1f\n",
        b"(\n",
        b"\xef\xbb\xbfx\n",
        b"",
        b"P",
        b"x" * 257 + b"usta",
    ],
)
def test_text_that_only_looks_similar_is_no_signature(body: bytes) -> None:
    assert recognise(body, body[-TAIL_BYTES:]) is None


@pytest.mark.parametrize("body", [b"PAR1,name\n1,2\n", b"ORCHARD,name\n"])
def test_such_text_is_read(body: bytes) -> None:
    result = decoded(open_text(FormatOptions()), MemorySource(body), (0, len(body)))

    assert len(result.rows) == body.count(b"\n")


def test_zstd_may_begin_with_a_skippable_frame() -> None:
    found = recognise(b"\x5a\x2a\x4d\x18\x02\x00\x00\x00ab" + OBJECTS["zstd"])

    assert found is not None
    assert (found.kind, found.name) == ("compression", "zstd")


def test_the_expected_format_is_not_rejected() -> None:
    body = OBJECTS["parquet"]

    require_signature(VERSION, body[:264], body[-4:], expected="parquet")


def test_a_columnar_format_rejects_others_by_the_same_function(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat) as caught:
        require_signature(VERSION, OBJECTS["gzip"], expected="parquet")

    assert "s3://bucket/key" in str(caught.value)


def test_a_format_that_is_not_registered_is_never_advised(
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    body = OBJECTS["orc"]
    monkeypatch.setattr(formats.FORMATS, "_declared", {})
    monkeypatch.setattr(formats.FORMATS, "_loaded", {})

    with golden.raises(UnsupportedFormat) as caught:
        require_signature(VERSION, body[:264], body[-TAIL_BYTES:], expected="text")

    assert "set input.format" not in str(caught.value)


def test_a_registered_format_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(formats.FORMATS._loaded, "avro", TEXT_FORMAT)

    with pytest.raises(UnsupportedFormat, match=r"set input\.format=avro"):
        require_signature(VERSION, OBJECTS["avro"], expected="text")


def test_signature_check_costs_one_small_read_per_version() -> None:
    source = MemorySource(b"line\n" * 200_000)
    fmt = open_text(FormatOptions())

    for start in (500_000, 600_000):
        decoded(fmt, source, (start, start + 1000))

    assert [read for read in source.reads if read[0] == 0] == [(0, 1_000_000 // 256)]
