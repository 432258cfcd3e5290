"""Kafka transactions of one producer: begin, send offsets, commit, abort.

    idle ──first send──> open ──offsets, commit──> idle
      └──── commit ───────^  └──abort────────────> idle

After a timeout only the same call may follow. An abort follows only when librdkafka requires it
(`txn_requires_abort`). Every other failure, and every exhausted bound, ends the producer; the next
owner of the slot aborts the open transaction, or reads that it was committed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException, Producer, TopicPartition

from extentflow.background import call_with_timeout
from extentflow.errors import ExtentflowError, SinkUnavailable
from extentflow.sink import SlotProgress
from extentflow.sink.producer import ProducerHandle
from extentflow.sink.progress import group_metadata, offset_of
from extentflow.sink.settings import Timeouts
from extentflow.sink.translate import error_of, resumable

# librdkafka returns within half of a commit's timeout plus this, if at all. Seen with 2.16.1:
# `send_offsets_to_transaction` has no timeout while it waits for its main thread, and never returns
# when a broker pauses at that moment.
HANG_SECONDS = 12.0
ABANDON_SECONDS = 0.5


def initialise(client: ProducerHandle, timeouts: Timeouts) -> None:
    """Fence the previous producer of the client's transactional id and abort what it left open.

    Raises:
        SinkUnavailable: no transaction coordinator answered within `fence_seconds`.
        Misconfigured: settings, credentials or permissions cannot work.
    """
    with client.calling() as producer:
        for seconds in timeouts.attempts(timeouts.fence_seconds):
            try:
                producer.init_transactions(seconds)
            except KafkaException as exc:
                if not resumable(error_of(exc)):
                    raise
                producer.poll(0)
                client.check_credentials()
            else:
                return
        raise SinkUnavailable(
            f"{client.subject}: no answer from the broker for {timeouts.fence_seconds:g} s"
            f"{client.hint()}"
        )


class Transactions:
    """The transactions of one producer, one after the other."""

    def __init__(self, client: ProducerHandle, identity: str, timeouts: Timeouts) -> None:
        self._client = client
        self._group = group_metadata(identity)
        self._timeouts = timeouts
        self._open = False
        self._interrupted = False
        self._committing = False

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
                    producer.begin_transaction()
                    self._open = True
                yield producer
            except KafkaException as exc:
                if error_of(exc).txn_requires_abort():
                    self._abort_before_dropping(producer)
                raise
            self._interrupted = False

    def commit(self, progress: SlotProgress) -> None:
        """Commit the sent records together with `progress`. Raises as `Sink.commit`."""
        offsets = [offset_of(progress)]
        with self.begun() as producer:
            self._committing = True
            self._resume(lambda seconds: self._send_offsets(producer, offsets, seconds))
            self._resume(producer.commit_transaction)
        self._open = self._committing = False

    def _send_offsets(
        self, producer: Producer, offsets: list[TopicPartition], seconds: float
    ) -> None:
        limit = seconds / 2 + HANG_SECONDS
        try:
            call_with_timeout(
                lambda: producer.send_offsets_to_transaction(offsets, self._group, seconds), limit
            )
        except TimeoutError:
            raise SinkUnavailable(
                f"{self._client.subject}: librdkafka did not answer send_offsets_to_transaction "
                f"within {limit:g} s{self._client.hint()}"
            ) from None

    def abort(self) -> None:
        """Abort the open transaction, if any. Raises as `Sink.commit`."""
        with self._client.calling() as producer:
            if self._open:
                self._resume(producer.abort_transaction)
        self._open = self._interrupted = self._committing = False
        self._client.clear_failure()

    def abandon(self) -> None:
        """Abort the open transaction before the producer is dropped, unless a commit was tried.

        Even a failed abort keeps librdkafka from adding partitions to the transaction, which during
        its destruction crashes the process (2.16.1, `Assertion rk_eos.txn_req_cnt > 0`).
        """
        if not self._open or self._committing:
            return
        with suppress(ExtentflowError), self._client.calling() as producer:
            producer.abort_transaction(ABANDON_SECONDS)

    def _resume(self, call: Callable[[float], None]) -> None:
        seconds = self._timeouts.commit_seconds
        for remaining in self._timeouts.attempts(seconds):
            try:
                return call(remaining)
            except KafkaException as exc:
                last = error_of(exc)
                if not resumable(last):
                    raise
        raise SinkUnavailable(
            f"{self._client.subject}: the outcome of a transaction is unknown after {seconds:g} s "
            f"({last.str()}){self._client.hint()}"
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
