"""Infer the columns of JSON documents from samples, for `json.schema=infer`.

A member gets the first type that represents each of its values in the samples; nulls count for
none:

    bool               true and false
    int64              whole numbers without a point or an exponent
    decimal(38,0)      the same, beyond 64 bits
    float64            numbers that it does not round
    decimal(38,s)      other numbers with at most s digits behind the point
    date, timestamp    strings, as for CSV (`text_types`)
    string             other strings, and members without a value
    list, struct       arrays and objects: of what all their elements or members have
    json               anything else: values of several kinds, objects without members

Tests: unit/decoders/test_json_columns.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from extentflow.config.column_lists import JSON_SCHEMA
from extentflow.decoders.json_values import Members, Number, is_rounded, parse
from extentflow.decoders.text_types import TIMES, type_of

_LEAST, _BEYOND = -(1 << 63), 1 << 63
_MOST_DIGITS = 38
_MOST_LEVELS = 32
_PLAIN = re.compile(r"-?(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?")


@dataclass(slots=True)
class _MemberSamples:
    """The values of a member in the samples, or of the elements of its arrays."""

    booleans: bool = False
    numbers: list[str] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    members: dict[str, _MemberSamples] | None = None
    elements: _MemberSamples | None = None

    def add(self, value: Any) -> None:  # noqa: ANN401 - any document
        """Add a parsed value."""
        if isinstance(value, bool):
            self.booleans = True
        elif isinstance(value, Number):
            self.numbers.append(str(value))
        elif isinstance(value, str):
            self.strings.append(value)
        elif isinstance(value, Members):
            self.members = {} if self.members is None else self.members
            for name, member in value:
                self.members.setdefault(name, _MemberSamples()).add(member)
        elif isinstance(value, list):
            self.elements = self.elements or _MemberSamples()
            for one in value:
                self.elements.add(one)

    def type(self, level: int = 0) -> str:
        """Return the type of the values, as `json.schema` takes it."""
        kinds = (self.booleans, self.numbers, self.strings, self.members, self.elements)
        found = [kind for kind in kinds if kind is not None and kind is not False and kind != []]
        if not found:
            return "string"
        if len(found) > 1 or level > _MOST_LEVELS:
            return "json"
        if self.members is not None:
            return f"struct<{_written(self.members, level + 1)}>" if self.members else "json"
        if self.elements is not None:
            return f"list<{self.elements.type(level + 1)}>"
        if self.numbers:
            return _number_type(self.numbers)
        return "bool" if self.booleans else type_of(pa.array(self.strings, pa.string()), TIMES)


def _written(members: dict[str, _MemberSamples], level: int) -> str:
    return JSON_SCHEMA.write(tuple((name, one.type(level)) for name, one in members.items()))


def _number_type(numbers: list[str]) -> str:
    plain = [_PLAIN.fullmatch(number) for number in numbers]
    if all(match and match["fraction"] is None for match in plain):
        short = all(len(number) <= _MOST_DIGITS for number in numbers)
        if short and all(_LEAST <= int(number) < _BEYOND for number in numbers):
            return "int64"
    elif not any(_rounds(number) for number in numbers):
        return "float64"
    digits = [(len(match["whole"]), len(match["fraction"] or "")) for match in plain if match]
    whole, scale = (max(each) for each in zip(*digits, strict=True)) if digits else (0, 0)
    fits = len(digits) == len(numbers) and whole + scale <= _MOST_DIGITS
    return f"decimal({_MOST_DIGITS},{scale})" if fits else "json"


def _rounds(number: str) -> bool:
    found = float(number)
    return abs(found) == float("inf") or is_rounded(number, found)


def inferred_columns(documents: Iterable[bytes]) -> str:
    """Return the names and types of the members of documents, as `json.schema` takes them.

    What is no object has no columns.
    """
    seen = _MemberSamples(members={})
    for raw in documents:
        try:
            document = parse(raw)
        except ValueError:  # what reads all documents reports it
            continue
        if isinstance(document, Members):
            seen.add(document)
    return _written(seen.members or {}, 1)
