"""The port that every service of the stack implements, and what a service is given to start with.

Owns: the contract. Refuses to know: any service, and how processes are kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ACCESS_KEY = "extentflow"
# DynamoDB Local takes letters and digits only.
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
    """One server. `directory` is its working directory, `ports` its ports by the names it lists.

    Implementations are stateless: the same object serves any number of stacks.
    """

    @property
    def name(self) -> str:
        """How commands and directories call it."""
        ...

    @property
    def title(self) -> str:
        """How people call it."""
        ...

    @property
    def port_names(self) -> tuple[str, ...]:
        """Names of its ports; the first is the one that clients use, the others follow it."""
        ...

    @property
    def ready_seconds(self) -> float:
        """How long a start may take on a slow machine."""
        ...

    @property
    def stop_seconds(self) -> float:
        """How long it may take to end by itself before it is killed."""
        ...

    def prepare(self, directory: Path, ports: Mapping[str, int], toolbox: Toolbox) -> list[str]:
        """Write what the server reads, and return its command line. Harmless when repeated."""
        ...

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Whether the server serves requests, not merely listens; takes a second at most."""
        ...

    def leftovers(self, ports: Mapping[str, int]) -> tuple[Path, ...]:
        """Files that the server leaves outside its directory when it ends."""
        ...

    def endpoint(self, ports: Mapping[str, int]) -> str:
        """What clients connect to."""
        ...

    def environment(self, ports: Mapping[str, int]) -> dict[str, str]:
        """Variables that make `extentflow` use this server."""
        ...


def java_command(toolbox: Toolbox, *, heap: str, directory: Path) -> list[str]:
    """Begin a Java command line: bounded heap, temporary files inside `directory`."""
    return [
        str(toolbox.java()),
        f"-Xmx{heap}",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Djava.io.tmpdir={directory / 'tmp'}",
    ]
