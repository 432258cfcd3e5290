"""Recognise format and compression of an object by its bytes, where nothing else decides."""

from __future__ import annotations

from contextlib import suppress

import orjson

from extentflow.config.connector import NOT_READ
from extentflow.errors import CorruptObject
from extentflow.formats import FORMATS, magic
from extentflow.formats.compressed.bgzf import END_MARKER, begins_bgzf
from extentflow.formats.compressed.bzip2_blocks import MOST_OBJECT_BYTES
from extentflow.formats.compressed.compression import CODECS
from extentflow.formats.compressed.zstd_frames import has_table
from extentflow.formats.magic import SAMPLE_BYTES, recognise
from extentflow.formats.text.charsets import sample_as_utf8
from extentflow.storage import RangeSource

TAIL_BYTES = len(END_MARKER)


def needs_tail(head: bytes) -> bool:
    """Return whether the last bytes of an object count, too: TAIL_BYTES of them."""
    return magic.needs_tail(head) or begins_bgzf(head)


def recognised_compression(head: bytes, tail: bytes) -> str:
    """Return the compression that an object's first and last bytes show; `none` if they show none.

    BGZF is recognised with the empty block at its end only: without it, gzip reads all of it.
    """
    seen = recognise(head, tail)
    if seen is None or seen.kind != "compression" or seen.name not in CODECS:
        return "none"
    return "bgzf" if begins_bgzf(head) and tail.endswith(END_MARKER) else seen.name


def is_cut(codec: str, source: RangeSource) -> bool:
    """Return whether an object with one of SPLIT_COMPRESSIONS has what it can be cut at.

    Reads the last bytes of zstd, where a seek table ends.
    """
    if codec == "zstd":
        return has_table(source)
    return source.version.size <= MOST_OBJECT_BYTES


def recognised_format(
    head: bytes, tail: bytes, compression: str = "none", charset: str | None = None
) -> str | None:
    """Return the format that an object's first and last bytes show; None if they show none.

    `charset` is the configured one. CSV and plain text look alike and are never guessed. NOT_READ
    are compressions and archives.
    """
    if compression != "none":
        head, tail = _content(head, compression), b""
    seen = recognise(head, tail)
    if seen is not None and seen.kind == "format":
        return seen.name if seen.name in FORMATS.names() else None
    if seen is not None and seen.name in NOT_READ:
        return seen.name
    return _json_layout(sample_as_utf8(head, charset))


def _content(head: bytes, compression: str) -> bytes:
    content = b""
    with suppress(CorruptObject):  # the sample is truncated
        for step in CODECS[compression](iter([head]), SAMPLE_BYTES, CorruptObject, None):
            content += step
            if len(content) >= SAMPLE_BYTES:
                break
    return content


def _json_layout(head: bytes) -> str | None:
    """Return `jsonl` if the first lines are documents, `json` if one begins, None for others."""
    if not head.lstrip(b" \t\r\n").startswith((b"{", b"[")):
        return None
    *whole, rest = head.split(b"\n")
    lines = [line for line in whole if line.strip()][:2] or [rest]
    if len(lines) == 1 and lines[0].lstrip().startswith(b"["):
        return "json"
    return "jsonl" if all(map(_is_document, lines)) else "json"


def _is_document(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True
