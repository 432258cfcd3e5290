"""Keep field numbers: a column has the number that earlier schemas of its subject gave to its name.

Consumers' generated classes read by number, so that a number must never be another column's later.
A schema is read as text that anyone may have registered: in one pass, without recursion.

Tests: unit/converters/test_protobuf_converter.py
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

# Every repetition is possessive, so that hostile text takes linear time.
_TOKEN = re.compile(
    r"(?P<blank>\s++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)"
    r"|\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?|[\w.]++|."
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABELS = frozenset({"optional", "repeated", "required"})
_LAST_NUMBER = (1 << 29) - 1
# No compiler takes more, and readers refuse values so deep.
_MOST_BLOCKS = 200
# Of Protocol Buffers itself.
_RESERVED = (19_000, 19_999)


class UnreadableSchemaError(ValueError):
    """A text is no file of Protocol Buffers with a message."""


@dataclass(slots=True)
class _Message:
    """A message, or a file, whose messages are `inner`; fields are names and types by number."""

    outer: "_Message | None" = None
    fields: dict[int, tuple[str, str]] = field(default_factory=dict)
    inner: dict[str, "_Message"] = field(default_factory=dict)
    reserved: list[tuple[int, int]] = field(default_factory=list)
    reserved_names: set[str] = field(default_factory=set)

    def find(self, type_name: str) -> "_Message | None":
        """Return the message that a type means here; None for all other types."""
        scope: _Message | None = self
        while scope is not None:
            found = scope
            for part in type_name.split("."):
                if part not in found.inner:
                    break
                found = found.inner[part]
            else:
                return found
            scope = scope.outer
        return None


@dataclass(frozen=True, slots=True)
class History:
    """One message in several versions of a schema, the newest first."""

    versions: tuple[_Message, ...] = ()

    @classmethod
    def read(cls, texts: Sequence[str]) -> Self:
        """Return the first message of each file. UnreadableSchemaError: there is none."""
        return cls(tuple(_first_message(text) for text in texts))

    def numbers(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of fields: what a name had before, else what no field ever had.

        Of several numbers, a name has the newest. UnreadableSchemaError: none is left.
        """
        known: dict[str, int] = {}
        used: set[int] = set()
        for message in self.versions:
            for number, (name, _) in message.fields.items():
                if name not in known and number not in used:
                    known[name] = number
            used |= message.fields.keys()
        ranges = [_RESERVED, *(pair for one in self.versions for pair in one.reserved)]
        free = _free_numbers(max(used, default=0), ranges)
        return [known[name] if name in known else next(free) for name in names]

    def reserved(self, numbers: Collection[int]) -> str:
        """Return the numbers that fields had or must not have, but for `numbers`, as declared."""
        spans = [(number, number) for one in self.versions for number in one.fields]
        spans += [pair for one in self.versions for pair in one.reserved]
        taken = iter([*sorted(numbers), _LAST_NUMBER + 1])
        number, begin = next(taken), 0
        found: list[str] = []
        for first, end in _merged(spans):
            begin = first
            while number <= end:
                if number >= begin:
                    found += _span(begin, number - 1)
                    begin = number + 1
                number = next(taken)
            found += _span(begin, end)
        return ", ".join(found)

    def reserved_names(self, names: Collection[str]) -> str:
        """Return the names that fields had or must not have, but for `names`, as declared."""
        found = {name for one in self.versions for name, _ in one.fields.values()}
        found = found.union(*(one.reserved_names for one in self.versions)).difference(names)
        return ", ".join(f'"{name}"' for name in sorted(found) if _NAME.fullmatch(name))

    def member(self, name: str) -> "History":
        """Return the history of the message that is the type of a field."""
        found = (
            message.find(type_name)
            for message in self.versions
            for each, type_name in message.fields.values()
            if each == name
        )
        return History(tuple(one for one in found if one is not None))


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same numbers as disjoint spans, in order."""
    made: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if made and first <= made[-1][1] + 1:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((first, end))
    return made


def _span(first: int, end: int) -> list[str]:
    if first >= end:
        return [str(first)] if first == end else []
    return [f"{first} to {'max' if end == _LAST_NUMBER else end}"]


def _free_numbers(last: int, ranges: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Yield the numbers above `last` that are in no range."""
    for first, end in [*sorted(ranges), (_LAST_NUMBER + 1, _LAST_NUMBER)]:
        yield from range(last + 1, first)
        last = max(last, first - 1, end)
    raise UnreadableSchemaError("it leaves no number for another field")


