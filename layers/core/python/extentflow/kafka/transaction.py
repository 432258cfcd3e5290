"""Kafka transactions of one producer: begin, send offsets, commit, abort.

    idle ──first send──> open ──offsets, commit──> idle
      └──── commit ───────^  └──abort────────────> idle

After a timeout only the same call may follow. An abort follows only when librdkafka requires it
(`txn_requires_abort`). Every other failure, and every exhausted bound, ends the producer; the next
owner of the slot aborts the open transaction, or reads that it was committed.

librdkafka itself repeats a request: without an answer after `socket.timeout.ms`, and after a broken
connection. The first one may still arrive, and brokers cannot distinguish it from one of the
producer's next transaction, because librdkafka has EndTxn version 1, without KIP-890's epoch per
transaction. It would commit or abort what is open then. So the producer that may have repeated an
EndTxn begins no further transaction: a new producer's epoch fences the late request.

No callback reports every repeated request (a close with one request in flight is no error, and
equal log lines are left out for 30 s). But librdkafka 2.x repeats one no sooner than 80 % of
`retry.backoff.ms` after it failed: an end that returned sooner had a single request.
"""

import functools
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from extentflow.background import BackgroundCall
from extentflow.errors import ExtentflowError, ProducerSpent, ProgressUnknown, SinkUnavailable
from extentflow.kafka import PROGRESS_TOPIC, SlotProgress
from extentflow.kafka.broker_errors import REFUSED
from extentflow.kafka.producer import (
    LOG,
    ProducerHandle,
    error_of,
    resumable,
    translate,
)
from extentflow.kafka.settings import Timeouts
from extentflow.kafka.topic_admin import Admin, MetadataRequests

# librdkafka returns within half of a commit's timeout plus this, if at all. Seen with 2.16.1:
# `send_offsets_to_transaction` has no timeout while it waits for its main thread, and never returns
# when a broker pauses at that moment.
HANG_SECONDS = 12.0
ABANDON_SECONDS = 0.5
# A coordinator that was just found is not connected yet, and librdkafka reports that it lacks
# requests (`_UNSUPPORTED_FEATURE`).
CONNECTED_SECONDS = 5.0
PARTITION = 0  # of the progress topic
# librdkafka varies the pause before a repeated request by 20 % (RD_KAFKA_RETRY_JITTER_PERCENT).
SHORTEST_BACKOFF = 0.8
# One slow end in about 70 keeps the pause as it is.
SLOW_FACTOR, QUICK_FACTOR = 2.0, 0.99
LONGEST_BACKOFF_MS = 10_000


