"""Escaping of text inside JSON strings (RFC 8259, section 7).

Owns: which bytes are escaped, and how. Refuses to know: validity of UTF-8, quotes around.

Escaped are the quotation mark, the backslash and U+0000 to U+001F, nothing else. Text that holds
none of them, by far the most, is returned as it came after three vectorised looks at its bytes.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.converters.buffers import contents, ends, starts, text_array
from extentflow.converters.sizes import require

FIRST_PRINTABLE = 0x20
QUOTE, BACKSLASH = ord('"'), ord("\\")
SHORT_FORMS = {
    ord("\b"): b"\\b",
    ord("\t"): b"\\t",
    ord("\n"): b"\\n",
    ord("\f"): b"\\f",
    ord("\r"): b"\\r",
    QUOTE: b'\\"',
    BACKSLASH: b"\\\\",
}
SHORTEST, LONGEST = 2, 6


def _table() -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    lengths, forms = np.ones(256, np.int64), np.zeros((LONGEST, 256), np.uint8)
    for byte in (*range(FIRST_PRINTABLE), QUOTE, BACKSLASH):
        form = SHORT_FORMS.get(byte, b"\\u%04x" % byte)
        lengths[byte] = len(form)
        forms[: len(form), byte] = np.frombuffer(form, np.uint8)
    return lengths, forms


_LENGTHS, _FORMS = _table()


def escaped(text: pa.StringArray, limit_bytes: int) -> pa.StringArray:
    """Return text ready to stand between quotes; nulls stay.

    Raises:
        OffsetOverflowError: escaping would pass `limit_bytes`.
    """
    data = contents(text)
    if data.size == 0 or not _suspicious(data):
        return text
    hits = np.flatnonzero((data < FIRST_PRINTABLE) | (data == QUOTE) | (data == BACKSLASH))
    growth = starts(_LENGTHS[data[hits]] - 1)
    require(data.size + int(growth[-1]), limit_bytes)
    offsets = ends(text).astype(np.int64) - int(ends(text)[0])
    return text_array(
        offsets + growth[np.searchsorted(hits, offsets)], _rewritten(data, hits, growth), text
    )


def _suspicious(data: NDArray[np.uint8]) -> bool:
    return bool(data.min() < FIRST_PRINTABLE or (data == QUOTE).any() or (data == BACKSLASH).any())


def _rewritten(
    data: NDArray[np.uint8], hits: NDArray[np.int64], growth: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Return `data` with the bytes at `hits` replaced; hit i moves by `growth[i]`."""
    places, codes = hits + growth[:-1], data[hits]
    written = np.empty(data.size + int(growth[-1]), np.uint8)
    plain = np.ones(written.size, np.bool_)
    lengths = _LENGTHS[codes]
    for index in range(int(lengths.max())):
        inside = slice(None) if index < SHORTEST else lengths > index
        written[places[inside] + index] = _FORMS[index][codes[inside]]
        plain[places[inside] + index] = False
    written[plain] = np.delete(data, hits)
    return written
