"""Declares keys on dataclass fields, reads flat maps by them, reports all problems at once.

Tests: unit/config/test_connector.py, unit/config/test_worker.py
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, TypeVar

from extentflow.config.kafka_properties import SECRET_PROPERTIES
from extentflow.config.types import REFERABLE, SECRET, Kind, choice
from extentflow.wording import nearest, plain, quoted

_DECLARATION = "extentflow.config.key"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Alias:
    """Another system's name for a key; `values` maps its values where they differ."""

    name: str
    origin: str = "NetApp"
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """A key applies only where the value of `key` is accepted; `says` completes "only where"."""

    key: str
    accepts: Callable[[Any], bool]
    says: str


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. `field` and `part` say which field of which class it fills (see `declared`).

    `shown` is the default in words; `section` begins a section of the reference page.
    """

    kind: Kind[Any]
    doc: str
    name: str = ""
    shown: str | None = None
    aliases: tuple[Alias, ...] = ()
    only: tuple[KeyCondition, ...] = ()
    section: str = ""
    field: str = ""
    part: str = ""
    default: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """Keys below one prefix: Kafka client properties, or (`names` None) any, taken as they are.

    `refused` says why others are not for users.
    """

    prefix: str
    doc: str
    names: Collection[str] | None
    refused: Mapping[str, str] = field(default_factory=dict)
    field: str = ""


def key(
    kind: Kind[Any],
    doc: str,
    *,
    default: Any = None,  # noqa: ANN401 - as `dataclasses.field`
    required: bool = False,
    name: str = "",
    shown: str | None = None,
    aliases: tuple[Alias, ...] = (),
    only: tuple[KeyCondition, ...] = (),
    section: str = "",
) -> Any:  # noqa: ANN401 - as `dataclasses.field`
    """Declare a key at the dataclass field that holds its value.

    lease_seconds: float = key(seconds(1), "How long ...", default=60.0)    is `lease.seconds`
    """
    one = Key(kind, doc, name, shown, aliases, only, section)
    return field(default=MISSING if required else default, metadata={_DECLARATION: one})


def family(declaration: Family) -> Any:  # noqa: ANN401 - as `dataclasses.field`
    """Declare a family of keys at the dataclass field that holds their values as a map."""
    return field(default_factory=dict, hash=False, metadata={_DECLARATION: declaration})


def declared(
    cls: type, *, part: str = "", section: str = "", only: tuple[KeyCondition, ...] = ()
) -> Iterator[Key | Family]:
    """Yield the keys and families that the fields of a dataclass declare, in their order.

    A key is called like its field, with dots, unless it has a name; a name that ends with a dot
    precedes the field's. `part` begins every name and tells the classes of one table apart; `only`
    holds for every key.
    """
    for one in fields(cls):
        match one.metadata.get(_DECLARATION):
            case Family() as found:
                yield replace(found, field=one.name)
            case Key() as found:
                required = one.default is MISSING
                whole = found.name and not found.name.endswith(".")
                yield replace(
                    found,
                    name=part + found.name + ("" if whole else one.name.replace("_", ".")),
                    field=one.name,
                    part=part,
                    section=found.section or section,
                    only=(*only, *found.only),
                    default=None if required else one.default,
                    required=required,
                )
                section = ""


@dataclass(frozen=True, slots=True)
class ParsedKeys:
    """What a flat map says: a value for every key, and everything that is wrong with it.

    `values` are by canonical name or family's prefix. `spelled` maps canonical names to the names
    as the user wrote them; `failed` are canonical names whose value could not be used (theirs is
    the default).
    """

    values: dict[str, Any] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def sound(self, *names: str) -> bool:
        """Whether no key failed: a rule between keys must not report the same mistake again."""
        return self.failed.isdisjoint(names)


@dataclass(frozen=True, slots=True)
class Table:
    """All keys of one kind of configuration; `foreign` says what to do with other systems' keys."""

    rows: tuple[Key | Family, ...]
    foreign: Mapping[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Key]:
        """Yield every key, in the order of the reference page."""
        return (row for row in self.rows if isinstance(row, Key))

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of keys."""
        return tuple(row for row in self.rows if isinstance(row, Family))

    def names(self) -> list[str]:
        """Return every name that may be written, families' included."""
        members = (f.prefix + name for f in self.families for name in sorted(f.names or ()))
        return [*self._by_name(), *members]

    def read(
        self,
        config: Mapping[str, str],
        *,
        rename: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> ParsedKeys:
        """Return what `config` says; never raises.

        `rename` are aliases that hold only for this map (alias -> canonical name); `labels` are
        the names to use in messages where the user wrote others, such as environment variables.
        """
        labels = labels or {}
        reading = ParsedKeys({key.name: key.default for key in self})
        reading.values.update((family.prefix, {}) for family in self.families)
        known = self._by_name()
        known.update((alias, known[name]) for alias, name in (rename or {}).items())
        for name, text in config.items():
            label = labels.get(name, plain(name))
            family = next((f for f in self.families if name.startswith(f.prefix)), None)
            if name in known:
                _take(reading, label, text, *known[name])
            elif family is not None:
                _take_member(reading, label, text, family, name)
            else:
                near = f"no such key; {nearest(name, self.names())}"
                reading.problems.append(f"{label}: {self.foreign.get(name, near)}")
        for key in self:
            if key.required and key.name not in reading.spelled:
                reading.failed.add(key.name)
                # The doc up to a dot that ends a sentence, not one within a name.
                summary = re.split(r"\.(?:\s|$)", key.doc, maxsplit=1)[0]
                label = labels.get(key.name, key.name)
                reading.problems.append(f"{label}: missing; write {summary}")
        self._check_applicability(reading)
        return reading

    def make(self, cls: type[T], reading: ParsedKeys, *, part: str = "", **more: object) -> T:
        """Return the declaring class's instance from `reading`, and `more` fields without keys."""
        keys = {key.field: reading.values[key.name] for key in self if key.part == part}
        if not part:
            keys |= {family.field: reading.values[family.prefix] for family in self.families}
        return cls(**keys, **more)

    def write(self, parts: Mapping[str, object]) -> dict[str, str]:
        """Return the flat map of `parts`, the instances by `Key.part`, without defaults."""
        written = {}
        for key in self:
            # A converter has some of the keys of its part.
            value = getattr(parts.get(key.part), key.field, key.default)
            if value != key.default:
                written[key.name] = key.kind.write(value)
        for family in self.families:
            members: Mapping[str, str] = getattr(parts[""], family.field)
            written.update((family.prefix + name, text) for name, text in members.items())
        return written

    def _by_name(self) -> dict[str, tuple[Key, Alias | None]]:
        known: dict[str, tuple[Key, Alias | None]] = {}
        for key in self:
            known[key.name] = (key, None)
            known.update((alias.name, (key, alias)) for alias in key.aliases)
        return known

    def _check_applicability(self, reading: ParsedKeys) -> None:
        by_name = {key.name: key for key in self}
        for key in self:
            for only in key.only if key.name in reading.spelled else ():
                value = reading.values[only.key]
                if only.key in reading.failed or only.accepts(value):
                    continue
                written = by_name[only.key].kind.write
                held = "is not set" if value in (None, ()) else f"is {written(value)}"
                label, other = reading.spelled[key.name], reading.spelled.get(only.key, only.key)
                reading.problems.append(
                    f"{label}: applies only where {only.says}; {other} {held}: remove {label}"
                )
                reading.failed.add(key.name)
                reading.values[key.name] = key.default
                break


def _take(reading: ParsedKeys, label: str, text: str, key: Key, alias: Alias | None) -> None:
    if key.name in reading.spelled:
        first = reading.spelled[key.name]
        reading.problems.append(f"{label}: says the same as {first}; keep one of the two")
        return
    reading.spelled[key.name] = label
    values = alias.values if alias else {}
    try:
        _require_characters(text)
        meant = values[choice(values).read(text)] if values else text
        reading.values[key.name] = key.kind.read(meant)
    except ValueError as exc:
        reading.failed.add(key.name)
        reading.problems.append(_complaint(label, text, exc, secret=key.kind.secret))


def _take_member(reading: ParsedKeys, label: str, text: str, family: Family, name: str) -> None:
    member = name.removeprefix(family.prefix)
    reading.spelled[name] = label
    secret = member in SECRET_PROPERTIES
    if member in family.refused:
        reading.problems.append(f"{label}: {family.refused[member]}")
    elif family.names is None:
        reading.values[family.prefix][member] = text
    elif member not in family.names:
        near = nearest(name, (family.prefix + known for known in sorted(family.names)))
        reading.problems.append(f"{label}: no such property of the Kafka client; {near}")
    else:
        try:
            _require_characters(text)
            kind = SECRET if secret else REFERABLE
            reading.values[family.prefix][member] = kind.read(text)
        except ValueError as exc:
            reading.problems.append(_complaint(label, text, exc, secret=secret))


def _require_characters(text: str) -> None:
    # Escapes of JSON and .properties can write half a character, which no client takes.
    if text != text.encode("utf-8", "replace").decode():
        raise ValueError("holds a lone surrogate; write whole characters")


def _complaint(label: str, text: str, remedy: ValueError, *, secret: bool) -> str:
    return f"{label}={'(not shown)' if secret else quoted(text)}: {remedy}"
