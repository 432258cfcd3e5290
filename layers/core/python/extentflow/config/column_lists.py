"""Parses lists of columns, with or without types.

These keys hold such lists:

    csv.schema    id:int64, "a, b":string, price:decimal(15,2), seen:timestamp(ms,UTC)
    json.schema   id:int64, tags:list<string>, at:struct<x:float64,"a, b":date>, x:map<string,json>
    message.key   none | object | column:id | column:id,"a, b" | path:$.a.b | template:${key}-{id}
    headers       file=key,kind=column:kind,site="text:north, 1"
    records.path  Records | data.items | data."a.b"         of json
    include       id,"a, b"                                 of transforms; fields, renames, spec too

Tests: unit/config/test_connector.py
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from extentflow.config.types import Kind, repeated
from extentflow.wording import nearest

_MAX_PRECISION = 38
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_ALIASES = ("string", "bool", *_INTEGERS, "float32", "float64")
_SIMPLE = {name: pa.type_for_alias(name) for name in _ALIASES} | {"date": pa.date32()}
_OF_JSON = {"binary": pa.binary(), "json": pa.json_()}
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
_TIMESTAMP = re.compile(r"timestamp\((s|ms|us|ns)(?:,([A-Za-z0-9_+:/-]+))?\)")
_OFFSET = re.compile(r"[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]")
_NAME = r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^",:\s](?:[^",:]*[^",:\s])?))\s*'
# The type is any text, so that one that does not exist, and none at all, have their own messages.
# Possessive: the time is linear, also where nothing fits.
_COLUMN = re.compile(_NAME + r"(?::\s*+(?P<type>[^,()]*[^,()\s]\s*+(?:\([^()]*\))?)?)?\s*+(?:,|$)")
_TEMPLATE = re.compile(
    r"\$\{(?P<fact>[^{}]*)\}|\{(?P<column>[^{}]+)\}|(?P<text>\{\{|\}\}|[^{}$]+|\$(?!\{))"
)
_JSON_PATH = re.compile(r"\$\.([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)")
_LISTED = re.compile(_NAME + r"(?:,|$)")
_FIELD = re.compile(_NAME + ":")
_OPENING = re.compile(r"\s*(struct|list|map)\s*<")
_MAP_KEY = re.compile(r"\s*string\s*,")
_FLAT_TYPE = re.compile(r"\s*([A-Za-z0-9_]+\s*(?:\([^()]*\))?)\s*")
_FLAT_END = re.compile(r"\s*")
_DEEPEST_TYPE = 32
_TYPES = (
    f"{', '.join(_SIMPLE)}, decimal(precision,scale), timestamp(unit) or timestamp(unit,zone)"
    " with unit s, ms, us or ns"
)
_JSON_TYPES = "also binary, json, struct<name:type,...>, list<type> and map<string,type>"
# What Java, Python, SQL and Avro call types.
_FOREIGN_TYPES = {
    **dict.fromkeys(("byte", "tinyint"), "int8"),
    **dict.fromkeys(("short", "smallint"), "int16"),
    **dict.fromkeys(("int", "integer"), "int32"),
    **dict.fromkeys(("long", "bigint"), "int64"),
    **dict.fromkeys(("float", "real"), "float32"),
    **dict.fromkeys(("double", "doubleprecision", "number"), "float64"),
    **dict.fromkeys(("char", "str", "text", "utf8", "uuid", "varchar"), "string"),
    **dict.fromkeys(("datetime", "timestamp", "timestamptz"), "timestamp(us)"),
    **dict.fromkeys(("decimal", "numeric"), "decimal(38,9)"),
    "boolean": "bool",
}
_FOREIGN_JSON_TYPES = {
    **dict.fromkeys(("array", "list"), "list<type>"),
    **dict.fromkeys(("object", "record", "row", "struct"), "struct<name:type>"),
    **dict.fromkeys(("bytes", "varbinary"), "binary"),
    "map": "map<string,type>",
}
_PLAIN = re.compile(r'[^",:\s](?:[^",:]*[^",:\s])?')

Schema = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MessageKey:
    """Where a record's key comes from: `none`, the `object`'s name, `column`s, or a `template`.

    A template's text is made of `{column}`, facts about the object (`${key}`) and other text.
    """

    source: str = "none"
    columns: tuple[str, ...] = ()
    template: str = ""

    def parts(self) -> list[tuple[str, str]]:
        """Return the parts of a template: (`text` | `fact` | `column`, its text or name)."""
        found = []
        for match in _TEMPLATE.finditer(self.template):
            kind = str(match.lastgroup)
            text = match[kind]
            found.append((kind, text[0] if kind == "text" and text in ("{{", "}}") else text))
        return found


@dataclass(frozen=True, slots=True)
class Header:
    """One header: its name, and its source: a fact about the object, a `column` or a `text`."""

    name: str
    source: str
    argument: str = ""


# Facts about the object and a record's place in it, beside the sources that have an argument.
OBJECT_FACTS = ("bucket", "key", "version", "etag", "size", "uri")
FACTS = (*OBJECT_FACTS, "extent", "location", "last_modified", "content_type")
ARGUED = ("column", "text", "metadata", "tag")


def arrow_type(text: str) -> pa.DataType:
    """Return the Arrow type that a `csv.schema` type names; raises ValueError with the remedy."""
    text = re.sub(r"\s+", "", text)
    if text in _SIMPLE:
        return _SIMPLE[text]
    decimal, timestamp = _DECIMAL.fullmatch(text), _TIMESTAMP.fullmatch(text)
    if timestamp:
        return pa.timestamp(timestamp[1], tz=_zone(timestamp[2]))
    if decimal is None:
        raise ValueError(_no_type(text, _FOREIGN_TYPES, _SIMPLE))
    precision, scale = int(decimal[1]), int(decimal[2])
    if not 1 <= precision <= _MAX_PRECISION or scale > precision:
        raise ValueError(f"{text} cannot be; precision is 1 to 38, scale 0 to the precision")
    return pa.decimal128(precision, scale)


def _no_type(text: str, foreign: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the message about a type that does not exist: the one that was meant, and all."""
    name = text.lower().partition("(")[0]
    meant = foreign.get(name)
    hint = f"did you mean {meant}?" if meant else nearest(name, names, otherwise="")
    return f"no type {text!r};{hint and ' '}{hint} write {_TYPES}"


