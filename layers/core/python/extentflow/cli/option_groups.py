"""Options of a kind as one frozen dataclass, which `expand_options` declares for typer.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class TriggerOptions:
        once: Annotated[bool, Option("--once", help="...")] = False

    @expand_options
    def stream(*, triggers: TriggerOptions, as_json: AsJson = False) -> None: ...

The help lists the options of a group where the group stands in the command's signature.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

from typer import Option

from extentflow.cli.output import Cores, Master

StoreSettings = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="How S3 is reached, as keys of connectors: aws.s3.endpoint, aws.s3.region and others;"
        " repeatable.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The servers that a command uses in place of those of its settings."""

    bootstrap_servers: Annotated[
        str | None,
        Option("--bootstrap-servers", help="Kafka brokers as host:port, in place of the setting."),
    ] = None
    ledger: Annotated[
        str | None,
        Option("--ledger", metavar="URL", help="The ledger, in place of the setting ledger.url."),
    ] = None

    @property
    def settings(self) -> dict[str, str]:
        """The settings that were given, by key."""
        found = {"bootstrap.servers": self.bootstrap_servers, "ledger.url": self.ledger}
        return {name: text for name, text in found.items() if text is not None}

    @property
    def words(self) -> str:
        """The options that were given, for a command that has to repeat them."""
        given = (("--bootstrap-servers", self.bootstrap_servers), ("--ledger", self.ledger))
        return " ".join(f"{option} {text}" for option, text in given if text is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What delivers: the engine, its workers, and the master of Spark."""

    engine: Annotated[
        str | None,
        Option(
            "--engine",
            help="inline: processes of this machine (default). spark: the default with --master."
            " emr: EMR Serverless.",
        ),
    ] = None
    cores: Cores = None
    master: Master = None


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer, in which each dataclass is replaced by its annotated fields.

    The returned function takes keywords only. Two groups of one command share no field's name.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for parameter in signature(command).parameters.values():
        kind = hints[parameter.name]
        if is_dataclass(kind):
            groups[parameter.name] = kind
            parameters += _parameters(kind)
        else:
            parameters.append(parameter.replace(annotation=kind))

    @wraps(command)
    def expanded(**given: object) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    expanded.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def _parameters(group: Any) -> list[Parameter]:  # noqa: ANN401 - any dataclass
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
