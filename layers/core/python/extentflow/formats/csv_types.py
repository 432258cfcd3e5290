"""Text of CSV fields as the types that `csv.schema` names.

Owns: which texts are a type's, exactly. Refuses to know: lines, quotes, files. Nothing is rounded,
trimmed or guessed: a text that is not wholly and exactly a value of the type is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["typed"]

_SHOWN_CHARACTERS = 40


def typed(texts: pa.StringArray, wanted: pa.DataType) -> tuple[pa.Array, dict[int, str]]:
    """Return the texts as `wanted`, and the rows that are not, each with its reason.

    Such rows are null in the array. Nulls stay null.
    """
    if wanted == pa.string():
        return texts, {}
    rows = list(_refused(texts, wanted, 0))
    reasons = {row: _reason(texts[row].as_py(), wanted) for row in rows}
    if rows:
        texts = pc.if_else(_at(rows, len(texts)), pa.scalar(None, pa.string()), texts)
    return texts.cast(wanted), reasons


def _refused(texts: pa.StringArray, wanted: pa.DataType, first: int) -> Iterator[int]:
    """Yield the rows that are no values of `wanted`: halves that pass are not looked into."""
    try:
        suspicious = _suspicious(texts, texts.cast(wanted))
    except pa.ArrowInvalid:
        if len(texts) == 1:
            yield first
            return
        half = len(texts) // 2
        yield from _refused(texts[:half], wanted, first)
        yield from _refused(texts[half:], wanted, first + half)
        return
    yield from (first + row for row in suspicious)


def _suspicious(texts: pa.StringArray, values: pa.Array) -> list[int]:
    """Return the rows that Arrow reads although the text says something else."""
    if pa.types.is_integer(values.type):  # 0x1F is read as 31
        strange = pc.match_substring(texts, "x", ignore_case=True)
    elif pa.types.is_floating(values.type):  # 1e999 is read as infinity
        strange = pc.and_(
            pc.is_inf(values), pc.invert(pc.match_substring(texts, "inf", ignore_case=True))
        )
    else:
        return []
    rows: list[int] = pc.indices_nonzero(pc.fill_null(strange, fill_value=False)).to_pylist()
    return rows


def _at(rows: list[int], count: int) -> pa.BooleanArray:
    mask = np.zeros(count, bool)
    mask[rows] = True
    return pa.array(mask)


def _reason(text: str, wanted: pa.DataType) -> str:
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return f"{shown!r} is no {wanted}"
