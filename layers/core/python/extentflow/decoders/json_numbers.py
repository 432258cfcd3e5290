"""Find numbers in a block of JSON documents that Arrow's parser may not read as they are written.

A string may look like a number: what is found is only read once more, in another way.

Tests: unit/decoders/test_json_columns.py
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.arrays.spans import Indexes, slices

_SIGNS = (ord("+"), ord("-"))
_DIGIT, _EXPONENT = ord("d"), ord("e")
# Digits and points are `d`, what begins an exponent is `e`.
_KINDS = bytes(
    _DIGIT if chr(byte) in "0123456789." else _EXPONENT if chr(byte) in "eE" else ord(" ")
    for byte in range(256)
)
_BEFORE_NUMBER = np.isin(np.arange(256), list(b':,[ \t\r\n"'))
_AFTER_EXPONENT = np.isin(np.arange(256), list(b"+-0123456789"))
# Every number of so many digits survives a float64, and every one of so many Arrow's decimals.
_FLOAT_DIGITS, _DECIMAL_DIGITS = 15, 38


class Numbers:
    """The numbers in the bytes of documents; `text` is the same as `data`."""

    def __init__(self, data: NDArray[np.uint8], text: bytes) -> None:
        self._data, self._text = data, text.translate(_KINDS)
        self._kinds = np.frombuffer(self._text, np.uint8)

    def unsafe_decimals(self) -> Indexes:
        """Return where numbers may be that Arrow's decimals may not hold as they are written."""
        runs, _ = self._runs(_DECIMAL_DIGITS + 1)
        return np.concatenate((runs, self._exponents()))

    def unsafe_floats(self) -> Indexes:
        """Return where numbers with a point or an exponent may be that a float64 rounds."""
        exponents = self._exponents()
        # An exponent of two digits keeps 15 digits within the range of normal floats.
        signed = np.isin(self._data[exponents + 1], _SIGNS)
        behind = np.minimum(exponents + 3 + signed, len(self._data) - 1)
        exponents = exponents[_AFTER_EXPONENT[self._data[behind]]]
        starts, ends = self._runs(_FLOAT_DIGITS + 1)
        followed = self._kinds[np.minimum(ends, len(self._kinds) - 1)] == _EXPONENT
        points = np.cumsum(self._data == ord("."), dtype=np.int64) if len(starts) else starts
        with_point = points[ends - 1] > points[starts] if len(starts) else followed
        checked = with_point & ~followed
        rounded = _rounded(self._data, starts[checked], ends[checked])
        return np.concatenate((exponents, starts[followed], starts[checked][rounded]))

    def _runs(self, least: int) -> tuple[Indexes, Indexes]:
        """Return where runs of digits and points begin and end that may be long numbers."""
        none = np.empty(0, np.int64)
        if b"d" * least not in self._text:
            return none, none
        is_digit = np.concatenate(([False], self._kinds == _DIGIT, [False]))
        edges = np.flatnonzero(is_digit[1:] != is_digit[:-1])
        starts, ends = edges[0::2], edges[1::2]
        long = ends - starts >= least
        starts, ends = starts[long], ends[long]
        numbers = self._begin_numbers(starts - 1)
        return starts[numbers], ends[numbers]

    def _exponents(self) -> Indexes:
        """Return where exponents of numbers begin."""
        if b"de" not in self._text:
            return np.empty(0, np.int64)
        found = np.flatnonzero(self._kinds == _EXPONENT)
        found = found[(found > 0) & (found + 1 < len(self._kinds))]
        found = found[self._kinds[found - 1] == _DIGIT]
        found = found[_AFTER_EXPONENT[self._data[found + 1]]]
        at, going = found - 1, np.arange(len(found))
        # Longer runs of digits are taken for numbers.
        for _ in range(_DECIMAL_DIGITS + 1):
            going = going[(at[going] >= 0) & (self._kinds[at[going]] == _DIGIT)]
            at[going] -= 1
        numbers = self._begin_numbers(at)
        numbers[going] = True
        exponents: Indexes = found[numbers]
        return exponents

    def _begin_numbers(self, before: Indexes) -> NDArray[np.bool_]:
        """Return whether a number may begin behind these places."""
        signed = before - np.isin(self._data[np.maximum(before, 0)], _SIGNS)
        return np.asarray((signed < 0) | _BEFORE_NUMBER[self._data[np.maximum(signed, 0)]], bool)


def _rounded(data: NDArray[np.uint8], starts: Indexes, ends: Indexes) -> NDArray[np.bool_]:
    """Return which numbers, without sign and exponent, are not what a float64 prints for them."""
    if not len(starts):
        return np.zeros(0, bool)
    texts = slices(data, starts, ends, pa.string())
    try:
        printed = texts.cast(pa.float64()).cast(pa.string())
    except pa.ArrowInvalid:  # text within a string, such as 1.2.3.4
        return np.ones(len(starts), bool)
    return np.asarray(pc.not_equal(printed, texts).to_numpy(zero_copy_only=False), bool)
