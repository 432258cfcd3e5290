"""A deployment: functions, queues, and event sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

TimeSource = Literal["aws.events", "aws.scheduler"]
FrontKind = Literal["http-api", "function-url"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """The dead letter queue for messages that were received `most_receives` times."""

    arn: str
    most_receives: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """An SQS queue; `redrive` names its dead letter queue."""

    name: str
    arn: str
    url: str
    visibility_seconds: int = 30
    retention_seconds: int = 345_600
    delay_seconds: int = 0
    wait_seconds: int = 0
    redrive: Redrive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A Lambda function; its code is the folder `name`, its `environment` is resolved.

    `may_recurse`: Lambda lets it be called by what it sent, however often (RecursiveLoop: Allow).
    """

    name: str
    arn: str
    handler: str
    runtime: str
    timeout_seconds: float
    memory_mib: int
    environment: Mapping[str, str] = field(default_factory=dict)
    reserved: int | None = None
    may_recurse: bool = False

    @property
    def deployed_name(self) -> str:
        """Its name in Lambda."""
        return self.arn.rpartition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMapping:
    """Messages of a queue invoke a function, in batches."""

    function: str
    queue_arn: str
    batch_size: int = 10
    most_concurrent: int | None = None
    reports_failures: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule invokes a function; `payload` is JSON if it is fixed."""

    function: str
    arn: str
    every_seconds: float
    source: TimeSource
    payload: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Events of AWS's default bus that match `pattern` invoke a function."""

    function: str
    pattern: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """HTTP requests invoke a function; `key` as in API Gateway, `$default` or `POST /path`."""

    function: str
    key: str
    front: FrontKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Everything that one template defines for an event path."""

    functions: Mapping[str, Function]
    queues: tuple[Queue, ...]
    mappings: tuple[SourceMapping, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()
    routes: tuple[Route, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def sqs(self) -> str:
        """The SQS server's address."""
        return self.queues[0].url.rsplit("/", 2)[0]

    def run_here(self) -> list[str]:
        """Return the functions that have an event source, in the template's order."""
        woken = {one.function for one in self.mappings}
        woken |= {one.function for one in self.schedules} | {one.function for one in self.routes}
        woken |= {one.function for one in self.subscriptions}
        return [name for name in self.functions if name in woken]

    def queue_of(self, function: str) -> Queue:
        """Return the queue whose messages invoke a function."""
        (mapping,) = (one for one in self.mappings if one.function == function)
        return self.queue(mapping.queue_arn)

    def dead_letter_queue_of(self, function: str) -> Queue:
        """Return the dead letter queue of a function's queue."""
        queue = self.queue_of(function)
        if queue.redrive is None:
            raise LookupError(f"{queue.name} has no dead letter queue")
        return self.queue(queue.redrive.arn)

    def queue(self, arn: str) -> Queue:
        """Return the queue with an ARN."""
        (queue,) = (one for one in self.queues if one.arn == arn)
        return queue

    def with_function(self, name: str, **changes: Any) -> Self:  # noqa: ANN401 - fields of Function
        """Return a copy with a function changed, such as `timeout_seconds`."""
        changed = replace(self.functions[name], **changes)
        return replace(self, functions={**self.functions, name: changed})

    def with_queue(self, function: str, **changes: Any) -> Self:  # noqa: ANN401 - fields of Queue
        """Return a copy with the queue of a function changed, such as `visibility_seconds`."""
        queue = self.queue_of(function)
        changed = tuple(replace(one, **changes) if one == queue else one for one in self.queues)
        return replace(self, queues=changed)

    def with_mapping(self, function: str, **changes: Any) -> Self:  # noqa: ANN401 - fields of it
        """Return a copy with the mapping of a function changed, such as `batch_size`."""
        changed = (
            replace(one, **changes) if one.function == function else one for one in self.mappings
        )
        return replace(self, mappings=tuple(changed))

    def without_mapping(self, function: str) -> Self:
        """Return a copy without the mapping of a function."""
        kept = tuple(one for one in self.mappings if one.function != function)
        return replace(self, mappings=kept)

    def with_schedule(self, function: str, **changes: Any) -> Self:  # noqa: ANN401 - fields of it
        """Return a copy with the schedule of a function changed, such as `every_seconds`."""
        changed = (
            replace(one, **changes) if one.function == function else one for one in self.schedules
        )
        return replace(self, schedules=tuple(changed))
