"""Predicates: by topic, by tombstone, and by a condition on columns.

    condition   a SQL expression: amount > 10 AND country IN ('DE', 'FR') AND NOT note IS NULL
    names       plain or in double quotes; a.b is a member of a struct
    operators   = <> != < <= > >=, IN, LIKE, IS NULL, NOT, AND, OR; a boolean column by its name
    literals    numbers, 'text', TRUE, FALSE; text is read as the column's type

Comparisons with a null are neither true nor false, as in SQL.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from itertools import product
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from extentflow.arrays.buffers import Columns
from extentflow.arrays.casts import exact_scalar
from extentflow.arrays.encodings import decoded
from extentflow.config.specs import ColumnRange, PredicateSpec, Ranges
from extentflow.config.table import key
from extentflow.config.types import Kind
from extentflow.errors import UnsupportedType
from extentflow.transforms import Predicate, Rows
from extentflow.transforms.records import REGEX

# -- by topic, by tombstone ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNameMatchesOptions:
    """The keys of TopicNameMatches."""

    pattern: "re.Pattern[str]" = key(REGEX, "Matches the whole topic name.", required=True)


def _topic_matches(options: TopicNameMatchesOptions, topic: str) -> bool:
    return options.pattern.fullmatch(topic) is not None


def _open_topic(options: TopicNameMatchesOptions) -> Predicate:
    return lambda rows: _topic_matches(options, rows.topic)


TOPIC_NAME_MATCHES = PredicateSpec(
    open=_open_topic, options=TopicNameMatchesOptions, of_topic=_topic_matches
)


def _is_tombstone(rows: Rows) -> pa.BooleanArray | bool:
    # A value of several columns is an object, never a null.
    return rows.values.column(0).is_null() if rows.values.num_columns == 1 else False


RECORD_IS_TOMBSTONE = PredicateSpec(open=lambda _: _is_tombstone)

# -- a condition on columns ------------------------------------------------------------------------

Mask: TypeAlias = Callable[[pa.RecordBatch], pa.BooleanArray]
# From a schema, so that an unsupported comparison shows before the first record.
Bind: TypeAlias = Callable[[pa.Schema], Mask]

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
_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
Literal: TypeAlias = str | Decimal | bool
# What a condition may be for a row: True, False, or None for a null.
Outcomes: TypeAlias = frozenset[bool | None]
_ANY: Outcomes = frozenset({True, False, None})


@dataclass(frozen=True, slots=True)
class _Test:
    """A condition or a part of one, and its outcomes for rows whose columns lie within ranges."""

    bind: Bind
    outcomes: Callable[[Ranges], Outcomes]


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
            return _ANY


def _read_condition(text: str) -> Condition:
    _parsed(text.strip())
    return Condition(text.strip())


# A format asks once per row group.
@lru_cache(maxsize=64)
def _parsed(text: str) -> _Test:
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

    def parse(self) -> _Test:
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

    def _any(self) -> _Test:
        found = [self._all()]
        while self._take("OR"):
            found.append(self._all())
        return _joined(pc.or_kleene, found, decisive=True)

    def _all(self) -> _Test:
        found = [self._one()]
        while self._take("AND"):
            found.append(self._one())
        return _joined(pc.and_kleene, found, decisive=False)

    def _one(self) -> _Test:
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

    def _comparison(self) -> _Test:
        name = self._name()
        if self._take("IS"):
            negated = self._take("NOT")
            self._require("NULL")
            missing = _Test(partial(_is_null, name), partial(_null_outcomes, name))
            return _inverted(missing) if negated else missing
        negated = self._take("NOT")
        if self._take("IN"):
            literals = self._list()
            found = _Test(partial(_is_in, name, literals), _in_outcomes(name, literals))
        elif self._take("LIKE"):
            found = _Test(partial(_is_like, name, self._literal()), partial(_some_outcomes, name))
        elif negated is None and (sign := self._take(*_COMPARE)):
            literal = self._literal()
            found = _Test(
                partial(_compared, name, _COMPARE[sign], literal),
                partial(_compared_outcomes, name, sign, literal),
            )
        elif negated is None:
            found = _Test(
                partial(_is_true, name),
                partial(_compared_outcomes, name, "=", True),  # noqa: FBT003
            )
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


def _joined(join: Callable[..., pa.BooleanArray], tests: list[_Test], *, decisive: bool) -> _Test:
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
        return _combined((each.outcomes(ranges) for each in tests), decisive=decisive)

    return _Test(bind, outcomes)


def _combined(parts: Iterable[Outcomes], *, decisive: bool) -> Outcomes:
    """Return the outcomes of all parts together, as if they were independent of each other."""

    def kleene(left: bool | None, right: bool | None) -> bool | None:  # noqa: FBT001
        if decisive in (left, right):
            return decisive
        return None if None in (left, right) else not decisive

    found: Outcomes = frozenset({not decisive})
    for part in parts:
        found = frozenset(kleene(left, right) for left, right in product(found, part))
    return found


def _inverted(inner: _Test) -> _Test:
    def bind(schema: pa.Schema) -> Mask:
        mask = inner.bind(schema)
        return lambda batch: pc.invert(mask(batch))

    def outcomes(ranges: Ranges) -> Outcomes:
        return frozenset(None if each is None else not each for each in inner.outcomes(ranges))

    return _Test(bind, outcomes)


# -- one comparison --------------------------------------------------------------------------------

# The opposite of a comparison, for values that are neither null nor NaN.
_OPPOSITES = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "<>", "<>": "=", "!=": "="}


def _null_outcomes(name: str, ranges: Ranges) -> Outcomes:
    known = _range(name, ranges)
    if known is None:
        return frozenset({True, False})
    return frozenset([True] * known.has_nulls + [False] * known.has_values)


def _some_outcomes(name: str, ranges: Ranges) -> Outcomes:
    known = _range(name, ranges)
    return _ANY if known is None or known.has_values else frozenset({None})


def _in_outcomes(name: str, literals: list[Literal]) -> Callable[[Ranges], Outcomes]:
    # Formats ask for every page: literals become scalars once.
    arrays: dict[pa.DataType, pa.Array | None] = {}

    def outcomes(ranges: Ranges) -> Outcomes:
        known = _range(name, ranges)
        if known is None or (known.has_values and (known.low is None or known.high is None)):
            return _ANY
        if not known.has_values:
            return frozenset([None] * known.has_nulls)
        data_type = known.low.type
        if data_type not in arrays:
            arrays[data_type] = _one_array([_scalar(name, each, data_type) for each in literals])
        values = arrays[data_type]
        if values is None:
            found = (_compared_outcomes(name, "=", literal, ranges) for literal in literals)
            return _combined(found, decisive=True)
        from_low = pc.less_equal(known.low, values)
        to_high = pc.greater_equal(known.high, values)
        is_all = pc.and_(pc.equal(known.low, values), pc.equal(known.high, values))
        is_certain = pc.any(is_all).as_py() and not types.is_floating(data_type)
        is_possible = [True] * bool(pc.any(pc.and_(from_low, to_high)).as_py())
        return frozenset([*is_possible, *[False] * (not is_certain), *[None] * known.has_nulls])

    return outcomes


def _one_array(scalars: list[pa.Scalar]) -> pa.Array | None:
    """Return scalars of one type as an array; None if their types differ."""
    if len({str(scalar.type) for scalar in scalars}) > 1:
        return None
    return pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])


def _compared_outcomes(name: str, sign: str, literal: Literal, ranges: Ranges) -> Outcomes:
    known = _range(name, ranges)
    if known is None or (known.has_values and (known.low is None or known.high is None)):
        return _ANY
    found: list[bool | None] = [None] * known.has_nulls
    if known.has_values:
        scalar = _scalar(name, literal, known.low.type)
        # NaN, which no range counts, compares as unequal to every value.
        has_nan = types.is_floating(known.low.type)
        found += [True] * (_is_possible(sign, known, scalar) or (has_nan and sign in ("<>", "!=")))
        found += [False] * (_is_possible(_OPPOSITES[sign], known, scalar) or has_nan)
    return frozenset(found)


def _is_possible(sign: str, known: ColumnRange, scalar: pa.Scalar) -> bool:
    """Whether a value of a range compares so with a literal."""

    def holds(end: pa.Scalar, comparison: str) -> bool:
        return bool(_COMPARE[comparison](end, scalar).as_py())

    match sign:
        case "<" | "<=":
            return holds(known.low, sign)
        case ">" | ">=":
            return holds(known.high, sign)
        case "=":
            return holds(known.low, "<=") and holds(known.high, ">=")
    return not (holds(known.low, "=") and holds(known.high, "="))


def _range(name: str, ranges: Ranges) -> ColumnRange | None:
    """Return what is known about a column; nothing about members of structs."""
    if name.startswith('"'):
        return ranges(name[1:-1].replace('""', '"'))
    return None if "." in name else ranges(name)


def _is_null(name: str, schema: pa.Schema) -> Mask:
    column, _ = _column(name, schema)
    return lambda batch: column(batch).is_null()


def _is_true(name: str, schema: pa.Schema) -> Mask:
    column, data_type = _column(name, schema)
    if not types.is_boolean(data_type):
        literal = "1" if _is_number(data_type) or types.is_decimal(data_type) else "'x'"
        raise UnsupportedType(
            f"column {name} has type {data_type}; compare it, as in {name} = {literal}"
        )
    return column


def _compared(
    name: str, compare: Callable[..., pa.BooleanArray], literal: Literal, schema: pa.Schema
) -> Mask:
    column, data_type = _column(name, schema)
    scalar = _comparable(name, literal, data_type, compare)
    return lambda batch: compare(column(batch), scalar)


def _is_in(name: str, literals: list[Literal], schema: pa.Schema) -> Mask:
    column, data_type = _column(name, schema)
    equal = [_comparable(name, literal, data_type, pc.equal) for literal in literals]

    def mask(batch: pa.RecordBatch) -> pa.BooleanArray:
        array = column(batch)
        first, *rest = (pc.equal(array, one) for one in equal)
        for other in rest:
            first = pc.or_kleene(first, other)
        return first

    return mask


_WILDCARDS = {"%": ".*", "_": "."}


def _is_like(name: str, literal: Literal, schema: pa.Schema) -> Mask:
    column, data_type = _column(name, schema)
    textual = types.is_string(data_type) or types.is_binary(data_type)
    if not textual or not isinstance(literal, str):
        raise UnsupportedType(f"column {name} has type {data_type}; LIKE compares text")
    # Arrow's `match_like` treats backslashes as its fast paths happen to.
    whole = _like_regex(literal)
    plain = literal.strip("%")
    if not set(plain) & set("%_\\"):
        starts, ends = literal.startswith("%"), literal.endswith("%")
        match (starts, ends):
            case (True, True):
                return lambda batch: pc.match_substring(column(batch), plain)
            case (False, True):
                return lambda batch: pc.starts_with(column(batch), plain)
            case (True, False):
                return lambda batch: pc.ends_with(column(batch), plain)
    return lambda batch: pc.match_substring_regex(column(batch), whole)


def _like_regex(pattern: str) -> str:
    """Return a pattern of LIKE in RE2's syntax; a backslash counts before % and _ only."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\" and pattern[at + 1 : at + 2] in ("%", "_"):
            at += 1
            letter = pattern[at]
        elif letter in _WILDCARDS:
            parts.append(_WILDCARDS[letter])
            at += 1
            continue
        parts.append(rf"\x{{{ord(letter):x}}}" if letter.isascii() else letter)
        at += 1
    return rf"(?s)\A{''.join(parts)}\z"


