"""Workers that discard records: the cost of delivery without the work of a broker.

Ownership and progress are real: fences, transactions and offsets are Kafka's, so that ledger and
Kafka agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from extentflow.config.worker import WorkerSettings
from extentflow.kafka import Fence, ProducerSettings, Records, RejectedRecord, Sink, SlotProgress
from extentflow.kafka.broker import KafkaBroker
from extentflow.wiring import Runtime
from extentflow.wiring.extents import ExtentWorker, prepare_process


@dataclass(slots=True)
class DroppingSink:
    """A `Sink` that forwards only progress. `records` is the number of discarded records."""

    sink: Sink
    records: int = 0

    def send(self, records: Records) -> Sequence[RejectedRecord]:
        """Count and discard the records."""
        self.records += len(records.values)
        return ()

    def commit(self, progress: SlotProgress) -> None:
        """Commit the progress."""
        self.sink.commit(progress)

    def abort(self) -> None:
        """Discard, as `Sink.abort`."""
        self.sink.abort()

    def close(self) -> None:
        """See `Sink.close`."""
        self.sink.close()


@dataclass(frozen=True, slots=True)
class DroppingFence:
    """`Fence` that opens a DroppingSink."""

    fence: Fence

    def read(self) -> SlotProgress | None:
        """See `Fence.read`."""
        return self.fence.read()

    def mark(self, progress: SlotProgress) -> None:
        """See `Fence.mark`."""
        self.fence.mark(progress)

    def open(self) -> Sink:
        """See `Fence.open`."""
        return DroppingSink(self.fence.open())

    def close(self) -> None:
        """See `Fence.close`."""
        self.fence.close()


class DroppingBroker(KafkaBroker):
    """A KafkaBroker that receives no records."""

    def fence(self, identity: str, client: ProducerSettings) -> Fence:  # type: ignore[override]
        """Return a fence whose sinks discard records."""
        return DroppingFence(super().fence(identity, client))


class DroppingRuntime(Runtime):
    """A Runtime with such a broker."""

    @cached_property
    def broker(self) -> KafkaBroker:
        """The Kafka cluster of `bootstrap.servers`, for progress only."""
        return DroppingBroker(
            {"bootstrap.servers": self.settings.bootstrap_servers, **self.settings.kafka},
            transaction_timeout_ms=self.settings.transaction_timeout_ms,
        )


def open_dropping_worker(settings: dict[str, str], owner: str) -> ExtentWorker:
    """Open such a worker in this process (see `engines.WorkerSpec`)."""
    prepare_process()
    runtime = DroppingRuntime(WorkerSettings.from_map(settings))
    return ExtentWorker(runtime, runtime.slots(owner))
