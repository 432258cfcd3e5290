"""Exactly once: records and progress as one Kafka transaction.

Owns: the order of calls and what each failure permits. Refuses to know: slots, the ledger.

    idle ──first send──> open ──offsets, commit──> idle
      └──── commit ───────^  └──abort────────────> idle

A call that timed out is called again, and nothing else. An abort follows only where librdkafka
asks for it (`txn_requires_abort`). Every other failure, and every bound that runs out, ends the
producer; the slot's next owner aborts what was left open, or finds it committed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer, TopicPartition

from extentflow.background import call_with_timeout
from extentflow.errors import ExtentflowError, SinkUnavailable
from extentflow.sink import Records, RejectedRecord, SlotProgress
from extentflow.sink.enqueue import enqueue, require_equal_lengths
from extentflow.sink.native import Library, enqueue_arrays
from extentflow.sink.partitions import KnownTopics, PartitionBalancer
from extentflow.sink.producer import ProducerHandle
from extentflow.sink.progress import group_metadata, offset_of
from extentflow.sink.settings import Timeouts
from extentflow.sink.translate import error_of, resumable

# What a client that answers at all needs beyond half of a commit's time.
HANG_SECONDS = 12.0
ABANDON_SECONDS = 0.5


def initialise(client: ProducerHandle, timeouts: Timeouts) -> None:
    """Fence the previous producer of the client's transactional id and abort what it left open.

    Raises:
        SinkUnavailable: no coordinator answered within `fence_seconds`.
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
        self._torn = False
        self._committing = False

    @contextmanager
    def begun(self) -> Iterator[Producer]:
        """Lend the producer, with a transaction open. Raises as `Sink.commit`.

        When a signal interrupts what happens meanwhile, records may be half sent: from then on
        only an abort is possible.
        """
        with self._client.calling() as producer:
            if self._torn:
                raise SinkUnavailable(f"{self._client.subject}: the transaction was interrupted")
            self._torn = True
            try:
                if not self._open:
                    producer.begin_transaction()
                    self._open = True
                yield producer
            except KafkaException as exc:
                if error_of(exc).txn_requires_abort():
                    self._abort_before_dropping(producer)
                raise
            self._torn = False

    def commit(self, progress: SlotProgress) -> None:
        """Commit what was sent, and `progress` with it. Raises as `Sink.commit`."""
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
                f"{self._client.subject}: the client never answered an offset for a transaction "
                f"within {limit:g} s{self._client.hint()}"
            ) from None

    def abort(self) -> None:
        """Abort what was sent, if anything. Raises as `Sink.commit`."""
        with self._client.calling() as producer:
            if self._open:
                self._resume(producer.abort_transaction)
        self._open = self._torn = self._committing = False
        self._client.forgive()

    def abandon(self) -> None:
        """Abort what was sent, if nobody tried to commit it, before the producer is dropped.

        Whatever comes of it, librdkafka adds no partitions to the transaction any more: doing that
        while it is destroyed ends the process (2.16.1, `Assertion rk_eos.txn_req_cnt > 0`).
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
        """Spare consumers the wait for the transaction's time-out; a fence would do it, too."""
        for remaining in self._timeouts.attempts(self._timeouts.abort_seconds):
            try:
                producer.abort_transaction(remaining)
            except KafkaException as exc:
                if resumable(error_of(exc)):
                    continue
            return


@dataclass(slots=True)
class Arrays:
    """Whether whole arrays are queued; shared by the sinks that one broker opens.

    Records queued as arrays get no delivery reports: the transaction fails, and nobody says why.
    The next one then goes `careful`, record by record, so that a failure that lasts is told with
    topic, partition and reason, and ends at once where only a person can mend it.
    """

    library: Library
    careful: bool = False

    def take(self, records: Records) -> bool:
        """Whether these records are queued as arrays; headers need a call each."""
        return not self.careful and records.headers is None


class TransactionalSink:
    """`Sink` with `delivery.guarantee=exactly_once`.

    `spreads`: records without keys may go to any partition, and arrays of them go slice by slice.
    """

    def __init__(
        self,
        client: ProducerHandle,
        transactions: Transactions,
        topics: KnownTopics,
        arrays: Arrays | None = None,
        *,
        spreads: bool = False,
    ) -> None:
        self._client = client
        self._transactions = transactions
        self._topics = topics
        self._arrays = arrays
        self._spreads = spreads

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        """Queue records in the transaction, as `Sink.send`."""
        require_equal_lengths(records)
        self._topics.check(records)
        with self._carefully(), self._transactions.begun() as producer:
            check = self._client.check_deliveries
            if self._arrays is not None and self._arrays.take(records):
                turns = self._turns(records)
                return enqueue_arrays(self._arrays.library, producer, records, check, turns)
            return enqueue(producer, records, check)

    def _turns(self, records: Records) -> PartitionBalancer | None:
        if self._spreads and records.keys is None and records.partition < 0:
            return self._topics.turns(records.topic)
        return None

    def commit(self, progress: SlotProgress) -> None:
        """Commit records and progress, as `Sink.commit`."""
        with self._carefully():
            self._transactions.commit(progress)
        if self._arrays is not None:
            self._arrays.careful = False

    @contextmanager
    def _carefully(self) -> Iterator[None]:
        """After a failure, let the next transaction find out what exactly fails."""
        try:
            yield
        except SinkUnavailable:
            if self._arrays is not None:
                self._arrays.careful = True
            raise

    def abort(self) -> None:
        """Discard what was sent since the last commit, as `Sink.abort`."""
        self._transactions.abort()

    def close(self) -> None:
        """Drop the producer, as `Sink.close`."""
        self._transactions.abandon()
        self._client.close()
