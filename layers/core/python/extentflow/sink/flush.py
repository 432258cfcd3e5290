"""At least once: an idempotent producer whose commit is a flush.

Owns: when records count as delivered. Refuses to know: progress (the ledger writes it after the
flush; a crash between the two doubles at most one chunk).
"""

from collections.abc import Callable, Sequence

from extentflow.errors import SinkUnavailable
from extentflow.sink import Records, RejectedRecord, SlotProgress
from extentflow.sink.enqueue import enqueue, require_equal_lengths
from extentflow.sink.partitions import KnownTopics
from extentflow.sink.producer import ProducerHandle
from extentflow.sink.settings import Timeouts


class FlushingSink:
    """`Sink` with `delivery.guarantee=at_least_once`."""

    def __init__(self, make: Callable[[], ProducerHandle], timeouts: Timeouts) -> None:
        self._make = make
        self._timeouts = timeouts
        self._renew()

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        """Queue records, as `Sink.send`."""
        require_equal_lengths(records)
        self._topics.check(records)
        with self._client.calling() as producer:
            return enqueue(producer, records, self._client.check_deliveries)

    def commit(self, progress: SlotProgress) -> None:  # noqa: ARG002 - the ledger keeps it
        """Wait until every record was acknowledged, as `Sink.commit`."""
        self._drain(self._client.check_deliveries)

    def abort(self) -> None:
        """Discard what did not leave yet; what did may be delivered twice.

        The producer goes, too: its queues are purged some time after `purge` returned
        (confluent-kafka 2.16 takes `blocking` for its opposite), and with them whatever would
        have been sent meanwhile. What is under way is waited for, so that order is kept.
        """
        with self._client.calling() as producer:
            producer.purge(in_queue=True, in_flight=False)
        self._drain(_ignore)
        self._client.close()
        self._renew()

    def close(self) -> None:
        """Drop the producer, as `Sink.close`."""
        self._client.close()

    def _renew(self) -> None:
        self._client = self._make()
        self._topics = KnownTopics(self._client, self._timeouts)

    def _drain(self, check: Callable[[], None]) -> None:
        seconds = self._timeouts.commit_seconds
        with self._client.calling() as producer:
            for remaining in self._timeouts.attempts(seconds):
                waiting = producer.flush(remaining)
                check()
                if not waiting:
                    return
            raise SinkUnavailable(
                f"{self._client.subject}: {waiting} records not acknowledged after {seconds:g} s"
                f"{self._client.hint()}"
            )


def _ignore() -> None:
    """Ask nobody: what was discarded may have failed."""
