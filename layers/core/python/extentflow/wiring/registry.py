"""Read and check connectors against the formats, converters and stores of this process."""

from collections.abc import Mapping
from pathlib import PurePath

from extentflow import connectors
from extentflow.connectors import ConnectorConfig
from extentflow.converters import CONVERTERS
from extentflow.errors import Misconfigured
from extentflow.formats import FORMATS
from extentflow.sink.settings import problems
from extentflow.storage import STORES

PRODUCER = "producer."
REFERENCE = "${"
PLACEHOLDER = "x"


def parse_connector(config: Mapping[str, str]) -> ConnectorConfig:
    """Return a checked connector, against everything that is registered.

    Raises:
        Misconfigured: all problems at once.
    """
    return connectors.parse(
        config,
        formats=FORMATS.names(),
        converters=CONVERTERS.names(),
        endpoint_types=STORES.names(),
    )


def check_connector(config: Mapping[str, str]) -> ConnectorConfig:
    """Return the connector that a flat map describes, producer settings checked by the client.

    For commands that store connectors. Workers and drivers use the faster `parse_connector`.

    Raises:
        Misconfigured: all problems at once.
    """
    try:
        parsed = parse_connector(config)
    except Misconfigured as exc:
        others = [line for line in _producer_problems(config) if not _covered(line, exc.problems)]
        raise Misconfigured([*exc.problems, *others]) from None
    if found := _producer_problems(config):
        raise Misconfigured(found)
    return parsed


def _producer_problems(config: Mapping[str, str]) -> list[str]:
    """Return the Kafka client's problems with `producer.*`; it opens no file and no connection."""
    given = {
        name.removeprefix(PRODUCER): PLACEHOLDER if REFERENCE in value else value
        for name, value in config.items()
        if name.startswith(PRODUCER)
    }
    return problems(
        {}, {name: value for name, value in given.items() if not _only_in_workers(name)}
    )


def _only_in_workers(name: str) -> bool:
    """Return whether a setting names a file or a secret that only workers have."""
    return PurePath(name).suffix in {".file", ".location", ".pem"} or name in {
        "ssl.key.password",
        "ssl.keystore.password",
        "sasl.kerberos.keytab",
    }


def _covered(line: str, problems: tuple[str, ...]) -> bool:
    """Return whether `problems` name the same key, or the family that `line` sums up."""
    key = line.partition(":")[0].partition(" ")[0]
    names = PRODUCER if key == f"{PRODUCER}*" else (f"{key}:", f"{key}=")
    return any(problem.startswith(names) for problem in problems)
