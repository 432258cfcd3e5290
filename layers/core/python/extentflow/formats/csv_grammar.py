r"""One line of CSV, exactly.

Owns: the grammar, which is RFC 4180's on one line, with an optional escape character. Refuses to
know: columns, types, objects. The fast path (Arrow's reader) sees only lines on which both agree;
this module decides about all others, and says what is wrong with them.

    record    field *(separator field)
    field     quote *(any but quote | quote quote | escape any) quote
            | *(any but separator, quote, CR | escape any)

A quote inside an unquoted field and text behind a closing quote are errors here, where other
readers guess. An odd number of quotes means that the record goes on behind the line's end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Dialect", "Grammar", "Malformed", "Unbalanced"]


class Malformed(ValueError):  # noqa: N818 - an outcome
    """The line is no record; nothing suggests that its neighbours are involved."""


class Unbalanced(ValueError):  # noqa: N818 - an outcome
    """The line is a part of a record that spans several lines, or a quote is missing."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Characters, one ASCII byte each; `null` is the unquoted field that means null, if any."""

    separator: str
    quote: str
    escape: str | None
    null: str | None


class Grammar:
    """A dialect, compiled."""

    def __init__(self, dialect: Dialect) -> None:
        self._quote, self._null = dialect.quote, dialect.null
        self._escape = dialect.escape or ""
        separator, quote = re.escape(dialect.separator), re.escape(dialect.quote)
        escape = re.escape(self._escape)
        pair = f"|{escape}." if escape else ""
        quoted = f"{quote}(?P<quoted>(?:[^{quote}{escape}]++|{quote}{quote}{pair})*+){quote}"
        plain = f"(?P<plain>(?:[^{separator}{quote}{escape}\r]++{pair})*+)"
        self._plain = re.compile(plain, re.DOTALL)
        self._field = re.compile(f"(?:{quoted}|{plain})(?P<end>{separator}|\\Z)", re.DOTALL)
        self._pairs = re.compile(f"{quote}{quote}{pair}", re.DOTALL)
        self._escapes = re.compile(f"{escape}." if escape else r"(?!)", re.DOTALL)

    def split(self, line: str) -> list[str | None]:
        """Return the line's fields; a null is None.

        Raises:
            Malformed, Unbalanced: why it is not one record.
        """
        fields: list[str | None] = []
        at = 0
        while True:
            match = self._field.match(line, at)
            if match is None:
                raise self._fault(line, at, len(fields) + 1)
            fields.append(self._value(match))
            if not match["end"]:
                return fields
            at = match.end()

    def _value(self, match: re.Match[str]) -> str | None:
        quoted, plain = match["quoted"], match["plain"]
        if plain is None:
            return self._pairs.sub(_second, quoted)
        return None if plain == self._null else self._escapes.sub(_second, plain)

    def _fault(self, line: str, at: int, number: int) -> Malformed | Unbalanced:
        bare = self._escapes.sub("", line)
        if self._escape and bare.endswith(self._escape):
            return Unbalanced("the line's end is escaped")
        if bare.count(self._quote) % 2:
            return Unbalanced("the line's quotes do not balance")
        if line.startswith(self._quote, at):
            return Malformed(f"text behind the closing quote of field {number}")
        plain = self._plain.match(line, at)
        stop = line[plain.end()] if plain else ""
        what = "a carriage return" if stop == "\r" else "a quote"
        return Malformed(f"{what} in field {number}, which is not quoted")


def _second(pair: re.Match[str]) -> str:
    return pair[0][1]
