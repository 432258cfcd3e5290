"""Refuse schemas of objects that pyarrow, or a message of columns, cannot hold.

Tests: unit/formats/arrow/test_arrow_format.py, unit/formats/orc/test_orc_format.py
"""

from __future__ import annotations

import pyarrow as pa

from extentflow.errors import UnsupportedType
from extentflow.model import ObjectVersion

# Types for which pyarrow has no class: it raises KeyError for their arrays.
_WITHOUT_CLASS = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)
# Arrow checks no scale; the text of a value has as many digits.
_LARGEST_SCALE = 1_000


def require_columns(version: ObjectVersion, schema: pa.Schema) -> None:
    """Raise UnsupportedType for a schema without columns, with two of one name, or odd types.

    ValueError for types that contradict themselves, and for names that are not UTF-8, also of
    members of structs.
    """
    names = schema.names
    if not names:
        raise UnsupportedType(f"{version.uri} has no columns")
    if len(set(names)) < len(names):
        raise UnsupportedType(f"{version.uri} has two columns of one name; rename one of them")
    types = list(schema.types)
    while types:
        parent = types.pop()
        _require_readable(version, parent)
        fields = [parent.field(index) for index in range(parent.num_fields)]
        # Arrow decodes a name when it is asked for it.
        types += [each.type for each in fields if each.name is not None]
        if pa.types.is_dictionary(parent):
            types.append(parent.value_type)
        elif isinstance(parent, pa.BaseExtensionType):
            types.append(parent.storage_type)


def _require_readable(version: ObjectVersion, kind: pa.DataType) -> None:
    if kind.id in _WITHOUT_CLASS:
        raise UnsupportedType(
            f"{version.uri} has a column of type {kind}, which pyarrow does not read; write"
            " month_day_nano_interval, or numbers"
        )
    if pa.types.is_decimal(kind) and abs(kind.scale) > _LARGEST_SCALE:
        raise UnsupportedType(
            f"{version.uri} has a column of type {kind}; extentflow reads scales of up to"
            f" {_LARGEST_SCALE} digits"
        )
    if pa.types.is_fixed_size_list(kind) and kind.list_size < 0:
        raise ValueError(f"lists of {kind.list_size} values")
    if pa.types.is_timestamp(kind):
        _ = kind.tz  # decoded when it is asked for, too
