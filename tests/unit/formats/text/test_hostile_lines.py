"""Objects made to take memory or time: bounded, and errors that say why."""

import gzip
import itertools
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest
import zstandard
from tests.laws.laws import decoded, extent_of
from tests.support.golden import Golden

from extentflow.errors import CorruptObject
from extentflow.formats import FormatOptions
from extentflow.formats.csv.csv_format import open_csv
from extentflow.formats.text.text_format import TextOptions, open_text
from extentflow.model import ObjectVersion
from extentflow.testing.stores import MemorySource

MIB = 1 << 20


def test_newlines_only_take_no_more_memory_than_lines() -> None:
    """Before, the arrays of 16 million lines took 925 MB."""
    packed = gzip.compress(b"\n" * (24 * MIB), 1)
    source = MemorySource(packed)
    fmt = open_text(FormatOptions(compression="gzip"))

    tracemalloc.start()
    count = sum(
        chunk.batch.num_rows for chunk in fmt.decode(source, extent_of(source, 0, len(packed)), 0)
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 24 * MIB
    assert peak < 320 * MIB


class Endless:
    """A gzip object of one line without end; counts what is read."""

    def __init__(self, content: bytes) -> None:
        self.read_bytes = 0
        self._content = content
        self._version = ObjectVersion("memory", "endless", None, "etag", 1 << 50)
        self._pieces = self._packed()
        self._held = b""

    @property
    def version(self) -> ObjectVersion:
        return self._version

    def _packed(self) -> Iterator[bytes]:
        packer = zlib.compressobj(1, wbits=31)
        for _ in itertools.repeat(None):
            yield packer.compress(self._content)

    def read(self, start: int, end: int) -> bytes:
        assert start == self.read_bytes
        while len(self._held) < end - start:
            self._held += next(self._pieces)
        found, self._held = self._held[: end - start], self._held[end - start :]
        self.read_bytes = end
        return found

    def stream(self, start: int, end: int, *, window_bytes: int | None = None) -> Iterator[bytes]:
        raise NotImplementedError


def test_an_endless_header_in_gzip_is_an_error() -> None:
    """Before, it was unpacked in steps of 264 bytes, without an end."""
    source = Endless(b"x" * MIB)
    fmt = open_csv(FormatOptions(compression="gzip", max_record_bytes=3 * MIB))

    with pytest.raises(CorruptObject, match="longer than the 3145728 bytes"):
        list(fmt.decode(source, extent_of(source, 0, 1 << 50), 0))

    assert source.read_bytes < MIB


def test_a_header_line_that_is_too_long_is_an_error(golden: Golden) -> None:
    fmt = open_text(FormatOptions(max_record_bytes=10), TextOptions(header_lines=2))

    with golden.raises(CorruptObject, match=r"byte 2.*record\.max\.bytes"):
        decoded(fmt, MemorySource(b"a\n" + b"x" * 99 + b"\nb\n"), (0, 104))


def test_damaged_zstd_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    packed = zstandard.ZstdCompressor().compress(b"some text\n" * 999)[:-9]

    with pytest.raises(CorruptObject):
        decoded(
            open_text(FormatOptions(compression="zstd")), MemorySource(packed), (0, len(packed))
        )

    assert capfd.readouterr() == ("", "")