def _column(name: str, schema: pa.Schema) -> tuple[Mask, pa.DataType]:
    """Return a column, or a member of a struct, in a type that Arrow compares, and that type."""
    whole = name[1:-1].replace('""', '"') if name.startswith('"') else name
    chosen = Columns.select(schema, [whole], nested=not name.startswith('"'))
    data_type = chosen.fields[0].type
    plain = data_type.value_type if types.is_dictionary(data_type) else data_type
    plain = pa.string() if _is_text_of_another_layout(plain) else plain
    if types.is_dictionary(data_type) and types.is_nested(plain):
        raise UnsupportedType(
            f"column {name} has type {data_type}, for which there are no conditions"
        )
    plain = pa.binary() if types.is_binary_view(plain) else plain

    def column(batch: pa.RecordBatch) -> pa.Array:
        (array,) = chosen.of(batch)
        if array.type != plain and types.is_dictionary(array.type):
            array = decoded(array)
        return array if array.type == plain else array.cast(plain)

    return column, plain


def _is_text_of_another_layout(data_type: pa.DataType) -> bool:
    return bool(types.is_string_view(data_type) or types.is_large_string(data_type))


def _comparable(
    name: str, literal: Literal, data_type: pa.DataType, compare: Callable[..., pa.BooleanArray]
) -> pa.Scalar:
    """Return a literal as a scalar that Arrow compares with the column."""
    scalar = _scalar(name, literal, data_type)
    try:
        compare(pa.nulls(1, data_type), scalar)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise UnsupportedType(_unlike(name, data_type, literal)) from exc
    return scalar


