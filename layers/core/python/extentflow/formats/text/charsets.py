"""Character sets of line formats: which one an object has, and its lines as UTF-8.

utf-8, ascii, latin, cp125x, EBCDIC   a byte is a newline or it is not: cut anywhere
shift_jis, gb18030, big5, euc         no second byte of a character is below 0x30: cut anywhere
utf-16, utf-32                        code units are aligned with the object's start: cut anywhere
utf-7, hz, iso2022_*                  bytes mean what earlier ones say: one extent, positions count
the content as UTF-8
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from extentflow.arrays.spans import ASCII_END, Indexes
from extentflow.errors import CorruptObject, Misconfigured, UnsupportedFormat
from extentflow.formats import magic
from extentflow.formats.lines import LineBlock, LineSyntax, Window, line_edges, without_returns

# Stands for bytes that are no text; lone surrogates are never valid, so the UTF-8 check finds it.
_INVALID = "\udfff"
_MARK_INVALID = "extentflow.invalid"
codecs.register_error(_MARK_INVALID, lambda exc: (_INVALID, exc.end))  # type: ignore[attr-defined]

_STATEFUL = ("utf-7", "hz", "iso2022_")
_UNITS = {"utf-16": 2, "utf-16-le": 2, "utf-16-be": 2, "utf-32": 4, "utf-32-le": 4, "utf-32-be": 4}
_MARKED = ("utf-8", "gb18030", *_UNITS)
# In these, a byte from 0x30 on may be the second one of a character.
_MULTIBYTE = ("big5", "cp932", "cp949", "cp950", "euc", "gb", "johab", "shift_jis")
_LEAST_TRAIL = 0x30
# Escape sequences of ISO 2022 have at most 18 bytes and end with a capital letter; not with the one
# behind `&@`, which announces a later revision. The pattern is for reversed text.
_ESCAPE, _ESCAPE_BYTES = b"\x1b", 18
_ESCAPE_END = re.compile(rb"[A-Z](?!@&)")
# Python's decoder of UTF-7 keeps base64 until it ends, and decodes it again with each piece.
_SEQUENCE_BYTES = 1 << 20
# Shares of zeros that text in another character set does not have.
_MANY, _NEARLY_ALL = 0.3, 0.9
# Control characters that separate fields: those of Hive, and zero.
_SEPARATORS = "\0\x01\x02\x03\x1b"
# Categories of control characters and of code points without a character.
_NO_TEXT = ("Cc", "Cn", "Co", "Cs")
# First bytes of scripts in UTF-16 that are control characters elsewhere, but not separators.
_SPACE = 0x20
_HIGH_BYTES = bytes([0, *range(0x04, 0x09), 0x0B, *range(0x0E, 0x1C)])


@dataclass(frozen=True, slots=True)
class Charset:
    """A character set: `codec` is Python's name of it, with its byte order.

    `unit` is the size of a code unit in bytes. `ascii`: ASCII means the same in it. `stateful`:
    only a whole stream can be decoded.
    """

    codec: str
    unit: int = 1
    ascii: bool = True
    stateful: bool = False

    @classmethod
    def named(cls, codec: str) -> Charset:
        """Return the character set that Python calls `codec`."""
        name = codecs.lookup(codec).name
        name = "utf-8" if name == "utf-8-sig" else name
        stateful = name.startswith(_STATEFUL)
        every = bytes(range(ASCII_END))
        plain = name not in _UNITS and every.decode(name, "replace").encode("utf-8") == every
        return cls(name, _UNITS.get(name, 1), plain and not stateful, stateful)

    def is_ambiguous(self, delimiter: bytes) -> bool:
        """Whether the first byte of `delimiter` can be within a character."""
        return self.codec.startswith(_MULTIBYTE) and delimiter[0] >= _LEAST_TRAIL

    def syntax(self, delimiter: str | None) -> LineSyntax:
        """Return what ends a line (None: LF or CR LF); Misconfigured if that is ambiguous in it."""
        if self.stateful:
            return UTF_8.syntax(delimiter)
        written = "\n" if delimiter is None else delimiter
        try:
            content = written.encode(self.codec)
        except UnicodeEncodeError as exc:
            raise Misconfigured(
                f"text.delimiter={delimiter!r} does not exist in {self.codec}; change one"
            ) from exc
        if self.is_ambiguous(content):
            raise Misconfigured(
                f"text.delimiter={delimiter!r} can be within a character of {self.codec}; write one"
                " that begins with a control character or one of !\"#$%&'()*+,-./"
            )
        returns = "\r".encode(self.codec) if delimiter is None else b""
        mark = "\ufeff".encode(self.codec) if self.codec in _MARKED else b""
        return LineSyntax(content, self.unit, returns, mark)


UTF_8 = Charset("utf-8")


def charset_of(configured: str | None, head: bytes, uri: str) -> Charset:
    """Return the character set of the object that begins with `head`.

    `configured` None: UTF-8, or as a byte order mark says. UnsupportedFormat if `head` contradicts
    it, or if the byte order is unknown.
    """
    seen = magic.recognise(head)
    marked = seen.name if seen is not None and seen.kind == "character set" else None
    codec = codecs.lookup(configured).name if configured else ""
    if marked is not None and (not codec or codec in _UNITS or codec == "utf-8"):
        found = codecs.lookup(marked).name
        if codec and not found.startswith(codec):
            raise UnsupportedFormat(
                f"{uri} begins with the byte order mark of {marked}, but"
                f" character.set={configured}; set character.set={marked}, or remove it"
            )
        return Charset.named(found)
    guess = _unmarked(head)
    if not codec and (likely := guess or _resembled(head)) is not None:
        raise UnsupportedFormat(
            f"{uri} looks like {likely}, and has no byte order mark; set character.set={likely}, or"
            " character.set=UTF-8 if its zeros and control characters are content"
        )
    if codec not in ("utf-16", "utf-32"):
        return Charset.named(codec or "utf-8")
    if guess is None or not guess.lower().startswith(codec):
        raise UnsupportedFormat(
            f"{uri} has no byte order mark; set character.set={configured}LE or {configured}BE"
        )
    return Charset.named(guess)


def sample_as_utf8(sample: bytes, configured: str | None) -> bytes:
    """Return an object's first bytes as UTF-8, without a byte order mark, to recognise a format by.

    What `charset_of` refuses is decoded as its bytes look, so that it is refused for that reason.
    """
    head = sample[: magic.HEAD_BYTES]
    try:
        codec = charset_of(configured, head, "").codec
    except UnsupportedFormat:
        seen = magic.recognise(head)
        codec = seen.name if seen is not None else _unmarked(head) or _resembled(head) or "utf-8"
    # Not final: a character that the sample cuts off counts for none.
    try:
        text = codecs.getincrementaldecoder(codec)(_MARK_INVALID).decode(sample)
    except UnicodeError:  # an escape sequence without an end, which the lines' decoder reports
        text = sample.decode("ascii", "replace")
    return text.removeprefix("\ufeff").encode("utf-8", "surrogatepass")


def _unmarked(head: bytes) -> str | None:
    """Return the UTF-16 or UTF-32 that the zeros in `head` show, without a byte order mark."""
    whole = len(head) // 4 * 4 or len(head) // 2 * 2
    is_zero = np.frombuffer(head[:whole], np.uint8) == 0
    # The shares of zeros in the first, second, third and fourth byte of every four.
    shares = [float(is_zero[place::4].mean()) for place in range(min(4, whole))]
    match shares:
        case [0.0, _, third, fourth] if min(third, fourth) > _NEARLY_ALL:
            return "UTF-32LE"
        case [first, second, _, 0.0] if min(first, second) > _NEARLY_ALL:
            return "UTF-32BE"
        case [0.0, second, *rest] if not any(rest[::2]) and max([second, *rest]) > _MANY:
            return "UTF-16LE"
        case [first, 0.0, *rest] if not any(rest[1::2]) and max([first, *rest]) > _MANY:
            return "UTF-16BE"
    return None


def _resembled(head: bytes) -> str | None:
    """Return the UTF-16 or UTF-32 that `head`, which has few zeros or none, may be in.

    Of Cyrillic in UTF-16, each second byte is 0x04, and the others are ASCII, too. Good enough to
    refuse an object, not to decode it.
    """
    is_utf_8 = _is_plausible(head, "utf-8", besides=_SEPARATORS)
    if is_utf_8 and 0 not in head:
        return None
    whole = head[: len(head) // 4 * 4]
    for name in ("UTF-32LE", "UTF-32BE"):
        if whole and _is_plausible(whole, name):  # other text never is
            return name
    whole = head[: len(head) // 2 * 2]
    found = []
    for name, place in (("UTF-16LE", 1), ("UTF-16BE", 0)):
        high = whole[place::2]
        zeros, scripts = high.count(0), sum(map(high.count, _HIGH_BYTES))
        # Other text may be valid UTF-16 by chance, but has no such bytes.
        is_likely = not is_utf_8 and (zeros or 2 * scripts > len(high))
        is_small = zeros and max(high) < _SPACE
        if (is_likely or is_small) and _is_plausible(whole, name):
            found.append((zeros, scripts, name))
    return max(found)[-1] if found else None


def _is_plausible(head: bytes, codec: str, besides: str = "") -> bool:
    """Whether `head` begins text: assigned characters, white space, and those `besides`.

    A character that `head` cuts off counts for none.
    """
    try:
        text = codecs.getincrementaldecoder(codec)().decode(head)
    except UnicodeDecodeError:
        return False
    return all(
        character.isspace() or character in besides or category(character) not in _NO_TEXT
        for character in set(text)
    )


def to_utf8(block: LineBlock, charset: Charset, syntax: LineSyntax) -> LineBlock:
    """Return the same lines as UTF-8; bytes that are no text are lone surrogates in it.

    Decoded at once. `LineBlock.original` is the block itself.
    """
    if charset.stateful:
        return replace(block, charset=charset.codec)
    if charset == UTF_8 or not len(block) or (charset.ascii and block.data.max() < ASCII_END):
        return block
    decode = codecs.lookup(charset.codec).decode
    text, _ = decode(block.data[block.starts[0] :].data, _MARK_INVALID)
    data = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    utf8 = UTF_8.syntax(None if syntax.returns else syntax.delimiter.decode(charset.codec))
    begins, ends, stops = line_edges(data, utf8)
    several = block.irregular is not None and len(syntax.positions(block.data)) > len(block)
    # Records of several lines, or invalid bytes that include a delimiter.
    if several or len(begins) != len(block):
        data, begins, ends, stops = _line_by_line(block, charset, utf8.delimiter)
        utf8 = replace(utf8, returns=b"")
    return LineBlock(
        offset=block.offset,
        data=data,
        starts=begins,
        ends=without_returns(data, ends, utf8),
        stops=stops,
        next_position=block.next_position,
        bad=block.bad,
        original=block,
        irregular=block.irregular,
        charset=charset.codec,
    )


def _line_by_line(
    block: LineBlock, charset: Charset, delimiter: bytes
) -> tuple[NDArray[np.uint8], Indexes, Indexes, Indexes]:
    decode = codecs.lookup(charset.codec).decode
    texts = (decode(block.raw(line), _MARK_INVALID)[0] for line in range(len(block)))
    lines = [text.encode("utf-8", "surrogatepass") for text in texts]
    stops = np.cumsum([len(line) + len(delimiter) for line in lines])
    ends = stops - len(delimiter)
    begins = np.concatenate((np.zeros(1, np.int64), stops[:-1]))
    data = np.frombuffer(b"".join(line + delimiter for line in lines), np.uint8)
    return data, begins, ends, stops


def decoded_windows(pieces: Iterable[bytes], charset: Charset, uri: str) -> Iterator[Window]:
    """Yield the content of a stateful character set as windows of UTF-8, from its start.

    CorruptObject for a sequence of bytes that does not end within 1 MiB.
    """
    decoder = codecs.getincrementaldecoder(charset.codec)(_MARK_INVALID)
    at, held = 0, b""
    for piece in chain(pieces, (None,)):
        data = held + piece if held and piece else piece or held
        end = len(data) if piece is None else _end_of_sequences(data)
        window = decoder.decode(data[:end], final=piece is None)
        held = data[end:]
        pending = len(held) + len(decoder.getstate()[0])
        if pending > _SEQUENCE_BYTES:
            raise CorruptObject(
                f"{uri}: {pending} bytes of {charset.codec} decode to nothing yet; a sequence has"
                f" {_SEQUENCE_BYTES} at most. Convert the object to UTF-8"
            )
        if window:
            encoded = window.encode("utf-8", "surrogatepass")
            yield at, encoded
            at += len(encoded)


def _end_of_sequences(data: bytes) -> int:
    """Return where the first escape sequence begins that `data` does not end; else its length.

    Python's decoders keep 8 bytes from one piece to the next, and raise where a sequence has more.
    """
    if data.find(_ESCAPE, max(0, len(data) - _ESCAPE_BYTES)) < 0:
        return len(data)
    letter = _ESCAPE_END.search(data[::-1])
    escape = data.find(_ESCAPE, len(data) - letter.start() if letter else 0)
    return len(data) if escape < 0 else escape
