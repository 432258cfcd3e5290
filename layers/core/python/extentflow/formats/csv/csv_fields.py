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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

# What databases write for characters that end fields and lines, or are not text.
C_MEANINGS = {**dict(zip("0bfnrtv", "\0\b\f\n\r\t\v", strict=True)), "Z": "\x1a"}
_STRAYS = {"\r": "a carriage return", "\n": "a line feed"}


class MalformedRecord(ValueError):  # noqa: N818 - an outcome
    """The record contradicts the grammar; neighbouring records are not affected."""


class UnclosedQuote(MalformedRecord):
    """A quote that opens a field has no closing one."""


@dataclass(frozen=True, slots=True)
class Escape:
    """A character, and what it makes of the next one; of others than `meanings`, themselves."""

    character: str
    meanings: Mapping[str, str] = field(default_factory=dict)

    def replaced(self, text: str) -> str:
        """Return the text that an unquoted field stands for."""
        pairs = re.compile(f"{re.escape(self.character)}.", re.DOTALL)
        return pairs.sub(self.meant, text)

    def meant(self, pair: re.Match[str]) -> str:
        """Return what a pair stands for: an escaped character, or a doubled quote."""
        second = pair[0][1]
        return self.meanings.get(second, second) if pair[0][0] == self.character else second


class Grammar:
    """Compiled from one ASCII character each; `nulls` are the unquoted fields that mean null.

    `quote` None: a quote is text.

    `lenient`: a quote that does not begin a field is text. `stray`: CR or LF, whichever no field
    without quotes holds.
    """

    def __init__(
        self,
        separator: str,
        quote: str | None,
        escape: Escape | None,
        nulls: Collection[str],
        *,
        lenient: bool = False,
        stray: str = "\r",
    ) -> None:
        self._quote, self._nulls = quote, nulls
        self._escape = escape or Escape("")
        parts = (separator, quote or "", self._escape.character)
        separator, quote, acting = map(re.escape, parts)
        pair = f"|{acting}." if acting else ""
        # Possessive quantifiers (++, *+) never backtrack, so a long record costs linear time.
        quoted = f"{quote}(?P<quoted>(?:[^{quote}{acting}]++|{quote}{quote}{pair})*+){quote}"
        if not quote:
            quoted = "(?P<quoted>(?!))"
        begin, stops = (f"(?!{quote})", "") if lenient and quote else ("", quote)
        plain = f"(?P<plain>{begin}(?:[^{separator}{stops}{acting}{stray}]++{pair})*+)"
        self._quoted = re.compile(quoted, re.DOTALL)
        self._plain = re.compile(plain, re.DOTALL)
        self._field = re.compile(f"(?:{quoted}|{plain})(?P<end>{separator}|\\Z)", re.DOTALL)
        self._pairs = re.compile(f"{quote}{quote}{pair}", re.DOTALL)

    def split(self, record: str) -> list[str | None]:
        """Return the fields, None for null, or raise MalformedRecord."""
        fields: list[str | None] = []
        at = 0
        while True:
            match = self._field.match(record, at)
            if match is None:
                raise self._first_error(record, at, len(fields) + 1)
            quoted, plain = match["quoted"], match["plain"]
            if plain is None:
                fields.append(self._pairs.sub(self._escape.meant, quoted))
            # Only an unquoted field can be null: "" is the empty text.
            elif plain in self._nulls:
                fields.append(None)
            elif self._escape.character:
                fields.append(self._escape.replaced(plain))
            else:
                fields.append(plain)
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
        if stop and stop == self._escape.character:
            return MalformedRecord("the object's end is escaped")
        what = _STRAYS.get(stop, "a quote")
        return MalformedRecord(f"{what} in field {number}, which is not quoted")
