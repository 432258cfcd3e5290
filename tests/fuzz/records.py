"""Targets `transforms` and `attributes`: what connectors make of batches of every type.

`transforms` are chains of random types, options and predicates; `attributes` are keys, headers,
timestamps and partitions. Batches of any size yield the same records; every row is delivered, bad
or filtered; and what a filter excludes by the ranges of columns, it would have dropped.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from tests.fuzz.converters import column
from tests.fuzz.mutations import TEXTS, change_bytes, pack, unpack
from tests.fuzz.objects import Delivered, deliver_with, outcome_of
from tests.fuzz.targets import Target
from tests.laws.laws import extent_of
from tests.support.chains import SECRETS

from extentflow.config.connector import ConnectorConfig
from extentflow.config.parsing import parse, to_map
from extentflow.config.specs import ColumnRange
from extentflow.delivery.pipeline import Pipeline
from extentflow.errors import Misconfigured
from extentflow.formats import Chunk
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import RangeSource
from extentflow.testing.stores import MemorySource
from extentflow.transforms import RangeExclusion
from extentflow.wiring.extents import pipeline

_PARTITIONS = 3
_ROWS = (1, 2, 5, 9)
_NAMES = ("id", "s", "at", "a.b", 'q"\\', "ü🙂", "value", "a,b:c", "")
_USUAL: tuple[tuple[pa.DataType, list[Any]], ...] = (
    (pa.int64(), [1, None, -7, 2**62]),
    (pa.int32(), [0, 5, None]),
    (pa.string(), ["DE", "", None, "12", "2026-01-02 03:04:05", "ü%_"]),
    (pa.float64(), [0.5, None, float("nan"), 1e300]),
    (pa.bool_(), [True, None, False]),
    (pa.timestamp("us", "UTC"), [0, None, 1_770_000_000_000_000]),
    (pa.date32(), [0, 20_000, None]),
    (pa.struct([("b", pa.int64()), ("c", pa.string())]), [{"b": 1, "c": "x"}, None]),
)


class _Batches:
    """A format of which an object is one batch, that yields it in parts of so many rows."""

    splittable = False
    location_unit: Literal["offset", "row"] = "row"
    extent_bytes: int | None = None
    cut_version = 1

    def __init__(self, batch: pa.RecordBatch, rows: int) -> None:
        self._batch, self._rows = batch, rows

    def plan(self, source: RangeSource, target_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield the whole object."""
        del target_bytes
        yield 0, source.version.size

    def decode(self, source: RangeSource, extent: Extent, position: int) -> Iterator[Chunk]:
        """Yield the rows from `position` on."""
        del source, extent
        for start in range(position, self._batch.num_rows, self._rows):
            part = self._batch.slice(start, self._rows)
            yield Chunk(part, start + len(part), range(start, start + len(part)))


# -- settings --------------------------------------------------------------------------------------


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(random: Random, names: list[str]) -> str:
    chosen = random.sample(names, random.randrange(1, 1 + min(2, len(names))))
    return ",".join(_quoted(name) if random.random() < 0.7 else name for name in chosen)


