"""`extentflow peek`: schema, first records and cut of an object, without Kafka."""

from base64 import b64encode
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import INCOMPLETE, AsJson, size
from extentflow.cli.run_commands import Settings, Topic
from extentflow.errors import Misconfigured
from extentflow.wording import TOLERATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extentflow.kafka.record_headers import Headers
    from extentflow.services.orders import Order, Orders
    from extentflow.services.peeks import Peek, PeekedRecord

TOPIC = "peek"
SHOWN_BYTES = 500

PeekAddresses = Annotated[
    list[str] | None,
    Argument(help="An object, a prefix, a glob or a file (default: the connector's)."),
]
Limit = Annotated[int, Option("--limit", min=1, max=1_000, help="At most so many records.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedConnector:
    """The connector of which an object is shown: a stored one, or one that the command makes."""

    connector: Annotated[
        str | None, Option("--connector", "-c", help="The stored connector to use.")
    ] = None
    topic: Topic = None
    settings: Settings = None

    def __post_init__(self) -> None:
        if self.connector is not None and (self.topic is not None or self.settings):
            raise Misconfigured(
                "--topic and --set make a connector, and --connector names a stored one"
            )

    def order(
        self, orders: "Orders", addresses: "Sequence[str]", servers: ServerOptions
    ) -> "Order":
        """Return the order, of `orders` whose ledger need not stay."""
        if self.connector is None:
            return _made(orders, addresses, self.topic, self.settings or ())
        return _copied(orders, self.connector, addresses, servers)


@expand_options
def peek(
    addresses: PeekAddresses = None,
    *,
    source: PeekedConnector,
    limit: Limit = 5,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Show an object's columns, the first records as they would be sent, and its extents.

    The object is the first one of the address. Needs no Kafka; nothing is stored or sent.
    """
    from extentflow.services.composition import open_peeks
    from extentflow.services.run_notes import describe_array

    with open_peeks() as peeks:
        order = source.order(peeks.orders, addresses or (), servers)
        found = peeks.first(order, limit=limit)
    if as_json:
        output.print_json(_json(found))
    else:
        _show(found, order.config.topic)
    if found.columnar:
        output.note(f"a value holds many of these rows, as columnar.encoding={found.columnar}")
    values = (one.value or b"" for one in found.records)
    if found.format == "jsonl" and next(values, b"").startswith(b"["):
        output.note(describe_array(found.version.uri))
    for problem in found.bad:
        output.complain(problem)
    if found.bad and order.config.errors_tolerance != "all":
        output.note(f"`run` ends there; {TOLERATE}")
    if found.more:
        output.note("the address has more objects; this is the first one")
    if found.bad:
        raise typer.Exit(INCOMPLETE)


def _copied(
    orders: "Orders", connector: str, addresses: "Sequence[str]", servers: ServerOptions
) -> "Order":
    """Copy a stored connector into the ledger of `orders`, where decoding looks it up."""
    from extentflow.cli.opening import open_runtime

    runtime = open_runtime(servers, creates=False, brokers=False)
    runtime.connectors.latest(connector)  # raises where there is none, with names like it
    if (stored := runtime.ledger.connectors.get(connector)) is not None:
        orders.ledger.connectors.put(connector, stored.config)
    return orders.stored(connector, addresses)


def _made(
    orders: "Orders", addresses: "Sequence[str]", topic: str | None, settings: "Sequence[str]"
) -> "Order":
    from extentflow.jobs.addresses import S3_SCHEMES
    from extentflow.services.addressed import make_connector, parse_settings
    from extentflow.wiring.environments import use_running_servers

    if not addresses:
        raise Misconfigured("give the address of an object, or --connector NAME")
    if any(one.startswith(S3_SCHEMES) for one in addresses):
        use_running_servers(output.note)  # which hold buckets, too
    made = make_connector(addresses, topic or TOPIC, parse_settings(settings))
    return orders.store(made, save=False, notify=str)


def _show(found: "Peek", topic: str) -> None:
    """Show what was found; the topics of records only where they are others than `topic`."""
    packed = "" if found.compression == "none" else f", compression {found.compression}"
    facts = f"; found {found.facts}" if found.facts else ""
    output.say(
        f"{found.version.uri}: {size(found.version.size)}, format {found.format} by "
        f"{found.format_source}{packed}, {output.counted(len(found.extents), 'extent')}{facts}"
    )
    output.print_table(("column", "type"), found.columns)
    shown: dict[str, list[str]] = {
        "key": [_text(one.key) for one in found.records],
        "value": [_text(one.value) for one in found.records],
    }
    if any(one.topic != topic for one in found.records):
        shown["topic"] = [one.topic for one in found.records]
    if any(one.timestamp is not None for one in found.records):
        shown["timestamp (ms)"] = [str(one.timestamp or "") for one in found.records]
    if any(one.headers for one in found.records):
        shown["headers"] = [_headers(one.headers) for one in found.records]
    output.print_table(tuple(shown), zip(*shown.values(), strict=True))
    if found.filtered:
        first = output.counted(found.read, "record")
        output.note(f"filtered: {found.filtered:,} of the first {first}")


def _headers(headers: "Headers") -> str:
    return ", ".join(f"{name}:{_text(value)}" for name, value in headers)


def _text(payload: bytes | None) -> str:
    if payload is None:
        return "null"
    shown = payload[:SHOWN_BYTES]
    more = f"... ({len(payload):,} bytes)" if len(payload) > SHOWN_BYTES else ""
    return shown.decode("utf-8", "backslashreplace") + more


def _json(found: "Peek") -> dict[str, object]:
    facts = asdict(found)
    del facts["version"]
    facts["columns"] = dict(found.columns)
    facts["records"] = [_record_json(one) for one in found.records]
    version = found.version
    return {"object": version.uri, "etag": version.etag, "bytes": version.size, **facts}


def _record_json(one: "PeekedRecord") -> dict[str, object]:
    """Return a record; timestamp and headers where the connector sets them."""
    record: dict[str, object] = {
        "topic": one.topic,
        "key": _whole(one.key),
        "value": _whole(one.value),
    }
    if one.timestamp is not None:
        record["timestamp"] = one.timestamp
    if one.headers:
        record["headers"] = [(name, _whole(value)) for name, value in one.headers]
    return record


def _whole(payload: bytes | None) -> str | dict[str, str] | None:
    """Return a text as it is, and other bytes in base64."""
    if payload is None:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(payload).decode()}
