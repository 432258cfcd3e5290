"""SlotProgress as a group's offset: the bytes that stand for a consumer, and what is refused."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from extentflow.errors import ProgressUnknown
from extentflow.kafka import PROGRESS_TOPIC, SlotProgress
from extentflow.kafka.transaction import _encode_metadata, _parse, group_metadata, offset_of


@pytest.mark.parametrize("group", ["app.0123456789ab.slot-0", "\u00e9" * 20, "x" * 200])
def test_the_metadata_is_a_real_consumers(group: str) -> None:
    consumer = Consumer({"group.id": group, "log_level": 0})
    real = consumer.consumer_group_metadata()
    consumer.close()

    assert group_metadata(group) == real
    assert _encode_metadata(group) == real  # so that no throw-away consumer is made per slot


def test_the_offset_is_the_position_and_metadata_has_the_rest() -> None:
    progress = SlotProgress(epoch=7, job="j", extent=2, position=99, records=5, bad=1, done=True)

    offset = offset_of(progress)

    assert (offset.topic, offset.partition, offset.offset) == (PROGRESS_TOPIC, 0, 99)
    assert SlotProgress.from_metadata(offset.metadata or "") == progress


def test_filtered_records_are_in_the_metadata_where_there_are_any() -> None:
    some, none = (SlotProgress(epoch=7, job="j", position=9, filtered=count) for count in (3, 0))

    assert SlotProgress.from_metadata(some.to_metadata()) == some
    assert SlotProgress.from_metadata(none.to_metadata()) == none
    # Earlier versions, whose workers may settle the slot, reject a member that is new to them.
    assert "filtered" not in none.to_metadata()


@pytest.mark.parametrize(
    ("offset", "metadata"),
    [
        (5, SlotProgress(epoch=1, position=4).to_metadata()),
        (5, ""),
        (5, "not json"),
        (5, '{"epoch":1,"unheard_of":2}'),
    ],
)
def test_an_offset_of_another_writer_is_rejected(offset: int, metadata: str) -> None:
    found = TopicPartition(PROGRESS_TOPIC, 0, offset, metadata=metadata)

    with pytest.raises(ProgressUnknown, match=r"slot-1.*another client committed"):
        _parse("slot-1", found)
