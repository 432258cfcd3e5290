"""Several services as one stack under one root directory.

Its files:

    <root>/var/<service>/        its working directory: configuration, data, tmp, process.json
    <root>/var/<service>.log     its output
    <root>/var/ledger.db         the ledger of SQLite, where DynamoDB does not run
    <root>/var/stack.json        running services, for people, tests and other commands
    <root>/var/stack.lock        held while services are started or stopped
"""

import fcntl
import json
import random
import shlex
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from extentflow.config.ledgers import LedgerAddress
from extentflow.errors import Misconfigured
from extentflow.ledger import LedgerOptions, open_ledger
from extentflow_local.stack.errors import LocalStackError, PortTaken, ServiceFailed
from extentflow_local.stack.hosted import HostedService, ServiceState
from extentflow_local.stack.neighbours import folders_at, note_folder
from extentflow_local.stack.ports import accepts, free_run, taken
from extentflow_local.stack.processes import refuse_foreign_stack
from extentflow_local.stack.servers import Service
from extentflow_local.stack.servers.aws import MotoServer
from extentflow_local.stack.servers.dynamodb import DynamoDbLocal
from extentflow_local.stack.servers.kafka import Kafka
from extentflow_local.stack.servers.registry import Apicurio
from extentflow_local.stack.servers.s3 import SeaweedS3
from extentflow_local.stack.servers.sqs import ElasticMq
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.toolbox import toolbox

SERVICES: tuple[Service, ...] = (
    Kafka(),
    SeaweedS3(),
    DynamoDbLocal(),
    ElasticMq(),
    MotoServer(),
    Apicurio(),
)

# Without the second they have SQLite as their ledger.
LIGHT, AWS = ("kafka", "s3"), ("dynamodb", "sqs", "aws")
SERVERS, LEDGER_ENDPOINT = "EXTENTFLOW_BOOTSTRAP_SERVERS", "EXTENTFLOW_LEDGER_ENDPOINT"
LEDGER_URL = "EXTENTFLOW_LEDGER_URL"

Outcome = Literal["started", "already running"]


