"""An engine on the calling thread and a recording listener, for tests that drive runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from extentflow.delivery.runner import DeliveryContext
from extentflow.engines import RunListener, Task, run_until_final
from extentflow.model import Extent, Receipt

RunOne = Callable[[Extent], Receipt]


def until_final(work: DeliveryContext) -> RunOne:
    """Return what a worker does with one extent."""
    return lambda extent: run_until_final(extent, work)


@dataclass
class RecordingListener:
    """A watch that remembers."""

    expected: list[Extent] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)

    def on_extent(self, extent: Extent) -> None:
        self.expected.append(extent)

    def on_receipt(self, receipt: Receipt) -> None:
        self.receipts.append(receipt)


@dataclass
class CallingThreadEngine:
    """Runs tasks one after the other; without `run_one` it only takes them.

    `echoes` is how often the watch is shown each receipt.
    """

    run_one: RunOne | None = None
    cores: int = 2
    echoes: int = 1
    runs: list[list[Task]] = field(default_factory=list)
    closed: bool = False

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        self.runs.append(list(tasks))
        for extent in (extent for task in tasks for extent in task.extents):
            if self.run_one is not None:
                receipt = self.run_one(extent)
                for _ in range(self.echoes):
                    watch.on_receipt(receipt)

    def stop(self) -> None:
        """Nothing runs on."""

    def close(self) -> None:
        self.closed = True

    @property
    def extents(self) -> list[tuple[str, int]]:
        """What was taken, in order."""
        return [(e.job, e.ordinal) for run in self.runs for task in run for e in task.extents]
