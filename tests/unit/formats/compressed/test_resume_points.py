"""Points in compressed objects at which decompression starts again."""

import ctypes
import gzip
import itertools
import random
import zlib
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extentflow.errors import CorruptObject
from extentflow.formats import Chunk, FormatOptions, ResumePoint, ResumePoints
from extentflow.formats.compressed import gzip_members
from extentflow.formats.compressed.compression import decompress
from extentflow.formats.compressed.gzip_members import gunzip_with_points, zlib_library
from extentflow.formats.text.text_format import open_text
from extentflow.model import Extent
from extentflow.testing.stores import MemorySource

EVERY = 50_000
WORDS = [b"extent", b"offset", b"partition", b"\xff\x00", b"committed", b"0123456789"]


def content(size: int, seed: int = 1) -> bytes:
    """Lines that compress like text, with some that do not."""
    draw = random.Random(seed)
    lines: list[bytes] = []
    total = 0
    while total < size:
        line = b" ".join(draw.choices(WORDS, k=draw.randrange(12)))
        if draw.random() < 0.3:
            line = draw.randbytes(200).replace(b"\n", b"")
        lines.append(line + b"\n")
        total += len(lines[-1])
    return b"".join(lines)


CONTENT = content(600_000)


def members(*levels: int) -> bytes:
    step = len(CONTENT) // len(levels) + 1
    starts = range(0, len(CONTENT), step)
    parts = [CONTENT[start : start + step] for start in starts]
    return b"".join(gzip.compress(part, level) for part, level in zip(parts, levels, strict=True))


def with_strategy(strategy: int) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31, 1, strategy)
    return compressor.compress(CONTENT) + compressor.flush()


def frames(size: int, *, between: bytes = b"") -> bytes:
    codec = pa.Codec("zstd")
    starts = range(0, len(CONTENT), size)
    parts = [codec.compress(CONTENT[start : start + size], asbytes=True) for start in starts]
    return b"".join(bytes(part) + between for part in parts)


SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"index"
COMPRESSED = {
    "one member": ("gzip", members(6)),
    "members of several levels": ("gzip", members(1, 9, 6, 1)),
    "stored blocks": ("gzip", members(0)),
    "fixed blocks": ("gzip", with_strategy(zlib.Z_FIXED)),
    "without matches": ("gzip", with_strategy(zlib.Z_HUFFMAN_ONLY)),
    "zeros behind": ("gzip", members(6) + bytes(1000)),
    "frames": ("zstd", frames(20_000)),
    "skippable frames": ("zstd", frames(30_000, between=SKIPPABLE)),
}

every_stream = pytest.mark.parametrize(("codec", "body"), COMPRESSED.values(), ids=COMPRESSED)


def pieces(body: bytes, start: int, size: int) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(start, len(body), size))


def run(
    codec: str,
    body: bytes,
    start: ResumePoint | None = None,
    *,
    step: int = 10_000,
    piece: int = 7_000,
) -> tuple[bytes, list[ResumePoint]]:
    points = ResumePoints(start, every_bytes=EVERY)
    compressed = pieces(body, start.compressed if start else 0, piece)
    yielded = decompress(compressed, codec, step_bytes=step, uri="s3://b/k", points=points)
    whole = b"".join(yielded)
    return whole, list(points._passed)


@every_stream
@pytest.mark.parametrize(("step", "piece"), [(10_000, 7_000), (1 << 20, 1 << 20), (4_001, 97)])
def test_decompression_from_every_point_yields_the_rest(
    codec: str, body: bytes, step: int, piece: int
) -> None:
    whole, found = run(codec, body, step=step, piece=piece)

    assert whole == CONTENT
    assert len(found) > 2
    for point in found:
        rest, further = run(codec, body, point)
        assert rest == CONTENT[point.content :]
        assert all(later.content > point.content for later in further)


@every_stream
def test_points_passed_behind_a_point_are_points_of_the_object(codec: str, body: bytes) -> None:
    _, found = run(codec, body)

    point = found[0]
    for _ in range(3):
        _, further = run(codec, body, point)
        point = further[0]
        assert run(codec, body, point)[0] == CONTENT[point.content :]


@every_stream
def test_points_are_apart(codec: str, body: bytes) -> None:
    _, found = run(codec, body)

    places = [0, *(point.content for point in found)]
    assert all(after - before >= EVERY for before, after in itertools.pairwise(places))
    assert all(len(point.state) <= 34_000 for point in found)


@pytest.mark.parametrize("where", ["content", "checksum", "size"])
def test_damage_behind_a_point_is_found(where: str) -> None:
    body = bytearray(members(6))
    place = {"content": len(body) - 2_000, "checksum": len(body) - 8, "size": len(body) - 4}[where]
    _, found = run("gzip", bytes(body))
    body[place] ^= 0x55

    with pytest.raises(CorruptObject, match="damaged"):
        run("gzip", bytes(body), found[1])


