"""One round: objects and deliveries start, faults happen, everything heals, all jobs end.

upload ──> deliver ──faults──> heal ──> deliver until every job is final ──> `Round.verify`
"""

import json
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import psutil
from confluent_kafka import KafkaException
from tests.faults.commands import Findings, Operator
from tests.faults.comparison import Verdict, compare
from tests.faults.console import Console, ConsoleFailedError
from tests.faults.exporting import RetainedExport
from tests.faults.injection import FREEZES, KILLS, MOST_OBJECTS, Injector
from tests.faults.lanes import KINDS, Kind, Lane, draw_kinds, draw_routes, next_object, open_lane
from tests.faults.objects import Numbers
from tests.faults.retention import RetainedReader
from tests.faults.rows import RowsUnreadError, read_rows
from tests.faults.servers import Servers
from tests.faults.standing import StandingQuery
from tests.integration.faultproxy import Delay, Request
from tests.support.delivery import is_stable

from extentflow.discovery.stalled_jobs import StallThresholds
from extentflow.errors import ExtentflowError
from extentflow.ledger import ConnectorState
from extentflow.model import JobState
from extentflow.wiring.functions import open_reconciler

FAULT_SECONDS = 30.0
# The product's own limits here: leases of 3 s, retries of 20 s, transactions of 10 s, messages that
# are hidden for 4 s. A machine that others use is slower than these.
FINISH_SECONDS = 600.0
STABLE_SECONDS = 120.0
LOOK_SECONDS = 1.0
# After so many looks without a change an operator acts.
STILL_LOOKS = 6
READERS = 3
RECREATED_EVERY = 3
# The deployed ones are minutes; a campaign lets that time pass.
SOON = StallThresholds(grace_seconds=2.0, stall_seconds=4.0)


@dataclass
class Result:
    """What a round did and found."""

    number: int
    routes: dict[str, str] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    hits: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    stuck: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    # Of readers: accepted gaps, records in them, topics that were created again.
    retained: Counter[str] = field(default_factory=Counter)
    orphans: list[str] = field(default_factory=list)
    jobs: Counter[str] = field(default_factory=Counter)
    objects: int = 0
    seconds: float = 0.0
    finish_seconds: float = 0.0
    verify_seconds: float = 0.0

    @property
    def kills(self) -> int:
        """How many processes were killed."""
        return sum(n for name, n in self.faults.items() if name.startswith(KILLS))

    @property
    def freezes(self) -> int:
        """How many processes were suspended past their lease."""
        return sum(n for name, n in self.faults.items() if name.startswith(FREEZES))

    @property
    def ok(self) -> bool:
        """Whether the guarantees held."""
        broken = self.stuck or self.lost or self.findings.lies or self.findings.hung
        return self.verdict.ok and not broken

    def line(self) -> str:
        """Return the round in one line."""
        found, verdict = self.findings, self.verdict
        others = self.faults.total() - self.kills
        word = "ok" if self.ok else "BROKEN"
        return (
            f"round {self.number:3}: {word}; {self.objects} objects, {verdict.expected} records"
            f" expected, {verdict.delivered} delivered, {verdict.duplicates} duplicates,"
            f" {verdict.missing} missing, {verdict.changed + verdict.foreign} wrong,"
            f" {len(self.stuck)} stuck, {len(self.lost)} uploads lost, {len(found.lies)} lies;"
            f" {self.kills} kills, {others} other faults; exits {dict(found.codes)};"
            f" jobs {dict(self.jobs)};"
            f" {self.seconds:.0f} s, {self.finish_seconds:.0f} s to finish,"
            f" {self.verify_seconds:.0f} s to compare"
        )


