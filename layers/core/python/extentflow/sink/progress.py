"""Progress as the offset of a synthetic consumer group: its metadata, writing and reading it."""

import functools
import struct
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from extentflow.errors import ProgressUnknown
from extentflow.sink import PROGRESS_TOPIC, SlotProgress
from extentflow.sink.producer import LOG
from extentflow.sink.settings import Timeouts
from extentflow.sink.topics import Admin, MetadataRequests, require_progress_topic
from extentflow.sink.translate import error_of

PARTITION = 0


def offset_of(progress: SlotProgress) -> TopicPartition:
    """Return the offset, with metadata, that represents `progress`."""
    return TopicPartition(
        PROGRESS_TOPIC, PARTITION, progress.position, metadata=progress.to_metadata()
    )


def read_progress(
    settings: Mapping[str, Any], group: str, timeouts: Timeouts
) -> SlotProgress | None:
    """Return what the group's last transaction committed; None if group or offset is missing.

    Waits while a transaction that writes the offset is open (require_stable, KIP-447).

    Raises:
        ProgressUnknown: the offset was not written by extentflow.
        SinkUnavailable: no stable answer within `read_seconds`.
        Misconfigured: the progress topic is missing, or a permission.
    """
    found = _committed(settings, group, timeouts)
    if found is not None:
        return _parse(group, found)
    with Admin(settings, timeouts) as admin:
        require_progress_topic(admin)  # a missing topic also reads as -1001
    return None


def group_metadata(group: str) -> bytes:
    """Return the value of `Consumer(group).consumer_group_metadata()`, without a consumer.

    The value is opaque, so the layout is compared once per process with that of a real consumer;
    if they differ, a temporary consumer returns it.
    """
    return _encode_metadata(group) if _layout_matches() else _consumer_metadata(group)


@functools.cache
def _layout_matches() -> bool:
    return _encode_metadata("extentflow.probe") == _consumer_metadata("extentflow.probe")


def _encode_metadata(group: str) -> bytes:
    generation, member = struct.pack("=i", -1), b""
    return b"CGMDv2:" + generation + group.encode() + b"\0" + member + b"\0\x01"


def _consumer_metadata(group: str) -> bytes:
    consumer = Consumer({"group.id": group, "log_level": 0})
    try:
        metadata: bytes = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    return metadata


def _committed(
    settings: Mapping[str, Any], group: str, timeouts: Timeouts
) -> TopicPartition | None:
    """Read the offset through a consumer that never joins the group.

    Not through an AdminClient: its answer to this request crashes the process when the
    coordinator moves (librdkafka issue 5040).
    """
    requests = MetadataRequests(f"consumer group {group}", timeouts)
    callbacks: dict[str, Any] = {"logger": LOG, "error_cb": requests.report}
    consumer = Consumer(
        {
            **settings,
            **callbacks,
            "group.id": group,
            "isolation.level": "read_committed",  # makes the broker answer UNSTABLE_OFFSET_COMMIT
            "enable.auto.commit": "false",
        }
    )

    def serve() -> None:
        message = consumer.poll(0)  # a coordinator that denies the group reports it here
        if message is not None and (error := message.error()) is not None:
            requests.report(error)

    try:
        return requests.send(
            lambda seconds: _offset(consumer, seconds),
            serve=serve,
            seconds=timeouts.read_seconds,
        )
    finally:
        consumer.close()


def _offset(consumer: Consumer, seconds: float) -> TopicPartition | None:
    try:
        (found,) = consumer.committed([TopicPartition(PROGRESS_TOPIC, PARTITION)], seconds)
    except KafkaException as exc:
        if error_of(exc).name() == "GROUP_ID_NOT_FOUND":
            return None
        raise
    if (
        found.error is not None
    ):  # before the offset: a pending commit reads as -1001 plus this error
        raise KafkaException(found.error)
    return found if found.offset >= 0 else None


def _parse(group: str, found: TopicPartition) -> SlotProgress:
    try:
        progress = SlotProgress.from_metadata(found.metadata or "")
    except ValueError as exc:
        raise ProgressUnknown(f"{_describe_foreign(group, found)}: {exc}") from exc
    if progress.position != found.offset:
        raise ProgressUnknown(
            f"{_describe_foreign(group, found)}, whose position is {progress.position}"
        )
    return progress


def _describe_foreign(group: str, found: TopicPartition) -> str:
    return (
        f"consumer group {group}: another client committed to {PROGRESS_TOPIC}[{PARTITION}]: "
        f"offset {found.offset} does not match metadata {found.metadata!r}"
    )
