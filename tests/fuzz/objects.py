"""How an object is tried: one frame for formats, and cases of the law suite as its seeds.

    whole      one extent, large buffers            what all others are compared with
    parts      extents between cuts, small buffers
    plan       the extents that the format plans
    resumed    one extent, from a position that `parts` or `whole` reached

All yield the same values, locations and bad records. What fails, fails in each of them, behind the
same records.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any

from tests.fuzz.mutations import change_bytes, pack, unpack
from tests.fuzz.targets import TRIED, UNBOUNDED, require_bounded
from tests.laws.laws import FormatCase, extent_of

from extentflow.converters import open_converter
from extentflow.delivery.pipeline import Pipeline
from extentflow.errors import ExtentflowError, Misconfigured
from extentflow.formats import Format
from extentflow.kafka import Records
from extentflow.testing.stores import MemorySource

_MOST_BYTES = 4_000
_SMALL_WINDOW_BYTES = 150
_LARGE_BYTES = 1_000
_MANY = 2_000
# Verified only where one extent reads a whole stream of bzip2, from its start.
_MARKER_INSIDE = "an Avro block contains the object's marker"
_STREAM_CHECKSUM = "bzip2: the checksum of the stream"


class ManyChunksError(Exception):
    """Small buffers make thousands of chunks, as when a byte makes all of a content newlines."""


@dataclass
class Delivered:
    """What came out of the extents between cuts: values and bad records with their locations."""

    values: list[tuple[int, Any]] = field(default_factory=list)
    bad: list[tuple[int, bytes | None]] = field(default_factory=list)
    filtered: int = 0
    # Of the first extent: positions, and how many values and bad records precede them.
    positions: list[tuple[int, int, int]] = field(default_factory=list)
    error: ExtentflowError | None = None
    # Small buffers were given up, and what they yield was not compared.
    only_whole: bool = False

    def require_same(self, other: "Delivered", what: str) -> None:
        """Require equal records; where both fail, equal ones as far as both got."""
        is_alike = (self.error is None) == (other.error is None)
        # Only where a cut is within the block does an extent see that its marker is no random one.
        is_excused = _STREAM_CHECKSUM in str(other.error) or _MARKER_INSIDE in str(self.error)
        assert is_alike or is_excused, f"{what} fail alike"
        if self.error is not None and other.error is None:
            return
        if other.error is None:
            assert self.values == other.values, f"{what} yield the same records"
            assert self.bad == other.bad, f"{what} have the same bad records"
            assert self.filtered == other.filtered, f"{what} drop as many"
        else:
            pairs = zip(self.values, other.values, strict=False)
            assert all(left == right for left, right in pairs), f"{what} begin alike"


def deliver(
    fmt: Format, source: MemorySource, cuts: Sequence[int], converter: str, position: int = 0
) -> Delivered:
    """Decode and convert the extents between neighbouring cuts, until one fails."""
    pipeline = Pipeline(source, fmt, "topic", lambda schema: open_converter(converter, schema))
    return deliver_with(pipeline, source, cuts, position)


def deliver_with(
    pipeline: Pipeline, source: MemorySource, cuts: Sequence[int], position: int = 0
) -> Delivered:
    """Deliver as a pipeline does, in parts as small as can be."""
    found = Delivered()
    try:
        for number, (start, end) in enumerate(pairwise(cuts)):
            before = position
            TRIED.decodes += 1
            for chunk in pipeline.convert(extent_of(source, start, end), position):
                assert chunk.next_position > before, "positions increase"
                before = chunk.next_position
                most_bytes = 1 if len(found.values) < _MANY else float("inf")
                for part in chunk.split(most_bytes):
                    rows = rows_of(part.records)
                    found.values += zip(map(int, part.locations), rows, strict=True)
                    found.filtered += part.filtered
                reasons = [bad.reason for bad in chunk.bad]
                assert not any("alloc of size" in reason for reason in reasons), UNBOUNDED
                found.bad += [(bad.location, bad.raw) for bad in chunk.bad]
                if not number:
                    counts = len(found.values), len(found.bad)
                    found.positions.append((before, *counts))
                if len(found.positions) > _MANY:
                    raise ManyChunksError
    except ExtentflowError as exc:
        _require_place(source, exc)
        require_bounded(exc)
        found.error = exc
    return found


def _require_place(source: MemorySource, exc: ExtentflowError) -> None:
    named = isinstance(exc, Misconfigured) or source.version.uri in str(exc)
    assert named, "an error names the object, unless its cause is the configuration"


def rows_of(records: Records) -> list[Any]:
    """Return each record: its value, or a tuple with what else it has."""
    values: list[Any] = records.values.to_pylist()
    others = (records.keys, records.headers, records.timestamps, records.partitions)
    if all(other is None for other in others):
        return values
    headers = None if records.headers is None else list(map(tuple, records.headers))
    arrays = (records.keys, records.timestamps, records.partitions)
    columns = [None if array is None else array.to_pylist() for array in arrays]
    given = [column for column in (headers, *columns) if column is not None]
    return [(records.topic, *row) for row in zip(values, *given, strict=True)]


def require_laws(
    opened: Callable[[int, int], Format], body: bytes, given: Mapping[str, Any]
) -> Delivered:
    """Decode an object in all ways; return what all of them yield."""
    source, size, converter = MemorySource(body), len(body), given["converter"]
    if not size:  # has no extent
        return Delivered()
    large, small = opened(1 << 20, 65_536), opened(given["window"], given["batch"])
    whole = deliver(large, source, [0, size], converter)
    locations = [location for location, _ in whole.values]
    assert locations == sorted(set(locations)), "locations increase"
    try:
        _require_same(large, small, source, whole, given)
    except ManyChunksError:
        whole.only_whole = True
    return whole


def _require_same(
    large: Format, small: Format, source: MemorySource, whole: Delivered, given: Mapping[str, Any]
) -> None:
    size, converter = source.version.size, given["converter"]
    inner = [int(share * size) for share in given["cuts"]] if small.splittable else []
    parts = deliver(small, source, [0, *inner, size], converter)
    parts.require_same(whole, "parts and whole")
    planned = _planned(large, source, given["target"])
    if planned is not None:
        deliver(large, source, planned, converter).require_same(whole, "plan and whole")
    one = deliver(small, source, [0, size], converter) if inner else parts
    for fmt, done in ((large, one), (small, whole)):
        _require_resumable(fmt, source, done, whole, given)


def _planned(fmt: Format, source: MemorySource, target: int) -> list[int] | None:
    try:
        ranges = list(fmt.plan(source, target))
    except ExtentflowError as exc:
        _require_place(source, exc)
        return None
    edges = [0, *(end for _, end in ranges)]
    assert ranges == list(pairwise(edges)), "a plan is a partition"
    assert edges[-1] == source.version.size, "a plan covers the object"
    return edges


def _require_resumable(
    fmt: Format, source: MemorySource, done: Delivered, whole: Delivered, given: Mapping[str, Any]
) -> None:
    if not done.positions:
        return
    position, values, bad = done.positions[int(given["at"] * len(done.positions))]
    rest = deliver(fmt, source, [0, source.version.size], given["converter"], position)
    joined = Delivered(done.values[:values] + rest.values, done.bad[:bad] + rest.bad)
    joined.filtered, joined.error = whole.filtered, rest.error
    joined.require_same(whole, "resumed and whole")


def outcome_of(found: Delivered) -> str:
    """Name an outcome."""
    tried = ", only whole" if found.only_whole else ""
    if found.error is not None:
        return f"refused: {type(found.error).__name__}{tried}"
    bad = ", bad ones" if found.bad else ""
    return f"{'records' if found.values else 'nothing'}{bad}{tried}"


# -- inputs ----------------------------------------------------------------------------------------


def sizes(random: Random, body: bytes) -> dict[str, Any]:
    """Return buffer sizes, cuts and a place to resume at, for an object of that size."""
    window = random.choice((1, 2, 3, 7, 64, 1 << 16))
    if len(body) > _SMALL_WINDOW_BYTES:
        window = max(64, window, len(body) // 16)
    return {
        "window": window,
        "batch": random.choice((1, 2, 3, 1_000)) if len(body) < _LARGE_BYTES else 1_000,
        "cuts": sorted(random.random() for _ in range(random.randrange(4))),
        "target": random.choice((1 + len(body) // 3, 1 << 20)),
        "at": random.random(),
    }


@dataclass(frozen=True)
class Cases:
    """Cases of the law suite by name, as seeds: their small samples, changed or not."""

    cases: Mapping[str, FormatCase]

    @classmethod
    def of(cls, cases: Sequence[FormatCase]) -> "Cases":
        """Return the cases that have samples of a few thousand bytes."""
        return cls({case.name: case for case in cases if case.small})

    def draw(self, random: Random, *, converter: str, unchanged: float = 0.1) -> bytes:
        """Return an input; the share `unchanged` of all is as the sample is."""
        case = self.cases[random.choice(list(self.cases))]
        sample = random.choice(case.small)
        body = sample.body
        others = [one.body for one in case.small]
        if random.random() >= unchanged:
            body = change_bytes(random, body, others)[:_MOST_BYTES]
        given = {"case": case.name, "converter": converter, **sizes(random, body)}
        return pack(given, body)

    def run(self, data: bytes) -> tuple[FormatCase, bytes, Delivered]:
        """Try an input by all laws; return its case and what was delivered."""
        given, body = unpack(data)
        case = self.cases[given["case"]]

        def opened(window: int, batch: int) -> Format:
            return case.open(replace(case.options, window_bytes=window, batch_rows=batch))

        return case, body, require_laws(opened, body, given)
