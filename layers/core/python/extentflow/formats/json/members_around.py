"""Add members of a document to the records of its array: `json.records.around`.

    {"n": 1, "items": [{"a": 1}, {}], "m": 2}     around=n: {"n":1,"a": 1} {"n":1}

Only members before the array are known when its records are sent. They stand first in a record, as
they are written, without whitespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from extentflow.arrays.spans import Indexes, slices
from extentflow.formats import BadRecord
from extentflow.formats.json.document_scanner import BLANKS, OBJECT, OBJECT_END
from extentflow.formats.json.member_texts import follow, member_path, source_text
from extentflow.formats.lines import LineBlock, invalid_utf8_lines

_KEY = "json.records.around"
# Of the records of one chunk: members may be longer than the elements that they are added to.
_MOST_BYTES = 16 << 20
_NOTHING = pa.scalar(b"", pa.binary())

# Where an array begins in the content, and the members that its elements get.
Arrays = Sequence[tuple[int, bytes]]


def members_text(names: Sequence[str], document: bytes) -> bytes:
    """Return the text of these members of a valid document, with commas between them.

    Raises ValueError with a sentence if it does not have all of them.
    """
    members = orjson.loads(document)
    texts = []
    for name in names:
        path = member_path(members, name)
        if not path:
            raise ValueError(
                f"{_KEY}: the document has no member {name!r} before the array; members behind it"
                f" are read when its records were sent, so remove the name from {_KEY}"
            )
        value = follow(members, path)
        text = source_text(document.decode(), path) if value is not None else "null"
        texts.append(orjson.dumps(name) + b":" + text.encode())
    return b",".join(texts)


def parts(block: LineBlock, arrays: Arrays, rows: int) -> Iterator[LineBlock]:
    """Return parts of at most `rows` elements whose records do not take much memory."""
    longest = max((len(members) for _, members in arrays), default=0)
    return block.parts(max(1, min(rows, _MOST_BYTES // (longest + 1))))


def with_members(block: LineBlock, arrays: Arrays, names: Sequence[str]) -> LineBlock:
    """Return the elements of a block with the members of their documents.

    An element that cannot have them is a bad record without bytes. Locations are those of the
    elements; the bytes of a record are with the members.
    """
    if not len(block):
        return block
    bad = _unfit(block, names)
    kept = np.delete(np.arange(len(block)), np.fromiter(bad, np.int64))
    records = [BadRecord(None, block.location(line), why) for line, why in bad.items()]
    every = tuple(sorted((*block.bad, *records), key=lambda one: one.location))
    locations = block.offsets(kept)
    starts, ends = block.starts[kept], block.ends[kept]
    of = np.searchsorted([start for start, _ in arrays], locations, side="right") - 1
    first, last = (int(of[0]), int(of[-1]) + 1) if len(of) else (0, 0)
    openings = [b"{" + members for _, members in arrays[first:last]]
    chosen = pa.array([*openings, *(one + b"," for one in openings)], pa.binary()).take(
        pa.array(of - first + (last - first) * ~_empty(block, kept))
    )
    elements = slices(block.data, starts + 1, ends)
    joined = pc.binary_join_element_wise(chosen, elements, _NOTHING)
    edges = np.concatenate(([0], np.cumsum(pc.binary_length(joined).to_numpy()))).astype(np.int64)
    data = b"".join(joined.to_pylist())
    return replace(
        block,
        data=np.frombuffer(data, np.uint8),
        starts=edges[:-1],
        ends=edges[1:],
        stops=edges[1:],
        bad=every,
        places=_Elements(edges[:-1] + block.offset, locations),
    )


@dataclass(frozen=True, slots=True)
class _Elements:
    """The locations of elements, by the offsets of their records."""

    offsets: Indexes
    locations: Indexes

    def place(self, offset: int) -> int:
        """Return the location of the element whose record holds this offset."""
        return int(self.places(np.array([offset]))[0])

    def places(self, offsets: Indexes) -> Indexes:
        """Return the locations of several."""
        return self.locations[np.searchsorted(self.offsets, offsets, side="right") - 1]


def _empty(block: LineBlock, lines: Indexes) -> NDArray[np.bool_]:
    """Return which of these objects have no members."""
    behind = block.data[block.starts[lines] + 1]
    empty: NDArray[np.bool_] = behind == OBJECT_END
    for row in np.flatnonzero(np.isin(behind, list(BLANKS))).tolist():
        empty[row] = block.raw(int(lines[row]))[1:].lstrip(BLANKS)[:1] == b"}"
    return empty


def _unfit(block: LineBlock, names: Sequence[str]) -> dict[int, str]:
    """Return the elements that cannot have these members, with reasons."""
    bad = invalid_utf8_lines(block)
    lone = (block.data[block.starts] != OBJECT) | (block.ends - block.starts < len(b"{}"))
    for line in np.flatnonzero(lone).tolist():
        bad.setdefault(line, f"{_KEY}: only objects can have members added, this is none")
    # A name that stands nowhere in a text, not even with an escape, needs no parser.
    written = [orjson.dumps(name) for name in names]
    escapes = b"\\u", *([b"\\/"] if any("/" in name for name in names) else [])

    def may_have(text: bytes) -> bool:
        return any(part in text for part in (*written, *escapes))

    lines = range(len(block)) if may_have(block.data.tobytes()) else ()
    for line in lines:
        raw = block.raw(line)
        if line in bad or not may_have(raw):
            continue
        try:
            own = orjson.loads(raw)
        except orjson.JSONDecodeError:
            continue  # the reader says so
        if taken := [name for name in names if name in own]:
            bad[line] = (
                f"{_KEY}: the record has a member {taken[0]!r} of its own; remove the name from"
                f" {_KEY}"
            )
    return dict(sorted(bad.items()))
