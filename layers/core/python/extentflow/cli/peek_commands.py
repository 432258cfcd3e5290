"""`extentflow peek`: schema, first records and cut of an object, without Kafka."""

from base64 import b64encode
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.output import INCOMPLETE, AsJson, size
from extentflow.cli.run_commands import Settings, Topic
from extentflow.wording import TOLERATE

if TYPE_CHECKING:
    from extentflow.kafka.record_headers import Headers
    from extentflow.services.peeks import Peek, PeekedRecord

TOPIC = "peek"
SHOWN_BYTES = 500

Address = Annotated[list[str], Argument(help="An object, a prefix, a glob or a file.")]
Limit = Annotated[int, Option("--limit", min=1, max=1_000, help="At most so many records.")]


def peek(
    addresses: Address,
    *,
    topic: Topic = None,
    settings: Settings = None,
    limit: Limit = 5,
    as_json: AsJson = False,
) -> None:
    """Show an object's columns, the first records as they would be sent, and its extents.

    The object is the first one of the address. Needs no Kafka; nothing is stored or sent.
    """
    from extentflow.jobs.addresses import S3_SCHEMES
    from extentflow.services.addressed import make_connector, parse_settings
    from extentflow.services.composition import open_peeks
    from extentflow.services.run_notes import describe_array
    from extentflow.wiring.environments import use_running_servers

    if any(one.startswith(S3_SCHEMES) for one in addresses):
        use_running_servers(output.note)  # which hold buckets, too
    made = make_connector(addresses, topic or TOPIC, parse_settings(settings or ()))
    with open_peeks() as peeks:
        found = peeks.first(made, limit=limit)
    if as_json:
        output.print_json(_json(found))
    else:
        _show(found)
        if found.filtered:
            first = output.counted(found.read, "record")
            output.note(f"filtered: {found.filtered:,} of the first {first}")
    if found.columnar:
        output.note(f"a value holds many of these rows, as columnar.encoding={found.columnar}")
    values = (one.value or b"" for one in found.records)
    if found.format == "jsonl" and next(values, b"").startswith(b"["):
        output.note(describe_array(found.version.uri))
    for problem in found.bad:
        output.complain(problem)
    if found.bad and made.config.errors_tolerance != "all":
        output.note(f"`run` ends there; {TOLERATE}")
    if found.more:
        output.note("the address has more objects; this is the first one")
    if found.bad:
        raise typer.Exit(INCOMPLETE)


def _show(found: "Peek") -> None:
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
    if any(one.timestamp is not None for one in found.records):
        shown["timestamp (ms)"] = [str(one.timestamp or "") for one in found.records]
    if any(one.headers for one in found.records):
        shown["headers"] = [_headers(one.headers) for one in found.records]
    output.print_table(tuple(shown), zip(*shown.values(), strict=True))


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
