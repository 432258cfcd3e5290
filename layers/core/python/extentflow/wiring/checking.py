"""A connector checked by everybody whom it concerns, before it is stored.

Owns: who is asked, and that nobody's problems hide another's. Refuses to know: what a key means.
"""

from collections.abc import Mapping
from pathlib import PurePath

from extentflow.connectors import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.sink.settings import problems
from extentflow.wiring.registry import parse_connector

PRODUCER = "producer."
REFERENCE = "${"
PLACEHOLDER = "x"


def check_connector(config: Mapping[str, str]) -> ConnectorConfig:
    """Return the connector that a flat map describes, producer settings checked by the client.

    Called where connectors are written. Workers and drivers use `parse_connector`, which asks
    nobody and is quick.

    Raises:
        Misconfigured: all problems at once.
    """
    try:
        parsed = parse_connector(config)
    except Misconfigured as exc:
        others = [line for line in _by_the_client(config) if not _told(line, exc.problems)]
        raise Misconfigured([*exc.problems, *others]) from None
    if found := _by_the_client(config):
        raise Misconfigured(found)
    return parsed


def _by_the_client(config: Mapping[str, str]) -> list[str]:
    """Return what the Kafka client says to `producer.*`; it opens no file and no connection."""
    given = {
        name.removeprefix(PRODUCER): PLACEHOLDER if REFERENCE in value else value
        for name, value in config.items()
        if name.startswith(PRODUCER)
    }
    return problems({}, {name: value for name, value in given.items() if not _of_workers(name)})


def _of_workers(name: str) -> bool:
    """Whether a setting names what only workers have: files, and secrets that must parse."""
    return PurePath(name).suffix in {".file", ".location", ".pem"} or name in {
        "ssl.key.password",
        "ssl.keystore.password",
        "sasl.kerberos.keytab",
    }


def _told(line: str, problems: tuple[str, ...]) -> bool:
    """Whether one of `problems` speaks of the same key, or of the family that `line` sums up."""
    key = line.partition(":")[0].partition(" ")[0]
    told = PRODUCER if key == f"{PRODUCER}*" else (f"{key}:", f"{key}=")
    return any(problem.startswith(told) for problem in problems)
