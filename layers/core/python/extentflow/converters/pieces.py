"""Columns of JSON text, and how they become one column.

Owns: Piece, joining, what stands around nullable text. Refuses to know: types.

A row is written in one pass: the constant text between two values (`,"name":"`) is part of the
pieces beside it, and one join copies everything into place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.converters.buffers import size_bytes
from extentflow.converters.sizes import require

NULL = "null"


@dataclass(frozen=True, slots=True)
class Piece:
    """One column of text between constants: row i reads `lead + text[i] + tail`.

    A null in `text` is written as `null`, so constants that belong to a value (quotes, brackets)
    must not stand around text that has nulls: see `enclosed`.
    """

    lead: str
    text: pa.StringArray
    tail: str = ""


def enclosed(lead: str, opening: str, text: pa.StringArray, closing: str) -> Piece:
    """Return text with `opening` and `closing` around every value that is not null."""
    if text.null_count == 0:
        return Piece(lead + opening, text, closing)
    return Piece(lead, pc.binary_join_element_wise(opening, text, closing, ""))


def constant(lead: str, text: str, rows: int) -> Piece:
    """Return a piece that reads `lead + text` in every row."""
    return Piece(lead, pa.repeat(pa.scalar(text, pa.string()), rows))


def joined(pieces: Sequence[Piece], limit_bytes: int) -> pa.StringArray:
    """Return the rows that the pieces make up, without nulls.

    Raises:
        OffsetOverflowError: they would take more than `limit_bytes`.
    """
    arguments: list[pa.Array | str] = []
    constants = ""
    for piece in pieces:
        _add(arguments, constants + piece.lead)
        arguments.append(piece.text)
        constants = piece.tail
    _add(arguments, constants)
    if len(arguments) == 1 and pieces[0].text.null_count == 0:
        return pieces[0].text
    rows = len(pieces[0].text)
    require(sum(_bytes(argument, rows) for argument in arguments), limit_bytes)
    return pc.binary_join_element_wise(
        *arguments, "", null_handling="replace", null_replacement=NULL
    )


def _add(arguments: list[pa.Array | str], constants: str) -> None:
    if constants:
        arguments.append(constants)


def _bytes(argument: pa.Array | str, rows: int) -> int:
    if isinstance(argument, str):
        return rows * len(argument.encode())
    return size_bytes(argument) + len(NULL) * int(argument.null_count)
