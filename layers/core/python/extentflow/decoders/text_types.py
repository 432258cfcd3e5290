"""Find the type of texts.

With `csv.schema=infer`, a column gets the first type of the ladder that represents each of its
values in the samples without loss; nulls count for none:

    bool               true and false, in any case
    int64              no leading zero, no plus sign, not -0
    decimal(38,0)      the same, beyond 64 bits
    decimal(38,s)      numbers with a point, each with s digits behind it, or without one
    float64            other numbers that are not rounded by it, and do not end as 1.10 does
    date               2026-01-31
    timestamp(us)      2026-01-31 23:59:59.123456, or with a T; a date is midnight
    timestamp(us,UTC)  the same with Z or an offset
    timestamp(ns)      with up to nine digits of a second; then in UTC
    string             anything else, and columns without a value

Where some whole numbers are written as 2 and some as 2.0, the two texts would be one number.

Strings of JSON climb the part of the ladder that begins with `date`.

Tests: unit/formats/test_inference.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.arrays.texts import is_lossless
from extentflow.config.column_lists import SCHEMA, arrow_type

_WHOLE, _WHOLE_WITH_POINT = r"^-?[0-9]+$", r"^-?[0-9]+\.0+$"
_POINT = r"^-?[0-9]+\.[0-9]+$"
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
Ladder: TypeAlias = Sequence[tuple[str, str]]
TIMES: Ladder = (
    ("date", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    *(
        (f"timestamp({unit}{zone})", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}")
        for unit in ("us", "ns")
        for zone in ("", ",UTC")
    ),
)
_LADDER: Ladder = (
    ("bool", r"^(?i:true|false)$"),
    ("int64", r"^-?[0-9]+$"),
    ("decimal(38,0)", r"^-?[0-9]{1,38}$"),
    ("decimal(38,{scale})", r"^-?[0-9]+(\.[0-9]+)?$"),
    ("float64", _NUMBER),
    *TIMES,
)


def inferred_types(texts: pa.Table) -> str:
    """Return the names and types of columns of texts, as `csv.schema` takes them."""
    columns = (column.combine_chunks().drop_null() for column in texts.columns)
    return SCHEMA.write(tuple(zip(texts.column_names, map(type_of, columns), strict=True)))


def read_types(facts: str) -> list[tuple[str, pa.DataType]]:
    """Return the columns that `inferred_types` wrote; none for ""."""
    return [(name, arrow_type(written)) for name, written in SCHEMA.read(facts)] if facts else []


def type_of(texts: pa.StringArray, ladder: Ladder = _LADDER) -> str:
    """Return the first type of a ladder that represents each text; `string` if none does."""
    if not len(texts):
        return "string"
    for ladder_type, pattern in ladder:
        if not pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            continue
        scale = ""
        if "{scale}" in ladder_type:
            with_point = texts.filter(pc.match_substring_regex(texts, _POINT))
            digits = pc.utf8_length(pc.replace_substring_regex(with_point, r"^.*\.", ""))
            scales = pc.unique(digits).to_pylist()
            if len(scales) != 1:
                continue
            scale = str(scales[0])
        written = ladder_type.format(scale=scale)
        try:
            wanted = arrow_type(written)
        except ValueError:  # more digits than a decimal has
            continue
        if is_lossless(texts, wanted):
            is_number = ladder_type.startswith(("decimal", "float"))
            return "string" if is_number and _has_versions(texts) else written
    return "string"


def _has_versions(texts: pa.StringArray) -> bool:
    """Whether whole numbers are written with and without a point."""
    forms = (_WHOLE, _WHOLE_WITH_POINT)
    return all(pc.any(pc.match_substring_regex(texts, form)).as_py() for form in forms)
