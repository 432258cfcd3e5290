"""Text columns as checked, contiguous UTF-8.

Owns: the check (Arrow readers do not validate what a producer called a string) and where it fails.
Refuses to know: JSON, other types.
"""

from collections.abc import Iterator

import pyarrow as pa

from extentflow.converters.buffers import contents, size_bytes
from extentflow.converters.faults import corrupt
from extentflow.converters.sizes import require

FIRST_NON_ASCII = 0x80


def is_text(data_type: pa.DataType) -> bool:
    """Whether a type holds UTF-8 text."""
    types = pa.types
    return bool(
        types.is_string(data_type)
        or types.is_large_string(data_type)
        or types.is_string_view(data_type)
    )


def is_binary(data_type: pa.DataType) -> bool:
    """Whether a type holds bytes of any kind."""
    types = pa.types
    return bool(
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_binary_view(data_type)
        or types.is_fixed_size_binary(data_type)
    )


def checked(array: pa.Array, limit_bytes: int) -> pa.StringArray:
    """Return a text array as `string`, zero copy where it is one; nulls stay.

    Raises:
        CorruptRecord: the rows whose bytes are not UTF-8.
        OffsetOverflowError: more than `limit_bytes` of text.
    """
    require(size_bytes(array), limit_bytes)
    text = array.cast(pa.string())
    check(text)
    return text


def check(text: pa.Array) -> None:
    """Raise CorruptRecord where a string or large_string array holds bytes that are not UTF-8.

    All-ASCII buffers pass after one look at their largest byte. Values are judged one by one: two
    halves of a character in neighbouring rows are two faults.
    """
    data = contents(text)
    if data.size == 0 or data.max() < FIRST_NON_ASCII:
        return
    try:
        text.validate(full=True)
    except pa.ArrowInvalid as exc:
        raise corrupt(dict(_invalid(text))) from exc


def _invalid(text: pa.Array) -> Iterator[tuple[int, str]]:
    # Per row, as only a batch that is known to be bad comes here.
    for row, value in enumerate(text.cast(pa.binary()).to_pylist()):
        try:
            (value or b"").decode("utf-8")
        except UnicodeDecodeError as exc:
            yield row, f"byte 0x{value[exc.start]:02x} at {exc.start} is not valid UTF-8"
