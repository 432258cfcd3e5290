"""The schemas that a topic has had, as records of a log, and which may follow them.

All columns are nullable, so that columns may be added and removed. A column's type may change only
where every value of one type has an exact value of the other, in either direction: readers then use
the wider one. The log decides: a schema counts only if those before it allow it. So all readers of
the log find the same ones, also if several wrote at the same time.
"""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyarrow import types

from extentflow.columnar.schemas import described, identity

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_FLOAT_BITS = {"halffloat": 16, "float": 32, "double": 64}
_UNITS = {"ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """A plain schema of the columns in a topic's values."""

    topic: str
    schema: pa.Schema

    @property
    def identity(self) -> str:
        """What identifies the schema in headers."""
        return identity(self.schema)

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value of the record that states it."""
        members = {
            "topic": self.topic,
            "schema": self.identity,
            "columns": json.loads(described(self.schema)),
            # Exact for Arrow's readers.
            "arrow": base64.b64encode(self.schema.serialize()).decode(),
        }
        key = f"{self.topic}:{self.identity}"
        return key.encode(), json.dumps(members, separators=(",", ":")).encode()

    @classmethod
    def of(cls, value: bytes | None) -> Self | None:
        """Return what a record states; None: it is none of ours."""
        try:
            members = json.loads(value or b"")
            arrow = base64.b64decode(members["arrow"], validate=True)
            return cls(str(members["topic"]), pa.ipc.read_schema(pa.py_buffer(arrow)))
        except (ValueError, KeyError, TypeError, pa.ArrowException, OSError):
            return None


def conflict(before: Iterable[pa.Schema], schema: pa.Schema) -> str:
    """Return which column excludes a schema after others, and why; empty where none does."""
    for one in before:
        for field in schema:
            at = one.get_field_index(field.name)
            if at >= 0 and not _compatible(one.field(at).type, field.type):
                return f"column {field.name} was {one.field(at).type} and is {field.type} now"
    return ""


def _compatible(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether every value of one of the types has an exact value of the other one."""
    if one == other or types.is_null(one) or types.is_null(other):
        return True
    return _widens(one, other) or _widens(other, one)


def _widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    for bits in (_BITS, _UNSIGNED_BITS, _FLOAT_BITS):
        if str(narrow) in bits and str(wide) in bits:
            return True
    if str(narrow) in _UNSIGNED_BITS and str(wide) in _BITS:
        return _UNSIGNED_BITS[str(narrow)] < _BITS[str(wide)]
    if types.is_decimal(narrow) and types.is_decimal(wide):
        whole: int = narrow.precision - narrow.scale
        return bool(narrow.scale <= wide.scale and whole <= wide.precision - wide.scale)
    if types.is_timestamp(narrow) and types.is_timestamp(wide):
        return bool(narrow.tz == wide.tz) and _UNITS[narrow.unit] <= _UNITS[wide.unit]
    texts = (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())
    if any(narrow in pair and wide in pair for pair in texts):
        return True
    return _widens_nested(narrow, wide)


def _widens_nested(narrow: pa.DataType, wide: pa.DataType) -> bool:
    if types.is_struct(narrow) and types.is_struct(wide):
        return not conflict([pa.schema(list(narrow))], pa.schema(list(wide)))
    if types.is_map(narrow) and types.is_map(wide):
        pairs = (narrow.key_type, wide.key_type), (narrow.item_type, wide.item_type)
        return all(_compatible(*pair) for pair in pairs)
    lists = types.is_list(narrow) or types.is_large_list(narrow)
    if lists and (types.is_list(wide) or types.is_large_list(wide)):
        return _compatible(narrow.value_type, wide.value_type)
    return False
