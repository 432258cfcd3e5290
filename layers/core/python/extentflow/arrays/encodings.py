"""Encode text and bytes: UTF-8 validation, JSON escapes, base64 and UUIDs; refuse other types.

JSON escapes the quotation mark, the backslash and U+0000 to U+001F (RFC 8259, section 7). Base64
uses the standard alphabet with padding (RFC 4648, section 4), UUIDs the canonical form of RFC 9562.

Tests: unit/converters/test_json_encoding.py, unit/converters/test_base64.py
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types

from extentflow.arrays.buffers import (
    corrupt_record,
    corrupt_rows,
    fixed_width,
    offsets_from_lengths,
    require_limit,
    text_array,
    text_bytes,
    validity,
    value_bytes,
    value_offsets,
)
from extentflow.errors import UnsupportedType

FIRST_NON_ASCII = 0x80
_TEXT_TYPES = frozenset({pa.string(), pa.large_string(), pa.string_view()})
_BINARY_TYPES = frozenset({pa.binary(), pa.large_binary(), pa.binary_view()})


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary, or the type itself."""
    return data_type.value_type if types.is_dictionary(data_type) else data_type


def is_text(data_type: pa.DataType) -> bool:
    """Return whether a type holds UTF-8 text."""
    return data_type in _TEXT_TYPES


def is_binary(data_type: pa.DataType) -> bool:
    """Return whether a type holds bytes."""
    return data_type in _BINARY_TYPES or bool(types.is_fixed_size_binary(data_type))


