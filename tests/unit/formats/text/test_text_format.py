"""Text: values, the UTF-8 check, bad lines."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.laws import Decoded, decoded, extent_of
from tests.support.golden import Golden

from extentflow.errors import UnsupportedFormat
from extentflow.formats import FormatOptions
from extentflow.formats.text.text_format import TextOptions, open_text
from extentflow.testing.stores import MemorySource

WAY_OUT = "if the object has another character set, set character.set"


def read(body: bytes, *, validate: bool = True, charset: str | None = None) -> Decoded:
    fmt = open_text(FormatOptions(validate_text=validate, charset=charset))
    return decoded(fmt, MemorySource(body), (0, len(body)))


def test_trap_t02_invalid_bytes_make_bad_records_with_location_and_bytes() -> None:
    body = "ä\n".encode() + b"ab\xffcd\r\n" + b"fine\n" + b"\xc3"

    result = read(body)

    assert result.rows == [{"value": "ä"}, {"value": "fine"}]
    assert result.bad == [
        (3, b"ab\xffcd", f"not UTF-8: invalid start byte (0xff) at byte 5; {WAY_OUT}"),
        (15, b"\xc3", f"not UTF-8: unexpected end of data (0xc3) at byte 15; {WAY_OUT}"),
    ]


def test_an_object_with_fewer_lines_than_are_skipped_is_refused(golden: Golden) -> None:
    """Trap: it was DONE with 0 records."""

    def skip(body: bytes) -> list[dict[str, object]]:
        fmt = open_text(FormatOptions(), TextOptions(header_lines=2))
        return decoded(fmt, MemorySource(body), (0, len(body))).rows

    with golden.raises(UnsupportedFormat, match=r"text\.header\.lines=2"):
        skip(b"only\n")
    assert [skip(b""), skip(b"a\nb\n"), skip(b"a\nb\nc")] == [[], [], [{"value": "c"}]]


def test_without_validation_values_are_bytes_whatever_they_hold() -> None:
    result = read(b"\xff\n\xc3(\n", validate=False)

    assert result.rows == [{"value": b"\xff"}, {"value": b"\xc3("}]
    assert result.bad == []


def test_validated_values_are_strings_even_where_none_is_left() -> None:
    source = MemorySource(b"\xff\n")

    (chunk,) = open_text(FormatOptions()).decode(source, extent_of(source, 0, 2), 0)

    assert chunk.batch.schema == pa.schema([("value", pa.string())])
    assert chunk.batch.num_rows == 0
    assert chunk.next_position == 2


def test_values_are_copied_out_of_the_window() -> None:
    source = MemorySource(b"some text\n" * 1000)

    (chunk,) = open_text(FormatOptions()).decode(source, extent_of(source, 0, 10_000), 0)

    assert chunk.batch.column(0).nbytes < 9 * 1000 + 4 * 1001 + 64


@given(st.lists(st.binary(max_size=12), max_size=30))
def test_lines_are_valid_or_bad_as_python_decodes_them(lines: list[bytes]) -> None:
    body = b"".join(line.replace(b"\n", b"").replace(b"\r", b"") + b"\n" for line in lines)
    body = b"first\n" + body

    result = read(body, charset="utf-8")  # without it, zeros may be taken for UTF-16's

    expected: list[str] = []
    bad: list[bytes] = []
    for line in body.split(b"\n")[:-1]:
        try:
            expected.append(line.decode())
        except UnicodeDecodeError:
            bad.append(line)
    assert [row["value"] for row in result.rows] == expected
    assert [raw for _, raw, _ in result.bad] == bad
