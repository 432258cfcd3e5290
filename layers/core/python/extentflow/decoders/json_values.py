"""Read a JSON document as values of declared types, exactly, one document at a time.

    document -- parse --> Members, list, Number, str, bool, None -- Reader --> Python values

The values are those from which Arrow makes the columns of `json_columns.stored_type`: dates,
timestamps and base64 are still texts. This is the definition of what a document means; Arrow's
parser, which is faster, only gets documents on which it agrees.

Tests: unit/decoders/test_json_columns.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

MOST_LEVELS = 500
_SHOWN_CHARACTERS = 40
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_HALF_PAIR = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|(?P<half>u[dD][89a-fA-F])|.)", re.DOTALL
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WIDE = Context(prec=4 * 38)
_WHOLE = re.compile(r"-?[0-9]+")
# No integer of 64 bits, and no decimal of 38 digits, has more.
_MOST_DIGITS = 38
_LEVEL = np.zeros(256, np.int64)
_LEVEL[list(b"[{")], _LEVEL[list(b"]}")] = 1, -1

# From a parsed value, which is not null, to the value that Arrow takes.
Reader: TypeAlias = Callable[[Any], Any]


class Number(str):
    """A number, as it is written."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """The members of an object in their order; a name may be repeated."""

    __slots__ = ()


class UnfitValue(ValueError):  # noqa: N818 - an outcome
    """A value that its type cannot represent; `path` leads to it, the innermost step first."""

    def __init__(self, reason: str, *path: str) -> None:
        super().__init__(reason)
        self.path = [*path]

    def __str__(self) -> str:
        """Return the reason with the path of the member."""
        path = "".join(reversed(self.path)).removeprefix(".")
        return f"member {path!r}: {self.args[0]}" if path else str(self.args[0])


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


_PARSER = json.JSONDecoder(
    parse_float=Number,
    parse_int=Number,
    parse_constant=_refuse_constant,
    object_pairs_hook=Members,
)


def parse(raw: bytes) -> Any:  # noqa: ANN401 - any document
    """Return the only value in `raw`, which is valid UTF-8. ValueError if it is not JSON."""
    if is_too_deep(raw):
        raise ValueError(f"nested deeper than {MOST_LEVELS} levels")
    if b"\\u" in raw and any(found["half"] for found in _HALF_PAIR.finditer(raw)):
        raise ValueError("a string holds half of a surrogate pair")
    try:
        return _PARSER.decode(raw.decode())
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc


def is_too_deep(raw: bytes) -> bool:
    """Whether brackets in `raw`, outside of strings, are nested deeper than MOST_LEVELS."""
    if raw.count(b"{") + raw.count(b"[") <= MOST_LEVELS:
        return False
    brackets = np.frombuffer(_STRING.sub(b"", raw), np.uint8)
    return bool(np.cumsum(_LEVEL[brackets]).max(initial=0) > MOST_LEVELS)


def reader_of(wanted: pa.DataType, *, unknown: str | None, exact: bool) -> Reader:
    """Return the reader of values of a type.

    `unknown`: why members of objects that the type does not have are unfit; None: they are ignored.
    `exact`: a number that its float rounds is unfit.
    """
    if pa.types.is_struct(wanted):
        fields = {
            field.name: reader_of(field.type, unknown=unknown, exact=exact) for field in wanted
        }
        return members_reader(fields, unknown=unknown)
    if pa.types.is_list(wanted):
        return _list_reader(reader_of(wanted.value_type, unknown=unknown, exact=exact))
    if pa.types.is_map(wanted):
        return _map_reader(reader_of(wanted.item_type, unknown=unknown, exact=exact))
    if pa.types.is_float64(wanted):
        return _float_reader(exact=exact)
    return _scalar_reader(wanted)


def _scalar_reader(wanted: pa.DataType) -> Reader:
    found: Reader
    if pa.types.is_integer(wanted):
        found = _integer_reader(wanted)
    elif pa.types.is_decimal(wanted):
        found = _decimal_reader(wanted)
    elif pa.types.is_floating(wanted):
        found = _read_float32
    elif pa.types.is_boolean(wanted):
        found = _read_boolean
    else:
        found = json_text if isinstance(wanted, pa.JsonType) else _text_reader(wanted)
    return found


def members_reader(
    fields: dict[str, Reader], *, unknown: str | None
) -> Callable[[Any], dict[str, Any]]:
    """Return the reader of objects: a missing member is None; a repeated one is unfit."""
    nothing = dict.fromkeys(fields)

    def read(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any document
        if not isinstance(value, Members):
            raise UnfitValue(f"{shown(value)} is no object")
        found = nothing.copy()
        seen = set()
        for name, member in value:
            reader = fields.get(name)
            if reader is None:
                if unknown is not None:
                    raise UnfitValue(unknown, _step(name))
                continue
            if name in seen:
                raise UnfitValue("stands more than once in its object", _step(name))
            seen.add(name)
            if member is not None:
                try:
                    found[name] = reader(member)
                except UnfitValue as exc:
                    exc.path.append(_step(name))
                    raise
        return found

    return read


def _step(name: str) -> str:
    return "." + (name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}...")


def _list_reader(element: Reader) -> Reader:
    def read(value: Any) -> list[Any]:  # noqa: ANN401 - any document
        if type(value) is not list:
            raise UnfitValue(f"{shown(value)} is no array")
        found = []
        for place, one in enumerate(value):
            try:
                found.append(None if one is None else element(one))
            except UnfitValue as exc:
                exc.path.append(f"[{place}]")
                raise
        return found

    return read


def _map_reader(item: Reader) -> Reader:
    def read(value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 - any document
        if not isinstance(value, Members):
            raise UnfitValue(f"{shown(value)} is no object")
        found: dict[str, Any] = {}
        for name, one in value:
            if name in found:
                raise UnfitValue("stands more than once in its object", _step(name))
            try:
                found[name] = None if one is None else item(one)
            except UnfitValue as exc:
                exc.path.append(_step(name))
                raise
        return list(found.items())

    return read


def _integer_reader(wanted: pa.DataType) -> Reader:
    signed = pa.types.is_signed_integer(wanted)
    bits = wanted.bit_width - signed
    low, high = (-(1 << bits) if signed else 0), (1 << bits) - 1

    def read(value: Any) -> int:  # noqa: ANN401 - any document
        if isinstance(value, Number):
            number = _whole(value)
            if number is not None and low <= number <= high:
                return number
        raise _unfit(value, wanted)

    return read


def _whole(number: Number) -> int | None:
    """Return the value of a number with few digits, if it is whole."""
    if _WHOLE.fullmatch(number):
        return int(number) if len(number) <= _MOST_DIGITS else None
    # Also 1.0 and 1e3, which are whole.
    found = _decimal(number)
    if found is None or found.adjusted() >= _MOST_DIGITS or found != found.to_integral_value():
        return None
    return int(found)


def _decimal(number: str) -> Decimal | None:
    try:
        found = Decimal(number)
    except InvalidOperation:  # an exponent that no decimal has
        return None
    return found or Decimal(0)


def _float_reader(*, exact: bool) -> Reader:
    wanted = pa.float64()

    def read(value: Any) -> float:  # noqa: ANN401 - any document
        if isinstance(value, Number):
            found = float(value)
            if abs(found) != float("inf") and not (exact and is_rounded(value, found)):
                return found
        raise _unfit(value, wanted)

    return read


def is_rounded(number: str, found: float) -> bool:
    """Whether a float64 has another value than the number that was read as it."""
    # The shortest text that the float has, as 0.1 is no binary fraction.
    return _decimal(number) != Decimal(repr(found))


def _read_float32(value: Any) -> float:  # noqa: ANN401 - any document
    if isinstance(value, Number):
        # Rounded once: through a float64, it would be rounded twice.
        found: float = pa.scalar(str(value)).cast(pa.float32()).as_py()
        if abs(found) != float("inf"):
            return found
    raise _unfit(value, pa.float32())


def _decimal_reader(wanted: pa.DataType) -> Reader:
    unit, whole_digits = Decimal(1).scaleb(-wanted.scale), wanted.precision - wanted.scale

    def read(value: Any) -> Decimal:  # noqa: ANN401 - any document
        # Also in a string, as many writers protect digits from readers of doubles.
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            found = _decimal(value)
            if found is not None and found.adjusted() < max(1, whole_digits):
                exact = found.quantize(unit, context=_WIDE)
                if exact == found and (not exact or exact.adjusted() < whole_digits):
                    return exact
        raise _unfit(value, wanted)

    return read


def _read_boolean(value: Any) -> bool:  # noqa: ANN401 - any document
    if isinstance(value, bool):
        return value
    raise _unfit(value, "bool")


def _text_reader(wanted: pa.DataType) -> Reader:
    def read(value: Any) -> str:  # noqa: ANN401 - any document
        if isinstance(value, str) and not isinstance(value, Number):
            return value
        raise _unfit(value, wanted)

    return read


def _unfit(value: Any, wanted: object) -> UnfitValue:  # noqa: ANN401 - any document
    return UnfitValue(f"{shown(value)} is not a valid {wanted}")


def shown(value: Any) -> str:  # noqa: ANN401 - any document
    """Return the beginning of a value's text for a message."""
    if isinstance(value, Members):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = json_text(value) if isinstance(value, Number) or not isinstance(value, str) else value
    cut = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return repr(cut) if isinstance(value, str) and not isinstance(value, Number) else cut


def json_text(value: Any) -> str:  # noqa: ANN401 - any document
    """Return the text of a parsed value without whitespace, numbers as they are written."""
    pieces: list[str] = []
    # Bytes stand for text that is complete. No recursion, which documents could make too deep.
    rest = [value]
    while rest:
        one = rest.pop()
        match one:
            case bytes():
                pieces.append(one.decode())
            case Number():
                pieces.append(one)
            case list():
                is_object = isinstance(one, Members)
                pieces.append("{" if is_object else "[")
                rest.append(b"}" if is_object else b"]")
                for place in range(len(one) - 1, -1, -1):
                    if is_object:
                        name, member = one[place]
                        rest += [member, f"{_encode(name)}:".encode()]
                    else:
                        rest.append(one[place])
                    if place:
                        rest.append(b",")
            case _:
                pieces.append(_encode(one))
    return "".join(pieces)


_encode = json.JSONEncoder(ensure_ascii=False).encode
