"""Which records a topic's configuration excludes, by the rules of Kafka's `LogValidator`."""

import pyarrow as pa
import pytest

from extentflow.kafka.topic_limits import TopicLimits, instant, is_compacted

HOUR = 3_600_000
NOW = 1_800_000_000_000
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
ANY = str(2**63 - 1)


@pytest.mark.parametrize(
    ("policy", "compacted"),
    [
        ("delete", False),
        ("compact", True),
        ("compact,delete", True),
        ("delete, compact", True),
        ("", False),
    ],
)
def test_a_topic_that_deletes_as_well_is_compacted_too(policy: str, *, compacted: bool) -> None:
    assert is_compacted(policy) == compacted


def outside(config: dict[str, str], *timestamps: int | None, slack_ms: int = 0) -> list[int]:
    times = pa.array(timestamps, pa.int64())
    return [int(one) for one in TopicLimits.of("t", config).outside(times, NOW, slack_ms)]


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ({}, []),
        ({AFTER: str(HOUR), BEFORE: ANY}, [4]),
        ({AFTER: ANY, BEFORE: str(HOUR)}, [0]),
        ({AFTER: str(HOUR), BEFORE: str(HOUR)}, [0, 4]),
        ({AFTER: "0", BEFORE: "0"}, [0, 1, 3, 4]),
        ({AFTER: ANY, BEFORE: ANY, "message.timestamp.difference.max.ms": str(HOUR)}, [0, 4]),
        ({AFTER: "0", BEFORE: "0", "message.timestamp.type": "LogAppendTime"}, []),
    ],
)
def test_timestamps_out_of_the_topics_range_are_found(
    config: dict[str, str], refused: list[int]
) -> None:
    found = outside(config, NOW - HOUR - 1, NOW - HOUR, NOW, NOW + HOUR, NOW + HOUR + 1, 0, None)

    assert found == refused


def test_a_limit_close_by_is_left_to_the_brokers_clock() -> None:
    limits = {AFTER: str(HOUR), BEFORE: str(HOUR)}

    assert outside(limits, NOW + HOUR + 900, NOW - HOUR - 900, slack_ms=1_000) == []
    assert outside(limits, NOW + HOUR + 1_100, NOW - HOUR - 1_100, slack_ms=1_000) == [0, 1]


@pytest.mark.parametrize(
    ("policy", "keys", "missing"),
    [
        ("delete", pa.array([b"a", None]), []),
        ("compact", pa.array([b"a", None, b"", None]), [1, 3]),
        ("compact,delete", pa.array([b"a"]), []),
        ("compact", None, [0, 1]),
    ],
)
def test_missing_keys_are_found_where_the_topic_is_compacted(
    policy: str, keys: pa.Array | None, missing: list[int]
) -> None:
    limits = TopicLimits.of("t", {"cleanup.policy": policy})

    assert limits.without_keys(keys, 2 if keys is None else len(keys)).tolist() == missing


@pytest.mark.parametrize(
    ("config", "deleted"),
    [
        ({"retention.ms": str(HOUR)}, 2),
        ({"retention.ms": "-1"}, 0),
        ({"retention.ms": str(9 * HOUR)}, 0),
        ({"retention.ms": str(HOUR), "cleanup.policy": "compact"}, 0),
        ({"retention.ms": str(HOUR), "cleanup.policy": "compact,delete"}, 2),
        ({"retention.ms": str(HOUR), "message.timestamp.type": "LogAppendTime"}, 0),
    ],
)
def test_records_that_retention_deletes_are_counted(config: dict[str, str], deleted: int) -> None:
    times = pa.array([NOW - 2 * HOUR, NOW, NOW - 3 * HOUR, 0, None], pa.int64())

    assert TopicLimits.of("t", config).deleted(times, NOW) == deleted


def test_a_refused_timestamp_has_its_value_the_setting_and_the_remedy() -> None:
    limits = TopicLimits.of("orders", {AFTER: str(HOUR), BEFORE: str(2 * HOUR)})

    late = limits.why_outside(NOW + 90 * 24 * HOUR, NOW)
    early = limits.why_outside(NOW - 5 * HOUR, NOW)

    assert late == (
        "timestamp 2027-04-15T08:00:00.000Z is 90 days ahead of the clock, and topic orders takes"
        " 60 minutes (message.timestamp.after.max.ms=3600000); correct message.timestamp, or raise"
        " message.timestamp.after.max.ms or set message.timestamp.type=LogAppendTime on the topic"
    )
    assert "is 5 hours behind the clock, and topic orders takes 2 hours" in early
    assert "message.timestamp.before.max.ms=7200000" in early


def test_an_instant_beyond_every_calendar_is_a_number() -> None:
    assert instant(1_764_201_600_000_000) == "1764201600000000 (milliseconds since 1970)"
