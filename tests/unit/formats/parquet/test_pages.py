"""Page headers: what they may claim, and what reaches Arrow. No test has pages of that size."""

import random
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.fuzz import thrift
from tests.fuzz.thrift import BINARY, I32, I64, LIST, STRUCT
from tests.laws.laws import chunks
from tests.laws.parquet_bytes import INT64, REQUIRED, Element, one_column
from tests.laws.parquet_cases import written

from extentflow.formats import FormatOptions
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.pages import PageGuard, page_header, page_limit_bytes
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.testing.stores import MemorySource

GIB = 1 << 30
SIZES = {
    "one-and-a-half-gib": (3 * GIB // 2, 3 * GIB // 2),
    "unpacks-to-two-gib": (800, 2 * GIB - 1),
    "unpacks-to-more-than-a-gib": (800, GIB + 1),
    "stored-below-zero": (-1, 800),
    "unpacked-below-zero": (800, -1),
    "least": (-(2**31), -(2**31)),
    "a-byte-too-many": (801 + 100, 800),
}


def planted(stored: int, unpacked: int, first_pages: int = 0) -> bytes:
    """Return a file with 100 rows per page; the header of the last one claims these sizes."""
    header, _ = thrift.read(one_column(Element("x", REQUIRED, INT64), range(100)), 4)
    page = struct.pack("<100q", *range(100))
    claims = {2: unpacked, 3: stored}
    lying = [(n, (kind, claims.get(n, value))) for n, (kind, value) in header]
    sound = thrift.write(header) + page
    rows = 100 * (first_pages + 1)
    whole = one_column(Element("x", REQUIRED, INT64), [0] * rows, encoded=b"")
    footer, _ = thrift.read(whole[-8 - int.from_bytes(whole[-8:-4], "little") : -8])
    body = b"PAR1" + sound * first_pages + thrift.write(lying) + page
    changed = thrift.write(_resized(footer, len(body) - 4))
    return body + changed + struct.pack("<I", len(changed)) + b"PAR1"


def _resized(footer: list[thrift.Field], size: int) -> list[thrift.Field]:
    """Return a footer whose one column chunk has another size, 20 times of it unpacked."""

    def changed(fields: list[thrift.Field], path: list[int], values: dict[int, int]) -> object:
        found = []
        for number, (kind, value) in fields:
            if path and number == path[0]:
                inner = value[0][1] if kind == LIST else value
                inner = changed(inner, path[1:], values)
                value = [(STRUCT, inner)] if kind == LIST else inner  # noqa: PLW2901
            elif not path and number in values:
                value = values[number]  # noqa: PLW2901
            found.append((number, (kind, value)))
        return found

    return changed(footer, [4, 1, 3], {6: 20 * size, 7: size})  # type: ignore[return-value]


def outcome(
    body: bytes, window_bytes: int, max_record_bytes: int = 64 << 20
) -> tuple[int, list[str]]:
    """Return how many rows are delivered, and why others are lost."""
    fmt = Parquet(
        FormatOptions(window_bytes=window_bytes, max_record_bytes=max_record_bytes),
        Footers(),
        readers=0,
    )
    found = list(chunks(fmt, MemorySource(body), 0, len(body)))
    reasons = [bad.reason for chunk in found for bad in chunk.bad]
    return sum(chunk.batch.num_rows for chunk in found), reasons


@pytest.mark.parametrize("window_bytes", [2, 64, 8 << 20])
@pytest.mark.parametrize("first_pages", [0, 3])
@pytest.mark.parametrize("kind", SIZES)
def test_a_page_that_claims_too_much_is_lost_and_the_rows_before_it_are_not(
    kind: str, first_pages: int, window_bytes: int
) -> None:
    rows, reasons = outcome(planted(*SIZES[kind], first_pages), window_bytes)

    assert rows == 100 * first_pages
    (reason,) = reasons
    assert f"rows {rows}-{rows + 99} of row group 0 are lost" in reason
    assert "page of" in reason or "pages up to 268435456" in reason


@pytest.mark.parametrize("window_bytes", [2, 8 << 20])
def test_a_page_that_claims_what_it_has_is_read(window_bytes: int) -> None:
    assert outcome(planted(800, 800, 3), window_bytes) == (400, [])


def test_larger_records_may_have_larger_pages() -> None:
    body = planted(800, 3 * GIB // 2)

    assert page_limit_bytes(64 << 20) == page_limit_bytes(1) == 256 << 20
    assert outcome(body, 64)[0] == 0
    # Of pages that are not compressed, the size that they would unpack to is not used.
    assert outcome(body, 64, max_record_bytes=GIB)[0] == 100


MEMORY = """
import sys
from pathlib import Path
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.model import Extent, ObjectVersion

class Padded:
    "A file whose zeros in the middle are not stored."
    def __init__(self, head, tail, size):
        self.head, self.tail = head, tail
        self.version = ObjectVersion("b", "k", None, "e", size)
    def read(self, start, end):
        assert 0 <= start < end <= self.version.size and end - start <= 64 << 20
        found = bytearray(end - start)
        part = self.head[start:end]
        found[:len(part)] = part
        behind = self.version.size - len(self.tail)
        if end > behind:
            first = max(start, behind)
            found[first - start:] = self.tail[first - behind:end - behind]
        return bytes(found)

head, tail = (Path(name).read_bytes() for name in sys.argv[1:3])
size = int(sys.argv[3])
source = Padded(head, tail, size)
extent = Extent("j", 0, "c", source.version, 0, size, "parquet")
rows = lost = 0
for chunk in Parquet(FormatOptions()).decode(source, extent, 0):
    rows += chunk.batch.num_rows
    lost += len(chunk.bad)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(rows, lost, int(peak.split()[1]) >> 10)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux' VmHWM")
@pytest.mark.parametrize(
    ("stored", "unpacked", "rows"),
    [
        (800, 800, 100),
        pytest.param(3 * GIB // 2, 3 * GIB // 2, 0, marks=pytest.mark.variant),
        (2 * GIB - 1, 2 * GIB - 1, 0),
    ],
)
def test_memory_is_bounded_in_a_column_chunk_of_five_gibibytes(
    stored: int, unpacked: int, rows: int, tmp_path: Path
) -> None:
    """Trap: 6 GiB were occupied before the page was found to be damaged."""
    size = 5 * GIB
    body = planted(stored, unpacked)
    split = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    footer, _ = thrift.read(body[split:-8])
    changed = thrift.write(_resized(footer, size))
    head, tail = tmp_path / "head", tmp_path / "tail"
    head.write_bytes(body[:split])
    tail.write_bytes(changed + struct.pack("<I", len(changed)) + b"PAR1")

    found = subprocess.run(
        [sys.executable, "-c", MEMORY, str(head), str(tail), str(4 + size + tail.stat().st_size)],
        env={"PYTHONPATH": str(Path("layers/core/python").resolve())},
        capture_output=True,
        text=True,
        check=True,
    )

    delivered, lost, peak_mib = map(int, found.stdout.split())
    assert (delivered, lost) == (rows, int(not rows))
    assert peak_mib < 450


# -- reading headers -------------------------------------------------------------------------------


def header(*fields: tuple[int, int, object]) -> bytes:
    return thrift.write([(number, (kind, value)) for number, kind, value in fields])


def test_the_sizes_of_a_header_are_found_among_other_fields() -> None:
    data = [(1, (I32, 7)), (5, (STRUCT, [(1, (BINARY, b"\0" * 300))]))]
    found = header((1, I32, 0), (2, I32, 900), (3, I32, 800), (5, STRUCT, data), (9, I64, 1))

    assert page_header(found + b"page") == page_header(found)
    assert (page_header(found).stored, page_header(found).unpacked) == (800, 900)
    assert page_header(found).size == len(found)


@pytest.mark.parametrize("checksum", [None, 77])
@pytest.mark.parametrize(("kind", "own"), [(0, 5), (2, 7), (3, 8)])
def test_the_number_of_values_is_that_of_the_pages_own_header(
    kind: int, own: int, checksum: int | None
) -> None:
    sizes = [(1, I32, kind), (2, I32, 9), (3, I32, 8)]
    sizes += [] if checksum is None else [(4, I32, checksum)]
    usual = header(*sizes, (own, STRUCT, [(1, (I32, 300)), (2, (I32, 0))]))
    unusual = header(*sizes, (own, STRUCT, [(1, (I32, 300)), (2, (BINARY, b"x" * 99))]))
    of_another_type = header(*sizes, (6, STRUCT, [(1, (I32, 300))]))

    assert [page_header(each).kind for each in (usual, unusual, of_another_type)] == [kind] * 3
    assert page_header(usual).values == page_header(unusual).values == 300
    assert page_header(of_another_type).values is None


@pytest.mark.parametrize(
    "fields",
    [
        b"\x15\0\x15\x08\x15\x08\x05\x86\x80\x08\xfe\xff\xff\xff\x0f\0",
        b"\x15\0\x15\x08\x15\x08\x05\x86\x80\x80\x80\x10\xfe\xff\xff\xff\x0f\0",
    ],
    ids=["16-bits", "32-bits"],
)
def test_the_number_of_a_field_wraps_as_arrow_reads_it(fields: bytes) -> None:
    """Trap: a field far from all others was the size of the page to Arrow alone."""
    assert page_header(fields).stored == 2**31 - 1


@pytest.mark.parametrize("seed", range(5))
def test_damaged_headers_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    sound = header((1, I32, 0), (2, I32, 9), (3, I32, 8), (5, STRUCT, [(1, (I32, 7))]))
    for _ in range(2_000):
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        guard = PageGuard(10, 10 + len(data), 1_000)
        whole = bytes(data)

        def more(at: int, size: int, whole: bytes = whole) -> bytes:
            return whole[at - 10 : at - 10 + size]

        found = guard.passed(10, whole, more)

        assert len(found) == len(data)
        assert guard.refused or found == whole


def test_a_header_without_end_is_refused_before_it_is_long() -> None:
    endless = b"\x15\0" + b"\x05\x08\0" * 1_000_000
    asked = []

    def more(start: int, size: int) -> bytes:
        asked.append(size)
        return endless[start : start + size]

    guard = PageGuard(0, len(endless), 1_000)

    assert bytes(guard.passed(0, endless, more)) == bytes(len(endless))
    assert guard.refused == "Invalid page header"
    assert max(asked) <= 1 << 20


def test_every_page_of_real_files_passes() -> None:
    table = pa.table({"n": range(30_000), "s": [f"text {n % 97}" for n in range(30_000)]})
    for options in ({}, {"use_dictionary": False}, {"data_page_version": "2.0"}):
        body = written(table, data_page_size=1_000, compression="zstd", **options)
        assert outcome(body, 5_000) == (30_000, [])
