"""The user's settings of the local stack; the only module here that reads the environment.

The variables, with their defaults:

    EXTENTFLOW_LOCAL_DIR              root directory; data goes to <root>/var (default: here)
    EXTENTFLOW_LOCAL_KAFKA_PORT       19092 and the next one
    EXTENTFLOW_LOCAL_S3_PORT          18333 and the next seven
    EXTENTFLOW_LOCAL_DYNAMODB_PORT    18000
    EXTENTFLOW_LOCAL_SQS_PORT         19324
    EXTENTFLOW_LOCAL_AWS_PORT         15000
    EXTENTFLOW_LOCAL_REGISTRY_PORT    18081
    EXTENTFLOW_LOCAL_RECEIVER_PORT    18380
    EXTENTFLOW_LOCAL_STACK            off: commands do not use the stack of the working directory
    EXTENTFLOW_IVY_SETTINGS           an ivysettings.xml of your own, for use behind a mirror
    EXTENTFLOW_APP_ID, EXTENTFLOW_LEDGER_TABLE   local functions share the commands' ledger
    XDG_CACHE_HOME, JAVA_HOME, PATH   with their usual meaning
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from extentflow.errors import Misconfigured

DEFAULT_PORTS: Mapping[str, int] = {
    "kafka": 19092,
    "s3": 18333,
    "dynamodb": 18000,
    "sqs": 19324,
    "aws": 15000,
    "registry": 18081,
    "receiver": 18380,
}
_SWITCH = "EXTENTFLOW_LOCAL_STACK"
OFF = f"{_SWITCH}=off"
_PORT_LIMIT = 65_536


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The settings of the local stack."""

    root: Path
    ports: Mapping[str, int]
    cache: Path
    search_path: str
    java_home: str | None = None
    ivy_settings: Path | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the settings.

        Raises:
            Misconfigured: with all problems at once.
        """
        problems: list[str] = []
        ports = {name: _port(name, environment, problems) for name in DEFAULT_PORTS}
        ivy_settings = environment.get("EXTENTFLOW_IVY_SETTINGS")
        if ivy_settings and not Path(ivy_settings).is_file():
            problems.append(f"EXTENTFLOW_IVY_SETTINGS names {ivy_settings}, which is not a file")
        if problems:
            raise Misconfigured(problems)
        cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(
            root=Path(environment.get("EXTENTFLOW_LOCAL_DIR") or ".").resolve(),
            ports=ports,
            cache=Path(cache, "extentflow"),
            search_path=environment.get("PATH") or os.defpath,
            java_home=environment.get("JAVA_HOME") or None,
            ivy_settings=Path(ivy_settings).resolve() if ivy_settings else None,
        )


def is_switched_off(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether commands ignore the stack of the working directory."""
    return (environment.get(_SWITCH) or "").strip().lower() == "off"


def ledger(environment: Mapping[str, str] = os.environ) -> dict[str, str | None]:
    """Return the ledger table that commands use; None is their default."""
    names = ("EXTENTFLOW_APP_ID", "EXTENTFLOW_LEDGER_TABLE")
    return {name: environment.get(name) or None for name in names}


def variable(name: str) -> str:
    """Return the variable of a service's port."""
    return f"EXTENTFLOW_LOCAL_{name.upper()}_PORT"


def _port(name: str, environment: Mapping[str, str], problems: list[str]) -> int:
    text = environment.get(variable(name))
    if not text:
        return DEFAULT_PORTS[name]
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < _PORT_LIMIT:
        problems.append(f"{variable(name)} is {text!r}; write a port number")
        return 0
    return int(text)
