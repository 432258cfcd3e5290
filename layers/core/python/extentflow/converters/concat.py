"""Concatenate columns of text and constants into one column of JSON text.

A row is written in one pass: the constant text between two values (`,"name":"`) is part of the
adjacent pieces, and one join copies everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.converters.buffers import require_limit, text_bytes

NULL = "null"


@dataclass(frozen=True, slots=True)
class Piece:
    """One column of text between constants: row i is `lead + text[i] + tail`.

    A null in `text` is written as `null`. Constants that belong to a value (quotes, brackets) must
    therefore not surround text with nulls: see `enclose`.
    """

    lead: str
    text: pa.StringArray
    tail: str = ""


def enclose(lead: str, opening: str, text: pa.StringArray, closing: str) -> Piece:
    """Return text with `opening` and `closing` around every value that is not null."""
    if text.null_count == 0:
        return Piece(lead + opening, text, closing)
    return Piece(lead, pc.binary_join_element_wise(opening, text, closing, ""))


def constant_piece(lead: str, text: str, rows: int) -> Piece:
    """Return a piece that is `lead + text` in every row."""
    return Piece(lead, pa.repeat(pa.scalar(text, pa.string()), rows))


def concat_pieces(pieces: Sequence[Piece], limit_bytes: int) -> pa.StringArray:
    """Return the concatenation of the pieces per row, without nulls.

    Raises:
        OffsetOverflowError: the text exceeds `limit_bytes`.
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
    require_limit(sum(_bytes(argument, rows) for argument in arguments), limit_bytes)
    return pc.binary_join_element_wise(
        *arguments, "", null_handling="replace", null_replacement=NULL
    )


def _add(arguments: list[pa.Array | str], constants: str) -> None:
    if constants:
        arguments.append(constants)


def _bytes(argument: pa.Array | str, rows: int) -> int:
    if isinstance(argument, str):
        return rows * len(argument.encode())
    return text_bytes(argument) + len(NULL) * int(argument.null_count)