_TYPES = (
    *("string", "bool", "boolean", "int8", "int64", "uint64", "float32", "float64", "date"),
    *("decimal(9,2)", "decimal(38,0)", "timestamp(ms)", "timestamp(us,UTC)", "timestamp(s,+02:00)"),
)
_FORMATS = ("yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "dd.MM.yyyy")
_LITERALS = ("1", "-7", "0.5", "'DE'", "'2026-01-02'", "TRUE", "'%ü_'", "9" * 30, "'" * 4)
_DEEP = ("NOT " * 3_000, "(" * 3_000, "id = 1 OR " * 3_000)
_REGEXES = (
    "topic",
    "(to)(.*)",
    "(?i)TOPIC",
    "[a-z]+",
    "(",
    "a{9999999999}",
    "(?P<x>t)?.*",
    "(" * 300,
)
_TRANSFORMS = (
    *("ReplaceField", "Cast", "Cast", "MaskField", "TimestampConverter", "TimestampConverter"),
    *("Flatten", "HoistField", "ExtractField", "InsertField", "ValueToKey", "RegexRouter"),
    *("Filter", "Filter", "Filter"),
)


def _condition(random: Random, names: list[str], depth: int = 0) -> str:
    name = random.choice(names)
    written = _quoted(name) if random.random() < 0.6 else name
    literal = random.choice(_LITERALS)
    match random.randrange(12 if depth < 3 else 8):
        case 0:
            return f"{written} IS {random.choice(('', 'NOT '))}NULL"
        case 1:
            return f"{written} {random.choice(('', 'NOT '))}IN ({literal}, {literal})"
        case 2:
            return f"{written} {random.choice(('', 'NOT '))}LIKE {literal}"
        case 3:
            return written
        case 8:
            return f"NOT ({_condition(random, names, depth + 1)})"
        case 9 | 10 | 11:
            left, right = (_condition(random, names, depth + 1) for _ in range(2))
            return f"{left} {random.choice(('AND', 'OR'))} ({right})"
        case _:
            return f"{written} {random.choice(('=', '<>', '<', '<=', '>', '>='))} {literal}"


def _options(random: Random, kind: str, names: list[str]) -> dict[str, str]:
    one = _quoted(random.choice(names))
    match kind:
        case "ReplaceField":
            key = random.choice(("include", "exclude"))
            renames = {"renames": f"{one}:{random.choice(('new', 'id'))}"}
            return {key: _listed(random, names), **(renames if random.random() < 0.3 else {})}
        case "Cast":
            return {"spec": f"{one}:{random.choice(_TYPES)}"}
        case "MaskField":
            mask = {"replacement": random.choice(("0", "x", "", "-1.5", "9" * 30))}
            return {"fields": _listed(random, names), **(mask if random.random() < 0.5 else {})}
        case "TimestampConverter":
            targets = ("string", "unix", "Date", "Time", "Timestamp")
            precisions = ("seconds", "milliseconds", "microseconds", "nanoseconds")
            return {
                "field": one,
                "target.type": random.choice(targets),
                "format": random.choice(_FORMATS),
                "unix.precision": random.choice(precisions),
            }
        case "Flatten":
            return {"delimiter": random.choice((".", "_", "", "🙂"))}
        case "HoistField" | "ExtractField":
            return {"field": random.choice(("all", one)) if kind == "HoistField" else one}
        case "InsertField":
            facts = ("topic", "offset", "bucket", "object", "version", "extent")
            more = {"static.field": random.choice(names), "static.value": random.choice(TEXTS)}
            return {f"{random.choice(facts)}.field": random.choice(("new", "id")), **more}
        case "ValueToKey":
            return {"fields": _listed(random, names)}
        case "RegexRouter":
            return {
                "regex": random.choice(_REGEXES),
                "replacement": random.choice(("$1x", "other")),
            }
    return {}


def _chain(random: Random, names: list[str]) -> dict[str, str]:
    """Return the settings of one to three transforms, and of their predicates."""
    settings: dict[str, str] = {}
    aliases, predicates = [], []
    for number in range(random.choice((1, 1, 2, 3))):
        kind, alias = random.choice(_TRANSFORMS), f"t{number}"
        aliases.append(alias)
        side = "$Key" if random.random() < 0.15 else ""
        settings[f"transforms.{alias}.type"] = kind + side
        for key, text in _options(random, kind, names).items():
            settings[f"transforms.{alias}.{key}"] = text
        if kind == "Filter" or random.random() < 0.25:
            predicates.append(f"p{number}")
            settings[f"transforms.{alias}.predicate"] = f"p{number}"
            settings[f"transforms.{alias}.negate"] = random.choice(("true", "false"))
            settings |= _predicate(random, f"predicates.p{number}", names)
    settings["transforms"] = ",".join(aliases)
    if predicates:
        settings["predicates"] = ",".join(predicates)
    if random.random() < 0.3:
        settings["select"] = _listed(random, names)
    if random.random() < 0.3:
        settings["message.key"] = f"column:{_listed(random, names)}"
    return settings


def _predicate(random: Random, label: str, names: list[str]) -> dict[str, str]:
    kind = random.choice(("Condition",) * 6 + ("TopicNameMatches", "RecordIsTombstone"))
    settings = {f"{label}.type": kind}
    if kind == "Condition":
        deep = random.random() < 0.005
        text = random.choice(_DEEP) if deep else _condition(random, names)
        settings[f"{label}.condition"] = text
    elif kind == "TopicNameMatches":
        settings[f"{label}.pattern"] = random.choice(_REGEXES)
    return settings


_FACTS = ("bucket", "key", "version", "etag", "size", "uri", "extent", "location")


def _attributes(random: Random, names: list[str]) -> dict[str, str]:
    """Return the settings of keys, headers, timestamps and partitions."""
    settings: dict[str, str] = {}
    column_of: Callable[[], str] = lambda: random.choice(names)  # noqa: E731
    templates = (f"a-{{{column_of()}}}", f"${{key}}/{{{column_of()}}}", "{{x}}${etag}", "{x")
    keys = (f"column:{_listed(random, names)}", f"template:{random.choice(templates)}")
    if random.random() < 0.7:
        settings["message.key"] = random.choice((*keys, *keys, "object", f"path:$.{column_of()}"))
    if random.random() < 0.3:
        settings["key.converter"] = random.choice(("string", "json", "bytes"))
    if random.random() < 0.6:
        sources = [f"column:{column_of()}", random.choice(_FACTS), f"text:{random.choice(TEXTS)}"]
        listed = (f"h{at}={_quoted(source)}" for at, source in enumerate(sources))
        settings["headers"] = ",".join(listed)
    for key in ("message.timestamp", "message.partition"):
        if random.random() < 0.4:
            settings[key] = f"column:{column_of()}"
    if random.random() < 0.2:
        settings |= _chain(random, names)
    return settings


def _damaged(random: Random, settings: dict[str, str]) -> dict[str, str]:
    name = random.choice(list(settings))
    # Texts hold lone surrogates, as arguments of a command line may.
    given = settings[name].encode("utf-8", "surrogatepass")
    text = change_bytes(random, given).decode("utf-8", "replace")
    return {**settings, name: random.choice((text, text, random.choice(TEXTS)))}


def _batch(random: Random, names: list[str]) -> bytes:
    length = random.choice(_ROWS)
    columns = []
    for _ in names:
        kind, values = random.choice(_USUAL)
        usual = pa.array([random.choice(values) for _ in range(length)], kind)
        columns.append(usual if random.random() < 0.6 else column(random, length))
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


def _input(settings_of: Callable[[Random, list[str]], dict[str, str]], random: Random) -> bytes:
    names = random.sample(_NAMES, random.choice((1, 2, 2, 3)))
    settings = settings_of(random, [*names, "missing"] if random.random() < 0.1 else names)
    if settings and random.random() < 0.2:
        settings = _damaged(random, settings)
    if random.random() < 0.3:
        settings["value.converter"] = random.choice(("json", "string", "bytes"))
    given = {"settings": settings, "rows": random.choice((1, 2, 3)), "at": random.random()}
    return pack(given, _batch(random, names))


# -- trying one ------------------------------------------------------------------------------------

_CONNECTOR = {"name": "c", "topic": "topic", "aws.s3.bucket.name": "memory"}


def _pipeline(
    config: ConnectorConfig, source: MemorySource, batch: pa.RecordBatch, rows: int
) -> Pipeline:
    """Return what `wiring` makes of a connector, for a batch."""
    return pipeline(
        config,
        replace(extent_of(source, 0, 1), format="parquet"),
        source,
        _Batches(batch, rows),
        partitions=lambda _: _PARTITIONS,
        look_up=SECRETS,
        store=None,
    )


def _run(data: bytes) -> str:
    given, body = unpack(data)
    batch = pa.ipc.open_stream(pa.BufferReader(body)).read_next_batch()
    try:
        config = parse({**_CONNECTOR, "input.format": "parquet", **given["settings"]})
    except Misconfigured as exc:
        assert not any("\n" in problem for problem in exc.problems), "one line each"
        return "refused: Misconfigured"
    assert parse(to_map(config)) == config, "what is written is read back"
    source = MemorySource(b"x", version=ObjectVersion("memory", "in/ü", None, "etag", 1))
    large, small = (
        _pipeline(config, source, batch, rows) for rows in (batch.num_rows, given["rows"])
    )
    whole = deliver_with(large, source, [0, 1])
    parts = deliver_with(small, source, [0, 1])
    parts.require_same(whole, "parts and whole")
    if whole.error is None:
        count = len(whole.values) + len(whole.bad) + whole.filtered
        assert count == batch.num_rows, "every row is a record, bad or filtered"
        _require_excluded(config, batch, whole)
    if parts.positions:
        position, values, bad = parts.positions[int(given["at"] * len(parts.positions))]
        rest = deliver_with(large, source, [0, 1], position)
        joined = Delivered(parts.values[:values] + rest.values, parts.bad[:bad] + rest.bad)
        joined.filtered, joined.error = whole.filtered, rest.error
        joined.require_same(whole, "resumed and whole")
    return f"{outcome_of(whole)}{', filtered' if whole.filtered else ''}"


def _require_excluded(config: ConnectorConfig, batch: pa.RecordBatch, found: Delivered) -> None:
    """Require that nothing is delivered of what the ranges of its columns exclude."""
    excludes = RangeExclusion.of(config.steps)
    if excludes is not None and not config.select and excludes(partial(_range, batch)):
        assert found.filtered == batch.num_rows, "what is excluded would have been dropped"


def _range(batch: pa.RecordBatch, name: str) -> ColumnRange | None:
    at = batch.schema.get_field_index(name)
    if at < 0:
        return None
    array = batch.column(at)
    kind, nulls = array.type, bool(array.null_count)
    if array.null_count == len(array):
        return ColumnRange(has_values=False)
    if pa.types.is_floating(kind):
        array = array.filter(pc.invert(pc.is_nan(array)).fill_null(False))  # noqa: FBT003
    if not any(kind == usual for usual, _ in _USUAL[:-1]) or not len(array):
        return ColumnRange(has_nulls=nulls)
    ends = pc.min_max(array)
    return ColumnRange(low=ends["min"], high=ends["max"], has_nulls=nulls)


TRANSFORMS = Target("transforms", 6, partial(_input, _chain), _run)
ATTRIBUTES = Target("attributes", 5, partial(_input, _attributes), _run)
