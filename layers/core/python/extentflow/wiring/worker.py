"""A worker process: a site, a slot, and the extent in work.

Owns: `open_worker`, the function that engines call in faraway processes. Refuses to know: engines.
"""

from dataclasses import replace
from functools import partial

import pyarrow as pa

from extentflow.background import LeaseRenewer, prefetch
from extentflow.config.worker import WorkerSettings
from extentflow.delivery.connector_state import Wanted
from extentflow.delivery.runner import Limits, Work
from extentflow.delivery.slots import Slots
from extentflow.engines import run_until_final
from extentflow.memory import tune_allocator
from extentflow.model import Extent, Receipt
from extentflow.wiring.site import Site


class SiteWorker:
    """One worker process: a site, a slot, and the extent in work."""

    def __init__(self, site: Site, owner: str) -> None:
        self._stopping = False
        self._slots = site.slots(owner)
        self._renew_seconds = site.settings.lease_seconds / 3
        self._work = replace(work_of(site, self._slots), stopping=self.stopping)
        self._wanted = Wanted(site.ledger, site.clock.monotonic)

    def run(self, extent: Extent) -> Receipt:
        """See `engines.Worker`."""
        with LeaseRenewer(self._slots.renew, self._renew_seconds):
            return run_until_final(extent, self._work, self._wanted.rests)

    def stop(self) -> None:
        """See `engines.Worker`."""
        self._stopping = True

    def stopping(self) -> bool:
        """Whether the extent in work shall commit and be handed back; asked at every chunk."""
        return self._stopping

    def close(self) -> None:
        """See `engines.Worker`."""
        self._slots.release()


def work_of(site: Site, slots: Slots) -> Work:
    """Return what `run_extent` needs, from one process's site and slots."""
    settings = site.settings
    return Work(
        open=site.pipeline,
        dead_letters=site.dead_letters,
        client=site.client,
        slots=slots,
        ledger=site.ledger,
        limits=Limits(
            transaction_bytes=settings.transaction_max_bytes,
            transaction_seconds=settings.transaction_max_seconds,
            attempts=settings.extent_attempts_max,
            retry_seconds=settings.retry_timeout_seconds,
        ),
        clock=site.clock,
        random=site.random,
        ahead=partial(
            prefetch,
            size_bytes=lambda prepared: prepared.payload_bytes,
            budget_bytes=settings.extent_ahead_bytes,
        ),
        fetched_bytes=site.fetched_bytes,
    )


def prepare_process() -> None:
    """Take one core and no more memory than that needs, in the process that calls this.

    Arrow's own allocator either keeps as much as it uses, or gives pages back so soon that clearing
    new ones takes a quarter of a worker's time; it stays where the C allocator is not glibc's.
    """
    pa.set_cpu_count(1)
    if tune_allocator():
        pa.set_memory_pool(pa.system_memory_pool())


def open_worker(settings: dict[str, str], owner: str) -> SiteWorker:
    """Become a worker, in the process that calls this (see `engines.WorkerSpec`)."""
    prepare_process()
    return SiteWorker(Site(WorkerSettings.from_map(settings)), owner)