@dataclass
class Round:
    """Plays one round on running servers, in `folder`."""

    number: int
    servers: Servers
    folder: Path
    random: Random
    numbers: Numbers
    spark: bool = False
    standing: StandingQuery | None = None
    fault_seconds: float = FAULT_SECONDS
    worker_kill_weight: float = 1.0
    kinds: Sequence[Kind] = KINDS
    lanes: list[Lane] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    joined: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)
    topicless: Lane | None = None
    exporter: RetainedExport | None = None

    def play(self) -> Result:
        """Deliver under faults, heal, and finish; the verdict is still missing in the result."""
        if self.standing is not None:
            self.standing.start()
            self.joined.set()
        began = time.monotonic()
        result = Result(self.number)
        self._open(result)
        injector = Injector(
            self.servers,
            self.lanes,
            self.operators,
            self.numbers,
            self.random,
            self.joined,
            self.standing,
            self.worker_kill_weight,
            math.ceil(MOST_OBJECTS * self.fault_seconds / FAULT_SECONDS),
        )
        if self.topicless is not None:
            injector.miss_topic(self.topicless)
        slow = self._slow_down()
        reconcile = self.random.random() < 0.5 and self.servers.path is not None
        deadline = began + self.fault_seconds + FINISH_SECONDS
        readers = self._readers()
        exporter = RetainedExport(
            self.servers, self.folder / "export", Random(f"{self.random.random()} export")
        )
        self.exporter = exporter
        with ThreadPoolExecutor(len(self.operators) + len(readers) + 2) as pool:
            going = [pool.submit(one.go, deadline) for one in self.operators]
            reading = [pool.submit(one.go, self.over) for one in readers]
            reading.append(pool.submit(exporter.go, self.over))
            try:
                if reconcile:
                    self.joined.set()
                    going.append(pool.submit(self._reconcile_often))
                injector.run(self.fault_seconds)
            except BaseException:  # the campaign ends: nothing of it may stay
                self._give_up()
                raise
            finally:
                injector.heal()
                for stop in slow:
                    stop()
                self.over.set()
            healed = time.monotonic()
            self._finish_queues(deadline)
            for one in going:
                one.result()
            for reader in readers:
                reader.stop.set()
            for one in reading:
                one.result()
        result.finish_seconds = time.monotonic() - healed
        result.stuck = [line for lane in self.lanes for line in lane.unsettled()]
        repeated = [lane.repeats for lane in self.lanes if lane.repeats is not None]
        result.lost = [line for one in repeated for line in one.lost()]
        result.faults, result.hits = injector.counts, injector.hits
        result.jobs = Counter(str(job.state) for lane in self.lanes for job in lane.jobs())
        result.objects = sum(len(lane.versions) for lane in self.lanes)
        result.seconds = time.monotonic() - began
        (self.folder / "faults.log").write_text("\n".join(injector.log) + "\n")
        for lane in self.lanes:  # the reconciler lists them no more
            self.servers.direct.ledger.connectors.set_state(lane.connector, ConnectorState.PAUSED)
        return result

    def verify(self, result: Result, console: Console) -> None:
        """Compare every topic of the round with its objects; later, so that late writes show."""
        began = time.monotonic()

        with ThreadPoolExecutor(READERS) as pool:
            verdicts = list(pool.map(lambda lane: self._compared(lane, console), self.lanes))
        for lane, verdict in zip(self.lanes, verdicts, strict=True):
            labelled = tuple(f"{lane.kind.name}, {lane.route}: {one}" for one in verdict.samples)
            result.verdict += replace(verdict, samples=labelled)
        for reader in self._readers():
            result.retained += reader.figures()
        if self.exporter is not None:
            result.verdict += self.exporter.verdict()
            result.retained += self.exporter.figures()
        result.verify_seconds = time.monotonic() - began
        result.orphans = [line for one in self.operators for line in _survivors(one)]

    def clean_up(self) -> None:
        """Delete what a round left, once it was verified."""
        for lane in self.lanes:
            self.servers.direct.ledger.connectors.delete(lane.connector)
        topics = [name for lane in self.lanes for name in (*lane.topics, lane.dead_topic) if name]
        exported = [] if self.exporter is None else [self.exporter.topic]
        self.servers.delete_topics([*topics, *exported])

    def _give_up(self) -> None:
        self.given_up.set()
        for lane in self.lanes:
            lane.delivery.kill_started()
        for reader in self._readers():
            reader.stop.set()
        if self.exporter is not None:
            self.exporter.given_up.set()

    def _readers(self) -> list[RetainedReader]:
        return [lane.reader for lane in self.lanes if lane.reader is not None]

    # -- beginning ------------------------------------------------------------------------------

    def _open(self, result: Result) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        kinds = draw_kinds(self.random, self.kinds)
        late = self.random.choice([*range(len(kinds)), *[None] * 10])
        path = self.servers.path
        routes = draw_routes(self.random, spark=self.spark, functions=path is not None)
        environment = {} if path is None else {"AWS_ENDPOINT_URL_SQS": path.proxy.endpoint}
        for number, (kind, drawn_route) in enumerate(zip(kinds, routes, strict=False)):
            own = kind.routes
            route = self.random.choice(own) if own and drawn_route not in own else drawn_route
            lane = open_lane(kind, route, self.servers, topic=number != late)
            if number == late and lane.reader is None:
                self.topicless = lane
            result.routes[kind.name] = route
            self.lanes.append(lane)
            for _ in range(kind.begin):
                version = lane.put(next_object(lane, self.numbers, self.random))
                if lane.queued:
                    lane.feed.announce(version.upload)
            for engine in lane.engines:
                joined = self.joined if len(lane.engines) == 1 and not lane.queued else _SET
                self.operators.append(
                    Operator(
                        lane,
                        engine,
                        self.folder,
                        self.over,
                        result.findings,
                        environment,
                        joined,
                        self.given_up,
                    )
                )
        drawn = [[one.kind.name, one.route, one.kind.config] for one in self.lanes]
        (self.folder / "lanes.json").write_text(json.dumps(drawn, indent=2) + "\n")

    def _slow_down(self) -> list[Callable[[], None]]:
        """Delay reads and writes a little, so that work lasts and kills fall between writes."""
        store, table = self.servers.store, self.servers.table
        reads = store.inject(Delay(0.4), when=self._every(2), times=None)
        if table is None:
            return [lambda: store.withdraw(reads)]
        writes = table.inject(Delay(0.1), when=self._every(3), times=None)
        return [lambda: store.withdraw(reads), lambda: table.withdraw(writes)]

    def _every(self, count: int) -> Callable[[Request], bool]:
        dice = Random(self.random.random())
        return lambda _request: dice.randrange(count) == 0

    def _reconcile_often(self) -> None:
        while not self.over.wait(2.0):
            self.servers.functions.source.trigger("reconciler")

    # -- end ------------------------------------------------------------------------------------

    def _finish_queues(self, deadline: float) -> None:
        """Operate the queued lanes as docs/operations.md says, until they are settled."""
        queued = [lane for lane in self.lanes if lane.queued]
        before: list[str] = []
        looks = 0
        while open_ := [line for lane in queued for line in lane.unsettled()]:
            if time.monotonic() > deadline:
                return
            looks = looks + 1 if open_ == before else 0
            before = open_
            if looks % STILL_LOOKS == STILL_LOOKS - 1:
                with (self.folder / "finish.log").open("a") as log:
                    log.write(f"{time.strftime('%X')} {len(open_)} make no progress: {open_[0]}\n")
                self.joined.set()
                self._redrive(queued)
                self._replay(queued)
                self._reconcile()
            time.sleep(LOOK_SECONDS)

    def _reconcile(self) -> None:
        """Let the deployed reconciler run, and once more as if minutes had passed."""
        self.servers.functions.source.trigger("reconciler")
        try:
            replace(open_reconciler(self.servers.direct), thresholds=SOON).run()
        except ExtentflowError as exc:
            with (self.folder / "reconciler.log").open("a") as log:
                log.write(f"{exc}\n")

    def _redrive(self, queued: list[Lane]) -> None:
        if self.servers.functions.dead():
            self._command(queued[0], "redrive", engine=None)

    def _replay(self, queued: list[Lane]) -> None:
        """Jobs that could not be planned have no message."""
        for lane in queued:
            if any(job.state in (JobState.FAILED, JobState.CANCELLED) for job in lane.jobs()):
                self._command(lane, "replay", "--connector", lane.connector)

    def _command(self, lane: Lane, *words: str, engine: str | None = "inline") -> None:
        with (self.folder / "operations.log").open("a") as log:
            log.write(f"{json.dumps(words)}\n")
            log.flush()
            with lane.delivery.start(engine, *words, output=log) as process:
                process.wait()

    def _compared(self, lane: Lane, console: Console) -> Verdict:
        topics = [*lane.topics, *([lane.dead_topic] if lane.dead_topic else [])]
        deadline = time.monotonic() + STABLE_SECONDS
        while not all(self._is_stable(topic) for topic in topics):
            if time.monotonic() > deadline:
                held = f"{topics[0]}: a transaction is open for {STABLE_SECONDS:.0f} s"
                return Verdict(missing=1, samples=(held,))
            time.sleep(0.5)
        try:
            if lane.reader is not None:
                lane.reader.delete_some(self.random)
            if lane.kind.expectation.columnar:
                found = read_rows(self.servers.bootstrap, lane.topics, self.random)
            else:
                found = console.read(*lane.topics)
            dead = console.read(lane.dead_topic) if lane.dead_topic else None
            missed = Verdict()
            if lane.reader is not None:
                found, missed = lane.reader.verdict(found)
                # A member notices after a minute: not in each round.
                if self.number % RECREATED_EVERY == 1:
                    missed += lane.reader.recreated()
        # Of the consumer: a value that is corrupt, or that lacks its other column groups.
        except (ConsoleFailedError, RowsUnreadError, ExtentflowError, KafkaException) as exc:
            return Verdict(missing=1, samples=(f"{type(exc).__name__}: {exc}",))
        how = replace(lane.kind.expectation, dead=dead)
        return compare(lane.sources(), found, how) + missed

    def _is_stable(self, topic: str) -> bool:
        try:
            return is_stable(self.servers.admin, topic)
        except KafkaException:  # the broker is down, in a later round
            return False


def _survivors(operator: Operator) -> list[str]:
    """Return processes of ended commands, and end them."""
    found = []
    for started in operator.lane.delivery.started:
        for process in psutil.process_iter(["pid"]):
            try:
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == started.pid:
                    continue
                if _group(process.pid) == started.pid:
                    found.append(f"{process.pid}: {' '.join(process.cmdline())[:200]}")
                    process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
    return found


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


_SET = threading.Event()
_SET.set()
