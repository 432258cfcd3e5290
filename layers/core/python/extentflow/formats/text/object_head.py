"""Read the start of an object of lines, and cut its content into blocks of lines.

Tests: unit/formats/text/test_line_format.py, unit/formats/text/test_charsets.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from extentflow.config.connector import SPLIT_COMPRESSIONS
from extentflow.errors import UnsupportedFormat
from extentflow.formats import FormatOptions, magic
from extentflow.formats.blocks import BlockContent, BlockIndex
from extentflow.formats.compressed import bzip2_blocks
from extentflow.formats.compressed.bgzf import BLOCK_OFFSET_BITS, content_windows
from extentflow.formats.compressed.bzip2_blocks import FIRST_READ_BYTES, head_windows
from extentflow.formats.compressed.compression import decompress, stream_codec
from extentflow.formats.lines import (
    LineBlock,
    LineSyntax,
    Places,
    Window,
    behind_delimiter,
    cut_lines,
    owned_windows,
    until_end,
    whole_delimiters,
)
from extentflow.formats.text.charsets import (
    charset_of,
    decoded_windows,
    sample_as_utf8,
    to_utf8,
)
from extentflow.model import Extent
from extentflow.storage import RangeSource
from extentflow.storage.ranges import tail

# The bounds of the first step that ObjectHead describes, and of the steps that double.
_HEAD_STEP_BYTES = 4096
_HEAD_SHARE = 256
_GROWTH_LIMIT_BYTES = 1 << 20
BGZF, SEEKABLE_ZSTD, BZIP2_BLOCKS = (
    "bgzf",
    SPLIT_COMPRESSIONS["zstd"],
    SPLIT_COMPRESSIONS["bzip2"],
)


class ObjectHead:
    """The first bytes of an object, read on demand in steps that double.

    The first step is 1/256 of the object, between 264 and 4,096 bytes: enough for every signature
    and almost every header, and negligible compared to the object.
    """

    def __init__(
        self,
        source: RangeSource,
        expected: str,
        options: FormatOptions,
        delimiter: str | None = None,
        cutter: Callable[[ObjectHead], Cutter] | None = None,
    ) -> None:
        """Raise UnsupportedFormat if the first bytes show another kind of content."""
        version, compression = source.version, options.compression
        self.version = version
        self._max_line_bytes = options.max_record_bytes
        step = max(magic.HEAD_BYTES, min(_HEAD_STEP_BYTES, version.size // _HEAD_SHARE))
        if compression == BZIP2_BLOCKS:
            # Nothing is known before the first block ends.
            step = max(step, min(FIRST_READ_BYTES, version.size // _HEAD_SHARE))
        content = tail(source, 0, first_bytes=step, most_bytes=_GROWTH_LIMIT_BYTES)
        head, end = next(content, b""), b""
        if magic.needs_tail(head):
            end = source.read(max(0, version.size - magic.TAIL_BYTES), version.size)
        named = stream_codec(compression)
        magic.require_signature(version, head, end, expected=expected, compression=named)
        content = chain([head], content)
        windows = with_offsets(content)
        self._places: Places | None = None
        if compression == BGZF:
            self._places = index = BlockIndex(BLOCK_OFFSET_BITS)
            windows = content_windows(content, 0, index, version.uri)
        elif compression == BZIP2_BLOCKS:
            self._places = index = BlockIndex(bzip2_blocks.BLOCK_OFFSET_BITS)
            windows = head_windows(content, index, version.uri)
        elif compression != "none":
            step = magic.HEAD_BYTES
            content = decompress(content, named, step_bytes=step, uri=version.uri)
            windows = with_offsets(_growing(content))
        if compression != "none":
            # No step but the last is shorter than HEAD_BYTES; blocks may be.
            first = list(_head_windows(windows))
            head = b"".join(window for _, window in first)
            magic.require_content_signature(version, head, expected=expected, compression=named)
            windows = chain(first, windows)
        self.charset = charset_of(options.charset, head[: magic.HEAD_BYTES], version.uri)
        sample = sample_as_utf8(head[: magic.HEAD_BYTES], options.charset)
        if not self.charset.ascii:
            magic.require_signature(version, sample, expected=expected)
        # The first characters of the content, without a byte order mark.
        self.beginning = sample.decode("utf-8", "replace")
        self.syntax = self.charset.syntax(delimiter)
        if compression == BGZF and (self.charset.unit > 1 or self.charset.stateful):
            raise UnsupportedFormat(
                f"{version.uri}: bgzf around {self.charset.codec} cannot be cut; set"
                " file.compression.type=gzip"
            )
        self.cutter = (cutter or LineCutter.of)(self)
        self._windows = windows

    def lines(self) -> Iterator[LineBlock]:
        """Yield the lines of the content from the start, as UTF-8. Call once.

        Ends with a line that is too long: only its beginning is read.
        """
        windows = self._windows
        if self.charset.stateful:
            content = (window for _, window in windows)
            windows = decoded_windows(content, self.charset, self.version.uri)
        limit = self._max_line_bytes
        bounded = _up_to_long_line(windows, self.syntax, limit)
        for block in self.cutter.cut(bounded, max_record_bytes=limit, places=self._places):
            yield to_utf8(block, self.charset, self.syntax)


def too_few_lines(uri: str, lines: int, setting: str, *, above: str) -> UnsupportedFormat:
    """Return the refusal of an object all of whose lines, at least one, `setting` skips.

    `above`: what the lines that are to be skipped stand above.
    """
    has = "1 line" if lines == 1 else f"{lines} lines"
    return UnsupportedFormat(
        f"{uri} has {has}, and {setting} skips all of them: no record would be delivered; set it to"
        f" the number of lines above {above}"
    )


def _growing(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the first piece, then the others in windows whose size doubles."""
    size = 0
    gathered: list[bytes] = []
    wanted = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= wanted:
            yield b"".join(gathered)
            wanted = min(_GROWTH_LIMIT_BYTES, 2 * size)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