@dataclass(slots=True)
class RetryBackoff:
    """How far `retry.backoff.ms` of a process's next producer is raised; one per broker.

    It grows where transactions end so slowly that a repeated request cannot be excluded. So a slow
    broker does not cost a producer per transaction. It shrinks again with quick ends.
    """

    raised_ms: float = 0.0

    def settings(self, configured: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a producer that replace configured ones."""
        pause = max(round(self.raised_ms), int(configured["retry.backoff.ms"]))
        longest = max(pause, int(configured["retry.backoff.max.ms"]))
        return {"retry.backoff.ms": str(pause), "retry.backoff.max.ms": str(longest)}

    def ended(self, used_ms: int, *, quickly: bool) -> None:
        """Adapt to the end of a transaction of a producer with `used_ms`."""
        if quickly:
            self.raised_ms *= QUICK_FACTOR
        else:
            self.raised_ms = max(self.raised_ms, min(used_ms * SLOW_FACTOR, LONGEST_BACKOFF_MS))


def initialise(
    client: ProducerHandle,
    timeouts: Timeouts,
    coordinator_error: Callable[[float], KafkaError | None],
) -> None:
    """Fence the previous producer of the client's transactional id and abort what it left open.

    `coordinator_error` is asked once, after a first attempt without an answer.

    Raises SinkUnavailable where no transaction coordinator answered within `fence_seconds`, and
    Misconfigured where settings, credentials or permissions cannot work: TransactionsRefused where
    the brokers take no transactions. One broker of several that rejects the credentials proves
    nothing about them.
    """
    with client.calling() as producer:
        for attempt, seconds in enumerate(timeouts.attempts(timeouts.fence_seconds)):
            try:
                producer.init_transactions(seconds)
            except KafkaException as exc:
                # librdkafka repeats what brokers refuse, and returns the refusal as resumable.
                if not resumable(error_of(exc)) or error_of(exc).name() in REFUSED:
                    raise
                # Serves the error callback: rejected credentials are reported only there.
                producer.poll(0)
                rejection = client.rejections.proven()
                if rejection is not None and not _is_accepted(producer, seconds):
                    raise translate(rejection, client.subject) from exc
                refusal = None if attempt else coordinator_error(seconds)
                if refusal is not None and refusal.name() in REFUSED:
                    raise client.translated(refusal) from exc
            else:
                return
        raise SinkUnavailable(
            f"{client.subject}: no answer from the broker for {timeouts.fence_seconds:g} s"
            f"{client.hint()}"
        )


def _is_accepted(producer: Producer, seconds: float) -> bool:
    """Whether any broker answers, for example one that is not among the bootstrap servers."""
    try:
        producer.list_topics(PROGRESS_TOPIC, seconds)
    except KafkaException:
        return False
    return True


_COORDINATOR_ERROR = re.compile(r"Failed to find transaction coordinator: (\w+): (.*)")


class _CoordinatorLog:
    """The logger of a client that keeps why it found no transaction coordinator."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def log(self, _level: int, text: str, *parts: object) -> None:
        """Keep the last reason. librdkafka states it in its debug log only, by the code's name."""
        line = text % parts
        if (found := _COORDINATOR_ERROR.search(line)) and hasattr(KafkaError, found[1]):
            self.error = KafkaError(getattr(KafkaError, found[1]), found[0])


def coordinator_error(settings: Mapping[str, Any], seconds: float) -> KafkaError | None:
    """Return why brokers name no coordinator of transactions; None: they do, or do not answer.

    Asks with a producer of its own for at most `seconds`. It fences no other one, because its
    transactional id is new.
    """
    reasons = _CoordinatorLog()
    asking = {"transactional.id": f"extentflow.probe-{uuid4().hex}", "debug": "eos"}
    producer = Producer({**settings, **asking, "logger": reasons})
    with suppress(KafkaException):
        producer.init_transactions(seconds)
    producer.poll(0)  # logs wait for it
    return reasons.error


class Transactions:
    """The transactions of one producer, one after the other."""

    def __init__(
        self,
        client: ProducerHandle,
        identity: str,
        timeouts: Timeouts,
        *,
        repeats_after_seconds: float,
        retry_backoff_ms: int,
        backoff: RetryBackoff,
    ) -> None:
        self._client = client
        self._group = group_metadata(identity)
        self._timeouts = timeouts
        self._repeats_after_seconds = repeats_after_seconds
        self._backoff = backoff
        self._retry_backoff_ms = retry_backoff_ms
        self._open = self._interrupted = self._committing = False
        # The seconds of a call whose requests may have been repeated.
        self._repeated = 0.0

    @contextmanager
    def begun(self) -> Iterator[Producer]:
        """Lend the producer with an open transaction. Raises as `Sink.commit`.

        A signal may interrupt the block when only some records are sent: from then on only an abort
        is possible.
        """
        with self._client.calling() as producer:
            if self._interrupted:
                raise SinkUnavailable(f"{self._client.subject}: the transaction was interrupted")
            self._interrupted = True
            try:
                if not self._open:
                    self._require_single_requests()
                    producer.begin_transaction()
                    self._open = True
                yield producer
            except KafkaException as exc:
                if error_of(exc).txn_requires_abort():
                    self._abort_before_dropping(producer)
                raise
            self._interrupted = False

    def commit(self, progress: SlotProgress, waiting: Callable[[], None] = lambda: None) -> None:
        """Commit the sent records together with `progress`. Raises as `Sink.commit`.

        `waiting` is called while brokers do not have all records; what it raises ends the producer.
        """
        offset = offset_of(progress)
        with self.begun() as producer:
            # Offsets go into every transaction, also one without records: an empty commit succeeds
            # even on a fenced producer.
            self._committing = True
            self._resume(
                lambda seconds: self._send_offset(producer, offset, seconds),
                refused_after=CONNECTED_SECONDS,
            )
            began = self._timeouts.retry.clock.monotonic()
            self._flush(producer, waiting)
            # After a timeout the outcome is unknown: repeat the commit, never abort.
            self._end(producer.commit_transaction, began=began)
        self._open = self._committing = False

    def _send_offset(self, producer: Producer, offset: TopicPartition, seconds: float) -> None:
        limit = seconds / 2 + HANG_SECONDS
        call = BackgroundCall(
            lambda: producer.send_offsets_to_transaction([offset], self._group, seconds),
            "extentflow-call",
        )
        try:
            call.result(limit)
        except TimeoutError:
            raise SinkUnavailable(
                f"{self._client.subject}: librdkafka did not answer send_offsets_to_transaction "
                f"within {limit:g} s{self._client.hint()}"
            ) from None

    def abort(self) -> None:
        """Abort the open transaction, if any. Raises as `Sink.commit`."""
        with self._client.calling() as producer:
            if self._open:
                self._end(producer.abort_transaction)
        self._open = self._interrupted = self._committing = False
        self._client.failed = None

    def abandon(self) -> None:
        """Abort the open transaction before the producer is dropped, unless a commit was tried.

        Even a failed abort keeps librdkafka from adding partitions to the transaction, which during
        its destruction crashes the process (2.16.1, `Assertion rk_eos.txn_req_cnt > 0`).
        """
        if not self._open or self._committing:
            return
        with suppress(ExtentflowError), self._client.calling() as producer:
            producer.abort_transaction(ABANDON_SECONDS)

    def _require_single_requests(self) -> None:
        if self._repeated:
            raise ProducerSpent(
                f"{self._client.subject}: a transaction took {self._repeated:.2f} s to end, so its"
                " requests may have been repeated; a new producer begins the next transaction."
                " Where brokers always take so long, raise the worker's retry.backoff.ms and"
                " socket.timeout.ms"
            )

    def _end(self, call: Callable[[float], None], *, began: float | None = None) -> None:
        """Commit or abort; notice whether librdkafka may have repeated the request."""
        monotonic = self._timeouts.retry.clock.monotonic
        started = monotonic()
        self._resume(call, began=began)
        seconds = monotonic() - started
        repeated_after = SHORTEST_BACKOFF * self._retry_backoff_ms / 1000
        quickly = seconds < min(repeated_after, self._repeats_after_seconds)
        self._backoff.ended(self._retry_backoff_ms, quickly=quickly)
        if not quickly:
            self._repeated = seconds

    def _resume(
        self,
        call: Callable[[float], None],
        *,
        began: float | None = None,
        refused_after: float = math.inf,
    ) -> None:
        """Repeat the call until it returns; `began`: when its `commit_seconds` did.

        A refusal is final after `refused_after` seconds.
        """
        seconds, monotonic = self._timeouts.commit_seconds, self._timeouts.retry.clock.monotonic
        started = monotonic()
        left = seconds if began is None else seconds - (started - began)
        last: KafkaError | None = None
        for remaining in self._timeouts.attempts(left):
            try:
                call(remaining)
            except KafkaException as exc:
                # The transaction failed during the call: the next one returns why.
                hides, last = error_of(exc).name() == "_STATE" and last is None, error_of(exc)
                is_refused = last.name() in REFUSED and monotonic() - started >= refused_after
                if is_refused or not (hides or resumable(last)):
                    raise
            else:
                if (took := monotonic() - started) >= self._repeats_after_seconds:
                    self._repeated = took
                return
        raise SinkUnavailable(
            f"{self._client.subject}: the outcome of a transaction is unknown after {seconds:g} s "
            f"({last.str() if last else 'no time left'}){self._client.hint()}"
        )

    def _flush(self, producer: Producer, waiting: Callable[[], None]) -> None:
        """Wait until brokers have all records, so that a commit's time is that of its request."""
        seconds, left = self._timeouts.commit_seconds, len(producer)
        if not left:
            return
        for remaining in self._timeouts.attempts(seconds):
            try:
                left = producer.flush(remaining)
            except SystemError:
                # confluent-kafka 2.16 loses the exception of a fenced producer; the commit has it.
                return
            if not left:
                return
            waiting()
        raise SinkUnavailable(
            f"{self._client.subject}: {left} records not acknowledged after {seconds:g} s"
            f"{self._client.hint()}"
        )

    def _abort_before_dropping(self, producer: Producer) -> None:
        """Abort, so that consumers need not wait for the transaction's timeout."""
        for remaining in self._timeouts.attempts(self._timeouts.abort_seconds):
            try:
                producer.abort_transaction(remaining)
            except KafkaException as exc:
                if resumable(error_of(exc)):
                    continue
            return


def offset_of(progress: SlotProgress) -> TopicPartition:
    """Return the offset, with metadata, that represents `progress`."""
    return TopicPartition(
        PROGRESS_TOPIC, PARTITION, progress.position, metadata=progress.to_metadata()
    )


def read_progress(
    settings: Mapping[str, Any], group: str, timeouts: Timeouts
) -> SlotProgress | None:
    """Return what the group's last transaction committed; None if group or offset is missing.

    Waits while a transaction that writes the offset is open (require_stable, KIP-447). Raises
    ProgressUnknown where extentflow did not write the offset, SinkUnavailable without a stable
    answer in `read_seconds`, Misconfigured without the progress topic or a permission.
    """

    def serve() -> None:
        message = consumer.poll(0)  # a coordinator that denies the group reports it here
        if message is not None and (error := message.error()) is not None:
            requests.report(error)

    servers = settings["bootstrap.servers"]
    requests = MetadataRequests(f"consumer group {group}", servers, timeouts, serve)
    callbacks: dict[str, Any] = {"logger": LOG, "error_cb": requests.report}
    # A consumer that never joins the group, not an AdminClient: its answer to this request crashes
    # the process when the coordinator moves (librdkafka issue 5040).
    consumer = Consumer(
        {
            **settings,
            **callbacks,
            "group.id": group,
            "isolation.level": "read_committed",  # makes the broker answer UNSTABLE_OFFSET_COMMIT
            "enable.auto.commit": "false",
        }
    )
    try:
        found = requests.send(
            lambda seconds: _offset(consumer, seconds), seconds=timeouts.read_seconds
        )
    finally:
        consumer.close()
    if found is not None:
        return _parse(group, found)
    with Admin(settings, timeouts) as admin:
        admin.require_progress_topic()  # a missing topic also reads as -1001
    return None


def _offset(consumer: Consumer, seconds: float) -> TopicPartition | None:
    try:
        (found,) = consumer.committed([TopicPartition(PROGRESS_TOPIC, PARTITION)], seconds)
    except KafkaException as exc:
        if error_of(exc).name() == "GROUP_ID_NOT_FOUND":
            return None
        raise
    # Before the offset: a pending commit reads as -1001 plus UNSTABLE_OFFSET_COMMIT.
    if found.error is not None:
        raise KafkaException(found.error)
    return found if found.offset >= 0 else None


def _parse(group: str, found: TopicPartition) -> SlotProgress:
    foreign = (
        f"consumer group {group}: another client committed to {PROGRESS_TOPIC}[{PARTITION}]: "
        f"offset {found.offset} does not match metadata {found.metadata!r}"
    )
    try:
        progress = SlotProgress.from_metadata(found.metadata or "")
    except ValueError as exc:
        raise ProgressUnknown(f"{foreign}: {exc}") from exc
    if progress.position != found.offset:
        raise ProgressUnknown(f"{foreign}, whose position is {progress.position}")
    return progress


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
    # Generation -1 and an empty member: no consumer ever joins this group.
    return b"CGMDv2:" + struct.pack("=i", -1) + group.encode() + b"\0\0\x01"


def _consumer_metadata(group: str) -> bytes:
    consumer = Consumer({"group.id": group, "log_level": 0})
    try:
        metadata: bytes = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    return metadata