def written_type(found: pa.DataType) -> str:
    """Return a type as `csv.schema` takes it; one that it cannot name, as Arrow writes it."""
    if pa.types.is_decimal128(found) and found.scale >= 0:
        return f"decimal({found.precision},{found.scale})"
    if pa.types.is_timestamp(found):
        return f"timestamp({found.unit},{found.tz})" if found.tz else f"timestamp({found.unit})"
    return next((name for name, simple in _SIMPLE.items() if simple == found), str(found))


@lru_cache(maxsize=1024)
def json_type(text: str) -> pa.DataType:
    """Return the Arrow type that a `json.schema` type names, `json` as the extension type of JSON.

    Raises ValueError with the remedy.
    """
    found, _, end = _json_type_at(text, 0)
    if end < len(text):
        raise ValueError(f"cannot read {text[end:][:40]!r} behind the type {text[:end]}")
    return found


def _json_type_at(text: str, at: int, depth: int = 0) -> tuple[pa.DataType, str, int]:
    """Return the type that begins at a place, how it is written, and where it ends."""
    opened = _OPENING.match(text, at)
    if opened is None:
        flat = _FLAT_TYPE.match(text, at)
        if flat is None:
            raise ValueError(
                f"a type is missing at {text[at:][:40]!r}; write {_TYPES}; {_JSON_TYPES}"
            )
        written = re.sub(r"\s+", "", flat[1])
        try:
            return _OF_JSON.get(written) or arrow_type(written), written, flat.end()
        except ValueError as exc:
            reason = str(exc)
            if reason.startswith("no type"):
                foreign = _FOREIGN_TYPES | _FOREIGN_JSON_TYPES
                reason = f"{_no_type(written, foreign, (*_SIMPLE, *_OF_JSON))}; {_JSON_TYPES}"
            raise ValueError(reason) from exc
    if depth == _DEEPEST_TYPE:
        raise ValueError(f"types are nested deeper than {_DEEPEST_TYPE} levels; write json there")
    kind, at = opened[1], opened.end()
    if kind == "struct":
        fields, at = _fields_at(text, at, depth + 1)
        found = pa.struct([(name, of) for name, of, _ in fields])
        inner = ",".join(f"{_quoted(name)}:{written}" for name, _, written in fields)
    else:
        if kind == "map":
            key = _MAP_KEY.match(text, at)
            if key is None:
                raise ValueError("names of members are the keys of a map; write map<string,type>")
            at = key.end()
        of, inner, at = _json_type_at(text, at, depth + 1)
        found = pa.list_(of) if kind == "list" else pa.map_(pa.string(), of)
        inner = inner if kind == "list" else f"string,{inner}"
    if text[at : at + 1] != ">":
        raise ValueError(f"{kind}< has no > at {text[at:][:40]!r}")
    return found, f"{kind}<{inner}>", _FLAT_END.match(text, at + 1).end()  # type: ignore[union-attr]


