"""`csv.schema=infer`: types from samples, pinned, and values that contradict them later."""

import bz2
import gzip
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws import laws
from tests.laws.compression_cases import bgzf
from tests.support.golden import Golden

from extentflow.decoders.text_types import inferred_types, read_types
from extentflow.errors import UnsupportedFormat
from extentflow.formats import FormatOptions, InspectingFormat
from extentflow.formats.csv.csv_format import CsvOptions, open_csv
from extentflow.formats.inference import (
    MOST_SAMPLED_BYTES,
    sampled_ranges,
)
from extentflow.testing.stores import MemorySource

INFER = CsvOptions(schema=None)


def inspected(body: bytes, options: FormatOptions | None = None, own: CsvOptions = INFER) -> str:
    fmt = open_csv(options or FormatOptions(), own)
    assert isinstance(fmt, InspectingFormat)
    return fmt.inspect(MemorySource(body))


def types_of(*texts: str | None) -> str:
    table = pa.table({"c": pa.array(texts, pa.string())})
    return inferred_types(table).removeprefix("c:")


@pytest.mark.parametrize(
    ("texts", "written"),
    [
        (["true", "FALSE", None], "bool"),
        (["1", "0"], "int64"),
        (["-5", "9223372036854775807"], "int64"),
        (["9223372036854775808", "-1"], "decimal(38,0)"),
        (["1" * 39], "string"),
        (["007", "8"], "string"),
        (["+49301234", "1"], "string"),
        (["-0", "1"], "float64"),
        (["1.50", "2.25", "3"], "decimal(38,2)"),
        (["00.5"], "string"),
        (["1.5", "2.25"], "float64"),
        (["1e3", "2"], "float64"),
        (["0.30000000000000004", "1.5"], "float64"),
        (["0.300000000000000041", "1.5"], "string"),
        (["1e999", "1.5"], "string"),
        (["1e-999", "1.5"], "string"),
        (["0e-999", "1.5"], "float64"),
        (["9007199254740993.0", "1.55"], "string"),  # 2^53 + 1
        (["9007199254740992.00", "1.5"], "string"),
        # Versions: numbers would not give back the zeros.
        (["1.10", "1.1", "1.9"], "string"),
        (["1.10", "1.9"], "string"),
        (["1.10", "1.11"], "decimal(38,2)"),
        (["2", "2.0", "2.1"], "string"),
        (["2", "2.00"], "string"),
        (["2.0", "2.25"], "float64"),
        (["2", "2.25", "2.5"], "float64"),
        (["2.50e3", "1.5"], "float64"),
        (["nan", "1.5"], "string"),
        ([".5", "1.5"], "string"),
        (["0x1F"], "string"),
        (["2026-01-31"], "date"),
        (["2026-02-30"], "string"),
        (["2026-01-31", "2026-01-31 23:59:59"], "timestamp(us)"),
        (["2026-01-31T23:59:59.123456"], "timestamp(us)"),
        (["2026-01-31T23:59:59Z", "2026-01-31 23:59:59.5+02:00"], "timestamp(us,UTC)"),
        (["2026-01-31T23:59:59Z", "2026-01-31 23:59:59"], "string"),
        (["2026-01-31T23:59:59.123456789"], "timestamp(ns)"),
        (["2026-01-31T23:59:59.123456789Z"], "timestamp(ns,UTC)"),
        (["1", "", "2"], "string"),  # quoted, and so no null
        ([" 1"], "string"),
        (["a"], "string"),
        ([None, None], "string"),
        ([], "string"),
    ],
)
def test_the_ladder(texts: list[str | None], written: str) -> None:
    assert types_of(*texts) == written


def test_samples_cover_the_object_and_are_bounded() -> None:
    assert list(sampled_ranges(MOST_SAMPLED_BYTES)) == [(0, MOST_SAMPLED_BYTES)]
    ranges = list(sampled_ranges(10**13))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 10**13
    assert sum(end - start for start, end in ranges) == MOST_SAMPLED_BYTES


def wide(rows: int, late: str) -> bytes:
    """A body whose last rows have another kind of value in their second column."""
    lines = [f"{row},{row if row < rows - 10 else late},{'x' * 200}" for row in range(rows)]
    return ("id,v,text\n" + "\n".join(lines) + "\n").encode()