@every_stream
@pytest.mark.parametrize("missing", [1, 5, 9, 2_000])
def test_a_truncated_object_is_found_from_every_point(
    codec: str, body: bytes, missing: int
) -> None:
    _, found = run(codec, body)
    cut = body.rstrip(b"\0")[:-missing]
    if body.endswith(SKIPPABLE):
        cut = body[: -len(SKIPPABLE) - missing]

    for point in found[:-1]:
        with pytest.raises(CorruptObject):
            run(codec, cut, point)


@pytest.mark.parametrize(
    "name", [name for name, (codec, _) in COMPRESSED.items() if codec == "gzip"]
)
def test_an_object_that_ends_at_a_point_is_truncated(name: str) -> None:
    codec, body = COMPRESSED[name]
    _, found = run(codec, body)

    for point in found:
        with pytest.raises(CorruptObject, match="truncated: the last member has no end"):
            run(codec, body[: point.compressed], point)


@given(cuts=st.lists(st.integers(1, 40_000), min_size=1, max_size=12), data=st.data())
def test_any_frames_are_grouped_at_their_ends(cuts: list[int], data: st.DataObject) -> None:
    codec = pa.Codec("zstd")
    parts = [CONTENT[at : at + size] for at, size in zip(itertools.accumulate(cuts), cuts)]  # noqa: B905
    body = b"".join(bytes(codec.compress(part, asbytes=True)) for part in parts)
    points = ResumePoints(every_bytes=data.draw(st.integers(1, 20_000)))
    step = data.draw(st.integers(1, 50_000))

    compressed = pieces(body, 0, data.draw(st.integers(1, 50_000)))
    yielded = decompress(compressed, "zstd", step_bytes=step, uri="s3://b/k", points=points)

    assert b"".join(yielded) == b"".join(parts)
    for point in points._passed:
        rest = decompress(pieces(body, point.compressed, 999), "zstd", step_bytes=step, uri="u")
        assert b"".join(rest) == b"".join(parts)[point.content :]


class NoMemory:
    """A zlib whose next call of `name` finds no memory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of ctypes
        return (lambda *_: -4) if name == self._name else getattr(zlib_library(), name)


@pytest.mark.parametrize("name", ["inflateInit2_", "inflate", "inflateGetDictionary"])
def test_a_zlib_without_memory_says_nothing_about_the_object(name: str) -> None:
    points, library = ResumePoints(every_bytes=EVERY), cast("ctypes.CDLL", NoMemory(name))

    with pytest.raises(MemoryError):
        list(
            gunzip_with_points(library, pieces(members(6), 0, 7_000), 10_000, CorruptObject, points)
        )


def test_other_bytes_in_a_zstd_stream_are_reported() -> None:
    with pytest.raises(CorruptObject):
        run("zstd", frames(20_000) + b"these are no frame")


def test_only_the_last_point_at_or_before_a_position_is_taken() -> None:
    points = ResumePoints(every_bytes=10)
    for place in (10, 20, 30):
        points.add(ResumePoint(place, place))

    taken = [points.take(position) for position in (5, 29, 29, 30, 99)]

    assert taken == [None, ResumePoint(20, 20), None, ResumePoint(30, 30), None]


def values(chunks: Iterable[Chunk]) -> list[bytes]:
    return [value for chunk in chunks for value in chunk.batch["value"].to_pylist()]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_lines_are_decoded_from_any_point_at_or_before_the_position(compression: str) -> None:
    body = {"gzip": members(6, 1), "zstd": frames(20_000)}[compression]
    source = MemorySource(body)
    extent = Extent("job", 0, "connector", source.version, 0, len(body), "text")
    options = FormatOptions(compression=compression, window_bytes=4_000, validate_text=False)
    text = open_text(options)
    chunks = list(text.decode(source, extent, 0))
    _, found = run(compression, body)

    for place in (len(chunks) // 2, len(chunks) - 1):
        position = chunks[place].next_position
        for point in [one for one in found if one.content <= position]:
            rest = text.decode_from(source, extent, position, ResumePoints(point))
            assert values(rest) == values(chunks[place + 1 :])


def test_without_zlib_points_of_other_processes_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = members(6, 1)
    source = MemorySource(body)
    extent = Extent("job", 0, "connector", source.version, 0, len(body), "text")
    text = open_text(FormatOptions(compression="gzip", window_bytes=4_000, validate_text=False))
    chunks = list(text.decode(source, extent, 0))
    _, found = run("gzip", body)
    monkeypatch.setattr(gzip_members, "zlib_library", lambda: None)

    rest = text.decode_from(source, extent, chunks[-2].next_position, ResumePoints(found[0]))

    assert values(rest) == values(chunks[-1:])


def test_a_zlib_that_does_not_return_its_window_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = SimpleNamespace(zlibVersion=SimpleNamespace())
    monkeypatch.setattr(ctypes, "CDLL", lambda _: old)

    assert zlib_library.__wrapped__() is None
