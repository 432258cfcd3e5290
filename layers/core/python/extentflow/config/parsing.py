"""Reads connectors from flat maps, and writes them.

load(path) -> flat map -> parse(map) -> ConnectorConfig -> to_map -> flat map

Tests: unit/config/test_connector.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import CONVERTER, CONVERTER_PARTS, LOCAL_FILE
from extentflow.config.connector_rules import broken_rules
from extentflow.config.foreign_keys import ForeignKeys
from extentflow.config.specs import (
    CONVERTERS,
    FORMATS,
    STORES,
    ConverterCheck,
    ConverterSpec,
    FormatCheck,
    FormatSpec,
)
from extentflow.config.steps import Step, read_steps
from extentflow.config.table import Key, KeyCondition, ParsedKeys, Table, declared
from extentflow.errors import Misconfigured
from extentflow.wording import either

# Classes of options by the names of what has them.
_Options = tuple[tuple[str, type], ...]


def connector_table(config: Mapping[str, str] | None = None) -> Table:
    """Return the keys of connectors: their own, and those of formats and converters.

    Those of installed packages are included where `config` names them, so that a package that
    cannot be loaded is reported only by connectors that use it.
    """
    config = config or {}
    converters = [_converters(_converter_of(config, name)) for name in CONVERTER_PARTS]
    formats = ((name, spec.options) for name, spec in _formats_of(config))
    return _table(tuple(converters), tuple(formats))


# A table has hundreds of rows, and most connectors of a process have the same ones.
@lru_cache(maxsize=32)
def _table(converters: tuple[_Options, ...], formats: _Options) -> Table:
    """Return the table for the options of the converters of each part, and of the formats."""
    rows = list(declared(ConnectorConfig))
    section = "Converters with keys of their own"
    for (name, part), options in zip(CONVERTER_PARTS.items(), converters, strict=True):
        for row, having in _converter_keys(part, options):
            says = f"{name} is {either(sorted(having))}"
            only = KeyCondition(name, frozenset(having).__contains__, says)
            rows.append(replace(row, section=section, only=(only, *row.only)))
            section = ""
    section = "Formats"
    for name, made in formats:
        says = f"input.format is {name} or left to the extension"
        only = KeyCondition("input.format", frozenset({None, name}).__contains__, says)
        own = list(declared(made, part=f"{name}.", section=section, only=(only,)))
        rows += own
        section = "" if own else section
    return Table(tuple(rows), ForeignKeys())


def _formats_of(config: Mapping[str, str]) -> Iterator[tuple[str, FormatSpec]]:
    chosen = config.get("input.format", config.get("decoder.type", "")).strip().lower()
    for name in FORMATS.names():
        used = chosen == name.lower() or any(key.startswith(f"{name}.") for key in config)
        if used or FORMATS.is_built_in(name):
            yield name, FORMATS.get(name)


def _converter_of(config: Mapping[str, str], name: str) -> str | None:
    """Return the converter that `value.converter` or `key.converter` names; None: none."""
    try:
        return CONVERTER.read(config.get(name, ""))
    except ValueError:
        return None


def _converters(chosen: str | None) -> _Options:
    """Return the built-in converters and `chosen`, which is first, where they have options."""
    named = [name for name in CONVERTERS.names() if CONVERTERS.is_built_in(name) or name == chosen]
    specs = ((name, _converter_spec(name)) for name in sorted(named, key=lambda one: one != chosen))
    return tuple((name, spec.options) for name, spec in specs if spec)


def _converter_keys(part: str, converters: _Options) -> Iterator[tuple[Key, list[str]]]:
    """Yield the keys of converters and which converters have them; those of the first one win."""
    found: dict[str, tuple[Key, list[str]]] = {}
    for name, options in converters:
        for row in declared(options, part=part):
            if isinstance(row, Key):
                aliases = tuple(each for each in row.aliases if each.name.startswith(part))
                one = found.setdefault(row.name, (replace(row, aliases=aliases), []))
                one[1].append(name)
    yield from found.values()


def _converter_spec(name: str | None) -> ConverterSpec | None:
    if name is None or CONVERTERS.load_problems(name):
        return None
    found = CONVERTERS.get(name)
    return found if isinstance(found, ConverterSpec) else None


def _converter_options(
    config: Mapping[str, str], reading: ParsedKeys
) -> tuple[dict[str, Any], list[str]]:
    """Return the options of value and key converters, and what is wrong between their keys."""
    made: dict[str, Any] = {}
    problems: list[str] = []
    for name, part in CONVERTER_PARTS.items():
        chosen = _converter_of(config, name)
        spec = _converter_spec(chosen)
        if spec is None or chosen is None:
            continue
        keys = (row for row in declared(spec.options, part=part) if isinstance(row, Key))
        own = spec.options(**{row.field: reading.values[row.name] for row in keys})
        made[name] = own
        sound = partial(_sound_below, reading, part)
        problems += spec.problems(ConverterCheck(chosen, part, own, sound))
    return made, problems


def _sound_below(reading: ParsedKeys, part: str, *names: str) -> bool:
    return reading.sound(*(part + name for name in names))


def parse(config: Mapping[str, str]) -> ConnectorConfig:
    """Return the connector that a flat map describes, for the registered formats and stores.

    Raises Misconfigured with every problem at once, one line each: key, value, remedy.
    """
    table = connector_table(config)
    # NetApp's second meaning of `directory`: a prefix, wherever the store is S3.
    local = config.get("endpoint.type", "").strip().lower() == LOCAL_FILE
    reading = table.read(config, rename={} if local else {"directory": "aws.s3.prefix"})
    formats = dict(_formats_of(config))
    options: dict[str, Any] = {
        name: table.make(spec.options, reading, part=f"{name}.") for name, spec in formats.items()
    }
    changed = {name: own for name, own in options.items() if own != formats[name].options()}
    steps, broken = _steps(reading)
    converters, unfit = _converter_options(config, reading)
    draft = table.make(
        ConnectorConfig,
        reading,
        format_options=changed,
        converter_options=converters,
        steps=steps,
    )
    found = [*reading.problems, *broken, *unfit]
    found += [*broken_rules(draft, reading), *_package_problems(draft)]
    for name, spec in formats.items():
        columns, chosen = draft.extracted_columns, draft.format == name
        columns += draft.select if spec.raw else ()
        found += spec.problems(FormatCheck(options[name], columns, chosen, reading.sound))
    if found:
        raise Misconfigured(found)
    return draft


def _steps(reading: ParsedKeys) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return the chain of transforms, and what is wrong with it."""
    if not reading.sound("transforms", "predicates"):
        return (), ()
    values = reading.values
    try:
        steps = read_steps(
            values["transforms"],
            values["transforms."],
            values["predicates"],
            values["predicates."],
        )
    except Misconfigured as exc:
        reading.failed.add("transforms")
        return (), exc.problems
    return steps, ()


def to_map(config: ConnectorConfig) -> dict[str, str]:
    """Return the flat map, in canonical names and without defaults; `parse` reads it back."""
    parts = {f"{name}.": own for name, own in config.format_options.items()}
    parts |= {CONVERTER_PARTS[name]: own for name, own in config.converter_options.items()}
    chosen = {"value.converter": config.value_converter, "key.converter": config.key_converter}
    named = dict.fromkeys(parts, "") | {name: text for name, text in chosen.items() if text}
    return connector_table(named).write({"": config, **parts})


def _package_problems(config: ConnectorConfig) -> Iterator[str]:
    """Yield why packages of the connector cannot be used; those of formats are loaded before."""
    named = (config.value_converter, config.key_converter)
    for converter in dict.fromkeys(name for name in named if name is not None):
        yield from CONVERTERS.load_problems(converter)
    yield from STORES.load_problems(config.endpoint_type)
