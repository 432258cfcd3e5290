"""One service of a stack, from start to stop.

stopped --start--> spawned --ready--> running --stop, kill--> stopped
                      |
                      +--ends, or times out: ServiceFailed with the end of its log
"""

import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from extentflow_local.stack import processes
from extentflow_local.stack.errors import ServiceFailed
from extentflow_local.stack.fetch import tail
from extentflow_local.stack.processes import RunningProcess
from extentflow_local.stack.servers import Service, Toolbox

_POLL_SECONDS = 0.05
_LOG_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of a service; `pid` and `endpoint` are None while it is stopped."""

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
    """A service with its directory under `var`; any process can see whether it runs."""

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

    def running(self) -> RunningProcess | None:
        """Its process, if it is alive."""
        return RunningProcess.recorded_in(self.directory)

    def found(self) -> RunningProcess:
        """Its process.

        Raises:
            ServiceFailed: it is not running.
        """
        running = self.running()
        if running is None:
            raise ServiceFailed(
                f"{self.name} is not running: start it with `extentflow up {self.name}`"
            )
        return running

    def start(self, ports: Mapping[str, int], toolbox: Toolbox) -> bool:
        """Start it if it is not running, and wait until it is ready; return whether it was started.

        Raises:
            LocalStackError: it cannot be prepared, it ended, or is too slow.
        """
        running = self.running()
        if running is None:
            self._await_answer(self._spawn(ports, toolbox))
            return True
        self._await_answer(running)
        return False

    def stop(self) -> None:
        """Stop it within its `stop_seconds`, by force if necessary."""
        running = self.running()
        if running is not None:
            running.send(signal.SIGCONT)
            running.stop(grace_seconds=self.service.stop_seconds)
            self._clean_up(running)

    def kill(self) -> None:
        """Kill it at once.

        Raises:
            ServiceFailed: it is not running.
        """
        running = self.found()
        running.kill()
        self._clean_up(running)

    def state(self) -> ServiceState:
        """Its current state."""
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

    def _spawn(self, ports: Mapping[str, int], toolbox: Toolbox) -> RunningProcess:
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        command = self.service.prepare(self.directory, ports, toolbox)
        return processes.start(
            command,
            directory=self.directory,
            log=self.log,
            environment=self._environment(),
            ports=ports,
        )

    def _environment(self) -> dict[str, str]:
        """A minimal environment, so that servers do not depend on the caller's variables."""
        return {
            "PATH": self.search_path,
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory / "tmp"),
            "LC_ALL": "C.UTF-8",
        }

    def _await_answer(self, running: RunningProcess) -> None:
        deadline = time.monotonic() + self.service.ready_seconds
        while not self.service.answers(running.ports):
            if not running.alive():
                raise ServiceFailed(self._last_words("ended before it was ready"))
            if self.gave_up.is_set():
                raise ServiceFailed(f"{self.name}: the start was cancelled")
            if time.monotonic() > deadline:
                limit = f"{self.service.ready_seconds:.0f} s"
                slow = f"runs (pid {running.pid}) but was not ready in {limit}"
                raise ServiceFailed(self._last_words(slow))
            time.sleep(_POLL_SECONDS)

    def _last_words(self, what: str) -> str:
        end = tail(self.log, _LOG_LINES_SHOWN)
        return f"{self.name} {what}. The end of {self.log}:\n{end}"

    def _clean_up(self, running: RunningProcess) -> None:
        processes.forget(self.directory)
        for path in self.service.leftovers(running.ports):
            path.unlink(missing_ok=True)
