"""Filters skip pages by the page index; one that contradicts something is not used."""

import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.fuzz import thrift
from tests.fuzz.thrift import BINARY, I32, I64, LIST, STRUCT, Field, Value
from tests.laws.laws import Decoded, chunks, decoded
from tests.laws.parquet_cases import PAGE_ROWS, PAGED, paged_table, written
from tests.support.golden import Golden
from tests.unit.formats.parquet.test_parquet_filter import (
    GROUP_ROWS,
    ROWS,
    Read,
    _condition,
    _table,
    connector,
    read,
)

from extentflow.config.specs import Ranges
from extentflow.errors import CorruptObject, StoreUnavailable
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.footer import Footers
from extentflow.formats.parquet.page_index import MOST_PAGES
from extentflow.formats.parquet.parquet_format import Parquet
from extentflow.testing.stores import MemorySource

PAGED_WRITERS: Sequence[dict[str, Any]] = (
    {"data_page_size": 1, "write_batch_size": 17, "use_dictionary": False},
    {"data_page_size": 90, "write_batch_size": 10, "compression": "zstd"},
    {"data_page_size": 200, "write_batch_size": 7, "data_page_version": "2.0"},
    {"data_page_size": 300, "write_batch_size": 13, "compression": "gzip", "store_schema": False},
    {
        "data_page_size": 64,
        "write_batch_size": 9,
        "compression": "lz4",
        "write_page_checksum": True,
    },
)


# Other tests read each codec.
@pytest.mark.parametrize(
    "writer",
    [
        0,
        pytest.param(1, marks=pytest.mark.variant),
        2,
        pytest.param(3, marks=pytest.mark.variant),
        4,
    ],
)
def test_skipped_pages_change_nothing_that_is_delivered_or_counted(writer: int) -> None:
    chance = random.Random(writer)
    options = {"store_schema": True, "write_statistics": True} | PAGED_WRITERS[writer]
    table = _table(chance)
    body = written(table, row_group_size=1_000, write_page_index=True, **options)
    other = written(table, row_group_size=1_000, **options)
    saved = 0
    for _ in range(8):
        config = connector(_condition(chance), negate=chance.random() < 0.6)

        pruned, whole = _read(body, config), read(body, config, prune=False)

        assert pruned.facts == whole.facts, config
        assert len(whole.made.payloads) + whole.made.filtered == ROWS
        saved += _bytes(_read(other, config).reads) - _bytes(pruned.reads)
    assert saved > len(body) // 2


def _read(body: bytes, config: dict[str, str]) -> Read:
    return read(body, config, gap_bytes=0)


def _bytes(reads: Sequence[tuple[int, int]]) -> int:
    return sum(end - start for start, end in reads)


# -- which bytes are read --------------------------------------------------------------------------

WIDE = pa.table(
    {
        "n": pa.array(range(20_000), pa.int64()),
        "text": [f"{n:0100}" for n in range(20_000)],
        "few": [f"value {n % 9}" for n in range(20_000)],
    }
)
PAGES = {"data_page_size": 800, "write_batch_size": 100, "write_statistics": True}
BODY = written(WIDE, write_page_index=True, use_dictionary=["few"], **PAGES)


def _pages_read(reads: Sequence[tuple[int, int]], body: bytes = BODY) -> int:
    group = pq.read_metadata(pa.BufferReader(body)).row_group(0)
    chunk = group.column(group.num_columns - 1)
    end = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
    # The first read is that of the footer.
    return sum(min(last, end) - first for first, last in reads[1:] if first < end)


@pytest.mark.parametrize("condition", ["n = 7777", "n IN (3, 19999)", "n < 10", "n >= 19990"])
def test_only_pages_that_may_hold_a_row_that_passes_are_read(condition: str) -> None:
    found = _read(BODY, connector(condition))

    assert found.facts == read(BODY, connector(condition), prune=False).facts
    assert _pages_read(found.reads) < len(BODY) // 20


