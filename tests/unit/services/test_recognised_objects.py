"""Objects whose name, content and connector disagree: delivered right or refused, no garbage."""

import bz2
import gzip
import io
import json
import lzma
import zipfile

import pyarrow as pa
import pytest
from pyarrow import orc
from tests.laws.arrow_cases import written as arrow_file
from tests.laws.avro_cases import written as avro_file
from tests.laws.parquet_cases import written as parquet_file
from tests.support.golden import Golden
from tests.support.object_delivery import TOLERANT, deliver

from extentflow.formats import FORMATS
from extentflow.model import JobState

TABLE = pa.table({"a": [1, 2]})
ROWS = [{"a": 1}, {"a": 2}]
LINES = b'{"a": 1}\n{"a": 2}\n'


def orc_file() -> bytes:
    out = io.BytesIO()
    orc.write_table(TABLE, out)
    return out.getvalue()


AVRO = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
PARQUET, ORC, ARROW = parquet_file(TABLE), orc_file(), arrow_file(TABLE, 9)
BINARY = {"parquet": PARQUET, "orc": ORC, "arrow": ARROW, "avro": avro_file(AVRO, ROWS)}


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def without_bytes(value: object) -> str | None:
    """Return the part of a test's name for a parameter: none for bodies."""
    return "" if isinstance(value, bytes) else None


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
    return out.getvalue()


@pytest.mark.parametrize(
    ("key", "body", "name"),
    [
        *((f"data.{name}", body, name) for name, body in BINARY.items()),
        *((f"part-{name}", body, name) for name, body in BINARY.items()),
        *((f"{name}.dat", body, name) for name, body in BINARY.items()),
        ("data.parq", PARQUET, "parquet"),
        ("data.feather", ARROW, "arrow"),
        ("lines.json", LINES, "jsonl"),
        ("lines.json.gz", gzipped(LINES), "jsonl"),
        ("lines", LINES, "jsonl"),
        ("lines.gz", gzipped(LINES), "jsonl"),
        ("packed", bz2.compress(LINES), "jsonl"),
        ("array.json", json.dumps(ROWS, indent=1).encode(), "json"),
        ("array.json.gz", gzipped(json.dumps(ROWS).encode()), "json"),
        ("pretty", json.dumps(ROWS[0], indent=1).encode() + b"\n" + LINES[9:], "json"),
        ("marked.json", "\ufeff".encode("utf-16-le") + LINES.decode().encode("utf-16-le"), "jsonl"),
    ],
    ids=without_bytes,
)
def test_name_or_content_decides_and_the_rows_arrive(key: str, body: bytes, name: str) -> None:
    outcome = deliver({key: body})

    assert outcome.plans.problems == ()
    assert outcome.formats == {key: name}
    assert [json.loads(value) for value in outcome.values] == ROWS
    assert outcome.states == {key: JobState.DONE}


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("a.tsv", b"a\tb\n1\tx,y\n"),
        ("a.tsv.gz", gzipped(b"a\tb\n1\tx,y\n")),
        ("a.csv", b'a,b\n1,"x,y"\n'),
        ("a.csv", "\ufeffa,b\r\n1,'x,y'\r\n".replace("'", '"').encode("utf-16-be")),
        ("a.csv.gz", gzipped(b'\xef\xbb\xbfa,b\n1,"x,y"\n')),
        ("a.csv.gz", gzipped('\ufeffa,b\n1,"x,y"'.encode("utf-16-le"))),
        ("a.csv.bz2", bz2.compress(b'a,b\n1,"x,y"\n')),
    ],
    ids=without_bytes,
)
def test_csv_of_every_wrapping_is_read(key: str, body: bytes) -> None:
    outcome = deliver({key: body})

    assert [json.loads(value) for value in outcome.values] == [{"a": "1", "b": "x,y"}]
    assert outcome.states == {key: JobState.DONE}


