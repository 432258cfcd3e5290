"""Lines in other character sets and with other delimiters, against Python's codecs."""

import json
import random
from collections.abc import Iterator, Sequence
from functools import partial

from tests.laws.laws import FormatCase, Sample
from tests.laws.line_cases import _members, csv_sample

from extentflow.formats import Format, FormatOptions
from extentflow.formats.csv.csv_format import CsvOptions, open_csv
from extentflow.formats.json.jsonl_format import JsonlOptions, open_jsonl
from extentflow.formats.text.text_format import TextOptions, open_text

LINES = ("ab", "", "x\ry", "last")
# Characters whose UTF-16 holds bytes 0x0A and 0x0D at the wrong places, and a pair of surrogates.
UNICODE = ("a\u0a0a\u0a0d", "\u0d0a", "😀", "", "é\u000c", "ab")
JAPANESE = ("表示ソ能", "ab", "", "ｱｲ", "日本")
CHINESE = ("中文", "", "a文b")


def offsets(
    lines: Sequence[str], codec: str, delimiter: str, mark: bytes = b""
) -> tuple[bytes, list[int]]:
    """Return the lines encoded one by one, without a last delimiter, and where each begins."""
    body, starts = mark, []
    for number, line in enumerate(lines):
        starts.append(len(body))
        body += line.encode(codec)
        if number < len(lines) - 1:
            body += delimiter.encode(codec)
    return body, starts


def sample(
    name: str, lines: Sequence[str], codec: str, delimiter: str = "\n", mark: bytes = b""
) -> Sample:
    body, starts = offsets(lines, codec, delimiter, mark)
    return Sample(name, body, [{"value": line} for line in lines], starts)


def broken(name: str, codec: str, invalid: bytes) -> Sample:
    """Three lines, of which the second holds `invalid`."""
    first, second, third = "ab\n".encode(codec), invalid, "\ncd\n".encode(codec)
    return Sample(
        name,
        first + second + third,
        [{"value": "ab"}, {"value": "cd"}],
        [0, len(first) + len(second) + len("\n".encode(codec))],
        [len(first)],
    )


def text(
    name: str, charset: str | None, samples: Sequence[Sample], large: Sequence[Sample] = ()
) -> FormatCase:
    return FormatCase(name, open_text, samples, large, FormatOptions(charset=charset))


def random_lines(characters: str, seed: int) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices(characters, k=chance.randrange(60))) + "." for _ in range(1500)]


def wide() -> Iterator[FormatCase]:
    for codec, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        half = "\ud83d".encode(codec, "surrogatepass")
        yield text(
            codec,
            codec,
            [
                sample("lines", LINES, codec),
                sample("crlf", ("a", "", "b", "x"), codec, "\r\n"),
                sample("unicode", UNICODE, codec),
                sample("marked", UNICODE, codec, mark=mark),
                broken("half-a-pair", codec, half),
                Sample("odd", "a\n".encode(codec) + b"b", [{"value": "a"}], [0], [4]),
            ],
            [sample("random", random_lines("ab\u0a0a😀é\u0a00", 1), codec)],
        )
        yield text(
            f"{codec}-recognised",
            None,
            [
                sample("marked", UNICODE, codec, mark=mark),
                Sample("mark-only", mark, []),
                Sample("mark-and-newline", mark + "\n".encode(codec), [{"value": ""}], [2]),
            ],
        )
    for codec, mark in (("utf-32-le", b"\xff\xfe\0\0"), ("utf-32-be", b"\0\0\xfe\xff")):
        yield text(codec, "utf-32", [sample("marked", UNICODE, codec, mark=mark)])
        out_of_range = b"\0\0\x11\0" if codec.endswith("le") else b"\0\x11\0\0"
        yield text(
            f"{codec}-named",
            codec,
            [sample("unicode", UNICODE, codec), broken("range", codec, out_of_range)],
        )


def narrow() -> Iterator[FormatCase]:
    for codec, lines, invalid in (
        ("iso8859-1", ("é\xff\xfe", "", "\x85x", "ab"), None),
        ("cp1252", ("“é”", "", "€"), b"a\x81"),
        ("ascii", LINES, b"a\xff"),
        ("cp037", ("ab", "", "é"), None),
        ("shift_jis", JAPANESE, b"a\x81"),
        ("cp932", JAPANESE, b"\x81"),
        ("shift_jis_2004", (*JAPANESE, "¥‾"), b"a\x81"),
        ("euc_jp", JAPANESE, b"\xa4"),
        ("gb18030", (*CHINESE, "😀", "\u0a0a"), b"a\x81\x30"),
        ("big5", CHINESE, b"\xa4"),
    ):
        samples = [sample("lines", lines, codec)]
        if invalid is not None:
            samples.append(broken("invalid", codec, invalid))
        large = [sample("random", random_lines("".join(lines), 2), codec)]
        yield text(codec, codec, samples, large)


