"""A standalone Spark cluster on loopback addresses, from PySpark's own jars."""

import http.client
import json
import random
import sys
import time
from pathlib import Path
from typing import Self

import psutil

from extentflow_local.stack import processes, programs
from extentflow_local.stack.errors import ServiceFailed
from extentflow_local.stack.fetch import tail
from extentflow_local.stack.ports import HOST, free_run, is_free
from extentflow_local.stack.processes import RunningProcess
from extentflow_local.stack.settings import LocalSettings

_POLL_SECONDS = 0.1
_READY_SECONDS = 180
_STOP_SECONDS = 10
_LOG_LINES_SHOWN = 15
_EXECUTOR = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master and one worker per host, with their files under `root`, on free ports.

    As a context manager it starts and stops. Not shared between processes.
    """

    def __init__(
        self,
        root: Path,
        *,
        hosts: tuple[str, ...] = (HOST, "127.0.0.2"),
        cores: int = 1,
        memory: str = "1g",
        settings: LocalSettings | None = None,
    ) -> None:
        self._root = root.resolve()
        self._hosts = hosts
        self._size = {"--cores": str(cores), "--memory": memory}
        self._settings = settings or LocalSettings.from_environment()
        self._first_port = 0
        self._members: dict[str, RunningProcess] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def master_url(self) -> str:
        """The value for `--master`."""
        return f"spark://{HOST}:{self._first_port}"

    def start(self) -> None:
        """Start the cluster and wait until every worker has registered.

        Raises:
            ProgramMissing: no Java, no PySpark.
            ServiceFailed: a process ended, an address is not local, or not all registered in time.
        """
        self._refuse_foreign_hosts()
        self._first_port = free_run(2 + len(self._hosts), random.SystemRandom())
        try:
            self._start_member(
                "master", "master.Master", HOST, self._first_port + 1, self._master()
            )
            self._await_workers(0)
            for index, host in enumerate(self._hosts):
                self.start_worker(index, host)
            self._await_workers(len(self._hosts))
        except BaseException:
            self.stop()
            raise

    def start_worker(self, index: int, host: str) -> None:
        """Start one worker, for the first time or after it was killed."""
        size = [word for pair in self._size.items() for word in pair]
        arguments = [self.master_url, "--work-dir", "work", *size]
        port = self._first_port + 2 + index
        self._start_member(f"worker-{index}", "worker.Worker", host, port, arguments)

    def kill_worker(self, index: int) -> None:
        """Kill a worker and its executors, as the loss of a machine would."""
        worker = self._members.pop(f"worker-{index}")
        descendants = _descendants(worker)
        worker.kill()
        _end(descendants)

    def executor_pids(self) -> list[int]:
        """Process ids of the running executors."""
        return [process.pid for process in self._descendants() if _EXECUTOR in _command(process)]

    def python_worker_pids(self) -> list[int]:
        """Process ids of the executors' Python workers: children of the daemons."""
        return [
            child.pid
            for process in self._descendants()
            if "pyspark.daemon" in _command(process)
            for child in _children(process)
            if "pyspark.daemon" in _command(child)
        ]

    def stop(self) -> None:
        """Stop workers, their executors and the master. Idempotent."""
        descendants = self._descendants()
        for name in sorted(self._members, reverse=True):
            self._members[name].stop(grace_seconds=_STOP_SECONDS)
            processes.forget(self._root / name)
        self._members.clear()
        _end(descendants)

    def _master(self) -> list[str]:
        return ["--port", str(self._first_port)]

    def _start_member(
        self, name: str, main: str, host: str, web_port: int, arguments: list[str]
    ) -> None:
        directory = self._root / name
        (directory / "tmp").mkdir(parents=True, exist_ok=True)
        (directory / "conf").mkdir(exist_ok=True)
        command = [str(programs.spark_home() / "bin" / "spark-class")]
        command += [f"org.apache.spark.deploy.{main}", *arguments]
        command += ["--host", host, "--webui-port", str(web_port)]
        self._members[name] = processes.start(
            command,
            directory=directory,
            log=self._log(name),
            environment=self._environment(directory, host),
            ports={"web": web_port},
        )

    def _environment(self, directory: Path, host: str) -> dict[str, str]:
        java = programs.java(
            home=self._settings.java_home, search_path=self._settings.search_path
        ).resolve()
        temporary = directory / "tmp"
        return {
            "PATH": self._settings.search_path,
            "HOME": str(directory),
            "TMPDIR": str(temporary),
            "LC_ALL": "C.UTF-8",
            "JAVA_HOME": str(java.parent.parent),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(programs.spark_home()),
            # Without it workers search Spark's build directories, and executors do not start.
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_CONF_DIR": str(directory / "conf"),
            "SPARK_LOCAL_DIRS": str(temporary),
            # Otherwise the web pages are served on every interface.
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "384m",
            "SPARK_DAEMON_JAVA_OPTS": f"-XX:-UsePerfData -Djava.io.tmpdir={temporary}",
        }

    def _await_workers(self, wanted: int) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while self._alive_workers() < wanted:
            for name, member in self._members.items():
                if not member.alive():
                    raise ServiceFailed(self._last_words(f"{name} ended", name))
            if time.monotonic() > deadline:
                late = f"{wanted} Spark workers did not register in {_READY_SECONDS} s"
                raise ServiceFailed(self._last_words(late, "master"))
            time.sleep(_POLL_SECONDS)

    def _alive_workers(self) -> int:
        """Return the number of registered workers; -1 while the master is not ready."""
        connection = http.client.HTTPConnection(HOST, self._first_port + 1, timeout=2)
        try:
            connection.request("GET", "/json/")
            return int(json.load(connection.getresponse())["aliveworkers"])
        except (OSError, http.client.HTTPException, ValueError):
            return -1
        finally:
            connection.close()

    def _refuse_foreign_hosts(self) -> None:
        for host in self._hosts:
            if not is_free(0, host):
                raise ServiceFailed(
                    f"{host} is not an address of this machine: add it to the loopback interface"
                    f" (macOS: `sudo ifconfig lo0 alias {host}`)"
                )

    def _last_words(self, what: str, name: str) -> str:
        log = self._log(name)
        return f"{what}. The end of {log}:\n{tail(log, _LOG_LINES_SHOWN)}"

    def _log(self, name: str) -> Path:
        return self._root / f"{name}.log"

    def _descendants(self) -> list[psutil.Process]:
        return [child for member in self._members.values() for child in _descendants(member)]


def _descendants(running: RunningProcess) -> list[psutil.Process]:
    if not running.alive():
        return []
    try:
        return psutil.Process(running.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def _end(descendants: list[psutil.Process]) -> None:
    """Wait for processes to end after their parent, then kill them."""
    _, left = psutil.wait_procs(descendants, timeout=_STOP_SECONDS)
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=_STOP_SECONDS)
