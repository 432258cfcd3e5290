"""Headers, timestamps and partitions of records, from columns and from facts of the object."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import orjson
import pyarrow as pa
import pytest
from tests.support.chains import VERSION, chain, convert
from tests.support.golden import Golden

from extentflow.config.parsing import parse
from extentflow.delivery.attributes import Attributes
from extentflow.errors import CorruptRecord, Misconfigured, NotOffered, UnsupportedType
from extentflow.kafka import Records
from extentflow.kafka.record_headers import HeaderColumns
from extentflow.model import Extent, ObjectVersion
from extentflow.storage import ObjectProperties

TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "kind": pa.array(["a", None, "c"]),
        "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None, datetime(1969, 1, 1, tzinfo=UTC)]),
        "place": pa.array([3, None, 4], pa.int8()),
    }
)
EXTENT = Extent("job", 0, "c", VERSION, 0, 1, "parquet")
NO_INSTANT = "neither a whole number nor an instant with Z or an offset"
EARLY = "an instant not after the beginning of 1970, which Kafka cannot store"


def test_headers_come_from_columns_texts_and_the_object() -> None:
    config = {"headers": 'k=column:kind,site="text:north, 1",file=key,v=version,row=location'}

    made = convert(TABLE, config)

    assert made.headers == [
        {"k": b"a", "site": b"north, 1", "file": b"folder/key", "v": b"v1", "row": b"0"},
        {"site": b"north, 1", "file": b"folder/key", "v": b"v1", "row": b"1"},
        {"k": b"c", "site": b"north, 1", "file": b"folder/key", "v": b"v1", "row": b"2"},
    ]


@dataclass
class Described:
    """A store that returns properties and tags, and counts how often."""

    properties_of: ObjectProperties = field(
        default_factory=lambda: ObjectProperties(
            datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC), "text/csv", {"owner": "shop"}
        )
    )
    asked: list[str] = field(default_factory=list)

    def properties(self, version: ObjectVersion) -> ObjectProperties:
        self.asked.append(f"properties of {version.version_id}")
        return self.properties_of

    def tags(self, version: ObjectVersion) -> dict[str, str]:
        self.asked.append(f"tags of {version.version_id}")
        return {"team": "blue"}


def test_headers_come_from_properties_metadata_and_tags_of_the_object() -> None:
    store = Described()
    sources = "at=last_modified,kind=content_type,owner=metadata:Owner,team=tag:team"
    lacking = "no=metadata:none,none=tag:none"

    made = convert(TABLE, {"headers": f"{sources},{lacking}"}, store=store)

    expected = {
        "at": b"2026-01-02T03:04:05.678Z",
        "kind": b"text/csv",
        "owner": b"shop",
        "team": b"blue",
    }
    assert made.headers == [expected] * 3
    assert sorted(store.asked) == ["properties of v1", "tags of v1"]  # once per extent


def test_records_have_the_time_of_their_object() -> None:
    store = Described()

    made = convert(TABLE, {"message.timestamp": "last_modified"}, store=store)

    assert made.timestamps == [1_767_323_045_678] * 3
    assert store.asked == ["properties of v1"]


def test_a_column_may_be_called_as_the_objects_time() -> None:
    table = pa.table({"last_modified": pa.array([7], pa.int64())})

    made = convert(table, {"message.timestamp": "column:last_modified"})

    assert made.timestamps == [7]


def test_other_headers_ask_the_store_for_nothing() -> None:
    store = Described()

    convert(TABLE, {"headers": "k=column:kind,size=size,row=location"}, store=store)

    assert store.asked == []


def test_a_store_without_properties_is_refused_by_name(golden: Golden) -> None:
    with golden.raises(NotOffered, match="message.timestamp"):
        convert(TABLE, {"headers": "at=last_modified"}, store=object())


@pytest.mark.parametrize("source", ["content_type", "metadata:a", "tag:a"])
def test_files_have_no_such_headers(source: str) -> None:
    config = {"name": "c", "topic": "t", "endpoint.type": "localfile", "directory": "/data"}

    with pytest.raises(Misconfigured, match="headers: h: files have no"):
        parse({**config, "headers": f"h={source}"})


def test_headers_keep_to_their_records_when_others_are_dropped() -> None:
    steps = chain(
        f={"type": "Filter", "predicate": "p_1"},
        r={"type": "ReplaceField", "include": "kind"},
        p_1={"type": "Condition", "condition": "id = 2"},
    )

    made = convert(TABLE, steps | {"headers": "id=column:id,row=location"})

    assert made.headers == [{"id": b"1", "row": b"0"}, {"id": b"3", "row": b"2"}]
    assert [value["kind"] for value in made.values] == ["a", "c"]


def test_headers_of_a_line_are_members_and_its_offset() -> None:
    body = b'{"a":"x","b":1}\n{"a":"y","b":2}\n'

    made = convert(body, {"headers": "a=column:a,at=location"}, "jsonl")

    assert made.headers == [{"a": b"x", "at": b"0"}, {"a": b"y", "at": b"16"}]
    assert made.payloads[0] == b'{"a":"x","b":1}'


def test_timestamps_come_from_a_column_and_instants_before_1970_are_bad() -> None:
    made = convert(TABLE, {"message.timestamp": "column:at"})

    assert made.timestamps == [1_704_067_200_000, 0]
    assert made.bad == [
        (2, f"message.timestamp: {EARLY}"),
    ]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([date(1970, 1, 2)]), 86_400_000),
        (pa.array([86_400_001], pa.int64()), 86_400_001),
        (pa.array([1_999_999], pa.timestamp("us")), 1_999),
        (pa.array([1_999_999], pa.timestamp("ns", "Europe/Berlin")), 1),
        (pa.array([7], pa.timestamp("s", "No/Zone")), 7_000),
        (pa.array(["12"], pa.string_view()), 12),
    ],
)
def test_timestamps_have_several_types(column: pa.Array, expected: int) -> None:
    made = convert(pa.table({"at": column}), {"message.timestamp": "column:at"})

    assert made.timestamps == [expected]


def test_partitions_come_from_a_column_and_others_than_the_topics_are_bad() -> None:
    made = convert(TABLE, {"message.partition": "column:place"})

    assert made.partitions == [3, -1]
    assert made.bad == [(2, "message.partition: the topic has the partitions 0 to 3 only")]


def test_columnar_values_have_the_partitions_of_a_column_of_their_rows() -> None:
    made = convert(TABLE, {"message.partition": "column:place", "columnar.encoding": "arrow"})

    assert sorted(made.partitions or ()) == [-1, 3]
    assert made.bad == [(2, "message.partition: the topic has the partitions 0 to 3 only")]


def test_text_that_is_no_partition_is_a_bad_record() -> None:
    body = b'{"p":"1"}\n{"p":"x"}\n{"p":null}\n{"p":"0x1"}\n'

    made = convert(body, {"message.partition": "column:p"}, "jsonl")

    assert made.partitions == [1, -1]
    assert made.bad == [(place, "message.partition: no whole number") for place in (10, 31)]


@pytest.mark.parametrize("text", [" 12", "+5", "1_000", "0x10"])
def test_text_that_only_a_library_takes_for_a_number_is_a_bad_record(text: str) -> None:
    body = orjson.dumps({"at": text}) + b'\n{"at":"7"}\n'

    made = convert(body, {"message.timestamp": "column:at"}, "jsonl")

    assert (made.timestamps, made.bad) == ([7], [(0, f"message.timestamp: {NO_INSTANT}")])


def test_seconds_beyond_kafkas_timestamps_are_bad_records() -> None:
    seconds = pa.array([2**61, 7, -(2**61)], pa.timestamp("s"))

    with pytest.raises(CorruptRecord) as caught:
        Attributes(timestamp="at").bind(pa.schema([("at", seconds.type)]), EXTENT)(
            pa.record_batch({"at": seconds}), range(3)
        )

    assert list(caught.value.rows) == [0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_lowest_instant_is_a_bad_record(unit: str) -> None:
    """Trap: Arrow's floor overflows there, and the extent failed. Writers use it for no instant."""
    column = pa.array([-(2**63), 7 * 10**9, -1], pa.int64()).view(pa.timestamp(unit))

    with pytest.raises(CorruptRecord) as caught:
        Attributes(timestamp="at").bind(pa.schema([("at", column.type)]), EXTENT)(
            pa.record_batch({"at": column}), range(3)
        )

    assert caught.value.rows == dict.fromkeys((0, 2), f"message.timestamp: {EARLY}")