def test_only_samples_are_read_and_the_end_counts() -> None:
    body = wide(40_000, "late")
    source = MemorySource(body)
    fmt = open_csv(FormatOptions(), INFER)
    assert isinstance(fmt, InspectingFormat)

    facts = fmt.inspect(source)

    assert [str(kind) for _, kind in read_types(facts)] == ["int64", "string", "string"]
    read = sum(end - start for start, end in source.reads)
    # Without quotes, up to 1 MiB behind each sample proves where its records begin.
    assert read < 4 * MOST_SAMPLED_BYTES < len(body)


@pytest.mark.parametrize("codec", ["gzip", "bgzf"])
def test_of_a_compressed_object_the_first_content_counts(codec: str) -> None:
    body = wide(40_000, "late")
    packed = gzip.compress(body) if codec == "gzip" else bgzf(body, lambda: 60_000)[0]

    facts = inspected(packed, FormatOptions(compression="gzip"))

    assert [str(kind) for _, kind in read_types(facts)] == ["int64", "int64", "string"]


def decoded(body: bytes, facts: str, own: CsvOptions = INFER) -> laws.Decoded:
    fmt = open_csv(FormatOptions(facts=facts), own)
    return laws.decoded(fmt, MemorySource(body), (0, len(body)))


def test_a_later_zero_that_a_float_would_lose_makes_a_bad_record() -> None:
    result = decoded(b"version\n1.5\n1.10\n2.0\n", "version:float64")

    assert [row["version"] for row in result.rows] == [1.5, 2.0]
    assert [location for location, _, _ in result.bad] == [12]


def test_a_later_value_that_does_not_fit_is_a_bad_record_that_says_what_to_do(
    golden: Golden,
) -> None:
    facts = inspected(b"id,price,on\n1,1.50,true\n")
    body = b"id,price,on\n2,2.5,false\nx,1,true\n007,1,true\n1,2.555,true\n1,1,1\n,,\n"

    result = decoded(body, facts)

    # A field of `csv.null` fits every type.
    assert [row["id"] for row in result.rows] == [2, None]
    assert [location for location, _, _ in result.bad] == [24, 33, 44, 57]
    golden(result.bad[0][2])
    assert "'id'" in result.bad[0][2]
    # The zeros would be lost.
    assert "'007' is not a valid int64" in result.bad[1][2]
    assert "column 'price': '2.555'" in result.bad[2][2]


def test_without_the_facts_of_a_job_nothing_is_decoded(golden: Golden) -> None:
    with golden.raises(UnsupportedFormat):
        decoded(b"a\n1\n", "")


@pytest.mark.parametrize("body", [b"", b"\n\n", b"a,b\n", b'"",b\n1,2\n'])
def test_objects_without_records_and_names_are_inferred(body: bytes) -> None:
    result = decoded(body, inspected(body))

    assert not result.bad


def test_without_a_header_columns_have_numbers() -> None:
    own = replace(INFER, header=False)
    facts = inspected(b"1,a\n2,b\n", own=own)

    assert decoded(b"1,a\n2,b\n", facts, own).rows == [{"c0": 1, "c1": "a"}, {"c0": 2, "c1": "b"}]


@given(
    st.lists(st.from_regex(r"-?[0-9]{1,21}(\.[0-9]{1,4})?(e[0-9])?", fullmatch=True), min_size=1)
)
def test_what_is_inferred_decodes_without_a_bad_record(values: list[str]) -> None:
    body = ("v\n" + "\n".join(values) + "\n").encode()

    assert not decoded(body, inspected(body)).bad


def test_utf16_in_bzip2_which_is_not_cut_is_sampled_from_its_start() -> None:
    body = "\ufeffid\n" + "".join(f"{number}\n" for number in range(200_000))
    packed = bz2.compress(body.encode("utf-16-le"), 1)
    fmt = open_csv(FormatOptions(compression="bzip2-blocks"), CsvOptions(schema=None))

    assert isinstance(fmt, InspectingFormat)
    assert fmt.inspect(MemorySource(packed)) == "id:int64"
