"""A deployment's whole event path on one machine, from start to stop.

deployment ──> queues, then pollers, HTTP port, clock ──> pools of the functions' processes
stop: receive nothing more, complete invocations, stop every process
"""

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from botocore.config import Config

from extentflow.aws import new_session
from extentflow.retry import Clock
from extentflow_local.aws.event_source.delivery import Delivery, Observe, write_down
from extentflow_local.aws.event_source.deployment import Deployment, Schedule, SourceMapping
from extentflow_local.aws.event_source.execution import Outcome
from extentflow_local.aws.event_source.front import Front
from extentflow_local.aws.event_source.mapping import Poller
from extentflow_local.aws.event_source.patterns import wants
from extentflow_local.aws.event_source.place import Place
from extentflow_local.aws.event_source.pool import Pool
from extentflow_local.aws.event_source.queues import create_queues
from extentflow_local.aws.event_source.schedule import Ticker
from extentflow_local.stack.servers import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

log = logging.getLogger(__name__)

GRACE_SECONDS = 30.0
_CLOCK = Clock()


class ThreadedSource(Protocol):
    """An event source with threads of its own."""

    def start(self) -> None:
        """Start."""
        ...

    def stop(self) -> None:
        """Start no further invocation; return at once."""
        ...

    def join(self, seconds: float | None = None) -> None:
        """Wait until running invocations have ended, for at most the given time."""
        ...


class EventSource:
    """Runs a deployment; as a context manager from start to stop.

    `observe` is called after each invocation, on its thread.

    Raises:
        Misconfigured: a function's code is not in `place`.
        ProgramMissing: the runtime client cannot run here.
    """

    def __init__(
        self,
        deployment: Deployment,
        place: Place,
        *,
        observe: Observe = lambda _delivery: None,
        clock: Clock = _CLOCK,
    ) -> None:
        self.deployment = deployment
        self._place = place
        self._listener = observe
        self._clock = clock
        self._client = _client(deployment)
        place.require(deployment)
        self._pools = {
            name: Pool(place.starter(deployment, name, clock), place.most(deployment, name))
            for name in deployment.run_here()
        }
        self._tickers = {one.function: self._ticker(one) for one in deployment.schedules}
        self._waking: list[ThreadedSource] = []
        self._front: Front | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stop(grace_seconds=GRACE_SECONDS if error is None else 0)

    @property
    def url(self) -> str:
        """Address of the HTTP port."""
        if self._front is None:
            raise LookupError(
                "no HTTP port: the event source was not started, or no route is deployed"
            )
        return self._front.url

    def start(self) -> None:
        """Create the queues, and start pollers, HTTP port and schedules."""
        create_queues(self._client, self.deployment.queues)
        if self.deployment.routes:
            self._front = Front(
                self.deployment.routes,
                self._place.http_port,
                invoke=self.invoke,
                observe=self._observe,
                clock=self._clock,
            )
            self._front.start()
        self._waking += [self._poller(mapping) for mapping in self.deployment.mappings]
        self._waking += self._tickers.values()
        for one in self._waking:
            one.start()
        for name, pool in self._pools.items():
            log.info("%s runs in %d processes at most", name, pool.most)

    def stop(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Stop event sources, wait `grace_seconds` for invocations, end every process.

        Idempotent. Messages of invocations that were killed return to their queue.
        """
        deadline = self._clock.monotonic() + grace_seconds
        for one in self._waking:
            one.stop()
        for one in self._waking:
            one.join(max(0.0, deadline - self._clock.monotonic()))
        for pool in self._pools.values():
            pool.close(max(0.0, deadline - self._clock.monotonic()))
        for one in self._waking:
            one.join()
        if self._front is not None:
            self._front.stop()
            self._front = None
        self._client.close()

    def invoke(self, function: str, event: bytes) -> Outcome:
        """Call a function with an event, JSON, and wait for its result."""
        return self._pools[function].invoke(event)

    def trigger(self, function: str) -> Outcome:
        """Call a scheduled function now with its event, and wait for its result."""
        return self._tickers[function].trigger()

    def receive_event(self, event: Mapping[str, Any]) -> None:
        """Call the functions whose rules match an AWS event, once each, and wait for them.

        Thread-safe.
        """
        for one in self.deployment.subscriptions:
            if wants(one.pattern, event):
                outcome = self.invoke(one.function, json.dumps(event).encode())
                self._observe(Delivery(function=one.function, outcome=outcome))

    def pids(self, function: str) -> list[int]:
        """Return a function's processes, busy ones first."""
        return self._pools[function].pids()

    def freeze(self, function: str) -> list[int]:
        """Suspend a function's idle processes, as Lambda does, until the next invocation."""
        return self._pools[function].freeze()

    def _observe(self, delivery: Delivery) -> None:
        write_down(delivery)
        self._listener(delivery)

    def _poller(self, mapping: SourceMapping) -> Poller:
        return Poller(
            mapping,
            client=self._client,
            queue_url=self.deployment.queue(mapping.queue_arn).url,
            invoke=self._pools[mapping.function].invoke,
            function=self.deployment.functions[mapping.function],
            concurrency=self._place.most(self.deployment, mapping.function),
            observe=self._observe,
        )

    def _ticker(self, schedule: Schedule) -> Ticker:
        return Ticker(
            schedule,
            invoke=self._pools[schedule.function].invoke,
            observe=self._observe,
            clock=self._clock,
        )


def _client(deployment: Deployment) -> "SQSClient":
    return new_session().client(
        "sqs",
        endpoint_url=deployment.sqs,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(
            connect_timeout=3,
            read_timeout=30,
            max_pool_connections=64,
            retries={"total_max_attempts": 1},
        ),
    )
