"""What formats say about objects whose bytes contradict them.

Tests: unit/formats/parquet/test_footer.py, unit/formats/arrow/test_arrow_format.py
"""

from extentflow.errors import CorruptObject
from extentflow.model import ObjectVersion


def corrupt_object(
    version: ObjectVersion, what: str, start: int = 0, end: int | None = None
) -> CorruptObject:
    """Return the error of an object; `what` follows its address, bytes `[start, end)`."""
    behind = version.size if end is None else end
    return CorruptObject(f"{version.uri}[{start}-{behind}) {what}; upload it again, or remove it")


def one_line(exc: BaseException, most_characters: int | None = None) -> str:
    """Return the message of an error of Arrow's, which may have several lines.

    `most_characters`: only its start, because Arrow may repeat what it cannot read.
    """
    return " ".join(str(exc)[:most_characters].split()) or type(exc).__name__
