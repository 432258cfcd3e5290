"""The headers of columnar values: what they state, and which contradict the specification."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden

from extentflow.columnar import ENCODINGS, MOST_ROWS, UNITS, BatchFacts
from extentflow.errors import CorruptRecord

FACTS = BatchFacts(
    encoding="parquet",
    rows=12,
    schema="0123456789abcdef",
    batch="job-0-40",
    group="prices",
    object="s3://shop/in/ä.csv",
    version="v1",
    extent="0-8388608",
    first=40,
    last=400,
    unit="offset",
)
REQUIRED = (
    "extentflow.rows",
    "extentflow.schema",
    "extentflow.batch",
    "extentflow.object",
    "extentflow.version",
    "extentflow.extent",
    "extentflow.first",
    "extentflow.last",
    "extentflow.unit",
)
NUMBERS = ("extentflow.rows", "extentflow.first", "extentflow.last")
NO_NUMBERS = (
    "",
    "-1",
    "+1",
    " 1",
    "1 ",
    "1_0",
    "1.0",
    "1e3",
    "0x10",
    "٣",
    "²",
    "9" * 20,
    "9" * 5000,
)


def headers(**changes: bytes | None) -> list[tuple[str, bytes | None]]:
    """Return the headers of FACTS with changes, by the last part of the name."""
    changed = {f"extentflow.{name}": value for name, value in changes.items()}
    return [(name, changed.get(name, value)) for name, value in FACTS.headers()]


@given(
    encoding=st.sampled_from(ENCODINGS),
    unit=st.sampled_from(UNITS),
    rows=st.integers(1, MOST_ROWS),
    first=st.integers(0, 2**63),
    text=st.text(max_size=20),
)
def test_headers_state_facts_that_can_be_read_again(
    encoding: str, unit: str, rows: int, first: int, text: str
) -> None:
    group = "".join(each for each in text if each.isprintable())
    facts = replace(
        FACTS, encoding=encoding, unit=unit, rows=rows, first=first, group=group, object=text
    )

    assert BatchFacts.of(facts.headers()) == facts


def test_control_characters_that_could_forge_a_line_of_a_message_are_refused(
    golden: Golden,
) -> None:
    facts = replace(FACTS, batch="1\nerror: forged")

    with golden.raises(CorruptRecord, match=r"extentflow.batch.*'1\\n"):
        BatchFacts.of(facts.headers())


def test_an_object_with_half_a_character_in_its_key_is_stated_as_it_is() -> None:
    facts = replace(FACTS, object="s3://shop/\ud800")

    assert BatchFacts.of(facts.headers()) == facts


def test_a_batch_of_all_columns_has_no_header_of_a_group() -> None:
    names = [name for name, _ in replace(FACTS, group="").headers()]

    assert "extentflow.group" not in names
    assert len(names) == len(FACTS.headers()) - 1


def test_numbers_are_written_in_decimal_digits() -> None:
    written = dict(FACTS.headers())

    found = [written[f"extentflow.{name}"] for name in ("rows", "first", "last")]
    assert found == [b"12", b"40", b"400"]


def test_a_record_without_the_encoding_has_no_columnar_value() -> None:
    without = [(name, value) for name, value in FACTS.headers() if name != "extentflow.columnar"]

    assert BatchFacts.of(without) is None
    assert BatchFacts.of([]) is None
    assert BatchFacts.of(headers(columnar=None)) is None


def test_other_headers_are_ignored() -> None:
    more = [("trace", b"\xff"), *headers(), ("extentflow.later", b"1"), ("empty", None)]

    assert BatchFacts.of(more) == FACTS


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_header_is_a_corrupt_record_that_names_it(name: str) -> None:
    lacking = [pair for pair in FACTS.headers() if pair[0] != name]

    with pytest.raises(CorruptRecord, match=name):
        BatchFacts.of(lacking)


@pytest.mark.parametrize("name", REQUIRED)
def test_a_header_without_a_value_is_as_missing(name: str) -> None:
    with pytest.raises(CorruptRecord, match=name):
        BatchFacts.of(headers(**{name.removeprefix("extentflow."): None}))


@pytest.mark.parametrize("name", ["extentflow.columnar", "extentflow.group", *REQUIRED])
def test_a_header_that_is_no_utf8_is_a_corrupt_record_that_names_it(name: str) -> None:
    with pytest.raises(CorruptRecord, match=name):
        BatchFacts.of(headers(**{name.removeprefix("extentflow."): b"1\xff"}))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", NO_NUMBERS, ids=lambda text: ascii(text[:8]))
def test_only_decimal_digits_are_a_number(name: str, text: str) -> None:
    with pytest.raises(CorruptRecord, match=f"{name}=") as caught:
        BatchFacts.of(headers(**{name.removeprefix("extentflow."): text.encode()}))

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("rows", [0, MOST_ROWS + 1, 10**18])
def test_a_batch_has_one_row_or_more_and_no_more_than_arrow_counts(rows: int) -> None:
    with pytest.raises(CorruptRecord, match=f"extentflow.rows={rows}"):
        BatchFacts.of(headers(rows=str(rows).encode()))


@pytest.mark.parametrize("encoding", ["", "orc", "PARQUET", "parquet ", "none"])
def test_an_unknown_encoding_is_a_corrupt_record(encoding: str, golden: Golden) -> None:
    with golden.raises(CorruptRecord):
        BatchFacts.of(headers(columnar=encoding.encode()))


@pytest.mark.parametrize("unit", ["", "rows", "Offset"])
def test_an_unknown_unit_is_a_corrupt_record(unit: str) -> None:
    with pytest.raises(CorruptRecord, match="neither row nor offset"):
        BatchFacts.of(headers(unit=unit.encode()))


def test_the_last_of_repeated_headers_counts() -> None:
    found = BatchFacts.of([("extentflow.rows", b"99"), *FACTS.headers()])

    assert found == FACTS


def test_encrypted_columns_are_a_list_of_names() -> None:
    facts = replace(FACTS, encrypted=("card", 'ä, "b"'))

    assert dict(facts.headers())["extentflow.encrypted"] == '["card","ä, \\"b\\""]'.encode()
    assert BatchFacts.of(facts.headers()) == facts
    assert "extentflow.encrypted" not in dict(FACTS.headers())


@pytest.mark.parametrize("text", [b"", b"card", b"{}", b"[1]", b'"a"', b"[" * 100_000, b"\xff"])
def test_other_lists_of_encrypted_columns_are_refused(text: bytes) -> None:
    with pytest.raises(CorruptRecord, match=r"extentflow\.encrypted"):
        BatchFacts.of([*FACTS.headers(), ("extentflow.encrypted", text)])
