"""SlotProgress as a consumer group's offset: how it is written into a transaction and read back.

Owns: the synthetic group (no consumer ever joins it), its metadata bytes, the order in which an
answer is judged. Refuses to know: what progress means.
"""

import functools
import struct
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from extentflow.errors import ProgressUnknown
from extentflow.sink import PROGRESS_TOPIC, SlotProgress
from extentflow.sink.asking import MetadataRequests
from extentflow.sink.producer import LOG
from extentflow.sink.settings import Timeouts
from extentflow.sink.topics import Admin, require_progress_topic
from extentflow.sink.translate import error_of

PARTITION = 0


def offset_of(progress: SlotProgress) -> TopicPartition:
    """Return the offset that says `progress`."""
    return TopicPartition(
        PROGRESS_TOPIC, PARTITION, progress.position, metadata=progress.to_metadata()
    )


def read_progress(
    settings: Mapping[str, Any], group: str, timeouts: Timeouts
) -> SlotProgress | None:
    """Return what the group's last transaction said; None where the group or its offset is gone.

    Waits while a transaction that writes the offset is undecided (KIP-447).

    Raises:
        ProgressUnknown: the offset was not written by extentflow.
        SinkUnavailable: no stable answer within `read_seconds`.
        Misconfigured: the progress topic is missing, or a permission.
    """
    found = _committed(settings, group, timeouts)
    if found is not None:
        return _agreed(group, found)
    with Admin(settings, timeouts) as admin:
        require_progress_topic(admin)  # a missing topic reads like a group that never committed
    return None


def group_metadata(group: str) -> bytes:
    """Return what `Consumer(group).consumer_group_metadata()` would, without the consumer.

    Opaque to us, so it is compared once per process with a real consumer's; where the layout is
    another one, a throw-away consumer answers.
    """
    return _laid_out(group) if _layout_known() else _asked(group)


@functools.cache
def _layout_known() -> bool:
    return _laid_out("extentflow.probe") == _asked("extentflow.probe")


def _laid_out(group: str) -> bytes:
    generation, member = struct.pack("=i", -1), b""
    return b"CGMDv2:" + generation + group.encode() + b"\0" + member + b"\0\x01"


def _asked(group: str) -> bytes:
    consumer = Consumer({"group.id": group, "log_level": 0})
    try:
        metadata: bytes = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    return metadata


def _committed(
    settings: Mapping[str, Any], group: str, timeouts: Timeouts
) -> TopicPartition | None:
    """Ask through a consumer that joins nothing.

    Not through an AdminClient: its answer to this very question crashes the process when the
    coordinator moves (librdkafka issue 5040).
    """
    questions = MetadataRequests(f"consumer group {group}", timeouts)
    callbacks: dict[str, Any] = {"logger": LOG, "error_cb": questions.heard}
    consumer = Consumer(
        {
            **settings,
            **callbacks,
            "group.id": group,
            "isolation.level": "read_committed",  # which is what makes the answer stable
            "enable.auto.commit": "false",
        }
    )

    def serve() -> None:
        message = consumer.poll(0)  # a coordinator that refuses the group says so here
        if message is not None and (error := message.error()) is not None:
            questions.heard(error)

    try:
        return questions.ask(
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
    if found.error is not None:  # before the offset: an undecided one reads as none, plus this
        raise KafkaException(found.error)
    return found if found.offset >= 0 else None


def _agreed(group: str, found: TopicPartition) -> SlotProgress:
    try:
        progress = SlotProgress.from_metadata(found.metadata or "")
    except ValueError as exc:
        raise ProgressUnknown(f"{_foreign(group, found)}: {exc}") from exc
    if progress.position != found.offset:
        raise ProgressUnknown(f"{_foreign(group, found)}, which says {progress.position}")
    return progress


def _foreign(group: str, found: TopicPartition) -> str:
    return (
        f"consumer group {group}: somebody else wrote to {PROGRESS_TOPIC}[{PARTITION}]: "
        f"offset {found.offset} does not go with metadata {found.metadata!r}"
    )
