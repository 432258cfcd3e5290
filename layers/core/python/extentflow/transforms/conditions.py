"""Parse a condition on columns.

condition   a SQL expression: amount > 10 AND country IN ('DE', 'FR') AND NOT note IS NULL
names       plain or in double quotes; a.b is a member of a struct
operators   = <> != < <= > >=, IN, LIKE, IS NULL, NOT, AND, OR; a boolean column by its name
literals    numbers, 'text', TRUE, FALSE; text is read as the column's type

Tests: unit/transforms/test_records.py
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.config.specs import Ranges
from extentflow.config.types import Kind
from extentflow.errors import UnsupportedType
from extentflow.transforms.comparisons import (
    ANY,
    COMPARE,
    Expression,
    Literal,
    Mask,
    Outcomes,
    combined,
    compare_literal,
    match_list,
    match_null,
    match_pattern,
    match_true,
)

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<name>"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    | (?P<text>'(?:[^']|'')*')
    | (?P<number>[+-]?[0-9]+(?:\.[0-9]+)?)
    | (?P<sign><>|!=|<=|>=|[=<>(),])
    )""",
    re.VERBOSE,
)
# Each level of NOT and of parentheses is a call within another one, also for every batch.
DEEPEST = 100
_WORDS = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "TRUE", "FALSE"})


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition."""

    text: str

    def bind(self, schema: pa.Schema) -> Mask:
        """Return the function of a batch's rows. Raises UnsupportedType."""
        return _parsed(self.text).bind(schema)

    def outcomes(self, ranges: Ranges) -> Outcomes:
        """Return what the condition may be for rows within ranges; more than that, if unclear."""
        try:
            return _parsed(self.text).outcomes(ranges)
        except (UnsupportedType, pa.ArrowNotImplementedError, pa.ArrowInvalid):
            # A comparison that the column's type does not allow: reading the rows reports it.
            return ANY


def _read_condition(text: str) -> Condition:
    _parsed(text.strip())
    return Condition(text.strip())


# A format asks once per row group.
@lru_cache(maxsize=64)
def _parsed(text: str) -> Expression:
    return _Parser(text).parse()


class _Parser:
    """Recursive descent: OR, AND, NOT, then one comparison."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, text = 0, text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"cannot read {text[at:].strip()[:30]!r}; write as in amount > 10")
            kind = match.lastgroup or ""
            word = match[kind]
            if kind == "name" and word.upper() in _WORDS:
                kind, word = "word", word.upper()
            self._tokens.append((kind, word))
            at = match.end()
        self._at = self._depth = 0

    def parse(self) -> Expression:
        test = self._any()
        if self._at < len(self._tokens):
            raise ValueError(f"{self._tokens[self._at][1]!r} is one too many; join with AND or OR")
        return test

    def _take(self, *wanted: str) -> str | None:
        if self._at < len(self._tokens):
            kind, word = self._tokens[self._at]
            if kind in ("word", "sign") and word in wanted:
                self._at += 1
                return word
        return None

    def _require(self, wanted: str) -> None:
        if self._take(wanted) is None:
            found = self._tokens[self._at][1] if self._at < len(self._tokens) else "the end"
            raise ValueError(f"{wanted} is missing before {found!r}")

    def _any(self) -> Expression:
        found = [self._all()]
        while self._take("OR"):
            found.append(self._all())
        return _joined(pc.or_kleene, found, decisive=True)

    def _all(self) -> Expression:
        found = [self._one()]
        while self._take("AND"):
            found.append(self._one())
        return _joined(pc.and_kleene, found, decisive=False)

    def _one(self) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"is nested deeper than {DEEPEST}; write it with fewer NOT and (")
        if self._take("NOT"):
            found = _inverted(self._one())
        elif self._take("("):
            found = self._any()
            self._require(")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Expression:
        name = self._name()
        if self._take("IS"):
            negated = self._take("NOT")
            self._require("NULL")
            return _inverted(match_null(name)) if negated else match_null(name)
        negated = self._take("NOT")
        if self._take("IN"):
            found = match_list(name, self._list())
        elif self._take("LIKE"):
            found = match_pattern(name, self._literal())
        elif negated is None and (sign := self._take(*COMPARE)):
            found = compare_literal(name, sign, self._literal())
        elif negated is None:
            found = match_true(name)
        else:
            raise ValueError("write IN or LIKE after NOT")
        return _inverted(found) if negated else found

    def _name(self) -> str:
        kind, word = self._tokens[self._at] if self._at < len(self._tokens) else ("", "the end")
        if kind != "name":
            raise ValueError(f"a column is expected, not {word!r}; write the column first")
        self._at += 1
        return word

    def _literal(self) -> Literal:
        kind, word = self._tokens[self._at] if self._at < len(self._tokens) else ("", "the end")
        self._at += 1
        match kind:
            case "text":
                return word[1:-1].replace("''", "'")
            case "number":
                return Decimal(word)
            case "word" if word in ("TRUE", "FALSE"):
                return word == "TRUE"
        raise ValueError(f"a number or 'text' is expected, not {word!r}")

    def _list(self) -> list[Literal]:
        self._require("(")
        found = [self._literal()]
        while self._take(","):
            found.append(self._literal())
        self._require(")")
        return found


def _joined(
    join: Callable[..., pa.BooleanArray], tests: list[Expression], *, decisive: bool
) -> Expression:
    """Return the tests joined by OR or AND, which one `decisive` outcome decides."""
    if len(tests) == 1:
        return tests[0]

    def bind(schema: pa.Schema) -> Mask:
        masks = [each.bind(schema) for each in tests]

        def mask(batch: pa.RecordBatch) -> pa.BooleanArray:
            first, *rest = (each(batch) for each in masks)
            for other in rest:
                first = join(first, other)
            return first

        return mask

    def outcomes(ranges: Ranges) -> Outcomes:
        return combined((each.outcomes(ranges) for each in tests), decisive=decisive)

    return Expression(bind, outcomes)


def _inverted(inner: Expression) -> Expression:
    def bind(schema: pa.Schema) -> Mask:
        mask = inner.bind(schema)
        return lambda batch: pc.invert(mask(batch))

    def outcomes(ranges: Ranges) -> Outcomes:
        return frozenset(None if each is None else not each for each in inner.outcomes(ranges))

    return Expression(bind, outcomes)


CONDITIONS: Kind[Condition] = Kind(_read_condition, lambda condition: condition.text)
