"""The faults of a round, drawn from the seed, and their end.

kill, freeze   commands, workers of both engines, functions; also while they start
               driver, executors, workers and machines of the standing query
broker         killed, restarted, paused; connections reset, slow; topic denied, missing
               records of a topic deleted
store          500, 503, resets, cut and short bodies, wrong ETags, 200 for a range, slow, late
ledger         throttled, 500, conflicts, lost answers, resets, slow, late; of SQL see `ledgers`
queues         lost answers, 500, resets, slow; messages doubled, reordered, visible early
objects        replaced, deleted; equal bytes uploaded again
"""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event, Thread

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin._acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
)
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from tests.faults.commands import Operator
from tests.faults.lanes import Lane, Version, next_object
from tests.faults.ledgers import FAST
from tests.faults.objects import Numbers
from tests.faults.servers import Broker, Servers
from tests.faults.standing import StandingQuery
from tests.integration.faultproxy import (
    Answer,
    ChangedHead,
    CutBody,
    Delay,
    DropResponse,
    Fault,
    FaultProxy,
    Request,
    Reset,
    Rule,
    ShortBody,
)
from tests.support.delivery import LEASE_SECONDS
from tests.support.eventpath import EventPath, announcement
from tests.support.slow_link import SlowLink

from extentflow.errors import ExtentflowError
from extentflow.model import JobState
from extentflow.queue.dispatch import body_of

# Past the lease, the grace that others grant it, and the second in which they look again.
FREEZE_SECONDS = LEASE_SECONDS * 1.25 + 2
START_SECONDS = 2.5
# Past leases and the clients' own timeouts: such a request arrives after others took over.
LATE_SECONDS = 15.0
SLOW_BYTES_PER_SECOND = 60_000
MOST_OBJECTS = 14
KILLS = "kill"
FREEZES = "freeze"

_THROTTLED = json.dumps(
    {
        "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
        "message": "injected",
    }
).encode()
_CONFLICT = json.dumps(
    {
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": "Transaction cancelled [TransactionConflict, None, None]",
        "CancellationReasons": [
            {"Code": "TransactionConflict", "Message": "injected"},
            {"Code": "None"},
            {"Code": "None"},
        ],
    }
).encode()
_DYNAMODB = "application/x-amz-json-1.0"
_SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)


def _is_get(request: Request) -> bool:
    return request.method == "GET" and request.byte_range is not None


def _any_read(request: Request) -> bool:
    return request.method in {"GET", "HEAD"}


def _writes(request: Request) -> bool:
    return request.headers.get("x-amz-target", "").endswith(("UpdateItem", "WriteItems", "PutItem"))


def _transacts(request: Request) -> bool:
    return request.headers.get("x-amz-target", "").endswith("TransactWriteItems")


def _sends(request: Request) -> bool:
    return request.headers.get("x-amz-target", "").endswith("SendMessageBatch")


def _hides(request: Request) -> bool:
    return request.headers.get("x-amz-target", "").endswith("ChangeMessageVisibility")


def _anything(_request: Request) -> bool:
    return True


def _other_etag(head: bytes) -> bytes:
    lines = head.split(b"\r\n")
    return b"\r\n".join(
        b'ETag: "0123456789abcdef0123456789abcdef"' if line.lower().startswith(b"etag:") else line
        for line in lines
    )


def _whole(head: bytes) -> bytes:
    lines = head.replace(b" 206 ", b" 200 ", 1).split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith(b"content-range:"))