class Stack:
    """Servers with their data under `root/var`.

    `ports` gives a service's first port; its others follow. With `free_ports`, services that
    `ports` does not name start on free ports, which they keep after a restart. As a context manager
    it stops at the end. Several processes may use it: a lock serialises changes.
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
        self._var = root.resolve() / "var"
        self._first_ports = dict(ports or {})
        self._free_ports = free_ports
        self.toolbox = toolbox(self.settings, notify)
        self._gave_up = threading.Event()
        self._hosted = {
            service.name: HostedService(
                service, self._var, self.settings.search_path, self._gave_up
            )
            for service in services
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self, names: Iterable[str] = ()) -> dict[str, Outcome]:
        """Start the named services (default: all) in parallel, and wait until they are ready.

        Running services are left unchanged. Started services stay up when another one fails.

        Raises:
            Misconfigured: there is no service of that name.
            PortTaken: nothing was started; names every port, and the other stack that runs on it.
            LocalStackError: services did not start; with the causes and remedies.
        """
        chosen = self._chosen(names)
        self._gave_up.clear()
        with self._turn():
            places = [(hosted, self._ports_for(hosted)) for hosted in chosen]
            self._refuse_clashes(places)
            with ThreadPoolExecutor(len(chosen)) as pool:
                starts = [
                    pool.submit(hosted.start, ports, self.toolbox) for hosted, ports in places
                ]
                try:
                    problems = [start.exception() for start in starts]
                except BaseException:
                    self._gave_up.set()
                    raise
        _raise_all(problems)
        return {
            hosted.name: "started" if start.result() else "already running"
            for hosted, start in zip(chosen, starts, strict=True)
        }

    def down(self, names: Iterable[str] = ()) -> list[str]:
        """Stop the named services (all, if none is named); return the names of those that ran."""
        with self._turn():
            ran = [hosted for hosted in self._chosen(names) if hosted.running()]
            with ThreadPoolExecutor(max(1, len(ran))) as pool:
                list(pool.map(HostedService.stop, ran))
        return [hosted.name for hosted in ran]

    def kill(self, name: str) -> None:
        """Kill a service at once, as a power failure would."""
        with self._turn():
            self._one(name).kill()

    def restart(self, name: str) -> None:
        """Stop a service and start it again with its data, at the same ports."""
        self.down([name])
        self.up([name])

    def pause(self, name: str) -> None:
        """Suspend a service (SIGSTOP): it keeps its connections and sends no responses."""
        self._one(name).found().send(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Continue a suspended service."""
        self._one(name).found().send(signal.SIGCONT)

    def state(self) -> list[ServiceState]:
        """The state of all services, in their order."""
        return [hosted.state() for hosted in self._hosted.values()]

    def endpoint(self, name: str) -> str:
        """The address of a running service.

        Raises:
            ServiceFailed: it is not running.
        """
        hosted = self._one(name)
        return hosted.service.endpoint(hosted.found().ports)

    def endpoints(self) -> dict[str, str]:
        """Addresses of the running services."""
        return {state.name: state.endpoint for state in self.state() if state.endpoint}

    def environment(self) -> dict[str, str]:
        """Variables with which `extentflow` uses the running services."""
        merged: dict[str, str] = {}
        for state in self.state():
            merged |= state.environment
        named = LEDGER_ENDPOINT in merged or LEDGER_URL in merged  # by a service
        if SERVERS in merged and not named and self.ledger.exists():
            merged[LEDGER_URL] = LedgerAddress.of_file(self.ledger).url
        return merged

    @property
    def ledger(self) -> Path:
        """The ledger of commands while DynamoDB does not run: a file of SQLite.

        Raises Misconfigured where another user may have written it.
        """
        file = self._var / "ledger.db"
        refuse_foreign_stack(self._var.parent, file)
        return file

    @property
    def uses_aws(self) -> bool:
        """Whether DynamoDB ever ran here, so that its table may be the ledger."""
        return (self._var / "dynamodb" / "data").is_dir()

    def create_ledger(self) -> None:
        """Create the ledger of SQLite, unless it exists or DynamoDB runs, whose table it is."""
        if not self.ledger.exists() and LEDGER_ENDPOINT not in self.environment():
            options = LedgerOptions(url=LedgerAddress.of_file(self.ledger).url)
            open_ledger(options).admin.create()

    def summary(self) -> dict[str, object]:
        """The content of var/stack.json: the running services, and the environment to use them."""
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
        return {"services": services, "environment": self.environment()}

    def _chosen(self, names: Iterable[str]) -> list[HostedService]:
        wanted = list(names) or list(self._hosted)
        unknown = [name for name in wanted if name not in self._hosted]
        if unknown:
            raise Misconfigured(
                [f"no service {name!r}; there are: {', '.join(self._hosted)}" for name in unknown]
            )
        return [self._hosted[name] for name in dict.fromkeys(wanted)]

    def _one(self, name: str) -> HostedService:
        return self._chosen([name])[0]

    def _ports_for(self, hosted: HostedService) -> Mapping[str, int]:
        """Choose a service's ports; serially, so that no two services pick the same."""
        names = hosted.service.port_names
        first = self._first_ports.get(hosted.name)
        running = hosted.running()
        if running is not None:
            _refuse_move(hosted.name, running.ports[names[0]], first)
            return running.ports
        if first is None and self._free_ports:
            first = free_run(len(names), random.SystemRandom())
        elif first is None:
            first = self.settings.ports[hosted.name]
        self._first_ports[hosted.name] = first
        return {name: first + offset for offset, name in enumerate(names)}

    def _refuse_clashes(self, places: Iterable[tuple[HostedService, Mapping[str, int]]]) -> None:
        starting = {hosted.name: ports for hosted, ports in places if hosted.running() is None}
        clashes = {name: taken(ports.values()) for name, ports in starting.items()}
        if not any(clashes.values()):
            return
        among = [port for ports in clashes.values() for port in ports]
        folders = folders_at(self.settings.cache, among)
        by_owner: dict[Path | bool, dict[str, list[int]]] = {}
        for name, ports in clashes.items():
            for port in ports:
                owner = folders.get(port) or accepts(port)
                by_owner.setdefault(owner, {}).setdefault(name, []).append(port)
        counts = {name: len(starting[name]) for name, ports in clashes.items() if ports}
        raise PortTaken(
            "nothing was started:"
            f" {'; '.join(_owned(owner, found) for owner, found in by_owner.items())}; or choose"
            f" other ports: {_other_ports(counts)}"
        )

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock for a change, and write the summary afterwards."""
        self._var.mkdir(parents=True, exist_ok=True)
        with (self._var / "stack.lock").open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
            fresh = self._var / "stack.json.new"
            fresh.write_text(json.dumps(self.summary(), indent=2) + "\n", encoding="utf-8")
            fresh.rename(self._var / "stack.json")
            if not self._free_ports:  # random ports clash with no other stack
                running = any(state.pid is not None for state in self.state())
                note_folder(self.settings.cache, self._var.parent, running=running)


def _owned(
    owner: Path | bool,  # noqa: FBT001 - one of three owners
    found: Mapping[str, Sequence[int]],
) -> str:
    """Return who has ports that services need, and how to free them.

    `owner` is the folder of a stack, or else whether a server listens there.
    """
    listed = ", ".join(f"{_run(ports)} ({name})" for name, ports in found.items())
    several = sum(map(len, found.values())) > 1
    subject = f"port{'s' if several else ''} {listed} {'are' if several else 'is'} taken by"
    if owner is True:
        return f"{subject} another process: stop it"
    if owner is False:
        return (
            f"{subject} a connection, and no server listens there: the system gave it to a client;"
            " start again when that connection has ended"
        )
    command = f"`extentflow down --dir {shlex.quote(str(owner))}`"
    return f"{subject} the stack in {owner}: stop it with {command}"


def _run(ports: Sequence[int]) -> str:
    in_a_row = len(ports) > 2 and ports[-1] - ports[0] == len(ports) - 1  # noqa: PLR2004 - shorter
    return f"{ports[0]}-{ports[-1]}" if in_a_row else ", ".join(map(str, ports))


def _other_ports(counts: Mapping[str, int]) -> str:
    """Return the options and variables that move services; `counts` are the ports of each."""
    return ", ".join(
        f"--{name}-port or EXTENTFLOW_LOCAL_{name.upper()}_PORT"
        + (f" ({count} in a row)" if count > 1 else "")
        for name, count in counts.items()
    )


def _refuse_move(name: str, runs_at: int, asked: int | None) -> None:
    if asked not in {None, runs_at}:
        raise ServiceFailed(
            f"{name} already runs at port {runs_at}: to move it to {asked}, first stop it with"
            f" `extentflow down {name}`; its data stays"
        )


def _raise_all(problems: Iterable[BaseException | None]) -> None:
    found = [problem for problem in problems if problem is not None]
    unexpected = [problem for problem in found if not isinstance(problem, LocalStackError)]
    if unexpected:
        raise unexpected[0]
    if len(found) == 1:
        raise found[0]
    if found:
        raise LocalStackError("\n".join(map(str, found)))
