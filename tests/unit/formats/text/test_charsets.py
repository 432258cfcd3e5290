"""Character sets: which can be cut anywhere, byte orders, refusals, and bad lines."""

import encodings.aliases
from collections.abc import Iterator
from itertools import chain, product, repeat

import pytest
from tests.laws.laws import Decoded, decoded
from tests.support.golden import Golden

from extentflow.config.types import CHARSET, DELIMITER
from extentflow.errors import CorruptObject, Misconfigured, UnsupportedFormat
from extentflow.formats import FormatOptions
from extentflow.formats.csv.csv_format import open_csv
from extentflow.formats.text.charsets import Charset, decoded_windows
from extentflow.formats.text.text_format import TextOptions, open_text
from extentflow.testing.stores import MemorySource


def usable_charsets() -> Iterator[str]:
    """Yield every codec of Python that `character.set` takes."""
    for name in sorted({*encodings.aliases.aliases.values(), "utf_8_sig"}):
        try:
            yield CHARSET.read(name)
        except ValueError:
            continue


CHARSETS = sorted(set(usable_charsets()))


def read(body: bytes, charset: str | None, *cuts: int, delimiter: str | None = None) -> Decoded:
    fmt = open_text(FormatOptions(charset=charset), TextOptions(delimiter=delimiter))
    return decoded(fmt, MemorySource(body), (0, *cuts, len(body)))


def test_python_s_character_sets_are_known() -> None:
    assert len(CHARSETS) >= 85
    assert {"utf-8", "utf-16", "iso8859-1", "cp1252", "shift_jis", "gb18030"} <= set(CHARSETS)


@pytest.mark.parametrize("name", CHARSETS)
def test_where_an_object_is_cut_a_newline_is_no_part_of_a_character(name: str) -> None:
    charset = Charset.named(name)
    if charset.stateful or charset.unit > 1:
        return
    newline = "\n".encode(charset.codec)
    assert len(newline) == 1

    for before in (b"", *map(bytes, product(range(256), repeat=1)), b"\x81\x30", b"\x81\x30\x81"):
        text = (before + newline + b"\x25").decode(charset.codec, "replace")
        decoded_before = before.decode(charset.codec, "replace")
        if "\n" in decoded_before:
            continue
        assert text.count("\n") == 1 + (newline == b"\x25"), before


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_trap_t03_every_extent_reads_the_byte_order_at_the_object_s_start(encoding: str) -> None:
    """Trap: a worker that resumed behind the byte order mark decoded with the wrong byte order."""
    body = "\ufeffone\ntwo\n\u0a0a\n".encode(encoding)

    for cut in range(1, len(body)):
        result = read(body, None, cut)

        assert [row["value"] for row in result.rows] == ["one", "two", "\u0a0a"]
        assert not result.bad


@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
def test_trap_t03_an_object_without_a_mark_is_refused_or_recognised_never_guessed(
    name: str,
) -> None:
    body = "id,name\n1,a\n".encode(name)

    with pytest.raises(UnsupportedFormat, match=f"set character.set={name}"):
        read(body, None)
    with pytest.raises(UnsupportedFormat, match=f"set character.set={name}"):
        decoded(open_csv(FormatOptions()), MemorySource(body), (3, len(body)))
    assert [row["value"] for row in read(body, name[:6]).rows] == ["id,name", "1,a"]


RUSSIAN, ARABIC, THAI = "Съешь ещё этих булок", "مرحبا بالعالم", "สวัสดี"
HINDI, CHINESE, EMOJI = "नमस्ते दुनिया", "第一行\n第二行\n", "😀 😀\n"
SCRIPTS = [RUSSIAN, ARABIC, THAI, HINDI, CHINESE, EMOJI, "Привет", "שלום", "a", "\na"]


@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize("text", SCRIPTS)
@pytest.mark.parametrize("odd", [b"", b"\x04"])
def test_trap_t03_text_of_any_script_without_a_mark_is_refused_and_no_garbage_is_delivered(
    name: str, text: str, odd: bytes
) -> None:
    body = text.encode(name) + odd

    with pytest.raises(UnsupportedFormat, match=f"looks like {name}, .*set character.set={name}"):
        read(body, None)


@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE"])
@pytest.mark.parametrize("text", ["今天天气很好", "ありがとう", "안녕하세요", "Γειά"])
def test_trap_t03_words_that_show_no_byte_order_are_bad_records(
    name: str, text: str, golden: Golden
) -> None:
    """They hold no zero, and bytes that UTF-8 never has."""
    result = read(text.encode(name), None)

    assert result.rows == []
    golden(result.bad[0][2])
    assert "character.set" in result.bad[0][2]


@pytest.mark.parametrize(
    "body",
    [
        b"1\x012\x013\n4\x015\x016\n",  # Hive's separator, at every second byte
        b"1\t2\t3\n4\t5\t6\n",
        b"id\0name\n1\0a\n",
        b"before\0 and \x1bbehind\n",
        "été\0über\n😀\0 behind\n".encode(),
        "\ue000\U0001fae8 new and private characters\n".encode(),
        b"\x04" * 3 + b"abcdefghijk\n",
    ],
)
def test_text_with_control_characters_is_no_utf_16(body: bytes) -> None:
    rows = read(body, None).rows

    assert b"".join(row["value"].encode() + b"\n" for row in rows) == body


