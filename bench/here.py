"""An engine whose only worker is this process."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from extentflow.background import LeaseRenewer
from extentflow.engines import RunListener, Task, run_until_final
from extentflow.wiring import Runtime
from extentflow.wiring.extents import delivery_context, prepare_process


class Here:
    """An engine with one core. `close` keeps slot, producer and clients; `end` releases them.

    `stop` ends the current run; call `begin` before the next one.
    """

    cores = 1

    def __init__(self, runtime: Runtime) -> None:
        prepare_process()
        self.stopped = False
        self._slots = runtime.slots(f"bench-{uuid4().hex}")
        self._renew_seconds = runtime.settings.lease_seconds / 3
        self._work = replace(delivery_context(runtime, self._slots), stopping=lambda: self.stopped)

    def begin(self) -> None:
        """Clear the stop of the previous run."""
        self.stopped = False

    def run(self, tasks: Sequence[Task], watch: RunListener) -> None:
        """See `Engine.run`."""
        with LeaseRenewer(self._slots.renew, self._renew_seconds):
            for extent in (extent for task in tasks for extent in task.extents):
                if self.stopped:
                    return
                watch.on_receipt(run_until_final(extent, self._work))

    def stop(self) -> None:
        """See `Engine.stop`."""
        self.stopped = True

    def close(self) -> None:
        """See `Engine.close`; the next run continues with the same clients."""

    def end(self) -> None:
        """Release slot and producer."""
        self._slots.release()