def _fields_at(
    text: str, at: int, depth: int = 0
) -> tuple[list[tuple[str, pa.DataType, str]], int]:
    """Return name, type and written type of the columns from a place on, and where they end."""
    found: list[tuple[str, pa.DataType, str]] = []
    names: set[str] = set()
    while True:
        named = _FIELD.match(text, at)
        if named is None:
            if depth == 0 and (untyped := _LISTED.match(text, at)):
                raise ValueError(f"{_untyped(_listed_name(untyped))}; {_JSON_TYPES}")
            raise ValueError(
                "write name:type,name:type; put names with , or : in double quotes; cannot read"
                f" {text[at:][:40]!r}"
            )
        name = _listed_name(named)
        of, written, at = _json_type_at(text, named.end(), depth)
        if name in names:
            raise ValueError(f"names {name!r} more than once; keep one")
        names.add(name)
        found.append((name, of, written))
        if text[at : at + 1] != ",":
            return found, at
        at += 1


def _read_json_schema(text: str) -> Schema:
    fields, end = _fields_at(text, 0)
    if end < len(text):
        raise ValueError(f"cannot read {text[end:][:40]!r}; write name:type,name:type")
    return tuple((name, written) for name, _, written in fields)


def _zone(name: str | None) -> str | None:
    if name is None or name == "UTC" or _OFFSET.fullmatch(name):
        return name
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(
            f"time zone {name!r} is unknown on this machine; write UTC, +02:00 or Europe/Berlin"
        ) from None


def _read_schema(text: str) -> Schema:
    columns: list[tuple[str, str]] = []
    for name, match in _items(_COLUMN, text, "write name:type,name:type; put names with , or : in"):
        if match["type"] is None:
            raise ValueError(_untyped(name))
        written = re.sub(r"\s+", "", match["type"])
        arrow_type(written)
        columns.append((name, written))
    return tuple(columns)


def _listed_name(match: re.Match[str]) -> str:
    return match["plain"] or match["quoted"].replace('""', '"')


def _untyped(name: str) -> str:
    return f"column {name!r} has no type; write {_quoted(name)}:type, where type is {_TYPES}"


def _read_key(text: str) -> MessageKey:
    word, colon, rest = text.strip().partition(":")
    if colon and word.strip().lower() == "template":
        return _read_template(rest)
    if not colon and word.lower() in {"none", "object"}:
        return MessageKey(word.lower())
    if word.strip().lower() == "path" and (path := _JSON_PATH.fullmatch(rest.strip())):
        return MessageKey("column", (path[1],))
    if not colon or word.strip().lower() != "column":
        raise ValueError("write none, object, column:name[,name], path:$.name or template:{name}")
    found = _items(_LISTED, rest, "write column:name,name; put names with , or : in")
    return MessageKey("column", tuple(name for name, _ in found))


def _read_template(text: str) -> MessageKey:
    key = MessageKey("template", template=text)
    parts = key.parts()
    covered = sum(len(match[0]) for match in _TEMPLATE.finditer(text))
    if not text or covered != len(text):
        raise ValueError("write text, {column} and ${fact}; {{ and }} are braces")
    if unknown := [name for kind, name in parts if kind == "fact" and name not in OBJECT_FACTS]:
        known = ", ".join(f"${{{name}}}" for name in OBJECT_FACTS)
        raise ValueError(f"no fact ${{{unknown[0]}}}; there are {known}")
    if all(kind == "text" for kind, _ in parts):
        raise ValueError("is the same for all records; name a {column} or a ${fact}")
    columns = dict.fromkeys(name for kind, name in parts if kind == "column")
    return MessageKey("template", tuple(columns), text)


def _items(pattern: re.Pattern[str], text: str, remedy: str) -> list[tuple[str, re.Match[str]]]:
    """Return what `text` lists: each column's name, and what matched."""
    found: list[tuple[str, re.Match[str]]] = []
    position = 0
    while position < len(text) or not found or text[position - 1] == ",":
        match = pattern.match(text, position)
        if match is None:
            raise ValueError(f"{remedy} double quotes; cannot read {text[position:][:40]!r}")
        found.append((_listed_name(match), match))
        position = match.end()
    if twice := repeated(name for name, _ in found):
        raise ValueError(f"names {', '.join(map(repr, twice))} more than once; keep one")
    return found


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _write_key(key: MessageKey) -> str:
    if key.source == "template":
        return f"template:{key.template}"
    columns = ",".join(map(_quoted, key.columns))
    return f"column:{columns}" if columns else key.source


_RENAMED = re.compile(
    _NAME + r':\s*(?:"(?P<new_quoted>(?:[^"]|"")+)"|(?P<new>[^",:\s](?:[^",:]*[^",:\s])?))'
    r"\s*(?:,|$)"
)
_BOOLEAN = re.compile(r"(:\s*)boolean(?=\s*(?:,|$))")


def _read_names(text: str) -> tuple[str, ...]:
    found = _items(_LISTED, text, "write name,name; put names with , or : in")
    return tuple(name for name, _ in found)


