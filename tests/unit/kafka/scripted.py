"""A producer that answers from a script, for what no broker does on demand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from extentflow.kafka.producer import ProducerHandle
from extentflow.kafka.settings import Timeouts
from extentflow.retry import Clock

Answer = BaseException | None


class Time:
    """A clock that advances by half a second at every reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        self.now += 0.5
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def timeouts(seconds: float = 10) -> Timeouts:
    """Return timeouts that all are `seconds` of a simulated clock."""
    time = Time()
    return Timeouts(
        request_seconds=seconds,
        topic_seconds=seconds,
        fence_seconds=seconds,
        read_seconds=seconds,
        commit_seconds=seconds,
        abort_seconds=seconds,
        retry=replace(
            Timeouts().retry,
            clock=Clock(monotonic=time.read, wall=time.read, sleep=time.sleep),
        ),
    )


def error(
    name: str, *, retriable: bool = False, fatal: bool = False, abort: bool = False
) -> KafkaException:
    code = getattr(KafkaError, name)
    return KafkaException(KafkaError(code, name, fatal, retriable, abort))


TIMED_OUT = error("_TIMED_OUT", retriable=True)
FENCED = error("_FENCED", fatal=True)
MUST_ABORT = error("INVALID_PRODUCER_ID_MAPPING", abort=True)


class ScriptedProducer:
    """Records every call; `answers[name]` are raised one after the other, None succeeds."""

    def __init__(
        self, leaders: Mapping[int, int] | None = None, **answers: Sequence[Answer]
    ) -> None:
        self.leaders = dict.fromkeys(range(4), 1) if leaders is None else leaders
        self.calls: list[str] = []
        self.sent: list[tuple[Any, ...]] = []
        self.offsets: list[tuple[Any, ...]] = []
        self.purged: list[dict[str, bool]] = []
        self.settings: dict[str, Any] = {}
        self.queue_limit: int | None = None
        self.waiting: list[int] = []
        self.unsent: list[int] = []
        self.topic_errors: list[str] = []
        self.deleted: str | None = None
        self._answers = {name: list(given) for name, given in answers.items()}

    def made(self, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - stands in for a Producer
        self.settings = settings
        return self

    def client(self, settings: Mapping[str, str] | None = None) -> ProducerHandle:
        return ProducerHandle(settings or {}, "slot test", make=self.made)

    def fail_delivery(self, name: str) -> None:
        self.settings["on_delivery"](error(name).args[0], _Message())

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        _callback: None = None,
        _on_delivery: None = None,
        _timestamp: int = 0,
        headers: object = None,
    ) -> None:
        if self.queue_limit is not None and len(self.sent) >= self.queue_limit:
            self.calls.append("produce: queue full")
            raise BufferError
        self._answer("produce")
        self.sent.append((topic, value, key, partition, headers))

    def __len__(self) -> int:
        return self.unsent.pop(0) if self.unsent else 0

    def poll(self, _: float = 0) -> int:
        self._answer("poll")
        if self.queue_limit is not None:
            self.queue_limit += 1
        return 0

    def flush(self, _: float) -> int:
        self._answer("flush")
        return self.waiting.pop(0) if self.waiting else 0

    def list_topics(self, topic: str, _: float) -> "_Metadata":
        """Tell `topic_errors` one after the other, then a topic with `leaders`, or `deleted`."""
        self._answer("list_topics")
        code = self.topic_errors.pop(0) if self.topic_errors else None
        code = "UNKNOWN_TOPIC_OR_PART" if topic == self.deleted else code
        partitions = {number: _Partition(leader) for number, leader in self.leaders.items()}
        return _Metadata({topic: _Topic(error(code).args[0] if code else None, partitions)})

    def purge(self, **what: bool) -> None:
        self.purged.append(what)
        self._answer("purge")

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], group: bytes, _: float
    ) -> None:
        self.offsets.append(
            (*((o.topic, o.partition, o.offset, o.metadata) for o in offsets), group)
        )
        self._answer("send_offsets_to_transaction")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self._answer(name)

    def _answer(self, name: str) -> None:
        self.calls.append(name)
        answer = self._answers[name].pop(0) if self._answers.get(name) else None
        if answer is not None:
            raise answer


@dataclass
class _Partition:
    leader: int


@dataclass
class _Topic:
    error: KafkaError | None
    partitions: Mapping[int, _Partition]


@dataclass
class _Metadata:
    topics: dict[str, _Topic]


class _Message:
    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3
