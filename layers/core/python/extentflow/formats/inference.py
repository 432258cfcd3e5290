"""Infer types from samples of an object: where they lie, and the types of texts.

With `csv.schema=infer`, a column gets the first type of the ladder that represents each of its
values in the samples without loss; nulls count for none:

    bool               true and false, in any case
    int64              no leading zero, no plus sign, not -0
    decimal(38,0)      the same, beyond 64 bits
    decimal(38,s)      numbers with a point, each with s digits behind it, or without one
    float64            other numbers that are not rounded by it
    date               2026-01-31
    timestamp(us)      2026-01-31 23:59:59.123456, or with a T; a date is midnight
    timestamp(us,UTC)  the same with Z or an offset
    timestamp(ns)      with up to nine digits of a second; then in UTC
    string             anything else, and columns without a value

Strings of JSON climb the part of the ladder that begins with `date`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from extentflow.config.column_lists import SCHEMA, arrow_type
from extentflow.errors import UnsupportedFormat
from extentflow.formats import Chunk, Format
from extentflow.formats.csv.csv_fields import is_lossless
from extentflow.model import Extent
from extentflow.storage import RangeSource

SAMPLE_BYTES = 256 << 10
_SAMPLES = 5
MOST_SAMPLED_BYTES = _SAMPLES * SAMPLE_BYTES
SAMPLE_WINDOW_BYTES = 64 << 10
_MOST_FACTS_BYTES = 200_000
_POINT = r"^-?[0-9]+\.[0-9]+$"
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
Ladder: TypeAlias = Sequence[tuple[str, str]]
TIMES: Ladder = (
    ("date", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    *(
        (f"timestamp({unit}{zone})", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}")
        for unit in ("us", "ns")
        for zone in ("", ",UTC")
    ),
)
_LADDER: Ladder = (
    ("bool", r"^(?i:true|false)$"),
    ("int64", r"^-?[0-9]+$"),
    ("decimal(38,0)", r"^-?[0-9]{1,38}$"),
    ("decimal(38,{scale})", r"^-?[0-9]+(\.[0-9]+)?$"),
    ("float64", _NUMBER),
    *TIMES,
)


def sampled_ranges(size: int) -> Iterator[tuple[int, int]]:
    """Yield where the samples of an object lie: start, quarters and end; all of a small one."""
    if size <= MOST_SAMPLED_BYTES:
        yield 0, size
        return
    for sample in range(_SAMPLES):
        start = (size - SAMPLE_BYTES) * sample // (_SAMPLES - 1)
        yield start, start + SAMPLE_BYTES


def sampled_batches(fmt: Format, source: RangeSource) -> Iterator[pa.RecordBatch]:
    """Yield what samples of an object hold; of one that is not cut, what its first content holds.

    `fmt` is opened with windows of SAMPLE_WINDOW_BYTES.
    """
    size = source.version.size
    if not size:
        return
    # Some objects cannot be cut although their format can.
    halves = list(islice(fmt.plan(source, max(1, size // 2)), 2)) if fmt.splittable else []
    for start, end in sampled_ranges(size) if len(halves) > 1 else [(0, size)]:
        extent = Extent("", 0, "", source.version, start, end, "")
        left = MOST_SAMPLED_BYTES
        # A generator: closing it ends the reads ahead.
        with closing(cast("Generator[Chunk]", fmt.decode(source, extent, 0))) as chunks:
            for chunk in chunks:
                yield chunk.batch
                left -= chunk.batch.nbytes
                if left <= 0:
                    break


def bounded(facts: str, what: str, remedy: str) -> str:
    """Return the facts. UnsupportedFormat if they are longer than a job can hold."""
    if len(facts.encode()) > _MOST_FACTS_BYTES:
        raise UnsupportedFormat(
            f"{what}: a job holds {_MOST_FACTS_BYTES} bytes of names and types, and those of the"
            f" object's columns are longer; {remedy}"
        )
    return facts


def inferred_types(texts: pa.Table) -> str:
    """Return the names and types of columns of texts, as `csv.schema` takes them."""
    columns = (column.combine_chunks().drop_null() for column in texts.columns)
    return SCHEMA.write(tuple(zip(texts.column_names, map(type_of, columns), strict=True)))


def read_types(facts: str) -> list[tuple[str, pa.DataType]]:
    """Return the columns that `inferred_types` wrote; none for ""."""
    return [(name, arrow_type(written)) for name, written in SCHEMA.read(facts)] if facts else []


def type_of(texts: pa.StringArray, ladder: Ladder = _LADDER) -> str:
    """Return the first type of a ladder that represents each text; `string` if none does."""
    if not len(texts):
        return "string"
    for ladder_type, pattern in ladder:
        if not pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            continue
        scale = ""
        if "{scale}" in ladder_type:
            with_point = texts.filter(pc.match_substring_regex(texts, _POINT))
            digits = pc.utf8_length(pc.replace_substring_regex(with_point, r"^.*\.", ""))
            scales = pc.unique(digits).to_pylist()
            if len(scales) != 1:
                continue
            scale = str(scales[0])
        written = ladder_type.format(scale=scale)
        try:
            wanted = arrow_type(written)
        except ValueError:  # more digits than a decimal has
            continue
        if is_lossless(texts, wanted):
            return written
    return "string"