def test_pages_that_are_close_to_each_other_are_one_read() -> None:
    found = read(BODY, connector("n IN (1000, 2500)"), gap_bytes=1 << 19)

    assert found.facts == read(BODY, connector("n IN (1000, 2500)"), prune=False).facts
    # Fewer than 512 KiB are between them.
    assert 150_000 < _pages_read(found.reads) < len(BODY) // 3


def test_a_row_group_without_a_page_that_may_pass_is_not_read() -> None:
    holes = pa.table({"n": [n if n < 500 else n + 1_000 for n in range(1_000)], "x": ["y"] * 1_000})
    body = written(holes, write_page_index=True, **(PAGES | {"data_page_size": 1}))

    found = _read(body, connector("n = 700"))

    assert (found.made.payloads, found.made.filtered) == ([], 1_000)
    assert _pages_read(found.reads, body) == 4


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("n >= 0", {}),
        ("n <> 5", {}),
        ("n >= 1500", {}),
        ("few = 'value 1'", {}),
        ("n = 7", {"write_page_index": False}),
    ],
    ids=["all", "all-but-one", "nearly-all", "every-page", "no-index"],
)
def test_row_groups_are_read_as_a_whole_where_pages_save_nothing(
    condition: str, options: dict[str, Any]
) -> None:
    body = written(WIDE, **({"write_page_index": True} | PAGES | options))
    config = connector(condition)

    found, whole = _read(body, config), read(body, config, prune=False)

    assert found.facts == whole.facts
    assert _pages_read(found.reads, body) == _pages_read(whole.reads, body)


def test_small_row_groups_are_not_worth_a_request_for_their_index() -> None:
    config = connector("n = 7")

    found = read(BODY, config, gap_bytes=len(BODY))

    assert found.reads == read(BODY, config, prune=False).reads


@pytest.mark.parametrize(("rows_per_page", "evaluations"), [(2, 2), (100, 2), (2_000, 20)])
def test_tiny_pages_are_not_looked_at(rows_per_page: int, evaluations: int) -> None:
    """Trap: looking at a page of two rows takes longer than reading it."""
    table = pa.table({name: pa.array(range(40_000), pa.int64()) for name in "nxy"})
    options = {"data_page_size": 1, "use_dictionary": False, "write_statistics": True}
    body = written(table, write_page_index=True, write_batch_size=rows_per_page, **options)
    asked: list[object] = []

    def excludes(ranges: Ranges) -> bool:
        asked.append(ranges("n"))
        return _is_below(30_000)(ranges)

    fmt = Parquet(FormatOptions(excludes=excludes), Footers(), 0)
    found = list(chunks(fmt, MemorySource(body), 0, len(body)))

    # Of the file and of the row group, then of its pages.
    assert evaluations <= len(asked) <= evaluations + 2
    assert (sum(each.excluded for each in found) > 0) == (evaluations > 2)


def test_nested_columns_are_read_as_a_whole() -> None:
    table = WIDE.append_column("list", pa.array([[n] for n in range(20_000)]))
    body = written(table, write_page_index=True, use_dictionary=["few"], **PAGES)
    config = connector("n = 7")

    found = _read(body, config)

    assert found.facts == read(body, config, prune=False).facts
    assert _pages_read(found.reads, body) > len(body) // 2
    # Without that column, pages are skipped.
    chosen = _read(body, config | {"select": "n,text"})
    assert [each["n"] for each in chosen.made.values] == [7]
    assert _pages_read(chosen.reads, body) < len(body) // 10


# -- positions -------------------------------------------------------------------------------------


def _by_pages(excludes: Callable[[Ranges], bool], **options: Any) -> Parquet:  # noqa: ANN401
    return Parquet(FormatOptions(excludes=excludes, **options), Footers(), 0, gap_bytes=0)


