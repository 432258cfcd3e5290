"""Find texts that Arrow's parser accepts and reads as another value than they state."""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types


def misread_rows(texts: pa.StringArray, values: pa.Array) -> list[int]:
    """Return the rows whose text means something else than its value, or exceeds the type.

    `values` are the texts, cast by Arrow. Of integers, it accepts hexadecimal digits: `0x1F` is 31,
    and `0xff` is -1 as int8. Of floats, a number beyond the range becomes infinity.
    """
    if types.is_integer(values.type):
        return mask_rows(pc.match_substring(texts, "x", ignore_case=True))
    if types.is_floating(values.type):
        named = pc.match_substring(texts, "inf", ignore_case=True)
        return mask_rows(pc.and_not(pc.is_inf(values), named))
    return []


def mask_rows(mask: pa.BooleanArray) -> list[int]:
    """Return the rows in which a mask is true."""
    rows: list[int] = pc.indices_nonzero(pc.fill_null(mask, fill_value=False)).to_pylist()
    return rows
