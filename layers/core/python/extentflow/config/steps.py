"""Chains of transforms: `transforms=a,b`, `transforms.a.type=...`, with Connect's names.

A type is written as Connect does (`org.apache.kafka.connect.transforms.ReplaceField$Value`) or
short (`ReplaceField`); `$Key` means the columns of the key. The options of a type are declared by
its specification.

Tests: unit/config/test_connector.py
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from extentflow.config import types
from extentflow.config.specs import PREDICATES, TRANSFORMS, NoOptions, TransformSpec
from extentflow.config.table import Key, KeyCondition, ParsedKeys, Table, declared, key
from extentflow.errors import Misconfigured
from extentflow.plugins import Registry
from extentflow.wording import nearest, quoted

PACKAGES = ("org.apache.kafka.connect.transforms.", "io.confluent.connect.transforms.")
# Connect's transforms that have another place here.
_REFUSED = {
    "SetSchemaMetadata": "columns have no schema of their own; set value.converter.record.name",
    "TimestampRouter": "topics that depend on time are not known before a run, so that they cannot"
    " be checked; write ExtractTopic with the list of topics, or RegexRouter",
}
_SIDES = {"": False, "Value": False, "Key": True}


def _aliases(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        types.NAME.read(name)
    if twice := types.repeated(names):
        raise ValueError(f"names {', '.join(twice)} more than once; keep one")
    return tuple(names)


ALIASES: types.Kind[tuple[str, ...]] = types.Kind(_aliases, ",".join)


@dataclass(frozen=True, slots=True)
class _CommonKeys:
    """What every transform has."""

    type: str = key(types.TEXT, "the transform; docs/transforms.md lists them.", required=True)
    predicate: str | None = key(
        types.NAME, "Apply the transform only to records for which this predicate is true."
    )
    negate: bool = key(
        types.BOOLEAN,
        "Apply it to the records for which the predicate is false instead.",
        default=False,
        only=(KeyCondition("predicate", lambda value: value is not None, "predicate is set"),),
    )


@dataclass(frozen=True, slots=True)
class _CommonPredicate:
    type: str = key(types.TEXT, "the predicate; docs/transforms.md lists them.", required=True)


@dataclass(frozen=True, slots=True)
class StepUse:
    """A transform or predicate as a connector uses it: its alias, specification and options."""

    alias: str
    name: str
    options: Any
    on_key: bool = False

    def __str__(self) -> str:
        """Return how messages name it."""
        return f"{self.alias} ({self.name})"


@dataclass(frozen=True, slots=True)
class Step:
    """One transform of a chain, and the predicate that it depends on."""

    transform: StepUse
    predicate: StepUse | None = None
    negate: bool = False

    @property
    def spec(self) -> TransformSpec | None:
        """The transform's specification; a function of a user has none."""
        found = TRANSFORMS.get(self.transform.name)
        return found if isinstance(found, TransformSpec) else None

    @property
    def makes_key(self) -> bool:
        """Whether the step gives records a key, or changes the columns of one."""
        spec = self.spec
        return self.transform.on_key or (spec is not None and spec.makes_key)

    def route(self, topic: str) -> str:
        """Return the topic after this step."""
        spec = self.spec
        if spec is None or spec.route is None:
            return topic
        if self.predicate is not None:
            matches = PREDICATES.get(self.predicate.name).of_topic
            if matches is None or matches(self.predicate.options, topic) == self.negate:
                return topic
        return spec.route(self.transform.options, topic)

    @property
    def routes(self) -> bool:
        """Whether the step may change the topic of all records."""
        spec = self.spec
        return spec is not None and spec.route is not None

    @property
    def uses_headers(self) -> bool:
        """Whether the step reads or changes headers of records."""
        spec, used = self.spec, self.predicate
        by_predicate = used is not None and PREDICATES.get(used.name).headers
        return by_predicate or (spec is not None and spec.headers)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that values may name in this step."""
        spec = self.spec
        named = spec and spec.topics
        return named(self.transform.options) if named else ()

    @property
    def needs_topic(self) -> bool:
        """Whether the step depends on the topic of all records, or changes it."""
        used = self.predicate
        decided = used is not None and PREDICATES.get(used.name).of_topic is not None
        return self.routes or bool(self.topics) or decided


def read_steps(
    aliases: Iterable[str],
    settings: Mapping[str, str],
    predicate_aliases: Iterable[str],
    predicate_settings: Mapping[str, str],
) -> tuple[Step, ...]:
    """Return the chain that settings describe, without the prefixes `transforms.`, `predicates.`.

    Raises Misconfigured with every problem.
    """
    problems: list[str] = []
    transforms = _Section("transforms", TRANSFORMS, _CommonKeys, settings, problems)
    predicates = _Section("predicates", PREDICATES, _CommonPredicate, predicate_settings, problems)
    found = {used.alias: used for used, _ in predicates.read(list(predicate_aliases))}
    steps: list[Step] = []
    for used, common in transforms.read(list(aliases)):
        name, label = common["predicate"], f"transforms.{used.alias}.predicate"
        if name is not None and name not in predicate_aliases:
            problems.append(f"{label}={quoted(name)}: predicates does not list it; add it there")
        steps.append(Step(used, found.get(name or ""), common["negate"]))
    if problems:
        # A predicate that cannot be read would look like a missing one.
        raise Misconfigured(problems)
    problems += [line for step in steps for line in _misfits(step)]
    routing = next((at for at, step in enumerate(steps) if step.topics), len(steps))
    problems += [
        f"transforms.{step.transform.alias}: {step.transform.name} depends on the topic, which"
        f" {steps[routing].transform} chose for each record; list it before"
        for step in steps[routing + 1 :]
        if step.needs_topic
    ]
    idle = set(found) - {step.predicate.alias for step in steps if step.predicate}
    problems += [f"predicates: no transform uses {alias}; remove it" for alias in sorted(idle)]
    if problems:
        raise Misconfigured(problems)
    return tuple(steps)


def _misfits(step: Step) -> Iterator[str]:
    """Yield why a transform cannot be used with its side or its predicate."""
    spec, used = step.spec, step.transform
    if spec is None:
        return
    label = f"transforms.{used.alias}"
    if used.on_key and not spec.keys:
        yield f"{label}.type={used.name}$Key: works on values only; write {used.name}"
    if spec.needs_predicate and step.predicate is None:
        yield f"{label}.predicate: missing; {used.name} drops the records for which it is true"
    per_record = step.predicate and PREDICATES.get(step.predicate.name).of_topic is None
    if spec.route is not None and per_record:
        yield (
            f"{label}.predicate: {used.name} decides once per object, and {step.predicate} per"
            " record; use TopicNameMatches"
        )
    if spec.problem is not None and (problem := spec.problem(used.options)):
        yield f"{label}: {problem}"


class _Section:
    """The settings of `transforms` or `predicates`, by alias."""

    def __init__(
        self,
        word: str,
        registry: "Registry[Any]",
        common: type,
        settings: Mapping[str, str],
        problems: list[str],
    ) -> None:
        self._word = word
        self._registry = registry
        self._common = common
        self._settings = settings
        self._problems = problems

    def read(self, aliases: list[str]) -> Iterator[tuple[StepUse, dict[str, Any]]]:
        """Yield what each alias names, in order, with the values common to all."""
        by_alias: dict[str, dict[str, str]] = {alias: {} for alias in aliases}
        for name, text in self._settings.items():
            owner = next((one for one in aliases if name.startswith(f"{one}.")), None)
            if owner is None:
                label = f"{self._word}.{name}"
                self._problems.append(
                    f"{label}: {self._word} does not list {name.partition('.')[0]}; add it there,"
                    f" or remove {label}"
                )
            else:
                by_alias[owner][name.removeprefix(f"{owner}.")] = text
        for alias, given in by_alias.items():
            if (found := self._read_one(alias, given)) is not None:
                yield found

    def _read_one(
        self, alias: str, given: Mapping[str, str]
    ) -> tuple[StepUse, dict[str, Any]] | None:
        prefix = f"{self._word}.{alias}"
        try:
            name, on_key = self._resolve(given["type"])
            options = options_type(self._registry.get(name))
        except KeyError:
            self._problems.append(f"{prefix}.type: missing; write {self._known()}")
            return None
        except ValueError as exc:
            self._problems.append(f"{prefix}.type={quoted(given['type'])}: {exc}")
            return None
        rows: list[Key] = [row for row in declared(self._common) if isinstance(row, Key)]
        rows += [row for row in declared(options, part="") if isinstance(row, Key)]
        table = Table(tuple(rows))
        names = {*given, *(row.name for row in rows)}
        reading = table.read(given, labels={each: f"{prefix}.{each}" for each in names})
        self._problems += reading.problems
        if reading.problems:
            return None
        own = _made(options, reading)
        common = {row.field: reading.values[row.name] for row in declared(self._common)}  # type: ignore[union-attr]
        return StepUse(alias, name, own, on_key), common

    def _resolve(self, text: str) -> tuple[str, bool]:
        text = text.strip()
        for package in PACKAGES:
            text = text.removeprefix(package)
        name, _, side = text.partition("$")
        name = name.removeprefix("predicates.")
        if name in _REFUSED:
            raise ValueError(_REFUSED[name])
        if side not in _SIDES or name not in self._registry.names():
            hint = nearest(name, self._registry.names(), otherwise=f"write {self._known()}")
            raise ValueError(f"there is no such type; {hint}")
        return name, _SIDES[side]

    def _known(self) -> str:
        return f"one of {', '.join(self._registry.names())}"


def options_type(adapter: object) -> type:
    """Return the class of a specification's options; a plain function has none."""
    own: type = getattr(adapter, "options", NoOptions)
    return own


def _made(options: type, reading: ParsedKeys) -> Any:  # noqa: ANN401 - each transform has its own
    keys = (row for row in declared(options) if isinstance(row, Key))
    return options(**{row.field: reading.values[row.name] for row in keys})
