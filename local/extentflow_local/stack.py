"""Several services as one stack under one root directory.

Owns: where services keep their things, starting them side by side, readiness, stopping, and
var/stack.json. Refuses to know: how any one service is configured.

    <root>/var/<service>/        its working directory: configuration, data, tmp, process.json
    <root>/var/<service>.log     its output
    <root>/var/stack.json        what runs where, for people, tests and other commands
"""

import fcntl
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Self

from extentflow.errors import Misconfigured
from extentflow_local import processes, programs
from extentflow_local.components import read_lock
from extentflow_local.errors import LocalStackError, PortTaken, ServiceFailed
from extentflow_local.fetch import Fetcher, tail
from extentflow_local.ivy import Ivy
from extentflow_local.ports import free_run, taken
from extentflow_local.processes import Running
from extentflow_local.services import Service, Toolbox
from extentflow_local.services.dynamodb import DynamoDbLocal
from extentflow_local.services.kafka import Kafka
from extentflow_local.services.s3 import SeaweedS3
from extentflow_local.settings import LocalSettings

SERVICES: tuple[Service, ...] = (Kafka(), SeaweedS3(), DynamoDbLocal())

_POLL_SECONDS = 0.05
_LOG_LINES_SHOWN = 15

Outcome = Literal["started", "already running"]


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What is known about one service; `pid` and `endpoint` are None while it does not run."""

    name: str
    title: str
    pid: int | None
    endpoint: str | None
    ports: Mapping[str, int]
    log: Path
    directory: Path
    environment: Mapping[str, str]


class Stack:
    """Servers with their data under `root/var`.

    `ports` gives a service's first port; the others follow it. With `free_ports`, services that
    `ports` does not name start wherever there is room, and a restart keeps the place. As a context
    manager it goes down at the end. Safe to use from several processes: they take turns.
    """

    def __init__(
        self,
        root: Path,
        ports: Mapping[str, int] | None = None,
        *,
        services: Iterable[Service] = SERVICES,
        free_ports: bool = False,
        settings: LocalSettings | None = None,
        notify: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.settings = settings or LocalSettings.from_environment()
        self.services = {service.name: service for service in services}
        self._var = root.resolve() / "var"
        self._first_ports = dict(ports or {})
        self._free_ports = free_ports
        self._toolbox = toolbox(self.settings, notify)
        self._gave_up = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self, names: Iterable[str] = ()) -> dict[str, Outcome]:
        """Start the named services (all, when none is named) side by side; return when they answer.

        Harmless for services that run already. What did start stays up when another service fails.

        Raises:
            Misconfigured: there is no service of that name.
            LocalStackError: one or several services did not start; says why and what to do.
        """
        chosen = self._chosen(names)
        self._gave_up.clear()
        with self._turn():
            places = [(service, self._place(service)) for service in chosen]
            with ThreadPoolExecutor(len(chosen)) as pool:
                starts = [pool.submit(self._start, *place) for place in places]
                try:
                    problems = [start.exception() for start in starts]
                except BaseException:
                    self._gave_up.set()
                    raise
            self._write_summary()
        _raise_all(problems)
        return {service.name: start.result() for service, start in zip(chosen, starts, strict=True)}

    def down(self, names: Iterable[str] = ()) -> list[str]:
        """Stop the named services (all, when none is named); return the names of those that ran."""
        with self._turn():
            ran = [service for service in self._chosen(names) if self._running(service)]
            if ran:
                with ThreadPoolExecutor(len(ran)) as pool:
                    list(pool.map(self._stop, ran))
            self._write_summary()
        return [service.name for service in ran]

    def kill(self, name: str) -> None:
        """End a service at once, as a power cut would."""
        self._signal(name, signal.SIGKILL)

    def restart(self, name: str) -> None:
        """Stop a service and start it again with its data, at the same ports."""
        self.down([name])
        self.up([name])

    def pause(self, name: str) -> None:
        """Freeze a service (SIGSTOP): it keeps its connections and answers nothing."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a frozen service go on."""
        self._signal(name, signal.SIGCONT)

    def state(self) -> list[ServiceState]:
        """What runs where, in the order of the services."""
        return [self._state_of(service) for service in self.services.values()]

    def endpoint(self, name: str) -> str:
        """The address of a running service.

        Raises:
            ServiceFailed: it does not run.
        """
        endpoint = self._state_of(self._chosen([name])[0]).endpoint
        if endpoint is None:
            raise ServiceFailed(f"{name} does not run: start it with `extentflow up {name}`")
        return endpoint

    def endpoints(self) -> dict[str, str]:
        """Addresses of the services that run."""
        return {state.name: state.endpoint for state in self.state() if state.endpoint}

    def environment(self) -> dict[str, str]:
        """Variables that make `extentflow` use the services that run."""
        merged: dict[str, str] = {}
        for state in self.state():
            merged |= state.environment
        return merged

    @property
    def summary(self) -> Path:
        """The file that tells other processes what runs where."""
        return self._var / "stack.json"

    def _chosen(self, names: Iterable[str]) -> list[Service]:
        wanted = list(names) or list(self.services)
        unknown = [name for name in wanted if name not in self.services]
        if unknown:
            raise Misconfigured(
                [f"no service {name!r}; there are: {', '.join(self.services)}" for name in unknown]
            )
        return [self.services[name] for name in dict.fromkeys(wanted)]

    def _directory(self, service: Service) -> Path:
        return self._var / service.name

    def _log(self, service: Service) -> Path:
        return self._var / f"{service.name}.log"

    def _running(self, service: Service) -> Running | None:
        return Running.recorded_in(self._directory(service))

    def _place(self, service: Service) -> Mapping[str, int]:
        """Decide a service's ports; not in parallel, so that two never pick the same."""
        running = self._running(service)
        if running is not None:
            return running.ports
        first = self._first_ports.get(service.name)
        if first is None and self._free_ports:
            first = free_run(len(service.port_names), random.SystemRandom())
        elif first is None:
            first = self.settings.ports[service.name]
        self._first_ports[service.name] = first
        return {name: first + offset for offset, name in enumerate(service.port_names)}

    def _start(self, service: Service, ports: Mapping[str, int]) -> Outcome:
        running = self._running(service)
        if running is not None:
            self._await_answer(service, running)
            return "already running"
        directory = self._directory(service)
        (directory / "tmp").mkdir(parents=True, exist_ok=True)
        command = service.prepare(directory, ports, self._toolbox)
        self._refuse_clash(service, ports)
        running = processes.start(
            command,
            directory=directory,
            log=self._log(service),
            environment=self._surroundings(directory),
            ports=ports,
        )
        self._await_answer(service, running)
        return "started"

    def _surroundings(self, directory: Path) -> dict[str, str]:
        """Little of the caller's environment: servers must not depend on who starts them."""
        return {
            "PATH": self.settings.search_path,
            "HOME": str(directory),
            "TMPDIR": str(directory / "tmp"),
            "LC_ALL": "C.UTF-8",
        }

    def _refuse_clash(self, service: Service, ports: Mapping[str, int]) -> None:
        clashes = taken(ports.values())
        if clashes:
            raise PortTaken(
                f"{service.name}: port {', '.join(map(str, clashes))} is taken by another process:"
                f" stop that one, or choose another with `--{service.name}-port` or"
                f" EXTENTFLOW_LOCAL_{service.name.upper()}_PORT (needs {len(ports)} in a row)"
            )

    def _await_answer(self, service: Service, running: Running) -> None:
        deadline = time.monotonic() + service.ready_seconds
        while not service.answers(running.ports):
            if not running.alive():
                raise ServiceFailed(self._last_words(service, "ended before it answered"))
            if self._gave_up.is_set():
                raise ServiceFailed(f"{service.name}: nobody waits for it any more")
            if time.monotonic() > deadline:
                slow = (
                    f"runs (pid {running.pid}) but did not answer in {service.ready_seconds:.0f} s"
                )
                raise ServiceFailed(self._last_words(service, slow))
            time.sleep(_POLL_SECONDS)

    def _last_words(self, service: Service, what: str) -> str:
        log = self._log(service)
        return f"{service.name} {what}. The end of {log}:\n{tail(log, _LOG_LINES_SHOWN)}"

    def _stop(self, service: Service) -> None:
        running = self._running(service)
        if running is not None:
            running.send(signal.SIGCONT)
            running.stop(patience_seconds=service.stop_seconds)
            self._clean_up(service, running)

    def _signal(self, name: str, number: signal.Signals) -> None:
        service = self._chosen([name])[0]
        running = self._running(service)
        if running is None:
            raise ServiceFailed(f"{name} does not run: start it with `extentflow up {name}`")
        if number is signal.SIGKILL:
            running.kill()
            self._clean_up(service, running)
        else:
            running.send(number)

    def _clean_up(self, service: Service, running: Running) -> None:
        processes.forget(self._directory(service))
        for path in service.leftovers(running.ports):
            path.unlink(missing_ok=True)

    def _state_of(self, service: Service) -> ServiceState:
        running = self._running(service)
        return ServiceState(
            name=service.name,
            title=service.title,
            pid=running.pid if running else None,
            endpoint=service.endpoint(running.ports) if running else None,
            ports=running.ports if running else {},
            log=self._log(service),
            directory=self._directory(service),
            environment=service.environment(running.ports) if running else {},
        )

    def _write_summary(self) -> None:
        services = {
            state.name: {
                "endpoint": state.endpoint,
                "pid": state.pid,
                "ports": dict(state.ports),
                "log": str(state.log),
                "directory": str(state.directory),
            }
            for state in self.state()
            if state.pid is not None
        }
        fresh = self._var / "stack.json.new"
        document = {"services": services, "environment": self.environment()}
        fresh.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        fresh.rename(self.summary)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self._var.mkdir(parents=True, exist_ok=True)
        with (self._var / "stack.lock").open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def toolbox(settings: LocalSettings, notify: Callable[[str], None] = lambda _line: None) -> Toolbox:
    """Find programs, and fetch libraries, each at most once and only when a service asks."""

    @cache
    def java() -> Path:
        return programs.java(home=settings.java_home, search_path=settings.search_path)

    @cache
    def library(component: str) -> Path:
        ivy = Ivy(java(), programs.spark_jar("ivy"), settings.ivy_settings)
        return Fetcher(settings.cache, ivy, notify=notify).folder(read_lock()[component])

    @cache
    def weed() -> Path:
        return programs.weed(search_path=settings.search_path)

    return Toolbox(java=java, weed=weed, library=library, spark_jar=programs.spark_jar)


def spark_kafka_jars(settings: LocalSettings | None = None) -> list[Path]:
    """Return the jars of Spark's own Kafka sink, which the benchmark compares with."""
    folder = toolbox(settings or LocalSettings.from_environment()).library("spark-kafka")
    return sorted(folder.glob("*.jar"))


def _raise_all(problems: Iterable[BaseException | None]) -> None:
    found = [problem for problem in problems if problem is not None]
    unexpected = [problem for problem in found if not isinstance(problem, LocalStackError)]
    if unexpected:
        raise unexpected[0]
    if len(found) == 1:
        raise found[0]
    if found:
        raise LocalStackError("\n".join(map(str, found)))