def decoded(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary array; Arrow decodes no views, which become plain texts."""
    values = array.dictionary
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(values.type)
    if plain is not None:
        array = pa.DictionaryArray.from_arrays(array.indices, values.cast(plain))
    return array.dictionary_decode().cast(values.type)


def checked_text(array: pa.Array, limit_bytes: int) -> pa.StringArray:
    """Return a text array as `string`, zero copy if it already is one; nulls stay.

    CorruptRecord names the rows that are not UTF-8; OffsetOverflowError beyond `limit_bytes`.
    """
    require_limit(text_bytes(array), limit_bytes)
    text = array.cast(pa.string())
    require_utf8(text)
    return text


def require_utf8(text: pa.Array) -> None:
    """Raise CorruptRecord if a string or large_string array contains invalid UTF-8."""
    data = value_bytes(text)
    # ASCII is valid UTF-8; one maximum costs less than the validation.
    if data.size == 0 or data.max() < FIRST_NON_ASCII:
        return
    try:
        # Arrow checks value by value: halves of a character in two rows are invalid twice.
        text.validate(full=True)
    except pa.ArrowInvalid as exc:
        reasons: dict[int, str] = {}
        # Per row, as only a batch that is known to be bad comes here.
        for row, value in enumerate(text.cast(pa.binary()).to_pylist()):
            try:
                (value or b"").decode("utf-8")
            except UnicodeDecodeError as bad:
                where = f"byte 0x{value[bad.start]:02x} at {bad.start}"
                reasons[row] = f"{where} is not valid UTF-8"
        raise corrupt_record(reasons) from exc


FIRST_PRINTABLE = 0x20
QUOTE, BACKSLASH = ord('"'), ord("\\")
# The short forms of RFC 8259; the other control characters are written `\u00xx`.
SHORT_FORMS = {
    ord("\b"): b"\\b",
    ord("\t"): b"\\t",
    ord("\n"): b"\\n",
    ord("\f"): b"\\f",
    ord("\r"): b"\\r",
    QUOTE: b'\\"',
    BACKSLASH: b"\\\\",
}
# Bytes of an escape.
SHORTEST, LONGEST = 2, 6


def _table() -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    lengths, forms = np.ones(256, np.int64), np.zeros((LONGEST, 256), np.uint8)
    for byte in (*range(FIRST_PRINTABLE), QUOTE, BACKSLASH):
        form = SHORT_FORMS.get(byte, b"\\u%04x" % byte)
        lengths[byte] = len(form)
        forms[: len(form), byte] = np.frombuffer(form, np.uint8)
    return lengths, forms


_LENGTHS, _FORMS = _table()


def escape_json(text: pa.StringArray, limit_bytes: int) -> pa.StringArray:
    """Return text of at most `limit_bytes` with JSON escapes, without quotes; nulls stay."""
    data = value_bytes(text)
    if data.size == 0 or not (
        data.min() < FIRST_PRINTABLE or (data == QUOTE).any() or (data == BACKSLASH).any()
    ):
        return text
    # Bytes of multi-byte characters are 0x80 or more in UTF-8, so each hit is a whole character.
    hits = np.flatnonzero((data < FIRST_PRINTABLE) | (data == QUOTE) | (data == BACKSLASH))
    growth = offsets_from_lengths(_LENGTHS[data[hits]] - 1)
    require_limit(data.size + int(growth[-1]), limit_bytes)
    offsets = value_offsets(text).astype(np.int64) - int(value_offsets(text)[0])
    # A value starts later by what all escapes before it add.
    starts = offsets + growth[np.searchsorted(hits, offsets)]
    return text_array(starts, _escape_bytes(data, hits, growth), text)


def _escape_bytes(
    data: NDArray[np.uint8], hits: NDArray[np.int64], growth: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Return `data` with the bytes at `hits` replaced; hit i moves by `growth[i]`."""
    indices, codes = hits + growth[:-1], data[hits]
    written = np.empty(data.size + int(growth[-1]), np.uint8)
    plain = np.ones(written.size, np.bool_)
    lengths = _LENGTHS[codes]
    # Every escape has at least two bytes, so the first two need no mask.
    for index in range(int(lengths.max())):
        inside = slice(None) if index < SHORTEST else lengths > index
        written[indices[inside] + index] = _FORMS[index][codes[inside]]
        plain[indices[inside] + index] = False
    written[plain] = np.delete(data, hits)
    return written


_ALPHABET = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
# Two characters for every 12 bits, and for every byte.
_PAIRS = np.stack([np.repeat(_ALPHABET, 64), np.tile(_ALPHABET, 64)], axis=1).view(np.uint16)[:, 0]
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
UUID_BYTES, UUID_CHARACTERS = 16, 36


def base64(array: pa.Array, limit_bytes: int) -> pa.StringArray:
    """Return a binary array of any kind as base64 text of at most `limit_bytes`; nulls stay."""
    if not pa.types.is_fixed_size_binary(array.type):
        require_limit(text_bytes(array), limit_bytes)
    binary = array.cast(pa.binary())
    lengths = np.diff(value_offsets(binary)).astype(np.int64)
    # Three bytes become four characters; the last group of a value is padded.
    groups = (lengths + 2) // 3
    bounds = offsets_from_lengths(groups)
    require_limit(4 * int(bounds[-1]), limit_bytes)
    missing = 3 * groups - lengths
    without_third, without_second = bounds[1:][missing > 0], bounds[1:][missing > 1]
    data = value_bytes(binary)
    if missing.any():
        taken = np.ones(3 * int(bounds[-1]), np.bool_)
        taken[3 * without_third - 1] = False
        taken[3 * without_second - 2] = False
        padded = np.zeros(taken.size, np.uint8)
        padded[taken] = data
        data = padded
    text = _base64_groups(data)
    text[4 * without_third - 1] = ord("=")
    text[4 * without_second - 2] = ord("=")
    return text_array(4 * bounds, text, binary)


def _base64_groups(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    first, second, third = data.reshape(-1, 3).T.astype(np.uint16)
    text = np.empty((first.size, 2), np.uint16)
    text[:, 0] = _PAIRS[(first << 4) | (second >> 4)]
    text[:, 1] = _PAIRS[((second & 15) << 8) | third]
    return text.view(np.uint8).reshape(-1)


# What a character means: 6 bits, or nothing.
_NO_SIX = 64
_SIXES = np.full(256, _NO_SIX, np.uint8)
_SIXES[_ALPHABET] = np.arange(64, dtype=np.uint8)
_NO_BASE64 = "no base64 with padding (RFC 4648, section 4)"


def bytes_of_base64(text: pa.Array) -> pa.BinaryArray:
    """Return the bytes that a string or binary array states in base64; nulls stay.

    CorruptRecord names the rows that are no base64: of another alphabet, without padding, with line
    breaks, or with bits behind the last byte. The text has 32-bit offsets.
    """
    lengths = np.diff(value_offsets(text)).astype(np.int64)
    if lengths.sum(where=~np.asarray(validity(text))):
        text = text.take(pa.array(np.arange(len(text))))  # what stands in a null slot is undefined
        lengths = np.diff(value_offsets(text)).astype(np.int64)
    if (wrong := np.flatnonzero((lengths % 4 != 0) & validity(text))).size:
        raise corrupt_rows(wrong, _NO_BASE64)
    data = value_bytes(text)
    ends = np.cumsum(lengths)[lengths > 0]
    pads = data == ord("=")
    # Only the last two characters of a value may be padding.
    last, before = np.zeros(len(ends), np.bool_), np.zeros(len(ends), np.bool_)
    if len(ends):
        last, before = pads[ends - 1], pads[ends - 2]
        before = before & last
    sixes = _SIXES[data]
    sixes[ends[last] - 1] = 0
    sixes[ends[before] - 2] = 0
    first, second, third, fourth = sixes.reshape(-1, 4).T
    bad = sixes.reshape(-1, 4).max(axis=1, initial=0) == _NO_SIX
    groups = ends // 4 - 1
    bad[groups[before]] |= (second[groups[before]] & 15) > 0
    single = groups[last & ~before]
    bad[single] |= (third[single] & 3) > 0
    if bad.any():
        rows = np.searchsorted(np.cumsum(lengths), np.flatnonzero(bad) * 4, side="right")
        raise corrupt_rows(np.unique(rows), _NO_BASE64)
    decoded = np.empty((len(first), 3), np.uint8)
    decoded[:, 0] = first << 2 | second >> 4
    decoded[:, 1] = second << 4 | third >> 2
    decoded[:, 2] = third << 6 | fourth
    flat = decoded.reshape(-1)
    missing = np.zeros(len(lengths), np.int64)
    missing[lengths > 0] = last.astype(np.int64) + before
    if missing.any():
        kept = np.ones(flat.size, np.bool_)
        kept[3 * groups[last] + 2] = False
        kept[3 * groups[before] + 1] = False
        flat = flat[kept]
    offsets = offsets_from_lengths(lengths // 4 * 3 - missing)
    return text_array(offsets, flat, text).view(pa.binary())


def uuid(array: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return a 16-byte fixed-size binary array as `8-4-4-4-12` lower-case hex; nulls stay."""
    rows = fixed_width(array, np.dtype((np.uint8, UUID_BYTES)))
    digits = _HEX[rows].view(np.uint8).reshape(-1, 2 * UUID_BYTES)
    text = np.full((len(array), UUID_CHARACTERS), ord("-"), np.uint8)
    digit = 0
    for column, count in ((0, 8), (9, 4), (14, 4), (19, 4), (24, 12)):
        text[:, column : column + count] = digits[:, digit : digit + count]
        digit += count
    offsets = np.arange(len(array) + 1, dtype=np.int64) * UUID_CHARACTERS
    return text_array(offsets, text.reshape(-1), array)


def no_exact_form(path: str, data_type: pa.DataType, form: str) -> UnsupportedType:
    """Return the error of a column whose type has no exact `form`, with what to write instead."""
    if types.is_union(data_type):
        advice = "write a struct with one nullable member per alternative instead"
    elif types.is_interval(data_type):
        advice = "write a duration, or whole months, days and nanoseconds as integers, instead"
    else:
        advice = "write its storage type, or text, instead"
    return UnsupportedType(
        f"column '{path}' has type {data_type}, which has no exact {form}; {advice}"
    )
