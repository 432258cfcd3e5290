"""What connectors are checked against: registered formats, converters, transforms, stores.

The types of the adapters themselves belong to the packages above: `formats`, `converters`,
`transforms` and `storage`.

Tests: unit/config/test_connector.py
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from extentflow import plugins
from extentflow.plugins import Registry


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a format that has no keys of its own."""


@dataclass(frozen=True, slots=True)
class FormatCheck:
    """What a format checks between keys; `chosen` is False where the object's extension decides.

    `sound` returns whether the values of all these keys could be read (`table.Reading.sound`).
    """

    options: Any
    key_columns: tuple[str, ...]
    chosen: bool
    sound: Callable[..., bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSpec:
    """A format as its package registers it, under the name that `input.format` has.

    `open` takes `formats.FormatOptions` and an instance of `options`, and returns a
    `formats.Format`. `options` is a dataclass whose fields are declared by `config.table.key`, each
    with a default; the keys begin with the format's name and a dot.

    `extensions` are lower case, without a dot. `converters` are the values of `value.converter`
    that fit, the default first; empty means any, `json` by default. `raw`: the column `value`
    already holds the payload, so values are passed on as they are. `has_columns`: keys can be made
    from columns. `compressible`: objects may be compressed as a whole; `splits_compressed`: `open`
    takes the compressions that `file.compression.split` means, too. `limits_records`:
    `record.max.bytes` applies although they are not. `opaque`: objects are delivered as they are,
    so that their content decides nothing.
    """

    open: Callable[..., Any]
    options: type = NoOptions
    extensions: tuple[str, ...] = ()
    converters: tuple[str, ...] = ()
    raw: bool = False
    has_columns: bool = True
    compressible: bool = True
    splits_compressed: bool = False
    limits_records: bool = False
    opaque: bool = False
    problems: Callable[[FormatCheck], Iterable[str]] = lambda _check: ()
    under: Callable[["FormatSpec", Any], "FormatSpec"] = lambda spec, _options: spec
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ConverterCheck:
    """What a converter checks between its keys, which begin with `prefix` (`value.converter.`).

    `sound` returns whether the values of all these keys, without the prefix, could be read.
    """

    name: str
    prefix: str
    options: Any
    sound: Callable[..., bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterSpec:
    """A converter with keys of its own, under the name that `value.converter` has.

    `open` takes a schema, columns (None: all), an instance of `options` with resolved secrets, and
    a `converters.Destination`; it returns a `converters.Converter`. `options` declares keys as that
    of a format does; they stand below `value.converter.` and `key.converter.`.

    `takes_lines`: with these options, lines of text formats pass as they are, because they already
    are what the converter makes.
    """

    open: Callable[..., Any]
    options: type
    problems: Callable[[ConverterCheck], Iterable[str]] = lambda _check: ()
    takes_lines: Callable[[Any], bool] = lambda _options: False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformSpec:
    """A transform as its package registers it, under the name that `transforms.NAME.type` has.

    `open` takes an instance of `options` and whether the transform is for the columns of the key
    (`NAME$Key`, only with `keys`); it returns a `transforms.Transform`. `options` declares keys as
    that of a format does.

    `route` returns the topic that records of a topic go to, `topics` those that values may name.
    `problem` returns why options cannot be combined. `makes_key`: it chooses columns of the key.
    `headers`: it reads or changes headers, which rows hold only then.
    """

    open: Callable[[Any, bool], Any]
    options: type = NoOptions
    keys: bool = True
    needs_predicate: bool = False
    route: Callable[[Any, str], str] | None = None
    topics: Callable[[Any], tuple[str, ...]] | None = None
    problem: Callable[[Any], str | None] | None = None
    makes_key: bool = False
    headers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRange:
    """What is known about the values of a column before they are read.

    `low` and `high` are Arrow scalars of the column's type (text: string), and no value lies
    outside them, NaN apart; None: unknown, or there are only nulls. `has_nulls`, `has_values`:
    whether there may be any. A range may be wider than the values.
    """

    low: Any = None
    high: Any = None
    has_nulls: bool = True
    has_values: bool = True


# The range of a column by its name; None: nothing is known.
Ranges: TypeAlias = Callable[[str], ColumnRange | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateSpec:
    """A predicate as its package registers it, under the name that `predicates.NAME.type` has.

    `open` takes an instance of `options` and returns a `transforms.Predicate`. `of_topic` decides
    by the topic alone, where the predicate does. `outcomes` returns what the predicate may return
    (True, False, None for a null) for rows within ranges, so that a format need not read them.
    `headers`: it reads headers, which rows hold only then.
    """

    open: Callable[[Any], Any]
    options: type = NoOptions
    of_topic: Callable[[Any, str], bool] | None = None
    outcomes: Callable[[Any, Ranges], frozenset[bool | None]] | None = None
    headers: bool = False


def _is_transform(found: object) -> bool:
    # A plain function of a record batch needs no specification.
    return isinstance(found, TransformSpec) or (callable(found) and not isinstance(found, type))


# The converters of columns, the default first.
OF_COLUMNS = ("json", "avro", "json-schema", "protobuf")

# By the values of `input.format`, `value.converter` and `key.converter`, and `endpoint.type`.
FORMATS: Registry[FormatSpec] = Registry(
    plugins.FORMATS, "format", is_adapter=lambda found: isinstance(found, FormatSpec)
)
CONVERTERS: Registry[ConverterSpec | Callable[..., Any]] = Registry(
    plugins.CONVERTERS,
    "converter",
    is_adapter=lambda found: isinstance(found, ConverterSpec) or callable(found),
)
STORES: Registry[Callable[..., Any]] = Registry(plugins.STORES, "object store")
TRANSFORMS: Registry[TransformSpec | Callable[..., Any]] = Registry(
    plugins.TRANSFORMS, "transform", is_adapter=_is_transform
)
PREDICATES: Registry[PredicateSpec] = Registry(
    plugins.PREDICATES, "predicate", is_adapter=lambda found: isinstance(found, PredicateSpec)
)
