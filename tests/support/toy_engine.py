"""A plug-in engine: one worker on the driver's own thread."""

from collections.abc import Callable, Sequence

from extentflow.engines import RunListener, Task, Worker, WorkerSpec, run_in_turn


class ToyEngine:
    """Runs every task in turn with one worker that it opens at the first task."""

    def __init__(
        self, spec: WorkerSpec[Worker], *, cores: int, evict: Callable[[str], int]
    ) -> None:
        self.cores = min(cores, 1)
        self.spec = spec
        self._evict = evict
        self._worker: Worker | None = None
        self._stopped = False

    def run(self, tasks: Sequence[Task], listener: RunListener) -> None:
        if self._worker is None:
            self._worker = self.spec.open(self.spec.settings, f"{self.spec.run}/toy")
        for task in tasks:
            if self._stopped:
                return
            for receipt in run_in_turn(task.extents, self._worker.run):
                listener.on_receipt(receipt)

    def stop(self) -> None:
        self._stopped = True
        if self._worker is not None:
            self._worker.stop()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._evict(self.spec.run)