def stateful() -> Iterator[FormatCase]:
    """One extent; locations count the content as UTF-8."""
    for codec, lines in (
        ("iso2022_jp", ("日本\n語", "ab", "本")),
        ("utf-7", UNICODE),
        ("hz", CHINESE),
    ):
        flat = "\n".join(lines).split("\n")
        _, starts = offsets(flat, "utf-8", "\n")
        body = "\n".join(flat).encode(codec)
        rows = [{"value": line} for line in flat]
        yield text(codec, codec, [Sample("lines", body, rows, starts)])


def delimited() -> Iterator[FormatCase]:
    for name, delimiter, codec, lines in (
        ("unit-separator", "\x1e", "utf-8", ("a\nb", "", "c\r", "x")),
        ("carriage-return", "\r", "utf-8", ("a\nb", "", "c")),
        ("two-characters", "|~", "utf-8", ("a|b", "", "~", "|")),
        ("crlf-exactly", "\r\n", "utf-8", ("a\nb", "", "c\rd", "\r")),
        ("line-separator", "\u2028", "utf-8", ("é\u2027", "", "\u2029")),
        ("utf-16-three", "ab\n", "utf-16-be", ("aab", "a", "", "b\na")),
        ("shift-jis-comma", ",|", "shift_jis", ("表,", "|ソ", "a")),
        ("latin-section", "§", "iso8859-1", ("a", "é", "")),
    ):
        yield FormatCase(
            f"text-{name}",
            partial(open_text, own=TextOptions(delimiter=delimiter)),
            [
                sample("unterminated", (*lines, "end"), codec, delimiter),
                sample("partly", (*lines, "end" + delimiter[:-1]), codec, delimiter),
            ],
            options=FormatOptions(charset=codec),
        )


def open_without_null(options: FormatOptions) -> Format:
    return open_csv(options, CsvOptions(null=None))


def csv_in(codec: str, mark: bytes = b"") -> Sample:
    written = 'id,näme\r\n1,"a,é"\r\n\r\n2,""\r\n3,z\r\n'
    utf8 = csv_sample("csv", written.encode())
    _, starts = offsets(written.split("\r\n"), codec, "\r\n", mark)
    body = mark + written.encode(codec)
    return Sample("csv", body, utf8.rows, [starts[line] for line in (1, 3, 4)])


def json_in(codec: str, bad: bytes | None) -> Sample:
    texts = ['{"a": "é"}', " ", '{"a"', "[1]"]
    body, starts = offsets(texts, codec, "\n")
    rows = [{"value": texts[0].encode()}, {"value": b"[1]"}]
    wrong = [starts[2]]
    if bad is not None:
        wrong.append(len(body) + len("\n".encode(codec)))
        body += "\n".encode(codec) + bad
    assert json.loads(texts[0]) == {"a": "é"}
    return Sample("json", body, rows, [starts[0], starts[3]], wrong)


def passed_through(codec: str, bad: bytes) -> Sample:
    body, starts = offsets(["é", "{"], codec, "\n")
    end = "\n".encode(codec)
    rows = [{"value": "é".encode()}, {"value": b"{"}]
    return Sample("passed", body + end + bad, rows, starts, [len(body) + len(end)])


def header(options: FormatOptions) -> Format:
    return open_text(options, TextOptions(header_lines=2))


CASES = [
    *wide(),
    *narrow(),
    *stateful(),
    *delimited(),
    FormatCase("csv-utf16", open_without_null, [csv_in("utf-16-le", b"\xff\xfe")]),
    FormatCase(
        "csv-latin",
        open_without_null,
        [csv_in("iso8859-1")],
        options=FormatOptions(charset="iso8859-1"),
    ),
    FormatCase(
        "jsonl-utf16",
        open_jsonl,
        [json_in("utf-16-be", "\udc00".encode("utf-16-be", "surrogatepass"))],
        options=FormatOptions(charset="utf-16-be"),
    ),
    FormatCase(
        "jsonl-shift-jis-unread",
        partial(open_jsonl, own=JsonlOptions(validate=False)),
        [Sample("passed", b"\x83\x5c\n\x81", [{"value": "ソ".encode()}], [0], [3])],
        options=FormatOptions(charset="shift_jis"),
    ),
    FormatCase(
        "text-header",
        header,
        [
            Sample(
                "three", b"one\n\xff\nthree\nfour", [{"value": "three"}, {"value": "four"}], [6, 12]
            ),
            Sample("two", b"one\ntwo\n", []),
        ],
    ),
    FormatCase(
        "text-utf16-bytes",
        open_text,
        [
            Sample(
                "raw", "a\r\nb".encode("utf-16-le"), [{"value": b"a\0"}, {"value": b"b\0"}], [0, 6]
            )
        ],
        options=FormatOptions(charset="utf-16-le", validate_text=False),
    ),
    FormatCase(
        "text-utf16-gzip",
        open_text,
        [
            Sample(
                "members",
                _members(offsets(UNICODE, "utf-16-le", "\n")[0]),
                [{"value": line} for line in UNICODE],
                offsets(UNICODE, "utf-16-le", "\n")[1],
            )
        ],
        options=FormatOptions(charset="utf-16-le", compression="gzip"),
    ),
]
