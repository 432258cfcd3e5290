"""Each target that decodes or encodes objects finds defects that are planted in the library."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.fuzz.every import OBJECTS, TARGETS, outcome
from tests.fuzz.targets import UNBOUNDED

from extentflow.config.specs import FORMATS
from extentflow.converters.row_writers import write_doubles
from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.pipeline import Pipeline
from extentflow.errors import CorruptObject, ExtentflowError
from extentflow.formats import Chunk, lines
from extentflow.formats import bytes_format as raw_bytes
from extentflow.formats.avro import avro_format as avro
from extentflow.formats.compressed import bgzf, bzip2_blocks, compression, zstd_frames
from extentflow.model import Extent
from extentflow.transforms import RangeExclusion

SEED, MOST_INPUTS = 7, 300
# `compressed` has a frame of its own.
LAWS = sorted(set(OBJECTS) - {"compressed"})
Chunks = Iterator[ConvertedChunk]
Convert = Callable[[Pipeline, Extent, int], Chunks]
convert: Convert = Pipeline.convert


def first_finding(name: str) -> str:
    target = TARGETS[name]
    for number in range(MOST_INPUTS):
        found, raised = outcome(target, target.input(SEED, number))
        if raised is not None:
            return f"{found} {raised}"
    raise AssertionError(f"{MOST_INPUTS} inputs of {name} found nothing")


def test_every_format_and_every_codec_has_a_target_of_its_name() -> None:
    assert {*FORMATS.names(), *compression.CODECS} <= set(OBJECTS)


def lose_first_when_resumed(self: Pipeline, extent: Extent, position: int) -> Chunks:
    for number, chunk in enumerate(convert(self, extent, position)):
        if number or not position:
            yield chunk


def stop_early_between_cuts(self: Pipeline, extent: Extent, position: int) -> Chunks:
    whole = (extent.start, extent.end) == (0, extent.version.size)
    for chunk in convert(self, extent, position):
        yield chunk
        if not whole:
            return


def raise_untyped(self: Pipeline, extent: Extent, position: int) -> Chunks:
    try:
        for chunk in convert(self, extent, position):
            yield chunk
            if chunk.bad:
                raise KeyError(chunk.bad[0].reason)
    except ExtentflowError as exc:
        raise KeyError(str(exc)) from exc


def refuse_for_want_of_memory(self: Pipeline, extent: Extent, position: int) -> Chunks:
    yield from convert(self, extent, position)
    raise CorruptObject(f"{extent.uri} is planted") from MemoryError()


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (lose_first_when_resumed, "resumed and whole"),
        (raise_untyped, "KeyError"),
    ],
)
def test_what_is_lost_or_untyped_is_found(
    name: str, planted: Convert, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pipeline, "convert", planted)

    assert found in first_finding(name)


@pytest.mark.parametrize("name", LAWS)
def test_what_asks_for_too_much_memory_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "convert", refuse_for_want_of_memory)

    assert UNBOUNDED in first_finding(name)


@pytest.mark.parametrize("name", sorted({*LAWS} & {*FORMATS.names()} - {"json"}))
def test_what_is_lost_at_a_cut_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "convert", stop_early_between_cuts)

    assert " and whole" in first_finding(name)


Steps = Callable[..., Iterator[bytes]]
CUT = {"bgzf", "bzip2-blocks", "zstd-seekable"}


def with_other_letters(decompress: Steps) -> Steps:
    """Return a codec that yields, at every step, b for a."""
    return lambda *given: (step.replace(b"a", b"b") for step in decompress(*given))


@pytest.mark.parametrize("codec", sorted(set(compression.CODECS) - CUT))
def test_content_that_is_not_the_original_is_found(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = with_other_letters(cast("Steps", compression.CODECS[codec]))
    monkeypatch.setitem(cast("Any", compression.CODECS), codec, wrong)

    assert "the original's records" in first_finding(codec)


def test_content_of_blocks_that_is_not_the_original_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inflate = bgzf._inflate
    monkeypatch.setattr(bgzf, "_inflate", lambda *given: inflate(*given).replace(b"a", b"b"))

    assert "the original's records" in first_finding("bgzf")


def test_content_of_cut_objects_that_is_not_the_original_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content, streamed = bzip2_blocks._content, zstd_frames._streamed

    def of_block(*given: Any) -> bytes | None:  # noqa: ANN401
        found = content(*given)
        return None if found is None else found.replace(b"a", b"b")

    monkeypatch.setattr(bzip2_blocks, "_content", of_block)
    monkeypatch.setattr(zstd_frames, "_streamed", with_other_letters(streamed))

    assert "the original's records" in first_finding("bzip2-blocks")
    assert "FOUND" in first_finding("zstd-seekable")


def test_bytes_that_are_not_those_of_the_object_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = lines.stream_windows
    wrong = lambda *given: ((at, data.replace(b"\xff", b"?")) for at, data in windows(*given))  # noqa: E731
    monkeypatch.setattr(raw_bytes, "stream_windows", wrong)

    assert "every byte once" in first_finding("bytes")


def test_rows_of_avro_that_are_missing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of the planted library has lost its first record, and says so nowhere."""
    chunks = avro.Avro._chunks

    def planted(*given: Any) -> Iterator[Chunk]:  # noqa: ANN401
        for chunk in chunks(*given):
            rows = [row for row, at in enumerate(chunk.locations) if at % 10]
            locations = [chunk.locations[row] for row in rows]
            yield replace(
                chunk, batch=chunk.batch.take(pa.array(rows, pa.int64())), locations=locations
            )

    monkeypatch.setattr(avro.Avro, "_chunks", planted)

    assert "fastavro" in first_finding("avro")


def test_values_that_the_encoder_changes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "extentflow.converters.avro_scalars.write_doubles", lambda values: write_doubles(-values)
    )

    assert "values are kept" in first_finding("encoder")


def test_rows_that_are_excluded_wrongly_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RangeExclusion, "__call__", lambda *_: True)

    assert "would have been dropped" in first_finding("transforms")


@pytest.mark.parametrize("name", ["transforms", "attributes"])
def test_records_that_are_lost_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pipeline, "convert", lose_first_when_resumed)

    assert "resumed and whole" in first_finding(name)