# Store, ledger, queues: what befalls how many requests of which kind.
STORE: Sequence[tuple[str, Fault, Callable[[Request], bool]]] = (
    ("store 500", Answer(500), _any_read),
    ("store 503 SlowDown", Answer(503, _SLOW_DOWN), _any_read),
    ("store reset", Reset(), _any_read),
    ("store body cut", CutBody(2_000, reset=True), _is_get),
    ("store body ends early", CutBody(1_000), _is_get),
    ("store body short", ShortBody(2_000), _is_get),
    ("store wrong ETag", ChangedHead(_other_etag), _is_get),
    ("store 200 for a range", ChangedHead(_whole), _is_get),
    ("store slow", Delay(2.0), _any_read),
    ("store late", Delay(LATE_SECONDS), _is_get),
)
TABLE: Sequence[tuple[str, Fault, Callable[[Request], bool]]] = (
    ("ledger throttled", Answer(400, _THROTTLED, _DYNAMODB), _writes),
    ("ledger conflict", Answer(400, _CONFLICT, _DYNAMODB), _transacts),
    ("ledger 500", Answer(500, b"{}", _DYNAMODB), _anything),
    ("ledger answer lost", DropResponse(), _writes),
    ("ledger reset", Reset(), _anything),
    ("ledger slow", Delay(1.5), _anything),
    ("ledger write late", Delay(LATE_SECONDS), _writes),
)
QUEUES: Sequence[tuple[str, Fault, Callable[[Request], bool]]] = (
    ("queue 500", Answer(500, b"{}", _DYNAMODB), _anything),
    ("queue answer lost", DropResponse(), _sends),
    ("queue reset", Reset(), _anything),
    ("queue slow", Delay(1.5), _anything),
    ("message visible early", Answer(200, b"{}", _DYNAMODB), _hides),
)


