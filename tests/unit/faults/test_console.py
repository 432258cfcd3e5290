"""What the campaign reads from Kafka's console consumer."""

from tests.faults.console import RECORDS, once, parsed


def test_a_record_that_is_printed_twice_is_one_record() -> None:
    first = "Partition:0\x1dOffset:7\x1dNO_HEADERS\x1d\\N\x1done"
    other = "Partition:1\x1dOffset:7\x1dNO_HEADERS\x1d\\N\x1done"

    table = once(parsed("records", RECORDS.join((first, other, first)).encode()))

    assert table.column("partition").to_pylist() == [0, 1]


def test_a_record_with_line_breaks_is_one_record() -> None:
    first = 'Partition:0\x1dOffset:7\x1dNO_HEADERS\x1d\\N\x1d1,"two\nlines"'
    second = "Partition:1\x1dOffset:0\x1da:b\x1dkey\x1d\\N"

    table = parsed("dead", f"{first}{RECORDS}{second}{RECORDS}".encode())

    assert table.to_pylist() == [
        {
            "topic": "dead",
            "partition": 0,
            "position": 7,
            "headers": None,
            "key": None,
            "value": '1,"two\nlines"',
        },
        {
            "topic": "dead",
            "partition": 1,
            "position": 0,
            "headers": "a:b",
            "key": "key",
            "value": None,
        },
    ]
