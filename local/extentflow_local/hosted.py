"""One service of a stack, from its start to its end.

Owns: its directory and log, waiting until it answers, explaining why it does not, cleaning up.
Refuses to know: its neighbours, and how it is configured.

    stopped --start--> spawned --answers--> running --stop, kill--> stopped
                          |
                          +--dies, or too slow: ServiceFailed with the end of its log
"""

import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from extentflow_local import processes
from extentflow_local.errors import PortTaken, ServiceFailed
from extentflow_local.fetch import tail
from extentflow_local.ports import taken
from extentflow_local.processes import Running
from extentflow_local.services import Service, Toolbox

_POLL_SECONDS = 0.05
_LOG_LINES_SHOWN = 15


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


@dataclass(frozen=True, slots=True)
class HostedService:
    """A service with its place under `var`; knows across processes whether it runs."""

    service: Service
    var: Path
    search_path: str
    gave_up: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """The service's name."""
        return self.service.name

    @property
    def directory(self) -> Path:
        """Its working directory."""
        return self.var / self.name

    @property
    def log(self) -> Path:
        """Its output."""
        return self.var / f"{self.name}.log"

    def running(self) -> Running | None:
        """Its process, if it lives."""
        return Running.recorded_in(self.directory)

    def found(self) -> Running:
        """Its process.

        Raises:
            ServiceFailed: it does not run.
        """
        running = self.running()
        if running is None:
            raise ServiceFailed(
                f"{self.name} does not run: start it with `extentflow up {self.name}`"
            )
        return running

    def start(self, ports: Mapping[str, int], toolbox: Toolbox) -> bool:
        """Make it run, return when it answers; tell whether it had to be started.

        Raises:
            LocalStackError: it cannot be prepared, its ports are taken, it died, or is too slow.
        """
        running = self.running()
        if running is None:
            self._await_answer(self._spawn(ports, toolbox))
            return True
        self._await_answer(running)
        return False

    def stop(self) -> None:
        """Make it end within its `stop_seconds`, one way or the other."""
        running = self.running()
        if running is not None:
            running.send(signal.SIGCONT)
            running.stop(patience_seconds=self.service.stop_seconds)
            self._clean_up(running)

    def kill(self) -> None:
        """End it at once.

        Raises:
            ServiceFailed: it does not run.
        """
        running = self.found()
        running.kill()
        self._clean_up(running)

    def state(self) -> ServiceState:
        """What is known about it now."""
        running = self.running()
        ports = running.ports if running else {}
        return ServiceState(
            name=self.name,
            title=self.service.title,
            pid=running.pid if running else None,
            endpoint=self.service.endpoint(ports) if running else None,
            ports=ports,
            log=self.log,
            directory=self.directory,
            environment=self.service.environment(ports) if running else {},
        )

    def _spawn(self, ports: Mapping[str, int], toolbox: Toolbox) -> Running:
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        command = self.service.prepare(self.directory, ports, toolbox)
        self._refuse_clash(ports)
        return processes.start(
            command,
            directory=self.directory,
            log=self.log,
            environment=self._surroundings(),
            ports=ports,
        )

    def _surroundings(self) -> dict[str, str]:
        """Little of the caller's environment: servers must not depend on who starts them."""
        return {
            "PATH": self.search_path,
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory / "tmp"),
            "LC_ALL": "C.UTF-8",
        }

    def _refuse_clash(self, ports: Mapping[str, int]) -> None:
        clashes = taken(ports.values())
        if clashes:
            raise PortTaken(
                f"{self.name}: port {', '.join(map(str, clashes))} is taken by another process:"
                f" stop that one, or choose another with `--{self.name}-port` or"
                f" EXTENTFLOW_LOCAL_{self.name.upper()}_PORT (needs {len(ports)} in a row)"
            )

    def _await_answer(self, running: Running) -> None:
        deadline = time.monotonic() + self.service.ready_seconds
        while not self.service.answers(running.ports):
            if not running.alive():
                raise ServiceFailed(self._last_words("ended before it answered"))
            if self.gave_up.is_set():
                raise ServiceFailed(f"{self.name}: nobody waits for it any more")
            if time.monotonic() > deadline:
                limit = f"{self.service.ready_seconds:.0f} s"
                slow = f"runs (pid {running.pid}) but did not answer in {limit}"
                raise ServiceFailed(self._last_words(slow))
            time.sleep(_POLL_SECONDS)

    def _last_words(self, what: str) -> str:
        end = tail(self.log, _LOG_LINES_SHOWN)
        return f"{self.name} {what}. The end of {self.log}:\n{end}"

    def _clean_up(self, running: Running) -> None:
        processes.forget(self.directory)
        for path in self.service.leftovers(running.ports):
            path.unlink(missing_ok=True)
