"""The Python API: deliver objects, iterate over receipts, inspect jobs, manage connectors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue

from extentflow.background import BackgroundCall
from extentflow.config.worker import WorkerSettings, with_ledger
from extentflow.engines import Engine
from extentflow.jobs.run import RunReport
from extentflow.model import Receipt
from extentflow.services.connectors import Connectors
from extentflow.services.jobs import Jobs
from extentflow.services.orders import Orders, StoredOrder
from extentflow.services.plans import Plans
from extentflow.services.run_control import EngineChoice, Listener, RunControl
from extentflow.services.runs import Runs
from extentflow.wiring import Runtime, open_engine
from extentflow.wiring.extents import INLINE

OnReceipt = Callable[[Receipt], object]


class Extentflow:
    """One configured stack: a ledger, a Kafka cluster, and the connectors in the ledger.

    `settings` are worker keys such as `bootstrap.servers` (docs/configuration.md); without them the
    environment is read, as the command line does. Nothing is connected before the first call.

        flow = Extentflow({"bootstrap.servers": "localhost:9092"})
        flow.connectors.put({"name": "orders", "topic": "orders", "aws.s3.bucket.name": "shop"})
        report = flow.deliver("s3://shop/in/", connector="orders")
        assert report.ok, report.errors

    Every method raises `Misconfigured` with all problems at once where something is missing or
    wrong, and a subclass of `Retryable` where a service is unavailable (`extentflow.errors`).
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        runtime: Runtime | None = None,
        open_engine: Callable[..., Engine] = open_engine,
    ) -> None:
        """Use `settings`, or the environment's; tests pass a `runtime` and engine of doubles."""
        if runtime is None and settings is not None:
            runtime = Runtime(with_ledger(WorkerSettings.from_map(settings), os.environ))
        self._runtime = runtime or Runtime.from_environment()
        self._open_engine = open_engine

    @property
    def connectors(self) -> Connectors:
        """Put, list, get, delete, pause, resume and stop connectors."""
        return Connectors(self._runtime.ledger)

    @property
    def jobs(self) -> Jobs:
        """List and get jobs, submit objects to the deployed functions, redrive dead letters."""
        return Jobs(self._runtime)

    def plan(self, *addresses: str, connector: str) -> Plans:
        """Return how a connector cuts the addressed objects; nothing is written."""
        return self._runs(RunControl()).plan(self._order(connector, addresses))

    def deliver(
        self,
        *addresses: str,
        connector: str,
        engine: str = INLINE,
        cores: int | None = None,
        again: bool = False,
        failed: bool = False,
        on_receipt: OnReceipt | None = None,
    ) -> RunReport:
        """Deliver objects into Kafka, exactly once, and return when every job has ended.

        An address is an object, a prefix or a glob; without any, everything that the connector
        reads. Jobs that are DONE are only reported, unless `again`; with `failed` only objects
        whose jobs FAILED or are CANCELLED are delivered, under the connector's latest revision.
        Failures of single objects are in the report: `report.ok`, `report.errors`, `report.jobs`.
        `on_receipt` is called in this process for each processed extent. `engine` is `inline`
        (processes of this machine), `spark` or a remote one.
        """
        control = RunControl(watch=lambda: nullcontext(Listener(on_receipt)))
        choice = EngineChoice(engine, cores)
        order = self._order(connector, addresses)
        return self._runs(control).run(order, engine=choice, again=again, failed=failed)

    def receipts(
        self,
        *addresses: str,
        connector: str,
        engine: str = INLINE,
        cores: int | None = None,
        again: bool = False,
    ) -> Generator[Receipt, None, RunReport]:
        """Deliver as `deliver` does, and yield each extent's receipt as soon as it arrives.

        The generator's return value is the report. Closing it stops the delivery: extents in work
        commit and stay pending, and the next delivery resumes them.
        """
        found: SimpleQueue[Receipt | None] = SimpleQueue()
        stop = _Stop()
        control = RunControl(watch=lambda: nullcontext(Listener(found.put)), stop_on=stop.on)
        choice = EngineChoice(engine, cores)

        def deliver() -> RunReport:
            try:
                order = self._order(connector, addresses)
                return self._runs(control).run(order, engine=choice, again=again)
            finally:
                found.put(None)

        delivery, ended = BackgroundCall(deliver, "extentflow-delivery"), False
        try:
            while (receipt := found.get()) is not None:
                yield receipt
            ended = True
        finally:
            if not ended and not delivery.wait(0):
                stop.request()
            delivery.wait()
        return delivery.result()

    def replay(
        self,
        job: str,
        *,
        engine: str = INLINE,
        extent: int | None = None,
        accept_duplicates: bool = False,
    ) -> RunReport:
        """Deliver what a FAILED or CANCELLED job has left; with `extent` only that one."""
        return self._runs(RunControl()).replay(
            job, engine=EngineChoice(engine), extent=extent, accept_duplicates=accept_duplicates
        )

    def _order(self, connector: str, addresses: Sequence[str]) -> StoredOrder:
        return Orders.of(self._runtime).stored(connector, addresses)

    def _runs(self, control: RunControl) -> Runs:
        return Runs(self._runtime, control, self._open_engine)


@dataclass(slots=True)
class _Stop:
    """Stops the engine of a delivery, also one that starts later."""

    requested: threading.Event = field(default_factory=threading.Event)
    engine: Callable[[], None] = lambda: None

    def request(self) -> None:
        self.requested.set()
        self.engine()

    @contextmanager
    def on(self, engine: Callable[[], None]) -> Iterator[Callable[[], bool]]:
        self.engine = engine
        if self.requested.is_set():
            engine()
        yield self.requested.is_set


def deliver(
    *addresses: str,
    connector: str,
    engine: str = INLINE,
    settings: Mapping[str, str] | None = None,
    on_receipt: OnReceipt | None = None,
) -> RunReport:
    """Deliver objects as `Extentflow.deliver` does, with settings of the environment."""
    flow = Extentflow(settings)
    return flow.deliver(*addresses, connector=connector, engine=engine, on_receipt=on_receipt)
