"""Split irregular CSV records into fields and parse fields as typed values.

    record    field *(separator field)
    field     quote *(any but quote | quote quote | escape any) quote
            | *(any but separator, quote, CR | escape any)

Arrow's reader receives only lines on which it agrees with this grammar. A quote inside an unquoted
field and text after a closing quote are errors, where other readers guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from extentflow.arrays.texts import mask_rows, misread_rows

_STRAYS = {"\r": "a carriage return", "\n": "a line feed"}


class MalformedRecord(ValueError):  # noqa: N818 - an outcome
    """The record contradicts the grammar; neighbouring records are not affected."""


class UnclosedQuote(MalformedRecord):
    """A quote that opens a field has no closing one."""


class Grammar:
    """Compiled from one ASCII character each; `null` is the unquoted field that means null.

    `lenient`: a quote that does not begin a field is text. `stray`: CR or LF, whichever no field
    without quotes holds.
    """

    def __init__(
        self,
        separator: str,
        quote: str,
        escape: str | None,
        null: str | None,
        *,
        lenient: bool = False,
        stray: str = "\r",
    ) -> None:
        self._quote, self._escape, self._null = quote, escape or "", null
        separator, quote, escape = map(re.escape, (separator, quote, self._escape))
        pair = f"|{escape}." if escape else ""
        # Possessive quantifiers (++, *+) never backtrack, so a long record costs linear time.
        quoted = f"{quote}(?P<quoted>(?:[^{quote}{escape}]++|{quote}{quote}{pair})*+){quote}"
        begin, stops = (f"(?!{quote})", "") if lenient else ("", quote)
        plain = f"(?P<plain>{begin}(?:[^{separator}{stops}{escape}{stray}]++{pair})*+)"
        self._quoted = re.compile(quoted, re.DOTALL)
        self._plain = re.compile(plain, re.DOTALL)
        self._field = re.compile(f"(?:{quoted}|{plain})(?P<end>{separator}|\\Z)", re.DOTALL)
        self._pairs = re.compile(f"{quote}{quote}{pair}", re.DOTALL)
        self._escapes = re.compile(f"{escape}." if escape else r"(?!)", re.DOTALL)

    def split(self, record: str) -> list[str | None]:
        """Return the fields, None for null, or raise MalformedRecord."""
        fields: list[str | None] = []
        at = 0
        while True:
            match = self._field.match(record, at)
            if match is None:
                raise self._first_error(record, at, len(fields) + 1)
            quoted, plain = match["quoted"], match["plain"]
            # A pair (a doubled quote, an escaped character) stands for its second character.
            if plain is None:
                fields.append(self._pairs.sub(lambda pair: pair[0][1], quoted))
            # Only an unquoted field can be null: "" is the empty text.
            elif plain == self._null:
                fields.append(None)
            else:
                fields.append(self._escapes.sub(lambda pair: pair[0][1], plain))
            if not match["end"]:
                return fields
            at = match.end()

    def _first_error(self, record: str, at: int, number: int) -> MalformedRecord:
        if record.startswith(self._quote, at):
            if self._quoted.match(record, at):
                return MalformedRecord(f"text behind the closing quote of field {number}")
            return UnclosedQuote(f"the quote that opens field {number} has no closing one")
        plain = self._plain.match(record, at)
        stop = record[plain.end()] if plain else ""
        if stop == self._escape:
            return MalformedRecord("the object's end is escaped")
        what = _STRAYS.get(stop, "a quote")
        return MalformedRecord(f"{what} in field {number}, which is not quoted")


_SHOWN_CHARACTERS = 40
# What a number that was inferred would lose: leading zeros, signs, and words such as nan.
_LOST_BY_INTEGERS = r"^(\+|-?0[0-9]|-0$)"
_LOST_BY_DECIMALS = r"^(\+|-?0[0-9]|-0(\.0*)?$)|[nNfF]"
_LOST_BY_FLOATS = r"^(\+|-?0[0-9])|[nNfF]"
_NOT_ZERO = r"^[^eE]*[1-9]"
# Every decimal of so many significant digits, and not below the normal range, survives a float64.
_FLOAT_DIGITS = 15
_LEAST_NORMAL_FLOAT = 2.3e-308


def cast_texts(
    texts: pa.StringArray, wanted: pa.DataType, *, inferred: bool = False
) -> tuple[pa.Array, dict[int, str]]:
    """Return the texts as `wanted`, and the reason for each row that is not a value of it.

    Nothing is rounded, trimmed or guessed. Nulls and rows with a reason are null in the array.
    `inferred`: leading zeros may have a meaning, so that such texts are no numbers.
    """
    if wanted == pa.string():
        return texts, {}
    reasons: dict[int, str] = {}
    for row in _unparseable_rows(texts, wanted, 0, inferred=inferred):
        text = texts[row].as_py()
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
        reasons[row] = f"{shown!r} is not a valid {wanted}"
    if reasons:
        refused = np.isin(np.arange(len(texts)), list(reasons))
        texts = pc.if_else(pa.array(refused), pa.scalar(None, pa.string()), texts)
    return texts.cast(wanted), reasons


def is_lossless(texts: pa.StringArray, wanted: pa.DataType) -> bool:
    """Whether every text is a value of `wanted`, as `cast_texts` of an inferred type decides."""
    return next(_unparseable_rows(texts, wanted, 0, inferred=True), None) is None


def _unparseable_rows(
    texts: pa.StringArray, wanted: pa.DataType, first: int, *, inferred: bool
) -> Iterator[int]:
    # By bisection, as Arrow names only the first text that it cannot cast.
    try:
        values = texts.cast(wanted)
        suspicious = misread_rows(texts, values)
        if inferred:
            suspicious = sorted({*suspicious, *_lossy_rows(texts, values)})
    except pa.ArrowInvalid:
        half = len(texts) // 2
        if not half:
            yield first
            return
        yield from _unparseable_rows(texts[:half], wanted, first, inferred=inferred)
        yield from _unparseable_rows(texts[half:], wanted, first + half, inferred=inferred)
    else:
        yield from (first + row for row in suspicious)


def _lossy_rows(texts: pa.StringArray, values: pa.Array) -> list[int]:
    wanted = values.type
    if pa.types.is_boolean(wanted):
        return mask_rows(pc.match_substring_regex(texts, "^[01]$"))
    if pa.types.is_integer(wanted):
        return mask_rows(pc.match_substring_regex(texts, _LOST_BY_INTEGERS))
    if pa.types.is_decimal(wanted):
        return mask_rows(pc.match_substring_regex(texts, _LOST_BY_DECIMALS))
    if not pa.types.is_floating(wanted):
        return []
    lost = mask_rows(pc.match_substring_regex(texts, _LOST_BY_FLOATS))
    tiny = pc.and_(
        pc.less(pc.abs(values), _LEAST_NORMAL_FLOAT), pc.match_substring_regex(texts, _NOT_ZERO)
    )
    doubtful = pc.or_(pc.greater(pc.binary_length(texts), _FLOAT_DIGITS), tiny)
    doubtful = mask_rows(pc.and_(doubtful, pc.not_equal(values.cast(pa.string()), texts)))
    return lost + [row for row in doubtful if _is_rounded(texts[row].as_py())]


def _is_rounded(number: str) -> bool:
    return Decimal(number) != Decimal(repr(float(number)))