def _head_windows(windows: Iterator[Window]) -> Iterator[Window]:
    size = 0
    while size < magic.HEAD_BYTES and (window := next(windows, None)):
        size += len(window[1])
        yield window


def _up_to_long_line(
    windows: Iterator[Window], syntax: LineSyntax, max_line_bytes: int
) -> Iterator[Window]:
    """Yield windows up to the one in which a line exceeds its limit."""
    start: int | None = None
    for offset, window in whole_delimiters(windows, syntax):
        yield offset, window
        _, behind = syntax.span(window)
        if behind or start is None:
            start = offset + behind
        if offset + len(window) - start > max_line_bytes:
            return


def with_offsets(pieces: Iterable[bytes], at: int = 0) -> Iterator[Window]:
    """Yield contiguous pieces with their offsets, from `at` on."""
    for piece in pieces:
        yield at, piece
        at += len(piece)


class Cutter(Protocol):
    """Cuts content into blocks of lines, or of records that may have several lines."""

    def cut(
        self, windows: Iterator[Window], *, max_record_bytes: int, places: Places | None = None
    ) -> Iterator[LineBlock]:
        """Yield what contiguous `windows`, the first of which begins with a line, hold."""

    def owned(
        self,
        source: RangeSource,
        extent: Extent,
        position: int,
        *,
        window_bytes: int,
        max_record_bytes: int,
    ) -> Iterator[LineBlock]:
        """Yield what begins in `extent`, from `position` on; see `Format.decode`."""

    def owned_in_blocks(
        self, content: BlockContent, *, window_bytes: int, max_record_bytes: int
    ) -> Iterator[LineBlock]:
        """Yield what begins in the content of an extent's blocks."""


@dataclass(frozen=True, slots=True)
class LineCutter:
    """The Cutter of lines."""

    syntax: LineSyntax

    @classmethod
    def of(cls, head: ObjectHead) -> LineCutter:
        """Return the cutter of an object's lines."""
        return cls(head.syntax)

    def cut(
        self, windows: Iterator[Window], *, max_record_bytes: int, places: Places | None = None
    ) -> Iterator[LineBlock]:
        """Yield the lines of `windows`."""
        return cut_lines(
            windows, max_line_bytes=max_record_bytes, syntax=self.syntax, places=places
        )

    def owned(
        self,
        source: RangeSource,
        extent: Extent,
        position: int,
        *,
        window_bytes: int,
        max_record_bytes: int,
    ) -> Iterator[LineBlock]:
        """Yield the lines that begin in `extent`."""
        windows = owned_windows(
            source,
            extent,
            position,
            window_bytes=window_bytes,
            max_line_bytes=max_record_bytes,
            syntax=self.syntax,
        )
        return self.cut(windows, max_record_bytes=max_record_bytes)

    def owned_in_blocks(
        self, content: BlockContent, *, window_bytes: int, max_record_bytes: int
    ) -> Iterator[LineBlock]:
        """Yield the lines that begin in the content of an extent's blocks."""
        windows = content.windows(
            len(self.syntax.delimiter), window_bytes=window_bytes, most_behind=max_record_bytes
        )
        found = next(windows, None)
        if found is not None and content.has_context:
            windows = behind_delimiter(chain([found], windows), self.syntax, content.begin)
            found = next(windows, None)
        # A line that begins behind the extent's blocks is another extent's.
        if found is None or found[0] >= content.end():
            return
        windows = until_end(chain([found], windows), self.syntax, content.end)
        yield from self.cut(windows, max_record_bytes=max_record_bytes, places=content.index)
