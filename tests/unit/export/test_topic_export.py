"""Topics that are written into files: every record once, wherever a process ends."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.columnar_records import as_parquet, columnar, numbers
from tests.support.golden import Golden

from extentflow.errors import Conflict, CorruptRecord, Misconfigured, PositionGone
from extentflow.export.partition_files import Claim, ExportedFile, ExportOptions, claim_name
from extentflow.export.topic_export import TopicExport
from extentflow.kafka.reading import ConsumedRecord, Place, PolledRecords
from extentflow.retry import Clock
from extentflow.testing.folders import MemoryFolder

BY_SIZE = ExportOptions(bytes=400, once=True)


class Killed(BaseException):
    """The process ends here."""


@dataclass
class ListedSource:
    """A topic in memory: the records of each partition, from `lows` on."""

    records: Mapping[int, Sequence[ConsumedRecord]]
    lows: dict[int, int] = field(default_factory=dict)
    # Where they are not those of the last records: markers and aborted records follow.
    highs: dict[int, int] = field(default_factory=dict)
    at_once: int = 3
    id: str = "one"
    _reading: dict[int, int] = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)

    def partitions(self, _topic: str) -> int:
        return len(self.records)

    def watermarks(self, place: Place) -> tuple[int, int]:
        partition = place[1]
        found = self.records[partition]
        high = self.highs.get(partition, 0)
        return self.lows.get(partition, 0), max(high, found[-1].offset + 1 if found else 0)

    def read_from(self, place: Place, begin: int) -> None:
        partition = place[1]
        self._reading[partition] = begin
        self._ended.discard(partition)

    def poll(self, _most: int, _seconds: float) -> PolledRecords:
        found = PolledRecords()
        for partition, begin in sorted(self._reading.items()):
            if begin < self.lows.get(partition, 0):
                found.lost["orders", partition] = begin
                continue
            behind = [one for one in self.records[partition] if one.offset >= begin]
            found.records += [(("orders", partition), one) for one in behind[: self.at_once]]
            if behind:
                self._reading[partition] = behind[: self.at_once][-1].offset + 1
            if len(behind) <= self.at_once and partition not in self._ended:
                self._ended.add(partition)
                found.ended["orders", partition] = self.watermarks(("orders", partition))[1]
        return found


def three_partitions() -> ListedSource:
    """Offsets with gaps, as transactions leave them."""
    return ListedSource(
        {
            partition: [numbers(offset, partition=partition) for offset in range(12) if offset % 5]
            for partition in range(3)
        }
    )


def export(
    source: ListedSource,
    target: MemoryFolder,
    options: ExportOptions = BY_SIZE,
    *,
    stop: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
) -> list[ExportedFile]:
    exported = TopicExport(
        "orders",
        source,
        target,
        options,
        stop,
        lambda: source.id,
        clock or Clock(),
        threads=1,
    )
    return list(exported.run())


def files_in(target: MemoryFolder) -> dict[str, bytes]:
    return {name: content for name, content in target.files.items() if "/." not in name}


def rows_in(target: MemoryFolder) -> list[int]:
    found = (pq.read_table(io.BytesIO(content))["n"] for content in files_in(target).values())
    return sorted(chain.from_iterable(column.to_pylist() for column in found))


def rows_of(source: ListedSource) -> list[int]:
    records = chain.from_iterable(source.records.values())
    found = (pq.read_table(io.BytesIO(one.value or b""))["n"] for one in records)
    return sorted(chain.from_iterable(column.to_pylist() for column in found))


def names(target: MemoryFolder, partition: int = 0) -> list[str]:
    return list(target.below(f"orders/{partition}").names())


def test_files_are_named_after_the_offsets_that_they_hold_and_hold_each_row_once() -> None:
    source, target = three_partitions(), MemoryFolder()

    files = export(source, target)

    assert rows_in(target) == rows_of(source)
    assert {file.uri.removeprefix("memory://") for file in files} == files_in(target).keys()
    assert names(target)[0] == "00000000000000000001-00000000000000000003.parquet"
    assert len(names(target)) > 2
    assert all(file.size_bytes <= 3000 and file.values >= 1 for file in files)


def test_another_run_continues_behind_the_last_file() -> None:
    source, target = three_partitions(), MemoryFolder()
    begun = ListedSource({one: records[:4] for one, records in source.records.items()})

    export(begun, target)
    before = dict(target.files)
    export(source, target)
    again = export(source, target)

    assert before.items() <= target.files.items()
    assert rows_in(target) == rows_of(source)
    assert again == []


def test_a_process_may_end_before_or_after_every_call() -> None:
    expected = MemoryFolder()
    calls: list[str] = []
    expected.on_call = lambda name, _when: calls.append(name)
    export(three_partitions(), expected)

    for last in range(len(calls)):
        target = MemoryFolder()
        kill_at(target, last)
        with pytest.raises(Killed):
            export(three_partitions(), target)
        target.on_call = lambda _name, _when: None
        export(three_partitions(), target)

        assert target.files == expected.files, f"killed at call {last}"


@pytest.mark.parametrize("seed", range(40))
def test_processes_that_end_anywhere_one_after_the_other_leave_the_same_files(seed: int) -> None:
    random, expected, target = Random(seed), MemoryFolder(), MemoryFolder()
    export(three_partitions(), expected)

    for _ in range(6):
        kill_at(target, random.randrange(60))
        try:
            export(three_partitions(), target)
        except Killed:
            continue
    target.on_call = lambda _name, _when: None
    export(three_partitions(), target)

    assert target.files == expected.files


def kill_at(target: MemoryFolder, last: int) -> None:
    """End the process at a call; none of it runs on in another thread, either."""
    count = 0

    def on_call(_name: str, _when: str) -> None:
        nonlocal count
        count += 1
        if count > last:
            raise Killed

    target.on_call = on_call


@pytest.mark.parametrize(
    "seed",
    [*range(30), *(pytest.param(more, marks=pytest.mark.variant) for more in range(30, 60))],
)
def test_of_two_writers_with_other_files_each_record_is_written_once(seed: int) -> None:
    """One writer runs whole at any call of the other one, in whose middle it may find a claim."""
    random, source, target = Random(seed), three_partitions(), MemoryFolder()
    one, other = (ExportOptions(bytes=random.randrange(100, 900), once=True) for _ in range(2))
    target.on_call = exporting_at(target, random.randrange(90), other)

    with suppress(Conflict):
        export(source, target, one)
    target.on_call = lambda _name, _when: None
    export(source, target)

    assert rows_in(target) == rows_of(source)


def exporting_at(
    target: MemoryFolder, at: int, options: ExportOptions
) -> Callable[[str, str], None]:
    count = 0

    def on_call(_name: str, _when: str) -> None:
        nonlocal count
        count += 1
        if count > at:
            target.on_call = lambda _name, _when: None
            export(three_partitions(), target, options)

    return on_call


def test_the_second_of_two_writers_ends_with_an_error_that_names_the_file(golden: Golden) -> None:
    target = MemoryFolder()
    claim = Claim(1, 3, "other").to_bytes()

    def on_call(name: str, when: str) -> None:
        if (name, when) == ("create", "before"):
            target.files[f"orders/0/{claim_name(0)}"] = claim

    target.on_call = on_call

    with golden.raises(Conflict):
        export(ListedSource({0: [numbers(1)]}), target)


def test_a_claim_of_an_earlier_process_decides_what_the_next_file_holds() -> None:
    records = [numbers(offset) for offset in range(8)]
    target = MemoryFolder()
    target.files[f"orders/0/{claim_name(0)}"] = Claim(0, 5, "earlier").to_bytes()

    export(ListedSource({0: records}), target, ExportOptions(bytes=1, once=True))

    assert names(target)[0] == "00000000000000000000-00000000000000000005.parquet"
    assert names(target)[1] == "00000000000000000006-00000000000000000006.parquet"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("part-0.parquet", r"has 1 file of other programs \(part-0.parquet\)"),
        ("a/00000000000000000000-00000000000000000000.parquet", "other programs"),
        ("00000000000000000000-00000000000000000004.parquet", "overlaps"),
        ("00000000000000000009-00000000000000000008.parquet", "overlaps"),
        (".next-00000000000000000099", "behind a file that is not there"),
        (".passed-00000000000000000099-00000000000000000120", "behind a file that is not there"),
        (".next-00000000000000000005", "no claim of this version"),
    ],
)
def test_other_names_in_a_folder_are_an_error(name: str, why: str) -> None:
    target = MemoryFolder()
    target.files["orders/0/00000000000000000002-00000000000000000004.parquet"] = b""
    target.files[f"orders/0/{name}"] = b"?"

    with pytest.raises(Misconfigured, match=why):
        export(ListedSource({0: [numbers(9)]}), target)


def test_records_that_retention_deleted_are_an_error_with_a_way_out(golden: Golden) -> None:
    source = ListedSource({0: [numbers(offset) for offset in range(9)]})
    target = MemoryFolder()
    export(ListedSource({0: source.records[0][:3]}), target)
    source.lows[0] = 5

    with golden.raises(PositionGone, match="--accept-gap"):
        export(source, target)
    export(source, target, replace(BY_SIZE, accept_gap=True))

    assert names(target)[0] == "00000000000000000000-00000000000000000002.parquet"
    assert names(target)[1].startswith("00000000000000000005-")


def test_records_that_are_deleted_during_a_run_are_an_error_and_end_a_file() -> None:
    records = [numbers(offset) for offset in range(9)]

    def source() -> ListedSource:
        found = ListedSource({0: records})
        original = found.poll

        def poll(_most: int, _seconds: float) -> PolledRecords:
            polled = original(_most, _seconds)
            found.lows[0] = 5
            return polled

        found.poll = poll  # type: ignore[method-assign]
        return found

    refusing, accepting = MemoryFolder(), MemoryFolder()

    with pytest.raises(PositionGone, match=r"offsets 3 to 4 .*--accept-gap"):
        export(source(), refusing, ExportOptions(once=True))
    export(source(), accepting, ExportOptions(once=True, accept_gap=True))

    assert names(refusing) == ["00000000000000000000-00000000000000000002.parquet"]
    assert names(accepting) == [
        "00000000000000000000-00000000000000000002.parquet",
        "00000000000000000005-00000000000000000008.parquet",
    ]


def test_a_topic_that_was_created_again_is_an_error(golden: Golden) -> None:
    target = MemoryFolder()
    export(ListedSource({0: [numbers(offset) for offset in range(9)]}), target)

    with golden.raises(Misconfigured, match="offset 1"):
        export(ListedSource({0: [numbers(0)]}), target)


@pytest.mark.parametrize("noted", [True, False])
def test_records_that_retention_deleted_before_the_first_file_are_an_error(
    *, noted: bool, golden: Golden
) -> None:
    """Without the note, because an earlier version wrote the files of the other partition."""
    source, target = three_partitions(), MemoryFolder()
    export(ListedSource({0: source.records[0], 1: [], 2: []}), target)
    if not noted:
        del target.files["orders/.topic"]
    source.lows[1] = 6

    with golden.raises(PositionGone, match="offsets 0 to 5"):
        export(source, target)
    export(source, target, replace(BY_SIZE, accept_gap=True))

    assert names(target, 1)[0].startswith("00000000000000000006-")


def test_records_that_were_deleted_before_the_first_start_are_no_gap() -> None:
    source, target = three_partitions(), MemoryFolder()
    source.lows |= {0: 6, 1: 12}

    export(source, target, stop=lambda: True)
    export(source, target)
    source.lows[0] = 7

    assert names(target)[0].startswith("00000000000000000006-")
    assert export(source, target) == []


@pytest.mark.parametrize("records", [[0, 1, 2], [2, 7], []])
def test_markers_and_aborted_records_that_were_read_and_deleted_are_no_gap(
    records: list[int],
) -> None:
    source = ListedSource({0: [numbers(offset) for offset in records]}, highs={0: 9})
    target = MemoryFolder()
    export(source, target)
    source.lows[0], source.highs[0] = 9, 11  # two more markers

    export(source, target)
    source.records = {0: [*source.records[0], numbers(11)]}
    source.lows[0] = 11
    export(source, target)

    assert rows_in(target) == rows_of(source)
    source.lows[0], source.highs[0] = 14, 14
    with pytest.raises(PositionGone, match="offsets 12 to 13"):
        export(source, target)


def test_offsets_that_an_exporter_did_not_read_are_never_stated_as_read() -> None:
    """It ended before it read them, or they were added during a run with an end."""
    source = ListedSource({0: [numbers(0), numbers(1)]}, highs={0: 3})
    stopped, target, polled = MemoryFolder(), MemoryFolder(), source.poll

    def poll(_most: int, _seconds: float) -> PolledRecords:
        source.records = {0: [numbers(0), numbers(1), numbers(3)]}
        source.highs[0] = 9
        return polled(_most, _seconds)

    export(source, stopped, stop=lambda: True)
    source.poll = poll  # type: ignore[method-assign]
    export(source, target)
    source.lows[0] = 9

    with pytest.raises(PositionGone, match="offsets 0 to 8"):
        export(source, stopped)
    with pytest.raises(PositionGone, match="offsets 3 to 8"):
        export(source, target)


@pytest.mark.parametrize("low", [5, 6])
def test_an_accepted_gap_is_accepted_once(low: int) -> None:
    """Also where no record follows the gap."""
    source = ListedSource({0: [numbers(0)]}, lows={0: 0}, highs={0: 2})
    target = MemoryFolder()
    export(source, target)
    source.lows[0], source.highs[0] = low, 6

    export(source, target, replace(BY_SIZE, accept_gap=True))

    assert export(source, target) == []
    assert [one for one in names(target) if one.startswith(".")] == [
        ".passed-00000000000000000001-00000000000000000005"
    ]


def test_a_run_without_an_end_states_what_follows_the_files_once_in_a_while() -> None:
    source, target = ListedSource({0: [numbers(0)]}, highs={0: 2}), MemoryFolder()
    now, stated = 0.0, list[tuple[float, str]]()

    def stop() -> bool:
        nonlocal now
        now += 10.0
        source.highs[0] += 1
        source._ended.clear()
        found = [(now, one) for one in names(target) if one.startswith(".passed")]
        stated.extend(one for one in found if one[1] not in [name for _, name in stated])
        return now > 70.0

    options = ExportOptions(seconds=20.0)
    export(source, target, options, stop=stop, clock=Clock(monotonic=lambda: now))

    assert len(stated) == 3
    assert {name[8:28] for _, name in stated} == {f"{1:020}"}
    assert [one[28:] for one in names(target) if one.startswith(".")] == [f"-{8:020}"]


@pytest.mark.parametrize("when", ["before a run", "during a run"])
def test_a_topic_that_was_created_again_with_as_many_records_is_an_error(
    when: str, golden: Golden
) -> None:
    source, target = three_partitions(), MemoryFolder()
    if when == "before a run":
        export(ListedSource({one: records[:4] for one, records in source.records.items()}), target)
        source.id = "another"
    else:
        original = source.poll

        def poll(_most: int, _seconds: float) -> PolledRecords:
            source.id = "another"
            return original(_most, _seconds)

        source.poll = poll  # type: ignore[method-assign]
    before = files_in(target)

    with golden.raises(Misconfigured, match="its id was one, and is another now"):
        export(source, target)

    assert files_in(target) == before


def test_a_target_without_files_takes_a_topic_that_was_created_again() -> None:
    source, target = three_partitions(), MemoryFolder()
    former = ListedSource({one: [] for one in source.records}, highs={0: 5, 1: 20})
    export(former, target)
    source.id = "another"

    export(source, target)

    assert json.loads(target.read("orders/.topic"))["id"] == "another"
    assert rows_in(target) == rows_of(source)


@pytest.mark.parametrize("content", [b"?", b"[]", b'{"id":"one"}', b'{"id":"one","first":[0]}'])
def test_a_note_that_cannot_be_read_is_an_error(content: bytes) -> None:
    target = MemoryFolder({"orders/.topic": content})

    with pytest.raises(Misconfigured, match=r"memory://orders/.topic does not state"):
        export(three_partitions(), target)


def test_values_before_a_corrupt_one_are_written_and_none_after_it() -> None:
    records = [numbers(0), numbers(1), columnar(2, b"nonsense", 3), numbers(3)]
    target = MemoryFolder()

    with pytest.raises(CorruptRecord, match=r"topic orders\[0\] offset 2: "):
        export(ListedSource({0: records}), target)

    assert names(target) == ["00000000000000000000-00000000000000000001.parquet"]


def test_another_schema_begins_another_file() -> None:
    other = as_parquet(pa.table({"n": pa.array([1], pa.int32())}))
    records = [numbers(0), columnar(1, other, 1), numbers(2), numbers(3, compression="GZIP")]
    target = MemoryFolder()

    export(ListedSource({0: records}), target, ExportOptions(once=True))

    assert [name[15:20] + name[36:41] for name in names(target)] == [
        "0000000000",
        "0000100001",
        "0000200003",
    ]


def test_a_file_is_closed_when_it_is_old_and_all_are_when_reading_stops() -> None:
    now, polls = 0.0, 0
    source = ListedSource({0: [numbers(offset) for offset in range(4)]}, at_once=1)

    def stop() -> bool:
        nonlocal now, polls
        now, polls = now + 10.0, polls + 1
        return polls > 4

    target = MemoryFolder()
    export(
        source,
        target,
        ExportOptions(seconds=20.0),
        stop=stop,
        clock=Clock(monotonic=lambda: now),
    )

    assert [name[15:20] + name[36:41] for name in names(target)] == ["0000000002", "0000300003"]