def _first_message(text: str) -> _Message:
    """Return the first message of a file, which the message index 0 means."""
    file = _Message()
    # What a block's statements belong to; None: nothing that counts, as in an enum.
    blocks: list[_Message | None] = [file]
    package = ""
    for statement, end in _statements(text):
        here = blocks[-1]
        if end == "{":
            if len(blocks) > _MOST_BLOCKS:
                raise UnreadableSchemaError(f"it has more than {_MOST_BLOCKS} blocks in each other")
            blocks.append(_opened(here, statement))
        elif end == "}":
            blocks.pop()
            if not blocks or (statement and here is not None):
                raise UnreadableSchemaError("a } has no {, or a statement in front has no end")
        elif here is file and statement[:1] == ["package"]:
            package = "".join(statement[1:])
        elif here is not None and here is not file:
            _declare(here, statement)
    if len(blocks) > 1 or not file.inner:
        raise UnreadableSchemaError("it declares no message, or does not end")
    first = next(iter(file.inner.values()))
    _name_fully(file, package)
    return first


def _name_fully(file: _Message, package: str) -> None:
    """Make full names mean the file's messages, too, with or without a dot in front."""
    file.outer = _Message(inner={"": file})
    messages, at = dict(file.inner), file
    for part in filter(None, package.split(".")):
        # A message may have the name of the package's part.
        at = at.inner.setdefault(part, _Message())
    at.inner = messages | at.inner


def _statements(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield the tokens before each `;`, `{` and `}`, and that; without options in brackets."""
    statement: list[str] = []
    depth = 0
    for token in _TOKEN.finditer(text):
        if token["blank"]:
            continue
        word = token.group()
        if word in {"[", "]"}:
            depth += 1 if word == "[" else -1
        elif depth == 0 and word in {";", "{", "}"}:
            yield statement, word
            statement = []
        elif depth == 0:
            statement.append(word)
    if depth or statement:
        raise UnreadableSchemaError("its last statement does not end")


def _opened(here: _Message | None, statement: list[str]) -> _Message | None:
    """Return what the statements of a block belong to."""
    if here is None:
        return None
    kinds = statement[:2] if statement[:1] and statement[0] in _LABELS else statement[:1]
    if "group" in kinds:
        _declare(here, statement)
    if statement[:1] == ["oneof"]:
        return here
    if statement[:1] == ["message"] or "group" in kinds:
        name = statement[kinds.index("group") + 1 if "group" in kinds else 1 :][:1]
        return here.inner.setdefault("".join(name), _Message(here))
    return None


def _declare(message: _Message, statement: list[str]) -> None:
    """Add what a statement of a message declares."""
    texts = [one[1:-1] for one in statement if one[0] in "\"'"]
    statement = [one for one in statement if one[0] not in "\"'"]
    kind = statement[0] if statement else ""
    if kind in {"reserved", "extensions"}:
        message.reserved += _ranges(" ".join(statement[1:]).split(","))
        message.reserved_names |= {*texts}
    elif kind != "option" and "=" in statement:
        at = statement.index("=")
        number = _number("".join(statement[at + 1 : at + 2]))
        if not 1 <= number <= _LAST_NUMBER:
            raise UnreadableSchemaError(f"{number} is no field number")
        name = "".join(statement[max(0, at - 1) : at])
        # Of a map, the type of its values: the last one before the name.
        words = [one for one in statement[: max(0, at - 1)] if one != ">"]
        if kind == "group" or statement[1:2] == ["group"]:
            words, name = [name], name.lower()
        message.fields.setdefault(number, (name, words[-1] if words else ""))


def _ranges(parts: Sequence[str]) -> Iterator[tuple[int, int]]:
    for part in parts:
        first, _, end = part.partition(" to ")
        if first.strip()[:1].isdigit():
            number, last = _number(first.strip()), _number(end.strip() or first.strip())
            if 1 <= number <= last <= _LAST_NUMBER:
                yield number, last


def _number(text: str) -> int:
    if text == "max":
        return _LAST_NUMBER
    if not re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10}", text):
        raise UnreadableSchemaError(f"'{text[:40]}' is no field number")
    octal = re.fullmatch(r"0[0-7]+", text)
    return int(text, 8 if octal else 16 if text[:2].lower() == "0x" else 10)
