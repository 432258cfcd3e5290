"""Schemas of columnar values are settled once, in the order of their log."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from tests.support.golden import Golden

from extentflow.columnar.evolution import TopicSchema
from extentflow.columnar.topic_schemas import TopicSchemas
from extentflow.errors import IncompatibleSchema, PositionGone
from extentflow.kafka import SCHEMAS_TOPIC
from extentflow.kafka.reading import ConsumedRecord

NUMBERS = pa.schema([("id", pa.int64())])
TEXTS = pa.schema([("id", pa.string())])
MORE = pa.schema([("id", pa.int32()), ("name", pa.string())])


@dataclass
class Log:
    """The topic of schemas, in memory; `meanwhile` runs before a record is added.

    Records before `first` were deleted.
    """

    records: list[tuple[bytes, bytes]] = field(default_factory=list)
    exists: bool = False
    reads: int = 0
    first: int = 0
    meanwhile: Callable[[], None] | None = None

    def ensure_schemas_topic(self) -> None:
        self.exists = True

    def missing_topics(self, names: Sequence[str]) -> list[str]:
        return [] if self.exists else list(names)

    def add_schema(self, key: bytes, value: bytes) -> None:
        if self.meanwhile is not None:
            before, self.meanwhile = self.meanwhile, None
            before()
        self.records.append((key, value))

    def read_from(
        self, _topic: str, begin: Mapping[int, int], *, end: Mapping[int, int], group: str
    ) -> Iterator[list[ConsumedRecord]]:
        assert not end
        assert group
        self.reads += 1
        first = begin[0]
        if first < self.first:
            raise PositionGone("deleted", SCHEMAS_TOPIC, 0, first, self.first)
        yield [
            ConsumedRecord(0, at, key, value, ())
            for at, (key, value) in enumerate(self.records[first:], first)
        ]


def process(log: Any) -> TopicSchemas:  # noqa: ANN401 - it stands for a broker
    return TopicSchemas(log, "extentflow.schemas.test")


def test_a_new_schema_is_added_once_for_all_processes() -> None:
    log = Log()
    one, other = process(log), process(log)

    one.settle("orders", NUMBERS)
    one.settle("orders", NUMBERS)
    other.settle("orders", NUMBERS)

    assert log.records == [TopicSchema("orders", NUMBERS).record()]


def test_a_known_schema_costs_no_request() -> None:
    log = Log()
    known = process(log)
    known.settle("orders", NUMBERS)
    before = log.reads

    known.settle("orders", NUMBERS)
    known.check("orders", NUMBERS)

    assert log.reads == before


def test_a_schema_that_widens_is_added_beside_the_first_one() -> None:
    log = Log()
    process(log).settle("orders", NUMBERS)

    process(log).settle("orders", MORE)

    assert len(log.records) == 2


def test_a_schema_that_contradicts_is_an_error_that_names_the_column(golden: Golden) -> None:
    log = Log()
    process(log).settle("orders", NUMBERS)

    with golden.raises(IncompatibleSchema, match="topic orders.*column id.*int64"):
        process(log).settle("orders", TEXTS)

    assert len(log.records) == 1
    process(log).settle("customers", TEXTS)


def test_of_two_processes_at_the_same_moment_the_first_in_the_log_wins() -> None:
    log = Log()
    late = process(log)
    log.meanwhile = lambda: log.records.append(TopicSchema("orders", NUMBERS).record())

    with pytest.raises(IncompatibleSchema):
        late.settle("orders", TEXTS)

    # What it added does not count.
    process(log).settle("orders", NUMBERS)
    with pytest.raises(IncompatibleSchema):
        process(log).settle("orders", TEXTS)


def test_a_check_adds_nothing_and_needs_no_topic() -> None:
    log = Log()

    process(log).check("orders", NUMBERS)

    assert not log.exists
    process(log).settle("orders", NUMBERS)
    with pytest.raises(IncompatibleSchema):
        process(log).check("orders", TEXTS)
    assert len(log.records) == 1


def test_records_of_others_in_the_log_are_passed_over() -> None:
    log = Log(records=[(b"x", b"no schema")], exists=True)

    process(log).settle("orders", NUMBERS)

    assert len(log.records) == 2


def test_a_log_that_lost_records_is_read_from_those_that_are_left() -> None:
    log = Log()
    process(log).settle("orders", NUMBERS)
    log.records.append(TopicSchema("orders", TEXTS).record())
    log.first = 1

    process(log).check("orders", TEXTS)
    with pytest.raises(IncompatibleSchema):
        process(log).check("orders", NUMBERS)
