"""The servers of the stack, a module each: their port `Service`, and the toolbox that they get.

The use cases of the library are another package, `extentflow.services`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ACCESS_KEY = "extentflow"
# DynamoDB Local accepts letters and digits only.
SECRET_KEY = "extentflowsecret"  # noqa: S105 - of servers on the loopback interface
REGION = "us-east-1"
# ElasticMQ's own default; part of queue URLs and ARNs.
ACCOUNT = "000000000000"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What services start with: programs, and library folders by component (fetched on demand)."""

    java: Callable[[], Path]
    weed: Callable[[], Path]
    library: Callable[[str], Path]
    spark_jar: Callable[[str], Path]


class Service(Protocol):
    """One server. `directory` is its working directory, `ports` its ports by name.

    Implementations are stateless: one object serves any number of stacks.
    """

    @property
    def name(self) -> str:
        """Its name in commands and directories."""
        ...

    @property
    def title(self) -> str:
        """Its name for people."""
        ...

    @property
    def port_names(self) -> tuple[str, ...]:
        """Names of its ports; clients use the first, the others follow it."""
        ...

    @property
    def ready_seconds(self) -> float:
        """Maximum time of a start on a slow machine."""
        ...

    @property
    def stop_seconds(self) -> float:
        """Maximum time to end after SIGTERM before it is killed."""
        ...

    def prepare(self, directory: Path, ports: Mapping[str, int], toolbox: Toolbox) -> list[str]:
        """Write the server's files, and return its command line. Idempotent."""
        ...

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Return whether the server serves requests, beyond listening; takes at most one second."""
        ...

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:
        """Files that the server leaves outside its directory when it ends."""
        ...

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """The address for clients."""
        ...

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Variables with which `extentflow` uses this server."""
        ...


def java_command(toolbox: Toolbox, *, heap: str, directory: Path, quick: bool = True) -> list[str]:
    """Return the start of a Java command line: bounded heap, temporary files inside `directory`.

    A `quick` one starts sooner and takes less CPU; only what runs for long at full load gains
    from the second compiler and a parallel collector.
    """
    return [
        str(toolbox.java()),
        f"-Xmx{heap}",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        *(("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC") if quick else ()),
        f"-Djava.io.tmpdir={directory / 'tmp'}",
    ]
