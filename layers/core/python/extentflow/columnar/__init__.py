"""Columnar values: one Kafka record holds a batch of rows as columns.

docs/columnar.md specifies them, so that other programs can read and write them.

    rows of an extent ──BatchCutter──> values ──Kafka──> `decode` ──> rows
                                         └ headers: BatchFacts

The package knows Arrow and Parquet, and neither Kafka's clients nor objects and their formats.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from extentflow.config.columnar import ARROW, PARQUET
from extentflow.errors import CorruptRecord

# The headers of a columnar value; a record with the first one has such a value.
ENCODING: Final = "extentflow.columnar"
ROWS: Final = "extentflow.rows"
SCHEMA: Final = "extentflow.schema"
BATCH: Final = "extentflow.batch"
GROUP: Final = "extentflow.group"
OBJECT: Final = "extentflow.object"
VERSION: Final = "extentflow.version"
EXTENT: Final = "extentflow.extent"
FIRST: Final = "extentflow.first"
LAST: Final = "extentflow.last"
UNIT: Final = "extentflow.unit"
ENCRYPTED: Final = "extentflow.encrypted"

ENCODINGS = (PARQUET, ARROW)
UNITS = ("row", "offset")
MOST_ROWS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """What the headers of a columnar value state.

    `rows` is the number of rows. `schema` identifies the columns (`schemas.identity`). `batch` is
    the same in all groups of the columns of the same rows; `group` is empty where all columns are
    in one value. `object` (its URI without a version), `version` (version id or ETag) and `extent`
    (`start-end`, bytes) are where the rows come from. `first` and `last` are the locations of the
    first and the last row in the object: ordinals (`unit` row) or byte offsets (`unit` offset).
    `encrypted` are the columns that are encrypted.
    """

    encoding: str
    rows: int
    schema: str
    batch: str
    group: str = ""
    object: str
    version: str
    extent: str
    first: int
    last: int
    unit: str
    encrypted: tuple[str, ...] = ()

    def headers(self) -> list[tuple[str, bytes]]:
        """Return the headers that state these facts."""
        texts = {
            ENCODING: self.encoding,
            ROWS: str(self.rows),
            SCHEMA: self.schema,
            BATCH: self.batch,
            OBJECT: self.object,
            VERSION: self.version,
            EXTENT: self.extent,
            FIRST: str(self.first),
            LAST: str(self.last),
            UNIT: self.unit,
        }
        if self.group:
            texts[GROUP] = self.group
        if self.encrypted:
            texts[ENCRYPTED] = json.dumps(self.encrypted, ensure_ascii=False, separators=(",", ":"))
        return [(name, text.encode("utf-8", "surrogatepass")) for name, text in texts.items()]

    @classmethod
    def of(cls, headers: Sequence[tuple[str, bytes | None]]) -> Self | None:
        """Return what headers state; None: the record has no columnar value.

        Raises CorruptRecord where they contradict docs/columnar.md.
        """
        found = {name: value for name, value in headers if value is not None}
        if ENCODING not in found:
            return None
        encoding = _text(found, ENCODING)
        if encoding not in ENCODINGS:
            raise CorruptRecord(
                f"{ENCODING}={encoding!r}: this version reads {' and '.join(ENCODINGS)}; upgrade it"
            )
        unit = _text(found, UNIT)
        if unit not in UNITS:
            raise CorruptRecord(f"{UNIT}={unit!r}: neither row nor offset")
        rows = _number(found, ROWS)
        if not 1 <= rows <= MOST_ROWS:
            raise CorruptRecord(f"{ROWS}={rows}: a batch has 1 to {MOST_ROWS} rows")
        return cls(
            encoding=encoding,
            rows=rows,
            schema=_text(found, SCHEMA),
            batch=_text(found, BATCH),
            group=_text(found, GROUP) if GROUP in found else "",
            object=_text(found, OBJECT),
            version=_text(found, VERSION),
            extent=_text(found, EXTENT),
            first=_number(found, FIRST),
            last=_number(found, LAST),
            unit=unit,
            encrypted=_names(found, ENCRYPTED) if ENCRYPTED in found else (),
        )


def is_columnar(headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Whether a record with these headers has a columnar value, or states so without saying how."""
    return any(name == ENCODING for name, _ in headers)


def _text(headers: Mapping[str, bytes], name: str) -> str:
    try:
        found = headers[name].decode("utf-8", "surrogatepass")
    except (KeyError, UnicodeDecodeError) as exc:
        raise CorruptRecord(f"a columnar value without a readable header {name}") from exc
    # Messages state it; only keys of objects may hold any character.
    if not found.isprintable() and name not in (OBJECT, VERSION):
        raise CorruptRecord(f"the header {name} has control characters: {found[:40]!r}")
    return found


def _names(headers: Mapping[str, bytes], name: str) -> tuple[str, ...]:
    text = _text(headers, name)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CorruptRecord(f"{name}={text[:40]!r}: no JSON") from exc
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise CorruptRecord(f"{name}={text[:40]!r}: no list of names")
    return tuple(found)


def _number(headers: Mapping[str, bytes], name: str) -> int:
    text = _text(headers, name)
    # Not `int`: it takes signs, blanks, underscores and digits of other scripts.
    if not (text.isascii() and text.isdecimal() and len(text) < 20):  # noqa: PLR2004 - of 64 bits
        raise CorruptRecord(f"{name}={text[:40]!r}: no whole number")
    return int(text)
