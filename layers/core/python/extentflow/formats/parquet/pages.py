"""Check the headers of Parquet's pages before Arrow reads them.

    column chunk   header | page | header | page | header | page
    known                   size -^ header   size -^ ...          each header says where the next is

A header states how large its page is, stored and unpacked, in 32 bits. Arrow allocates that much
before it reads. So a header that claims more than its column chunk has left, or than a page may
have, does not reach Arrow. Zeros take its place, which Arrow refuses as damage.

Where pages are read by the page index, each header must be that of the page in the index.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from extentflow.formats.parquet.compact_protocol import I32, STRUCT, CompactWalk

Bytes: TypeAlias = bytes | memoryview
# Of a page, unpacked. Writers aim at 1 MiB, and add large values without looking.
LEAST_PAGE_LIMIT_BYTES = 256 << 20
# Rows that writers add to a page before they look at its size hold a few large values.
_RECORDS_PER_PAGE = 4
MOST_HEADER_BYTES = 1 << 20
_FIRST_LOOK_BYTES = 256
# Old writers of parquet-mr left the header of the dictionary out of a chunk's size (PARQUET-816).
UNCOUNTED_BYTES = 100
_TYPE, _UNPACKED, _STORED = 1, 2, 3
# By a page's type: the field of its header that states the number of values.
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
OWN_HEADERS = {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}


def page_limit_bytes(max_record_bytes: int) -> int:
    """Return how large a page may be, for rows of a size."""
    return max(LEAST_PAGE_LIMIT_BYTES, _RECORDS_PER_PAGE * max_record_bytes)


@dataclass(frozen=True, slots=True)
class PageHeader:
    """What a page's header states, in bytes; `size` is that of the header.

    `values`: how many values the page has, nulls included; None: not stated for its type, `kind`.
    """

    stored: int
    unpacked: int
    size: int
    kind: int
    values: int | None


# A header as writers have it: type, sizes, perhaps a checksum; then a structure of numbers, flags
# and perhaps statistics with short values. The next byte decides at every place: linear time.
_VARINT = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
_VALUE = b"|".join(re.escape(bytes([size])) + rb"[\x00-\xff]{%d}" % size for size in range(64))
_STATISTICS = (
    rb"\x1c(?:[\x18\x28\x38\x48\x58](?:" + _VALUE + rb")"
    rb"|[\x16\x26\x36\x46]" + _VARINT + rb"|[\x11\x12\x21\x22]){0,16}\x00"
)
_USUAL = re.compile(
    rb"\x15([\x00-\x06])\x15(" + _VARINT + rb")\x15(" + _VARINT + rb")(\x15" + _VARINT + rb")?"
    rb"([\x1c\x2c\x3c\x4c\x5c])\x15(" + _VARINT + rb")(?:\x15" + _VARINT + rb"|[\x11\x12]){0,7}"
    rb"(?:" + _STATISTICS + rb")?\x00\x00"
)


def page_header(data: bytes) -> PageHeader:
    """Return the header at the start of `data`.

    IndexError: it does not end in `data`. ValueError: it is none that Parquet has.
    """
    return _usual_header(data, 0) or _unusual_header(data)


def _usual_header(data: Bytes, at: int) -> PageHeader | None:
    usual = _USUAL.match(data, at)
    if usual is None:
        return None
    kind, unpacked, stored, checksum, own, values = usual.groups()
    number = _number(kind)
    # Of the field before: 3, or 4 if there is a checksum.
    is_own = (own[0] >> 4) + 3 + bool(checksum) == OWN_HEADERS.get(number)
    count = _number(values) if is_own else None
    return PageHeader(_number(stored), _number(unpacked), usual.end() - at, number, count)


def _number(varint: bytes) -> int:
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 0x7F
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1)


def _unusual_header(data: bytes) -> PageHeader:
    walk = CompactWalk(data)
    sizes = {_TYPE: -1, _UNPACKED: 0, _STORED: 0}
    values: dict[int, int] = {}
    at = number = 0
    while head := data[at]:
        number, at = walk.number(number, head, at + 1)
        if head & 15 == I32 and number in sizes:
            # As with Arrow, the last one of a field counts.
            sizes[number], at = walk.i32(at)
        elif head & 15 == STRUCT and number in OWN_HEADERS.values():
            values[number], at = _first_number(walk, at)
        else:
            at = walk.behind(head & 15, at)
    kind = sizes[_TYPE]
    count = values.get(OWN_HEADERS.get(kind, 0))
    return PageHeader(sizes[_STORED], sizes[_UNPACKED], at + 1, kind, count)


def _first_number(walk: CompactWalk, at: int) -> tuple[int, int]:
    """Return field 1 of a structure, and the place behind the structure."""
    number = value = 0
    while head := walk.data[at]:
        number, at = walk.number(number, head, at + 1)
        if (number, head & 15) == (1, I32):
            value, at = walk.i32(at)
        else:
            at = walk.behind(head & 15, at)
    return value, at + 1


@dataclass(frozen=True, slots=True)
class IndexedPage:
    """What the page index states about a page: its size, header included, and its values.

    `values` None: it is a dictionary.
    """

    size: int
    values: int | None


class IndexContradictionError(Exception):
    """A page is not the one that the page index describes."""


class PageGuard:
    """Follows the pages of one column chunk, or of a part of it, `[start, end)` of the object.

    `indexed`: its pages by the page index; None: unknown.
    """

    def __init__(
        self,
        start: int,
        end: int,
        limit_bytes: int,
        indexed: Sequence[IndexedPage] | None = None,
    ) -> None:
        self._next = start
        self._end = end
        self._limit_bytes = limit_bytes
        self._indexed = None if indexed is None else deque(indexed)
        self.refused = ""

    def passed(self, start: int, data: Bytes, more: Callable[[int, int], Bytes]) -> Bytes:
        """Return the chunk's bytes from `start` on as Arrow may read them: `data`, usually.

        `more` returns bytes of the chunk at an offset, fewer than asked for at its end. Raises
        IndexContradictionError.
        """
        stop = start + len(data)
        while self._next < stop:
            if self.refused:
                kept = max(0, self._next - start)
                return bytes(data[:kept]) + bytes(len(data) - kept)
            where = self._next
            # Nearly always, the header is in these bytes.
            header = _usual_header(data, where - start) or self._header(more, where)
            if self._indexed is not None:
                _require_indexed(header, self._indexed.popleft(), where)
            if header is None:
                continue
            self.refused = self._complaint(header, where)
            if not self.refused:
                self._next = where + header.size + header.stored
        return data

    def _header(self, more: Callable[[int, int], Bytes], where: int) -> PageHeader | None:
        """Return the header at an offset; None and `refused`, if there is none."""
        size = _FIRST_LOOK_BYTES
        while size <= MOST_HEADER_BYTES:
            found = bytes(more(where, size))
            try:
                return page_header(found)
            except IndexError:
                if len(found) < size:
                    break
                size *= 16
            except (ValueError, KeyError, RecursionError):
                break
        self.refused = "Invalid page header"
        return None

    def _complaint(self, header: PageHeader, where: int) -> str:
        if min(header.stored, header.unpacked) < 0:
            return f"Invalid page header: a page of {min(header.stored, header.unpacked)} bytes"
        left = self._end + UNCOUNTED_BYTES - where - header.size
        if header.stored > left:
            return (
                f"Invalid page header: a page of {header.stored} bytes, of which its column chunk"
                f" has {max(0, self._end - where - header.size)}"
            )
        if (most := max(header.stored, header.unpacked)) > self._limit_bytes:
            return (
                f"a page has {most} bytes, and pages up to {self._limit_bytes} are read; raise"
                f" record.max.bytes to {-(-most // _RECORDS_PER_PAGE)}"
            )
        return ""


def _require_indexed(header: PageHeader | None, page: IndexedPage, where: int) -> None:
    """Raise IndexContradictionError unless a header is that of a page in the index."""
    if header is None:
        raise IndexContradictionError(f"there is no page at byte {where}")
    size = header.size + header.stored
    if size != page.size:
        raise IndexContradictionError(
            f"the page at byte {where} has {size} bytes, not {page.size} as in the index"
        )
    is_dictionary = page.values is None
    kinds = (DICTIONARY_PAGE,) if is_dictionary else (DATA_PAGE, DATA_PAGE_V2)
    if header.kind not in kinds:
        raise IndexContradictionError(f"the page at byte {where} has type {header.kind}")
    if not is_dictionary and header.values != page.values:
        raise IndexContradictionError(
            f"the page at byte {where} has {header.values} values, not {page.values} as in the"
            " index"
        )