def _read_renames(text: str) -> tuple[tuple[str, str], ...]:
    found = _items(_RENAMED, text, "write old:new,old:new; put names with , or : in")
    return tuple((old, m["new"] or m["new_quoted"].replace('""', '"')) for old, m in found)


_PATH_NAME = re.compile(r'"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^".]+)')


def _read_path(text: str) -> tuple[str, ...]:
    names, at, text = [], 0, text.strip().removeprefix("$.")
    while match := _PATH_NAME.match(text, at):
        quoted = match["quoted"]
        names.append(match["plain"] if quoted is None else quoted.replace('""', '"'))
        if match.end() == len(text):
            return tuple(names)
        if text[match.end()] != ".":
            break
        at = match.end() + 1
    raise ValueError('write names with dots between them, as in data.items or data."a.b"')


def written_path(names: Sequence[str]) -> str:
    """Return a path of members as configurations write it."""
    plain = _PATH_NAME.fullmatch
    return ".".join(
        name if (found := plain(name)) and found["plain"] else _in_quotes(name) for name in names
    )


_HEADER = re.compile(
    r'\s*+(?P<name>[^"=,:\s]++)\s*+=\s*+'
    r'(?:"(?P<quoted>(?:[^"]|"")*)"\s*+|(?P<bare>[^",]*+))(?:,|$)'
)


def _read_headers(text: str) -> tuple[Header, ...]:
    found: list[Header] = []
    position = 0
    while position < len(text) or not found or text[position - 1] == ",":
        match = _HEADER.match(text, position)
        if match is None:
            raise ValueError(
                f"write name=source,name=source; cannot read {text[position:][:40]!r}; put a source"
                " with a comma in double quotes"
            )
        whole = (
            match["bare"].rstrip()
            if match["quoted"] is None
            else match["quoted"].replace('""', '"')
        )
        source, colon, argument = whole.partition(":")
        if (source in FACTS and not colon) or (source in ARGUED and argument):
            found.append(Header(match["name"], source, argument))
        else:
            raise ValueError(
                f"{match['name']} has no source {whole!r}; write {', '.join(FACTS)}, column:NAME,"
                " metadata:NAME, tag:NAME or text:..."
            )
        position = match.end()
    return tuple(found)


def _write_headers(headers: tuple[Header, ...]) -> str:
    written = []
    for one in headers:
        source = f"{one.source}:{one.argument}" if one.argument else one.source
        plain = not re.search(r'[",]', source) and source == source.strip()
        written.append(f"{one.name}={source}" if plain else one.name + "=" + _in_quotes(source))
    return ",".join(written)


def _in_quotes(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _read_column(text: str) -> str | None:
    word, colon, name = text.strip().partition(":")
    if word.lower() == "none" and not colon:
        return None
    if word.strip().lower() != "column" or not name.strip():
        raise ValueError("write none or column:name")
    return name.strip()


HEADERS: Kind[tuple[Header, ...]] = Kind(_read_headers, _write_headers)
COLUMN: Kind[str | None] = Kind(
    _read_column, lambda name: "none" if name is None else f"column:{name}"
)
# `message.timestamp=last_modified`; a column of that name is `column:last_modified`.
LAST_MODIFIED = ""
TIMESTAMP: Kind[str | None] = Kind(
    lambda text: LAST_MODIFIED if text.strip().lower() == "last_modified" else _read_column(text),
    lambda name: "last_modified" if name == LAST_MODIFIED else COLUMN.write(name),
)
# `message.partition=name`; a column of that name is `column:name`.
BY_NAME = ""
PARTITION: Kind[str | None] = Kind(
    lambda text: BY_NAME if text.strip().lower() == "name" else _read_column(text),
    lambda name: "name" if name == BY_NAME else COLUMN.write(name),
)
NAMES: Kind[tuple[str, ...]] = Kind(_read_names, lambda names: ",".join(map(_quoted, names)))
RENAMES: Kind[tuple[tuple[str, str], ...]] = Kind(
    _read_renames, lambda pairs: ",".join(f"{_quoted(old)}:{_quoted(new)}" for old, new in pairs)
)
SCHEMA: Kind[Schema] = Kind(
    _read_schema, lambda columns: ",".join(f"{_quoted(name)}:{kind}" for name, kind in columns)
)
JSON_SCHEMA: Kind[Schema] = Kind(_read_json_schema, SCHEMA.write)
MESSAGE_KEY: Kind[MessageKey] = Kind(_read_key, _write_key)
# Connect's name of a type beside ours.
CASTS: Kind[Schema] = Kind(lambda text: _read_schema(_BOOLEAN.sub(r"\1bool", text)), SCHEMA.write)
MEMBER_PATH: Kind[tuple[str, ...]] = Kind(_read_path, written_path)