LONG = "id,name\n" + "".join(f"{row},имя {row}\n" for row in range(100))
CONTRADICTIONS = {
    "a.csv": [
        *((body, f"begins as {name} (format)") for name, body in BINARY.items()),
        (gzipped(b"a\n1\n"), "begins as gzip (compression)"),
        (lzma.compress(b"a\n1\n"), "begins as xz (compression)"),
        (zipped(), "begins as zip (archive)"),
        (LONG.encode("utf-16-le"), "looks like UTF-16LE"),
        (LONG.encode("utf-16-be"), "looks like UTF-16BE"),
        (LONG.encode("utf-32-be"), "looks like UTF-32BE"),
        (b"\xff", "not UTF-8"),
        (LONG.replace("имя", "name").encode("cp037"), "character.set"),
    ],
    "a.csv.gz": [
        (b"a\n1\n", "does not begin as gzip"),
        (PARQUET, "begins as parquet (format)"),
        (gzipped(gzipped(b"a\n1\n")), "holds gzip (compression) within gzip"),
        (gzipped(LONG.encode("utf-16-le")), "looks like UTF-16LE"),
        (gzipped(LONG.encode("utf-32-le")), "looks like UTF-32LE"),
        (gzipped(ARROW), "holds arrow (format) within gzip"),
    ],
    "a.jsonl": [
        (PARQUET, "begins as parquet (format)"),
        (b"a,b\n1,2\n", "not one JSON value"),
        (LINES.decode().encode("utf-16-le"), "looks like UTF-16LE"),
        (LINES.decode().encode("cp500"), "not UTF-8"),
    ],
    "a.json": [
        (LINES.decode().encode("utf-16-be"), "looks like UTF-16BE"),
        (b"<a/>", "begins as xml or html (markup)"),
        (PARQUET[:-4], "not UTF-8"),
    ],
    "a.txt": [
        *((body, f"begins as {name} (format)") for name, body in BINARY.items()),
        (LONG.encode("utf-16-le"), "looks like UTF-16LE"),
        ("имя".encode("utf-16-be"), "looks like UTF-16BE"),
        ("été".encode("cp037"), "not UTF-8"),
    ],
    "a.parquet": [
        (b"a,b\n1,2\n", "is not a Parquet file"),
        (ORC, "begins as orc (format)"),
        (gzipped(PARQUET), "begins as gzip (compression)"),
        (b"PAR1", "PAR1"),
    ],
    "a.orc": [(PARQUET, "begins as parquet (format)"), (b"a,b\n", "is not an ORC file")],
    "a.avro": [
        (PARQUET, "is not an Avro file (it begins with 'PAR1'"),
        (b"a,b\n", "is not an Avro file"),
    ],
    "a.arrow": [(PARQUET, "begins as parquet (format)"), (b"a,b\n1,2\n", "rrow")],
    "data": [
        (b"a,b\n1,2\n", "the name has no extension of a format, and the content shows none"),
        (b"\xfd7zXZ\x00\x00\x04", "begins as xz, which is not read; unpack it and upload"),
        (LONG.encode("utf-16-le"), "the name has no extension of a format"),
        (zipped(), "begins as zip, which is not read; unpack it and upload"),
    ],
    "data.xyz": [(b"a,b\n1,2\n", "the extension .xyz is of no known format")],
    "a.parquet.gz": [(gzipped(PARQUET), "gzip around parquet is not read")],
}


@pytest.mark.parametrize("tolerance", ["none", "all"])
@pytest.mark.parametrize(
    ("key", "body", "why"),
    [(key, body, why) for key, cases in CONTRADICTIONS.items() for body, why in cases],
    ids=without_bytes,
)
def test_content_that_contradicts_the_name_delivers_no_record(
    key: str, body: bytes, why: str, tolerance: str
) -> None:
    outcome = deliver({key: body}, **(TOLERANT if tolerance == "all" else {}))

    assert outcome.values == []
    if tolerance == "none":
        assert why in outcome.reasons
        assert ";" in outcome.reasons or "JSON" in why  # what to do
        assert JobState.DONE not in outcome.states.values()
        assert any(why in problem for problem in outcome.plans.problems)
    else:
        assert outcome.dead or JobState.DONE not in outcome.states.values()


@pytest.mark.parametrize("name", [name for name in FORMATS.names() if FORMATS.is_built_in(name)])
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "bgzf"])
def test_an_object_of_0_bytes_is_refused_where_every_object_has_a_signature(
    name: str, compression: str
) -> None:
    spec = FORMATS.get(name)
    if compression != "none" and (not spec.compressible or spec.opaque):
        return  # refused or ignored with any content
    settings = {"input__format": name, "file__compression__type": compression}
    if not spec.compressible or spec.opaque:
        del settings["file__compression__type"]

    outcome = deliver({"in/a": b""}, **settings)

    if spec.compressible and compression == "none":
        assert outcome.states == {"in/a": JobState.DONE}
        assert outcome.plans.problems == ()
    else:
        assert outcome.states == {"in/a": JobState.FAILED}
        assert "s3://shop/in/a has 0 bytes, which no " in outcome.reasons
        assert "; upload it again, or remove it" in outcome.reasons
        assert any("has 0 bytes" in problem for problem in outcome.plans.problems)
    assert outcome.values == []


def test_an_object_of_0_bytes_without_an_extension_shows_no_format(golden: Golden) -> None:
    outcome = deliver({"a": b""})

    golden(outcome.reasons)


@pytest.mark.parametrize("body", [b"", b"\n\n", b"a,b\n", b"\xef\xbb\xbf", b"\xff\xfe"], ids=repr)
def test_csv_without_records_is_done(body: bytes) -> None:
    outcome = deliver({"a.csv": body})

    assert (outcome.values, outcome.states) == ([], {"a.csv": JobState.DONE})


def test_markers_of_hadoop_and_folders_of_consoles_are_left_out() -> None:
    markers = ["in/_SUCCESS", "in/", "in/day=1/", "in/._SUCCESS.crc", "in/_temporary/0/a.csv"]

    outcome = deliver({**dict.fromkeys(markers, b""), "in/day=1/a.csv": b"a\n1\n"})

    assert outcome.states == {"in/day=1/a.csv": JobState.DONE}
    assert outcome.values == [b'{"a":"1"}']
