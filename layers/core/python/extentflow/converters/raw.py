"""Convert one column to payloads without JSON: the converters `string`, `bytes` and `base64`."""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from extentflow.arrays.buffers import (
    MAX_TEXT_BYTES,
    Payloads,
    convert_in_halves,
    require_limit,
    text_bytes,
)
from extentflow.arrays.encodings import (
    bytes_of_base64,
    checked_text,
    decoded,
    is_binary,
    is_text,
    require_utf8,
)
from extentflow.arrays.layouts import ConvertedColumns
from extentflow.arrays.scalars import complete_text, text_form
from extentflow.converters import Converter
from extentflow.errors import UnsupportedType


def bytes_converter(
    schema: pa.Schema, columns: Sequence[str] | None = None, *, limit_bytes: int = MAX_TEXT_BYTES
) -> Converter:
    """Return the converter of one binary or text column to its bytes, unchecked.

    Zero copy, except for views and fixed-size binary, which are copied. UnsupportedType for several
    columns, or one of another type.
    """
    chosen, data_type = _select_one(schema, columns, "bytes")
    if not is_text(data_type) and not is_binary(data_type):
        raise UnsupportedType(
            f"column '{chosen.fields[0].name}' has type {data_type}, which is neither binary nor "
            "text; use the converter 'string' for its text, or 'json'"
        )

    def payload(array: pa.Array) -> Payloads:
        # 64-bit offsets have no limit to check.
        if _has_wide_offsets(array.type):
            return array.cast(pa.large_binary())
        # Fixed-size binary has no offsets to count by.
        if not pa.types.is_fixed_size_binary(array.type):
            require_limit(text_bytes(array), limit_bytes)
        return array.cast(pa.binary())

    return partial(convert_in_halves, lambda batch: payload(*chosen.of(batch)))


def base64_converter(
    schema: pa.Schema, columns: Sequence[str] | None = None, *, limit_bytes: int = MAX_TEXT_BYTES
) -> Converter:
    """Return the converter of one column of base64 to the bytes that its text states.

    Base64 as RFC 4648, section 4, with padding; other text is a bad record, a null stays null.
    UnsupportedType for several columns, or one that is neither text nor binary.
    """
    chosen, data_type = _select_one(schema, columns, "base64")
    if not is_text(data_type) and not is_binary(data_type):
        raise UnsupportedType(
            f"column '{chosen.fields[0].name}' has type {data_type}, which holds no base64; use the"
            " converter 'string' for its text, or 'json'"
        )

    def payload(array: pa.Array) -> Payloads:
        if not pa.types.is_fixed_size_binary(array.type):
            require_limit(text_bytes(array), limit_bytes)
        return bytes_of_base64(array.cast(pa.binary()))

    return partial(convert_in_halves, lambda batch: payload(*chosen.of(batch)))


def string_converter(
    schema: pa.Schema, columns: Sequence[str] | None = None, *, limit_bytes: int = MAX_TEXT_BYTES
) -> Converter:
    """Return the converter of one column to text: UTF-8 as it is, scalars as `json` writes them.

    Text is bare, without quotes and escapes. NaN and the infinities are written as Java does.
    UnsupportedType for several columns, or one whose type has no text form.
    """
    chosen, data_type = _select_one(schema, columns, "string")
    coded = pa.types.is_dictionary(data_type)
    data_type = data_type.value_type if coded else data_type
    form = text_form(data_type)
    if form is None and not is_text(data_type):
        advice = "use 'bytes'" if is_binary(data_type) else "use 'json'"
        raise UnsupportedType(
            f"column '{chosen.fields[0].name}' has type {data_type}, which has no text form for "
            f"the converter 'string'; {advice}"
        )

    def payload(array: pa.Array) -> Payloads:
        array = decoded(array) if coded else array
        if form is not None:
            widest = form.width + len(form.prefix) + len(form.suffix)
            require_limit(len(array) * widest, limit_bytes)
            return complete_text(form, array).cast(pa.binary())
        if _has_wide_offsets(array.type):
            # Kept with 64-bit offsets, zero copy; no limit applies.
            require_utf8(array)
            return array.cast(pa.large_binary())
        return checked_text(array, limit_bytes).cast(pa.binary())

    return partial(convert_in_halves, lambda batch: payload(*chosen.of(batch)))


def _select_one(
    schema: pa.Schema, columns: Sequence[str] | None, converter: str
) -> tuple[ConvertedColumns, pa.DataType]:
    chosen = ConvertedColumns.select(schema, columns)
    if len(chosen.fields) != 1:
        names = ", ".join(f"'{field.name}'" for field in chosen.fields)
        raise UnsupportedType(
            f"the converter '{converter}' takes exactly one column, here are "
            f"{len(chosen.fields)} ({names or 'none'}); choose one, or use 'json'"
        )
    return chosen, chosen.fields[0].type


def _has_wide_offsets(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type))