def _is_below(number: int) -> Callable[[Ranges], bool]:
    def excludes(ranges: Ranges) -> bool:
        known = ranges("n")
        return known is not None and known.high is not None and known.high.as_py() < number

    return excludes


def _is_odd(ranges: Ranges) -> bool:
    known = ranges("page")
    is_known = known is not None and known.low is not None and known.low == known.high
    return is_known and known.low.as_py() % 2 == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("sample", PAGED, ids=lambda sample: sample.name)
def test_decoding_resumes_at_any_row_read_or_skipped(sample: Any) -> None:  # noqa: ANN401
    source = MemorySource(sample.body)
    rows = pq.read_metadata(pa.BufferReader(sample.body)).num_rows
    for position in [1, 15, 16, 17, 31, 32, 399, 400, 416, 417, 431, 432, 433, rows - 1, rows]:
        found = Decoded()
        excluded = 0
        for chunk in chunks(
            _by_pages(_is_odd, batch_rows=11), source, 0, len(sample.body), position
        ):
            found.add(chunk)
            excluded += chunk.excluded

        wanted = [row for row in range(position, rows) if row // PAGE_ROWS % 2 == 0]
        assert found.locations == wanted, position
        assert excluded == rows - position - len(wanted)


def test_a_resumed_extent_reads_no_page_that_a_fresh_one_skips() -> None:
    source = MemorySource(BODY)
    fmt = _by_pages(_is_below(19_000))

    rows = sum(chunk.batch.num_rows for chunk in chunks(fmt, source, 0, len(BODY), 19_900))

    assert rows == 100
    assert _pages_read(source.reads) < len(BODY) // 15


def test_a_fault_in_any_read_surfaces() -> None:
    body = written(paged_table(640), write_page_index=True, data_page_size=1, write_batch_size=16,
                   write_statistics=True)  # fmt: skip
    healthy = MemorySource(body)
    whole = decoded(_by_pages(_is_odd, window_bytes=300), healthy, (0, len(body)))
    assert len(whole.rows) == 320
    for at, end in healthy.reads:
        fault = StoreUnavailable(f"injected at {at}")
        source = MemorySource(body, faults={(at + end) // 2: fault}, version=healthy.version)

        with pytest.raises(StoreUnavailable) as caught:
            decoded(_by_pages(_is_odd, window_bytes=300), source, (0, len(body)))

        assert caught.value is fault


# -- indexes that contradict something -------------------------------------------------------------

Change = Callable[[list[Field]], list[Field]]


def reindexed(
    body: bytes, leaf: int, *, column: Change | None = None, offset: Change | None = None
) -> bytes:
    """Return a file with one row group, and other indexes of a leaf column."""
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    footer = thrift.read(body, start)[0]
    group = dict(footer)[4][1][0][1]
    chunk = dict(group)[1][1][leaf][1]
    places = dict(chunk)
    added = b""
    for change, number in ((offset, 4), (column, 6)):
        if change is not None:
            index = thrift.write(change(thrift.read(body, places[number][1])[0]))
            places[number] = (I64, start + len(added))
            places[number + 1] = (I32, len(index))
            added += index
    chunk[:] = sorted(places.items())
    changed = thrift.write(footer)
    return body[:start] + added + changed + len(changed).to_bytes(4, "little") + b"PAR1"


def _locations(change: Callable[[list[list[int]]], object]) -> Change:
    """Change the pages of an offset index: offset, size, first row."""

    def changed(fields: list[Field]) -> list[Field]:
        pages = [[value for _, (_, value) in page] for _, page in dict(fields)[1][1]]
        change(pages)
        kinds = (I64, I32, I64)
        made = [
            (STRUCT, [(n, (kind, value)) for n, kind, value in zip((1, 2, 3), kinds, page)])  # noqa: B905
            for page in pages
        ]
        return [(1, (LIST, made)), *fields[1:]]

    return changed


def _lists(**others: Callable[[Any], Any]) -> Change:
    """Change lists of a column index by their names."""
    numbers = {"null_pages": 1, "least": 2, "greatest": 3, "order": 4, "null_counts": 5}

    def changed(fields: list[Field]) -> list[Field]:
        found: dict[int, Value] = dict(fields)
        for name, change in others.items():
            kind, content = found[numbers[name]]
            found[numbers[name]] = (kind, change(content))
        return sorted(found.items())

    return changed


def _set(page: int, place: int, value: int) -> Change:
    def change(pages: list[list[int]]) -> None:
        pages[page][place] += value

    return _locations(change)


def _flags(page: int, value: int) -> Callable[[Any], Any]:
    return lambda flags: [*flags[:page], (flags[page][0], value), *flags[page + 1 :]]


def _long(page: int, value: int) -> Callable[[Any], Any]:
    return lambda found: [
        *found[:page], (BINARY, value.to_bytes(8, "little", signed=True)), *found[page + 1 :]
    ]  # fmt: skip


CONTRADICTIONS: dict[str, dict[str, Change]] = {
    "no-page": {"offset": _locations(lambda pages: pages.clear())},
    "a-page-fewer": {"offset": _locations(lambda pages: pages.pop())},
    "a-page-more": {"offset": _locations(lambda pages: pages.append([9**9, 5, 19_999]))},
    "first-row-behind-zero": {"offset": _set(0, 2, 1)},
    "rows-do-not-rise": {"offset": _set(5, 2, -5_000)},
    "rows-behind-the-group": {"offset": _set(-1, 2, 90_000)},
    "pages-out-of-order": {"offset": _locations(lambda pages: pages.reverse())},
    "pages-overlap": {"offset": _set(5, 0, -100)},
    "a-gap-between-pages": {"offset": _set(5, 0, 100)},
    "before-its-chunk": {"offset": _set(0, 0, -(1 << 40))},
    "size-below-zero": {"offset": _set(5, 1, -(1 << 30))},
    "behind-its-chunk": {"offset": _set(-1, 1, 1 << 20)},
    "more-null-pages": {"column": _lists(null_pages=lambda flags: [*flags, flags[0]])},
    "fewer-bounds": {"column": _lists(least=lambda found: found[1:])},
    "fewer-null-counts": {"column": _lists(null_counts=lambda found: found[1:])},
    "a-null-page-without-nulls": {"column": _lists(null_pages=_flags(5, 1))},
    "all-null-but-no-null-page": {"column": _lists(null_counts=_flags(5, 100))},
    "nulls-below-zero": {"column": _lists(null_counts=_flags(5, -1))},
    "an-unknown-order": {"column": _lists(order=lambda _: 7)},
    "another-order": {"column": _lists(order=lambda _: 2)},
    "bounds-against-their-order": {"column": _lists(least=_long(9, -5))},
}


def _is_read_as_a_whole(
    body: bytes, caplog: pytest.LogCaptureFixture, condition: str = "n = 7777"
) -> bool:
    """Whether rows are those without an index, and a warning names the object and the index."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found = _read(body, connector(condition))
    assert found.facts == read(body, connector(condition), prune=False).facts
    # Of the object, however many row groups it has.
    (message,) = [each.getMessage() for each in caplog.records]
    assert message.startswith("s3://")
    assert "read as a whole" in message
    return _pages_read(found.reads, body) > len(body) // 2


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_an_index_that_contradicts_itself_or_the_footer_is_not_used(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Trap: rows of pages that an index leaves out, or counts wrongly, would be lost or doubled."""
    assert _is_read_as_a_whole(reindexed(BODY, 0, **CONTRADICTIONS[name]), caplog)


@pytest.mark.parametrize("leaf", [1, 2], ids=["other", "dictionary"])
def test_an_empty_index_of_a_column_that_is_not_compared_is_not_used(
    leaf: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As arrow-rs 42 writes it of a column of nulls."""
    body = reindexed(BODY, leaf, offset=_locations(lambda pages: pages.clear()))

    assert _is_read_as_a_whole(body, caplog)


def test_sizes_of_pages_without_their_headers_are_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As parquet-go writes them."""
    body = BODY
    for leaf in (1, 0):

        def shorter(pages: list[list[int]]) -> None:
            for page in pages:
                page[1] -= 20

        body = reindexed(body, leaf, offset=_locations(shorter))

    assert _is_read_as_a_whole(body, caplog)


def test_a_contradiction_in_each_row_group_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    options = PAGES | {"row_group_size": 5_000, "use_dictionary": ["few"]}
    body = bytearray(written(WIDE, write_page_index=True, **options))
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    for _, group in dict(thrift.read(bytes(body), start)[0])[4][1]:
        body[dict(dict(group)[1][1][0][1])[6][1]] = 0xFF

    # Fails unless there is one warning.
    _is_read_as_a_whole(bytes(body), caplog, "n IN (7, 7777, 17777)")


@pytest.mark.parametrize("leaf", [0, 1, 2], ids=["filtered", "other", "dictionary"])
@pytest.mark.parametrize("place", [1, 2], ids=["size", "rows"])
def test_a_page_that_is_not_the_one_in_the_index_is_read_as_a_whole_if_it_is_first(
    leaf: int, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No row of the row group has been skipped or delivered before."""
    body = reindexed(BODY, leaf, offset=_locations(_moved_at_7777(place)))

    assert _is_read_as_a_whole(body, caplog)


@pytest.mark.parametrize("place", [1, 2], ids=["size", "rows"])
def test_a_page_that_is_not_the_one_in_the_index_is_refused(place: int, golden: Golden) -> None:
    """Trap: consistent with itself, an index moves the rows of a column against the others."""
    body = reindexed(BODY, 1, offset=_locations(_moved_at_7777(place)))

    with golden.raises(CorruptObject, match="--again"):
        _read(body, connector("n > 1000 AND n < 5000 OR n = 7777"))


@pytest.mark.parametrize("place", [1, 2], ids=["size", "rows"])
def test_rows_delivered_without_a_gap_before_such_a_page_are_no_reason_to_refuse_it(
    place: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Their pages are all pages from the start of the row group on."""
    body = reindexed(BODY, 1, offset=_locations(_moved_at_7777(place)))

    assert _is_read_as_a_whole(body, caplog, "n < 5000 OR n = 7777")


def _moved_at_7777(place: int) -> Callable[[list[list[int]]], None]:
    def moved(pages: list[list[int]]) -> None:
        at = next(at for at, page in enumerate(pages) if page[2] > 7_777) - 1
        pages[at][place] -= 3
        if place == 1:
            pages[at + 1][0] -= 3
            pages[at + 1][1] += 3

    return moved


# By name: the leaf column whose index is changed, and how.
MISLEADING: dict[str, tuple[int, dict[str, Change]]] = {
    **{name: (0, changes) for name, changes in CONTRADICTIONS.items()},
    **{
        f"{kind}-of-{column}": (leaf, {"offset": _locations(_moved_at_7777(place))})
        for leaf, column in enumerate(WIDE.column_names)
        for place, kind in ((1, "size"), (2, "rows"))
    },
    "until-another-page": (1, {"offset": _locations(lambda pages: _shifted(pages, 1_000, 9_000))}),
}


def _shifted(pages: list[list[int]], first: int, last: int) -> None:
    for page in pages:
        page[2] += 3 * (first < page[2] < last)


@dataclass(frozen=True)
class _Yielded:
    """The rows from a position on, with their ordinals, and the error at the end, if any."""

    rows: pa.Table
    positions: list[int]
    excluded: int
    error: str

    def behind(self, position: int) -> pa.Table:
        return self.rows.filter(pc.greater_equal(self.rows["ordinal"], position))


def _yielded(body: bytes, kept: Sequence[tuple[int, int]], position: int = 0) -> _Yielded:
    def excludes(ranges: Ranges) -> bool:
        known = ranges("n")
        if known is None or known.low is None or known.high is None:
            return False
        low, high = known.low.as_py(), known.high.as_py()
        return all(high < first or low > last for first, last in kept)

    batches, excluded, error = [ORDERED.slice(0, 0)], 0, ""
    positions: list[int] = []
    try:
        for chunk in chunks(_by_pages(excludes), MemorySource(body), 0, len(body), position):
            ordinals = pa.array(chunk.locations, pa.int64())
            batches.append(pa.table(chunk.batch).append_column("ordinal", ordinals))
            positions.append(chunk.next_position)
            excluded += chunk.excluded
    except CorruptObject as exc:
        error = str(exc)
    return _Yielded(pa.concat_tables(batches), positions, excluded, error)


ORDERED = WIDE.append_column("ordinal", pa.array(range(20_000), pa.int64()))
RUNS = {
    "first": [(7_750, 7_900)],
    "second": [(1_050, 1_050), (7_777, 7_777)],
    "behind-all-rows-before": [(0, 5_000), (7_777, 7_777)],
    "behind-a-gap": [(2_000, 4_990), (7_777, 7_777), (15_000, 15_100)],
}
# With these, a page shows that the index is wrong, and those that are read after it do not.
RUNS_OF = {"until-another-page": ("second", "behind-all-rows-before")}


# One size and one first row remain for `make test`, of other columns.
FURTHER = ("size-of-n", "rows-of-few", "rows-of-text")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.variant if name in FURTHER else ())
        for name in MISLEADING
    ],
)
def test_a_resumed_read_yields_what_a_fresh_read_yields_behind_its_position(name: str) -> None:
    """Trap: a resumed read does not meet the page that made a fresh one distrust the index."""
    leaf, changes = MISLEADING[name]
    body = reindexed(BODY, leaf, **changes)
    for runs in RUNS_OF.get(name, ("first",) if name in CONTRADICTIONS else tuple(RUNS)):
        kept = RUNS[runs]
        fresh = _yielded(body, kept)
        assert fresh.rows == ORDERED.take(fresh.rows["ordinal"])
        if not fresh.error:
            assert fresh.rows.num_rows + fresh.excluded == 20_000

        for committed in fresh.positions:
            for position in {max(1, committed - 1), committed}:
                resumed = _yielded(body, kept, position)

                assert resumed.rows == fresh.behind(position), (runs, position)
                assert resumed.error == fresh.error, (runs, position)
                assert resumed.positions[-1:] in ([], fresh.positions[-1:]), (runs, position)


def test_an_index_that_nothing_contradicts_has_a_setting_that_ignores_it() -> None:
    """What `guarantees.md` says: wrong first rows of pages that are all skipped show nowhere."""
    moved = _locations(lambda pages: _shifted(pages, 7_000, 9_000))
    body, condition = reindexed(BODY, 1, offset=moved), "n = 7777"

    trusted = _read(body, connector(condition)).made.values
    ignored = _read(body, connector(condition) | {"parquet.page.index": "false"}).made.values

    assert [int(each["text"]) for each in trusted] == [7_774]
    assert [int(each["text"]) for each in ignored] == [7_777]


def test_every_truncated_index_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    start = len(BODY) - 8 - int.from_bytes(BODY[-8:-4], "little")
    footer = thrift.read(BODY, start)[0]
    chunk = dict(dict(footer)[4][1][0][1])[1][1][0][1]
    for number in (5, 7):
        whole = dict(chunk)[number][1]
        for length in (1, 2, whole // 2, whole - 1, whole + 1):
            found = [(n, (kind, length if n == number else v)) for n, (kind, v) in chunk]
            kept, chunk[:] = list(chunk), found
            changed = thrift.write(footer)
            chunk[:] = kept
            body = BODY[:start] + changed + len(changed).to_bytes(4, "little") + b"PAR1"

            assert _is_read_as_a_whole(body, caplog)


@pytest.mark.parametrize("offset", [-5, 0, 3, 1 << 40])
def test_an_index_outside_the_object_is_not_used(
    offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    start = len(BODY) - 8 - int.from_bytes(BODY[-8:-4], "little")
    footer = thrift.read(BODY, start)[0]
    chunk = dict(dict(footer)[4][1][0][1])[1][1][0][1]
    chunk[:] = [(n, (kind, offset if n == 4 else v)) for n, (kind, v) in chunk]
    changed = thrift.write(footer)
    body = BODY[:start] + changed + len(changed).to_bytes(4, "little") + b"PAR1"

    assert _is_read_as_a_whole(body, caplog)


def test_an_index_of_too_many_pages_is_not_used() -> None:
    """Trap: a list says how long it is before its elements are read."""

    def many(pages: list[list[int]]) -> None:
        pages.extend([[0, 1, 1]] * MOST_PAGES)

    body = reindexed(BODY, 0, offset=_locations(many))
    config = connector("n = 7777")

    assert _read(body, config).facts == read(body, config, prune=False).facts


def test_bounds_that_are_no_values_exclude_nothing() -> None:
    """As with statistics in the footer."""
    column = _lists(
        least=lambda found: [(BINARY, b"abc")] * len(found),
        greatest=lambda found: [(BINARY, b"")] * len(found),
        order=lambda _: 0,
    )
    body = reindexed(BODY, 0, column=column)
    config = connector("n = 7777")

    found = _read(body, config)

    assert found.facts == read(body, config, prune=False).facts
    assert _pages_read(found.reads) > len(BODY) // 2


def test_bounds_within_their_limits_decide_although_they_are_wrong() -> None:
    """As with statistics in the footer: nothing shows that they are."""
    far = {"least": _long(9, 9_000), "greatest": _long(9, 9_000), "order": lambda _: 0}
    body = reindexed(BODY, 0, column=_lists(**far))

    found = _read(body, connector("n >= 0 AND n < 9000")).made

    assert 0 < 9_000 - len(found.payloads) <= 200
    assert len(found.payloads) + found.filtered == 20_000


# -- damaged pages ---------------------------------------------------------------------------------


def test_damage_in_a_page_that_is_read_loses_the_rows_that_it_loses_without_an_index() -> None:
    checked = {"write_page_checksum": True, "use_dictionary": False}
    body = bytearray(written(WIDE, write_page_index=True, **(PAGES | checked)))
    group = pq.read_metadata(pa.BufferReader(bytes(body))).row_group(0)
    text = group.column(1)
    body[text.data_page_offset + text.total_compressed_size // 2 + 50] ^= 1

    def kept(config: dict[str, str]) -> Iterator[tuple[list[Any], int, list[int]]]:
        for prune in (True, False):
            made = read(bytes(body), config, prune=prune).made
            found = [each["n"] for each in made.values]
            yield found, made.filtered, [bad.location for chunk in made.chunks for bad in chunk.bad]

    pruned, whole = kept(connector("n >= 9900 AND n < 10500"))

    assert pruned[0] == whole[0]
    assert pruned[2] == whole[2]
    assert 9_900 <= pruned[2][0] < 10_100


def test_a_row_group_with_a_damaged_index_does_not_change_others() -> None:
    body = written(
        WIDE, write_page_index=True, row_group_size=10_000, use_dictionary=["few"], **PAGES
    )
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    footer = thrift.read(body, start)[0]
    chunk = dict(dict(footer)[4][1][1][1])[1][1][0][1]
    damaged = bytearray(body)
    damaged[dict(chunk)[6][1]] = 0xFF
    source = MemorySource(bytes(damaged))

    found = list(chunks(_by_pages(_is_below(9_000)), source, 0, len(body)))

    assert sum(each.excluded for each in found) > 8_500
    assert sum(each.batch.num_rows + each.excluded for each in found) == 20_000
    assert sum(each.batch.num_rows for each in found if each.next_position > 10_000) == 10_000


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(more, marks=pytest.mark.variant) for more in (1, 2))]
)
def test_a_damaged_index_changes_nothing_but_what_may_pass(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is changed in an index, the rows that are delivered are rows of the table."""
    chance = random.Random(seed)
    table = paged_table(1_000)
    options = {"data_page_size": 1, "write_batch_size": 16, "write_statistics": True}
    body = written(table, write_page_index=True, **options)
    rows = table.to_pylist()
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    group = pq.read_metadata(pa.BufferReader(body)).row_group(0)
    last = group.column(group.num_columns - 1)
    first = last.data_page_offset + last.total_compressed_size
    for _ in range(60):
        damaged = bytearray(body)
        damaged[chance.randrange(first, start)] = chance.randrange(256)
        try:
            found = decoded(_by_pages(_is_odd), MemorySource(bytes(damaged)), (0, len(body)))
        except CorruptObject:
            continue
        assert found.rows == [rows[location] for location in found.locations]
        assert found.locations == sorted(set(found.locations))
        assert not found.bad
    assert len(caplog.records) > 5


@pytest.mark.parametrize("window_bytes", [500, 1 << 20])
def test_threads_that_prefetch_parts_change_nothing(window_bytes: int) -> None:
    options = FormatOptions(excludes=_is_odd, window_bytes=window_bytes, batch_rows=50)
    for sample in PAGED:
        source = MemorySource(sample.body)

        found = decoded(Parquet(options, Footers(), 3, gap_bytes=0), source, (0, len(sample.body)))

        assert found.rows == list(sample.rows)
        assert found.locations == list(sample.locations or ())


def test_the_files_of_these_tests_have_pages() -> None:
    assert GROUP_ROWS < ROWS
    for sample in PAGED:
        source = MemorySource(sample.body)
        found = list(chunks(_by_pages(_is_odd), source, 0, len(sample.body)))
        assert sum(chunk.excluded for chunk in found) + len(sample.rows) == found[-1].next_position
        assert sum(chunk.excluded for chunk in found) > 400


# -- files of parquet-mr ---------------------------------------------------------------------------

SPARK = Path("tests/unit/formats/parquet/files/paged-spark.parquet")
SPARK_CONDITIONS = [
    "row IN (5, 700)",
    "i = 100",
    "often IS NULL AND row < 400",
    "often IS NOT NULL AND often < 30",
    "s >= 'é000200' AND s < 'é000230'",
    "d = 5.125 AND row < 200",
    "day > '2001-10-20' OR day < '2001-01-03'",
    "NOT b AND row > 1100",
    "f < 10.5",
]


def test_files_of_spark_have_the_rows_that_duckdb_finds() -> None:
    """One row group of 1,200 rows, pages of 40, dictionaries, an INT96 column."""
    body, names = SPARK.read_bytes(), "row,i,often,s,d,day,b,f,few"
    # Those of the column that has an INT96 timestamp are read, too, unless it is not selected.
    whole = _pages_read(read(body, connector("row >= 0")).reads, body)

    for condition in SPARK_CONDITIONS:
        found = _read(body, connector(condition, select=names))

        wanted = duckdb.read_parquet(str(SPARK)).filter(condition).order("row").project("row")
        assert [each["row"] for each in found.made.values] == [n for (n,) in wanted.fetchall()]
        assert len(found.made.payloads) + found.made.filtered == 1_200
        assert _pages_read(found.reads, body) < whole * 0.7, condition
    assert _pages_read(_read(body, connector("row = 5")).reads, body) >= whole