@dataclass
class Injector:
    """Injects faults into one round. `counts` has those that took effect."""

    servers: Servers
    lanes: list[Lane]
    operators: list[Operator]
    numbers: Numbers
    random: Random
    joined: Event
    standing: StandingQuery | None = None
    worker_kill_weight: float = 1.0
    most_objects: int = MOST_OBJECTS
    counts: Counter[str] = field(default_factory=Counter)
    hits: int = 0
    rules: list[tuple[str, FaultProxy, Rule]] = field(default_factory=list)
    frozen: list[tuple[float, psutil.Process]] = field(default_factory=list)
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    down: Broker | None = None
    starting: Thread | None = None
    log: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def kinds(self) -> dict[str, tuple[float, Callable[[], bool]]]:
        """Return what can happen, each with its weight."""
        kinds: dict[str, tuple[float, Callable[[], bool]]] = {
            "kill command": (2, self._command(signal.SIGKILL)),
            "kill starting command": (1.5, self._starting(signal.SIGKILL)),
            "kill inline worker": (4, self._worker("inline", signal.SIGKILL)),
            "kill Spark worker": (4, self._worker("spark", signal.SIGKILL)),
            "kill Spark JVM": (1.5, self._jvm(signal.SIGKILL)),
            "kill broker": (0.6, self._kill_broker),
            "freeze starting command": (0.5, self._starting(signal.SIGSTOP)),
            "freeze command": (0.6, self._command(signal.SIGSTOP)),
            "freeze inline worker": (1.5, self._worker("inline", signal.SIGSTOP)),
            "freeze Spark worker": (1, self._worker("spark", signal.SIGSTOP)),
            "freeze Spark JVM": (0.4, self._jvm(signal.SIGSTOP)),
            "broker restarted": (0.4, self._restart_broker),
            "broker paused": (0.7, self._pause_broker),
            "broker connections reset": (2, self._hang_up),
            "broker link slow": (1, self._slow_link),
            "topic denied": (0.8, self._deny_topic),
            "object replaced": (1.5, self._replace),
            "records deleted": (6.0, self._delete_records),
            "equal bytes uploaded again": (3.0, self._upload_again),
            "object deleted": (0.7, self._delete),
        }
        if (path := self.servers.path) is not None:
            kinds |= self._of_functions(path)
        if (ledger := self.servers.ledger) is not None:
            kinds |= ledger.faults(self.random)
        if (query := self.standing) is not None:
            for number, verb in ((signal.SIGKILL, KILLS), (signal.SIGSTOP, FREEZES)):
                share = 1.0 if verb == KILLS else 0.3
                for name, found, weight in (
                    ("executor", query.executors, 1.5),
                    ("Python worker", query.python_workers, 3.0),
                    ("driver", query.driver, 0.5),
                    ("JVM", query.jvm, 0.5),
                ):
                    act = partial(self._query, query, name, found, number)
                    kinds[f"{verb} standing query's {name}"] = (weight * share, act)
            kinds["kill Spark machine"] = (0.5, self._lose_machine)
        for proxy, faults, weight in (
            (self.servers.store, STORE, 10.0),
            (self.servers.table, TABLE, 8.0),
            (None if path is None else path.proxy, QUEUES, 4.0),
        ):
            if proxy is None:
                continue
            for name, fault, when in faults:
                act = partial(self._inject, name, proxy, fault, when)
                kinds[name] = (weight / len(faults), act)
        return kinds

    def _of_functions(self, path: EventPath) -> dict[str, tuple[float, Callable[[], bool]]]:
        return {
            "kill worker function": (4, self._function(path, "worker", signal.SIGKILL)),
            "kill planner function": (2, self._function(path, "planner", signal.SIGKILL)),
            "kill reconciler function": (0.7, self._function(path, "reconciler", signal.SIGKILL)),
            "freeze worker function": (1.5, self._function(path, "worker", signal.SIGSTOP)),
            "freeze planner function": (0.7, self._function(path, "planner", signal.SIGSTOP)),
            "idle functions suspended": (0.7, partial(_suspend_idle, path)),
            "messages doubled and reordered": (2, partial(self._double_extents, path)),
            "notifications doubled and reordered": (1.5, partial(self._double_arrivals, path)),
        }

    def run(self, seconds: float) -> None:
        """Let faults happen, one after the other, and objects arrive."""
        end = time.monotonic() + seconds
        kinds = self.kinds()
        names = list(kinds)
        weights = [
            weight * (self.worker_kill_weight if _kills_worker(name) else 1.0)
            for name, (weight, _) in kinds.items()
        ]
        while time.monotonic() < end:
            (name,) = self.random.choices(names, weights)
            if _took_place(kinds[name][1]):
                self._note(name)
                if name not in {one for one, _, _ in self.rules}:
                    self.counts[name] += 1
                time.sleep(self.random.uniform(0.1, 0.8))
            else:
                time.sleep(0.05)
            if self.random.random() < 0.3:
                self._arrive()
            self._tick()

    def miss_topic(self, lane: Lane) -> None:
        """Create the missing topic of a lane, later."""
        self._note("topic missing")
        self.counts["topic missing"] += 1

        for topic in lane.topics:
            create = self._when_up(partial(self.servers.make_topic, topic, lane.topic_config))
            self._after(self.random.uniform(5.0, 15.0), create)

    def heal(self) -> None:
        """End every fault: suspended processes continue, servers are up, requests pass."""
        for name, proxy, rule in self.rules:
            proxy.withdraw(rule)
            if rule.hits:
                self.counts[name] += 1
                self.hits += rule.hits
        self.rules.clear()
        if self.starting is not None:
            self.starting.join()
        self._bring_back()
        if self.servers.ledger is not None:
            self.hits += self.servers.ledger.heal()
        while self.later or self.frozen:
            self._tick(everything=True)
        for one in self.servers.brokers:
            one.link.bytes_per_second = FAST

    def _note(self, name: str) -> None:
        self.log.append(f"{time.monotonic() - self.began:6.1f} s {name}")

    def _tick(self, *, everything: bool = False) -> None:
        now = time.monotonic()
        for entry in list(self.frozen):
            if everything or entry[0] <= now:
                _signalled(entry[1], signal.SIGCONT)
                self.frozen.remove(entry)
        for due in list(self.later):
            if everything or due[0] <= now:
                self.later.remove(due)
                due[1]()

    # -- processes ------------------------------------------------------------------------------

    def _strike(self, victims: Sequence[psutil.Process], number: signal.Signals) -> bool:
        if not victims:
            return False
        victim = self.random.choice(list(victims))
        if not _signalled(victim, number):
            return False
        if number is signal.SIGSTOP:
            self.frozen.append((time.monotonic() + FREEZE_SECONDS, victim))
        return True

    def _command(self, number: signal.Signals) -> Callable[[], bool]:
        def act() -> bool:
            found = [driver for one in self.operators if (driver := one.driver())]
            return self._strike(found, number)

        return act

    def _starting(self, number: signal.Signals) -> Callable[[], bool]:
        def act() -> bool:
            young = time.monotonic() - START_SECONDS
            found = [
                process
                for one in self.operators
                if one.started_at > young and (driver := one.driver())
                for process in (driver, *one.workers())
            ]
            return self._strike(found, number)

        return act

    def _worker(self, engine: str, number: signal.Signals) -> Callable[[], bool]:
        def act() -> bool:
            ours = [one for one in self.operators if one.engine == engine]
            return self._strike([each for one in ours for each in one.workers()], number)

        return act

    def _jvm(self, number: signal.Signals) -> Callable[[], bool]:
        def act() -> bool:
            return self._strike([each for one in self.operators for each in one.jvm()], number)

        return act

    def _function(self, path: EventPath, name: str, number: signal.Signals) -> Callable[[], bool]:
        def act() -> bool:
            found = []
            for pid in path.source.pids(name):
                try:
                    found.append(psutil.Process(pid))
                except psutil.NoSuchProcess:
                    continue
            return self._strike(found, number)

        return act

    def _query(
        self,
        query: StandingQuery,
        what: str,
        found: Callable[[], list[psutil.Process]],
        number: signal.Signals,
    ) -> bool:
        struck = self._strike(found(), number)
        if struck and number is signal.SIGKILL and what in {"driver", "JVM"}:
            query.killed = True
        return struck

    def _lose_machine(self) -> bool:
        query = self.standing
        if query is None or not query.lose_machine(self.random.randrange(2)):
            return False
        self._after(self.random.uniform(1.0, 6.0), query.restore)
        return True

    # -- the broker -----------------------------------------------------------------------------

    def _kill_broker(self) -> bool:
        if self.down is not None:
            return False
        down = self.down = self._leader()
        self.servers.stack.kill(down.name)
        self._after(self.random.uniform(0.0, 3.0), self._start_broker)
        return True

    def _restart_broker(self) -> bool:
        if self.down is not None:
            return False
        down = self.down = self._leader()
        self._on_thread(partial(self.servers.stack.down, [down.name]))
        return True

    def _pause_broker(self) -> bool:
        if self.down is not None:
            return False
        down = self.down = self._leader()
        self.servers.stack.pause(down.name)
        self._after(self.random.uniform(1.0, 7.0), self._bring_back)
        return True

    def _leader(self) -> Broker:
        """Return the broker that leads a partition of a lane."""
        found = self.servers.leader_of(self._topic(), 0)
        return found or self.servers.brokers[0]

    def _start_broker(self) -> None:
        self._on_thread(lambda: None)

    def _on_thread(self, before: Callable[[], object]) -> None:
        """Start the broker after `before`; other faults happen meanwhile."""

        def work() -> None:
            before()
            self._bring_back()

        self.starting = Thread(target=work)
        self.starting.start()

    def _when_up(self, act: Callable[[], object]) -> Callable[[], None]:
        """Return a function that calls `act` once no broker is down."""

        def run() -> None:
            if self.down is not None or not _took_place(lambda: act() or True):
                self._after(1.0, run)

        return run

    def _bring_back(self) -> None:
        """Start or continue the broker that is down. Idempotent."""
        if self.down is not None:
            if self.down.name in self.servers.stack.endpoints():
                self.servers.stack.resume(self.down.name)
            self.servers.stack.up([self.down.name])
            self.down = None

    def _hang_up(self) -> bool:
        return sum(one.link.hang_up() for one in self.servers.brokers) > 0

    def _slow_link(self) -> bool:
        link = self.random.choice(self.servers.brokers).link
        if link.bytes_per_second < FAST:
            return False
        link.bytes_per_second = SLOW_BYTES_PER_SECOND
        self._after(self.random.uniform(1.0, 4.0), partial(_set_rate, link, FAST))
        return True

    def _deny_topic(self) -> bool:
        if self.down is not None or len(self.servers.brokers) > 1:  # see servers.AUTHORIZED
            return False
        topic = self._topic()
        rule = (
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            AclOperation.WRITE,
            AclPermissionType.DENY,
        )
        for future in self.servers.admin.create_acls([AclBinding(*rule)]).values():
            future.result(timeout=30)

        def allow() -> None:
            for future in self.servers.admin.delete_acls([AclBindingFilter(*rule)]).values():
                future.result(timeout=60)

        self._after(self.random.uniform(2.0, 6.0), self._when_up(allow))
        return True

    def _topic(self) -> str:
        return self.random.choice(self.random.choice(self.lanes).topics)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self.later.append((time.monotonic() + seconds, act))

    # -- requests -------------------------------------------------------------------------------

    def _inject(
        self, name: str, proxy: FaultProxy, fault: Fault, when: Callable[[Request], bool]
    ) -> bool:
        times = self.random.randrange(1, 5)
        self.rules.append((name, proxy, proxy.inject(fault, when=when, times=times)))
        return True

    # -- messages and objects -------------------------------------------------------------------

    def _double_extents(self, path: EventPath) -> bool:
        """Send extents of an open job again, in another order."""
        direct = self.servers.direct
        jobs = [job for lane in self.lanes for job in lane.jobs() if job.state is JobState.RUNNING]
        if not jobs:
            return False
        try:
            extents = list(direct.planner().extents(self.random.choice(jobs)))
        except ExtentflowError:  # its object is gone
            return False
        chosen = self.random.sample(extents, min(len(extents), 8))
        self.joined.set()
        queue = path.deployment.queue_of("worker")
        self.lanes[0].feed.send(queue, map(body_of, chosen))
        return bool(chosen)

    def _double_arrivals(self, path: EventPath) -> bool:
        versions = [one for lane in self.lanes if lane.queued for one in list(lane.versions)]
        chosen = self.random.sample(versions, min(len(versions), 5))
        queue = path.deployment.queue_of("planner")
        self.lanes[0].feed.send(queue, (announcement(one.upload) for one in chosen))
        return bool(chosen)

    def _arrive(self) -> None:
        lane = self.random.choice(self.lanes)
        if len(lane.versions) >= self.most_objects + lane.kind.begin:
            return
        self._announce(lane, lane.put(next_object(lane, self.numbers, self.random)))

    def _announce(self, lane: Lane, version: Version) -> None:
        """Announce an object, as S3 does; one in ten notifications is lost."""
        if lane.queued and self.random.random() < 0.9:
            lane.feed.announce(version.upload)

    def _replace(self) -> bool:
        found = self._under_way()
        if found is None:
            return False
        lane, version = found
        written = self.numbers.write(version.written.format, self.random.randrange(*lane.kind.rows))
        self._announce(lane, lane.put(written, over=version))
        return True

    def _delete(self) -> bool:
        """Delete an object; half of the times another version comes in its place, later."""
        found = self._under_way()
        if found is None:
            return False
        lane, version = found
        lane.delete(version)
        if self.random.random() < 0.5:
            count = self.random.randrange(*lane.kind.rows)
            written = self.numbers.write(version.written.format, count)
            self._after(
                self.random.uniform(0.5, 3.0),
                lambda: self._announce(lane, lane.put(written, over=version)),
            )
        return True

    def _delete_records(self) -> bool:
        readers = [lane.reader for lane in self.lanes if lane.reader is not None]
        if self.down is not None or not readers:
            return False
        return self.random.choice(readers).delete(self.random)

    def _upload_again(self) -> bool:
        found = [lane for lane in self.lanes if lane.repeats is not None]
        if not found:
            return False
        lane = self.random.choice(found)
        if lane.repeats is None or len(lane.versions) >= 2 * (self.most_objects + lane.kind.begin):
            return False
        made = lane.repeats.again(self.random)
        if made is not None:
            self._announce(lane, made)
        return made is not None

    def _under_way(self) -> tuple[Lane, Version] | None:
        """Return an object that is not delivered yet."""
        # Those of `repeats` are replaced by equal bytes only.
        lanes = [lane for lane in self.lanes if lane.repeats is None]
        self.random.shuffle(lanes)
        for lane in lanes:
            for version in lane.current():
                job = lane.job(version)
                if job is None or job.state.open:
                    return lane, version
        return None


def _kills_worker(name: str) -> bool:
    """Whether a fault kills a process that delivers; commands die too often before they do."""
    return name.startswith(KILLS) and ("worker" in name.lower() or "executor" in name)


def _suspend_idle(path: EventPath) -> bool:
    """Suspend the idle functions until their next invocation, as Lambda does."""
    source = path.source
    return bool(source.freeze("planner") + source.freeze("worker"))


def _took_place(act: Callable[[], object]) -> bool:
    """Return whether a fault occurred; not where it needs a broker that does not answer."""
    try:
        return bool(act())
    except KafkaException:
        return False


def _set_rate(link: SlowLink, rate: float) -> None:
    link.bytes_per_second = rate


def _signalled(victim: psutil.Process, number: signal.Signals) -> bool:
    try:
        victim.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True