@pytest.mark.parametrize("codec", ["cp037", "cp500", "iso8859-1", "shift_jis", "gb18030", "euc_kr"])
def test_text_in_another_character_set_is_bad_records_and_no_garbage(codec: str) -> None:
    letters = {"shift_jis": "あいう表示", "gb18030": "中文", "euc_kr": "한국"}.get(codec, "éàü")
    body = "\n".join(letters * 20 for _ in range(20)).encode(codec)

    result = read(body, None)

    assert result.rows == []
    assert result.bad


def test_an_unknown_byte_order_is_refused(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat, match=r"character\.set=UTF-16LE"):
        read("日本語".encode("utf-16-le"), "UTF-16")


@pytest.mark.parametrize("configured", ["utf-8", "utf-16-be", "utf-32"])
def test_a_mark_that_contradicts_the_connector_is_refused(configured: str, golden: Golden) -> None:
    with golden.raises(UnsupportedFormat, match=r"UTF-16LE.*character\.set="):
        read("\ufeffa\n".encode("utf-16-le"), configured)


def test_zeros_are_content_where_the_connector_says_so() -> None:
    assert read(b"a\0b\0\n\0", "utf-8").rows == [{"value": "a\0b\0"}, {"value": "\0"}]
    assert read(bytes(300), None).rows == [{"value": "\0" * 300}]


@pytest.mark.parametrize(
    ("charset", "body", "reason"),
    [
        ("shift_jis", b"\x83\x5c\na\x81\nb", "not shift_jis: incomplete multibyte sequence (0x81)"),
        ("cp1252", b"\x80\n\x81\n", "not cp1252: character maps to <undefined> (0x81)"),
        ("utf-16-le", b"a\0\n\0\x3d\xd8\n\0", "not utf-16-le: unexpected end of data (0x3d)"),
        ("ascii", b"a\n\xff\n", "not ascii: ordinal not in range(128) (0xff)"),
    ],
)
def test_bytes_that_are_no_text_make_a_bad_record(
    charset: str, body: bytes, reason: str, golden: Golden
) -> None:
    result = read(body, charset)

    ((location, raw, why),) = result.bad
    assert why.startswith(reason)
    golden(why)
    assert "character.set" in why
    assert raw is not None
    assert body[location:].startswith(raw)
    with pytest.raises(UnicodeDecodeError):
        raw.decode(charset)


def test_invalid_bytes_in_a_stateful_character_set_make_a_bad_record() -> None:
    result = read(b"ok\n\x1b$B\x7f\x7f\x1b(B\nok\n", "iso2022_jp")

    assert [row["value"] for row in result.rows] == ["ok", "ok"]
    assert [why[:15] for _, _, why in result.bad] == ["not iso2022_jp:"]


@pytest.mark.parametrize("tail", [b"", b"B\nx\n", b"\x1b" * 20 + b"\n", b"&@" * 9 + b"B\nx\n"])
@pytest.mark.parametrize("window_bytes", [1, 2, 9, 1 << 16])
def test_a_long_escape_sequence_has_the_same_records_in_every_window(
    tail: bytes, window_bytes: int
) -> None:
    """Trap: Python's decoder raised where a piece ended within such a sequence."""
    body = b"ok\n\x1b$" + b"a" * 11 + tail
    charset = Charset.named("iso2022_jp")

    pieces = [body[at : at + window_bytes] for at in range(0, len(body), window_bytes)]
    found = b"".join(window for _, window in decoded_windows(pieces, charset, "s3://b/k"))

    whole = body.decode(charset.codec, "extentflow.invalid")
    assert found == whole.encode("utf-8", "surrogatepass")


def test_a_sequence_of_utf7_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    endless = chain((b"+",), repeat(b"AEEA" * 16_384))
    charset = Charset.named("utf-7")

    with pytest.raises(CorruptObject, match=r"s3://b/k: \d{7} bytes of utf-7 .* UTF-8"):
        next(decoded_windows(endless, charset, "s3://b/k"))


@pytest.mark.parametrize("name", ["base64", "rot13", "idna", "unicode_escape", "latin-99", "a\0b"])
def test_what_is_no_character_set_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="write a character set"):
        CHARSET.read(name)


def test_a_stateful_character_set_is_one_extent() -> None:
    assert open_text(FormatOptions(charset="cp1252")).splittable
    assert not open_text(FormatOptions(charset="iso2022_jp")).splittable


@pytest.mark.parametrize(
    ("written", "meant"),
    [(r"\n", "\n"), (r"\x1e", "\x1e"), (r"\u2028", "\u2028"), ("|~", "|~"), (r"a\\b", r"a\b")],
)
def test_a_delimiter_is_read_and_written(written: str, meant: str) -> None:
    assert DELIMITER.read(written) == meant
    assert DELIMITER.read(DELIMITER.write(meant)) == meant


@pytest.mark.parametrize("written", ["", "||", "aba", r"\q", "x" * 17, r"\n\n"])
def test_a_delimiter_that_makes_cuts_ambiguous_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="write"):
        DELIMITER.read(written)


@pytest.mark.parametrize(
    ("charset", "delimiter"),
    [("shift_jis", "|"), ("cp1252", "\u2028"), ("euc_jp", "、"), ("euc_kr", "。")],
)
def test_a_delimiter_must_fit_the_character_set(charset: str, delimiter: str) -> None:
    with pytest.raises(Misconfigured, match=r"text\.delimiter="):
        open_text(FormatOptions(charset=charset), TextOptions(delimiter=delimiter))