def _scalar(name: str, literal: Literal, data_type: pa.DataType) -> pa.Scalar:
    """Return a literal as the type of the column; a number with a fraction stays exact."""
    fraction = isinstance(literal, Decimal) and literal != literal.to_integral_value()
    try:
        if types.is_decimal(data_type) or (fraction and types.is_integer(data_type)):
            numeric: Any = Decimal(literal) if not isinstance(literal, bool) else literal
            if isinstance(numeric, Decimal):
                return pa.scalar(numeric)
        if isinstance(literal, Decimal):
            if types.is_boolean(data_type) or not _is_number(data_type):
                raise UnsupportedType(_unlike(name, data_type, literal))
            if types.is_integer(data_type):
                return pa.scalar(int(literal), data_type)
            return pa.scalar(float(literal) if fraction else int(literal)).cast(data_type)
        if isinstance(literal, bool) and not types.is_boolean(data_type):
            raise UnsupportedType(_unlike(name, data_type, literal))
        if isinstance(literal, str):
            return exact_scalar(literal, data_type)
        return pa.scalar(literal).cast(data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError) as exc:
        raise UnsupportedType(_unlike(name, data_type, literal)) from exc


def _is_number(data_type: pa.DataType) -> bool:
    return bool(types.is_integer(data_type) or types.is_floating(data_type))


def _unlike(name: str, data_type: pa.DataType, literal: Literal) -> str:
    return (
        f"column {name} has type {data_type} and cannot be compared with {literal!s}; write another"
        " literal, change the column with the transform Cast, or give its type (csv.schema)"
    )


CONDITIONS: Kind[Condition] = Kind(_read_condition, lambda condition: condition.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionOptions:
    """The keys of Condition."""

    condition: Condition = key(
        CONDITIONS, "As in `amount > 10 AND country IN ('DE', 'FR')`.", required=True
    )


class _OnCondition:
    def __init__(self, options: ConditionOptions) -> None:
        self._condition = options.condition
        self._bound: tuple[pa.Schema, Mask] | None = None

    def __call__(self, rows: Rows) -> pa.BooleanArray:
        schema = rows.values.schema
        if self._bound is None or not self._bound[0].equals(schema):
            self._bound = (schema, self._condition.bind(schema))
        return self._bound[1](rows.values)


CONDITION = PredicateSpec(
    open=_OnCondition,
    options=ConditionOptions,
    outcomes=lambda options, ranges: options.condition.outcomes(ranges),
)