def test_a_chunk_is_split_with_its_attributes() -> None:
    config = {"headers": "id=column:id", "message.timestamp": "column:id"}
    (chunk,) = convert(TABLE, config).chunks

    parts = list(chunk.split(1))

    assert [[dict(each) for each in part.records.headers or ()] for part in parts] == [
        [{"id": b"1"}],
        [{"id": b"2"}],
        [{"id": b"3"}],
    ]
    times = [part.records.timestamps for part in parts]
    assert [each.to_pylist() for each in times if each is not None] == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"headers": "a=nope"}, "headers='a=nope': a has no source 'nope'; write bucket, key"),
        ({"headers": "a"}, "headers='a': write name=source,name=source; cannot read 'a'"),
        ({"headers": "a=column:"}, "a has no source 'column:'"),
        ({"message.timestamp": "at"}, "message.timestamp='at': write none or column:name"),
        ({"message.partition": "column:p", "ordering": "object"}, "message.partition: ordering"),
    ],
)
def test_mistakes_are_problems_of_the_connector(config: dict[str, str], complaint: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        convert(TABLE, config)

    assert any(complaint in problem for problem in caught.value.problems)


def test_lines_of_text_have_no_columns_for_them(golden: Golden) -> None:
    with golden.raises(Misconfigured):
        convert(b"a\n", {"headers": "a=column:b"}, "text")


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"message.timestamp": "column:kind2"}, "there is no column 'kind2'"),
        ({"message.partition": "column:at"}, "timestamp.* is no integer"),
        ({"headers": "a=column:nope"}, "there is no column 'nope'"),
    ],
)
def test_columns_that_do_not_fit_fail_before_the_first_record(
    config: dict[str, str], complaint: str
) -> None:
    with pytest.raises(UnsupportedType, match=complaint):
        convert(TABLE, config)


def test_columns_of_headers_are_read_like_a_sequence() -> None:
    values = pa.array([b"a", None, b"c"], pa.binary())
    headers = HeaderColumns([("x", values), ("y", b"1")], 3)

    assert len(headers) == 3
    assert list(headers)[1] == [("y", b"1")]
    assert list(headers[2]) == [("x", b"c"), ("y", b"1")]
    assert [list(each) for each in headers[1:][1:]] == [[("x", b"c"), ("y", b"1")]]
    records = Records("t", values, headers=headers).slice(1, 3)
    assert [list(each) for each in records.headers or ()] == [
        [("y", b"1")],
        [("x", b"c"), ("y", b"1")],
    ]
