"""The arrivals queue: SQS where its URL is set, else a table beside a ledger in SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from extentflow.config.ledgers import POSTGRESQL, SQLITE
from extentflow.config.worker import IGNORE
from extentflow.discovery.admission import ArrivalHandler
from extentflow.discovery.intake import ArrivalWorker
from extentflow.errors import Misconfigured, NotOffered
from extentflow.ledger.server_calls import retry_policy
from extentflow.queue import Backfill, Queue
from extentflow.queue.consumer import QueueDrain
from extentflow.wiring import functions
from extentflow.wiring.options import ledger_options
from extentflow.wiring.runtime import Runtime

if TYPE_CHECKING:
    from extentflow.queue.sql_queue import SqlQueue

# The setting of each queue, and its name in the table.
ARRIVALS, DEAD = "arrivals_queue_url", "arrivals_dlq_url"
NAMES = {ARRIVALS: "arrivals", DEAD: "arrivals.dlq"}
# Of dead letters, as long as a queue of SQS keeps them at most.
KEEP_SECONDS = {DEAD: 14 * 86_400.0}
# How long a request to the receiver may wait: its sender keeps the notification, and repeats it.
ENQUEUE_SECONDS = 5.0
# Of arrivals, between two polls of a streaming query; then the jobs that they made come first.
INTAKE_SECONDS = 10.0


def own_queue(runtime: Runtime, setting: str, *, most_seconds: float | None = None) -> SqlQueue:
    """Return one of the queues beside the ledger; `most_seconds` bounds each of its calls."""
    # Functions have no SQLAlchemy, and import this module's callers.
    from extentflow.ledger.sql_calls import SqlCalls  # noqa: PLC0415
    from extentflow.queue.sql_queue import SqlQueue  # noqa: PLC0415

    options = ledger_options(runtime.settings, runtime.secrets)
    if most_seconds is not None:
        options = replace(options, retry_seconds=min(options.retry_seconds, most_seconds))
    calls = SqlCalls(options, retry_policy(options))
    return SqlQueue(calls, NAMES[setting], KEEP_SECONDS.get(setting))


@dataclass(frozen=True, slots=True)
class StackQueues:
    """The queues of a process's settings, and those beside its ledger."""

    runtime: Runtime

    @property
    def are_own(self) -> bool:
        """Whether notifications are kept in a table beside the ledger."""
        in_sql = self.runtime.ledger_address.scheme in (POSTGRESQL, SQLITE)
        return in_sql and self.runtime.settings.arrivals_queue_url is None

    def open(self, setting: str) -> Queue:
        """Return a queue that may be beside the ledger. Raises Misconfigured if there is none."""
        if setting in NAMES and self.are_own:
            self.create_own()
            return own_queue(self.runtime, setting)
        return functions.queue(self.runtime.settings, setting)

    def create_own(self) -> None:
        """Create the table of the queues beside the ledger, where there is to be one."""
        if self.are_own:
            _ = self.runtime.ledger.id  # raises where the ledger is missing or of another release
            own_queue(self.runtime, ARRIVALS).create()

    def list(self) -> Iterator[tuple[str, Queue]]:
        """Yield the queues that are set, or that exist beside the ledger, each after its name."""
        if self.are_own:
            for setting in NAMES:
                if (found := own_queue(self.runtime, setting)).exists():
                    yield functions.queue_name(setting), found
        yield from functions.queues(self.runtime.settings)


def open_receiving_queue(runtime: Runtime) -> Queue:
    """Return the arrivals queue for a receiver: it answers or raises within a few seconds.

    Raises Misconfigured where there is neither a queue nor a ledger in SQL.
    """
    queues = StackQueues(runtime)
    if not queues.are_own:
        if runtime.settings.arrivals_queue_url is None:
            raise Misconfigured(
                f"{runtime.ledger_address} keeps no notifications; set"
                " ledger.url=postgresql://user@host/database, or arrivals.queue.url to a queue of"
                " SQS"
            )
        return functions.queue(runtime.settings, ARRIVALS)
    queues.create_own()
    return own_queue(runtime, ARRIVALS, most_seconds=ENQUEUE_SECONDS)


@dataclass(slots=True)
class ArrivalIntake:
    """Registers jobs for what is in the arrivals queue, for a while at a time.

    `stopping` returns whether to take no further message or object.
    """

    runtime: Runtime
    arrivals: Queue
    dead: Queue
    stopping: Callable[[], bool]
    _ends: float = field(default=0.0, init=False)
    _drain: QueueDrain = field(init=False)

    def __post_init__(self) -> None:
        planner, monotonic = self.runtime.planner(), self.runtime.clock.monotonic
        handler = ArrivalHandler(
            context=functions.RuntimeContext(self.runtime),
            planner=planner,
            start=planner.plan,
            kept=self.dead,
            arrivals=self.arrivals,
            backfill=_refuse_backfill,
            late=self._is_late,
            ignores_unmatched=self.runtime.settings.arrivals_unmatched == IGNORE,
        )
        worker = ArrivalWorker(handler, self.arrivals, self.runtime.random)
        self._drain = QueueDrain(worker, monotonic, self._is_late, wait_seconds=0.0)

    def take(self, *, most: int, seconds: float = INTAKE_SECONDS) -> int:
        """Process at most `most` messages; return how many. An unavailable queue counts as empty.

        Their jobs are registered and planned; no extent is sent anywhere.
        """
        self._ends = self.runtime.clock.monotonic() + seconds
        return sum(1 for _ in self._drain.answers(most=most, seconds=seconds))

    def _is_late(self) -> bool:
        return self.stopping() or self.runtime.clock.monotonic() >= self._ends


def open_intake(runtime: Runtime, stopping: Callable[[], bool]) -> ArrivalIntake | None:
    """Return what registers jobs for notifications; None while no receiver keeps them here."""
    if not StackQueues(runtime).are_own:
        return None
    arrivals = own_queue(runtime, ARRIVALS)
    return (
        ArrivalIntake(runtime, arrivals, own_queue(runtime, DEAD), stopping)
        if arrivals.exists()
        else None
    )


def _refuse_backfill(wanted: Backfill) -> None:
    raise NotOffered(
        f"backfill {wanted.id} of connector {wanted.connector}: only functions start Spark for it;"
        f" `extentflow run -c {wanted.connector} --engine spark` delivers the objects"
    )
