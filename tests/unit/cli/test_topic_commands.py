"""What `extentflow count` says: rows are rows, and records are Kafka's."""

import pytest
from tests.support.golden import Golden
from tests.support.memory_commands import CommandLine, line

from extentflow.cli.topic_commands import _count_lines, _verdict
from extentflow.services.topics import TopicCount
from extentflow.services.verifications import Verification

__all__ = ["line"]


def test_tail_ends_with_fewer_rows_than_asked_for_and_names_an_empty_topic(
    line: CommandLine,
) -> None:
    assert line.follow(["tail", "orders"]) == 0
    empty = line.said
    line.runtime.put(lines=2)
    line.runtime.put_connector(topic="orders")
    assert line.run("-c", "c") == 0

    assert line.follow(["tail", "orders", "--limit", "3"]) == 0

    assert "topic orders has no committed record" in empty
    assert line.said == ""
    assert len(line.shown.splitlines()) == 2


def test_rows_and_kafka_records_are_counted_by_their_names(golden: Golden) -> None:
    found = TopicCount("t", rows=700, records=1, partitions=4, objects={"s3://b/k": 1})

    golden(*_count_lines(found))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            Verification("t", 1, 9, 9, 0, 0, 0),
            "equal: 9 rows in 1 object, 9 of them in topic t, each once",
        ),
        (
            Verification("t", 1, 9, 9, 0, 0, others=1, unnamed=1),
            (
                "equal: 9 rows in 1 object, 9 of them in topic t, each once; 1 row of other"
                " objects; 1 row whose object no header names"
            ),
        ),
        (
            Verification("t", 2, 9, 12, 2, 5, others=3, unnamed=2),
            (
                "DIFFERENT: 9 rows in 2 objects, 7 of them in topic t: 2 missing, 5 unexpected or"
                " doubled; 3 rows of other objects; 2 rows whose object no header names"
            ),
        ),
    ],
)
def test_a_verdict_says_how_many_rows_of_objects_the_topic_holds(
    found: Verification, text: str
) -> None:
    assert _verdict(found) == text
