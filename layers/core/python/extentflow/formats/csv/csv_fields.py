"""Split irregular CSV records into fields.

    record    field *(separator field)
    field     quote *(any but quote | quote quote | escape any) quote
            | *(any but separator, quote, CR | escape any)

Arrow's reader receives only lines on which it agrees with this grammar. A quote inside an unquoted
field and text after a closing quote are errors, where other readers guess.

Tests: unit/formats/csv/test_csv_format.py
"""

from __future__ import annotations

import re

_STRAYS = {"\r": "a carriage return", "\n": "a line feed"}


class MalformedRecord(ValueError):  # noqa: N818 - an outcome
    """The record contradicts the grammar; neighbouring records are not affected."""


class UnclosedQuote(MalformedRecord):
    """A quote that opens a field has no closing one."""


class Grammar:
    """Compiled from one ASCII character each; `null` is the unquoted field that means null.

    `quote` None: a quote is text.

    `lenient`: a quote that does not begin a field is text. `stray`: CR or LF, whichever no field
    without quotes holds.
    """

    def __init__(
        self,
        separator: str,
        quote: str | None,
        escape: str | None,
        null: str | None,
        *,
        lenient: bool = False,
        stray: str = "\r",
    ) -> None:
        self._quote, self._escape, self._null = quote, escape or "", null
        separator, quote, escape = map(re.escape, (separator, quote or "", self._escape))
        pair = f"|{escape}." if escape else ""
        # Possessive quantifiers (++, *+) never backtrack, so a long record costs linear time.
        quoted = f"{quote}(?P<quoted>(?:[^{quote}{escape}]++|{quote}{quote}{pair})*+){quote}"
        if not quote:
            quoted = "(?P<quoted>(?!))"
        begin, stops = (f"(?!{quote})", "") if lenient and quote else ("", quote)
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
        if self._quote and record.startswith(self._quote, at):
            if self._quoted.match(record, at):
                return MalformedRecord(f"text behind the closing quote of field {number}")
            return UnclosedQuote(f"the quote that opens field {number} has no closing one")
        plain = self._plain.match(record, at)
        stop = record[plain.end()] if plain else ""
        if stop == self._escape:
            return MalformedRecord("the object's end is escaped")
        what = _STRAYS.get(stop, "a quote")
        return MalformedRecord(f"{what} in field {number}, which is not quoted")
