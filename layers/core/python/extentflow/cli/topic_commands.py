"""`extentflow tail` and `extentflow count`: rows of topics, whatever a record holds."""

from base64 import b64encode
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import INCOMPLETE, AsJson

if TYPE_CHECKING:
    from extentflow.services.topics import ShownRow, TopicCount, Topics
    from extentflow.services.verifications import Verification
    from extentflow.wiring import Runtime

Name = Annotated[str, Argument(metavar="TOPIC", help="The topic.")]
Columns = Annotated[
    list[str] | None, Option("--column", help="Only this column of the rows; repeatable.")
]
Decrypt = Annotated[
    str | None,
    Option(
        "--keys",
        metavar="REFERENCE",
        help="Decrypt columns: where the secret with the master keys is, or aws-kms.",
    ),
]
Keys = Annotated[
    list[str] | None,
    Option("--key", help="Also count different values of this column; repeatable: of all of them."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """Which rows of a topic `tail` shows."""

    limit: Annotated[int, Option("--limit", "-n", min=1, help="At most so many rows.")] = 10
    follow: Annotated[bool, Option("--follow", "-f", help="Then show rows as they arrive.")] = False
    from_beginning: Annotated[
        bool, Option("--from-beginning", help="The first rows, not the last ones.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The objects that `count` compares a topic with, and what delivered them."""

    verify: Annotated[
        list[str] | None,
        Option(
            "--verify",
            metavar="ADDRESS",
            help="Compare with the rows of these objects; repeatable. Exit code 0 only if all are"
            " there, once. The headers of the topic's records decide whether columns or values of"
            " rows are compared.",
        ),
    ] = None
    connector: Annotated[
        str | None,
        Option(
            "--connector", "-c", help="With --verify: the connector that delivered the objects."
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="With --verify: a key of connectors that the run had, such as select; repeatable."
            " Those of columnar values are not needed.",
        ),
    ] = None


@expand_options
def tail(
    topic: Name,
    *,
    columns: Columns = None,
    decrypt: Decrypt = None,
    shown: RowOptions,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Show the last rows of a topic, one line each, those of columnar values as JSON.

    Ends with the last row that the topic has now, unless --follow. Only committed records are read.
    With --json, each line has the row's place, too.
    """
    from extentflow.cli.opening import open_runtime
    from extentflow.errors import Misconfigured

    if shown.follow and shown.from_beginning:
        raise Misconfigured("--follow, --from-beginning: rows cannot be both; leave one out")
    topics = _topics(open_runtime(servers, creates=False), decrypt)
    if shown.from_beginning:
        found = topics.head(topic, rows=shown.limit, columns=columns)
    else:
        found = topics.tail(topic, rows=shown.limit, columns=columns, follow=shown.follow)
    is_empty = True
    for row in found:
        is_empty = False
        output.say(output.json_text(_row_json(row)) if as_json else _text(row.value))
    if is_empty:
        output.note(f"topic {topic} has no committed record")


def _topics(runtime: "Runtime", decrypt: str | None) -> "Topics":
    from extentflow.services.composition import open_topics
    from extentflow.wiring.options import reading_keys

    return open_topics(runtime, None if decrypt is None else reading_keys(decrypt, runtime.secrets))


def _text(value: bytes | None) -> str:
    return "null" if value is None else value.decode("utf-8", "backslashreplace")


def _row_json(row: "ShownRow") -> dict[str, object]:
    value: object = None
    if row.value is not None:
        try:
            value = row.value.decode()
        except UnicodeDecodeError:
            value = {"base64": b64encode(row.value).decode()}
    return asdict(row) | {"value": value}


@expand_options
def count(
    topic: Name,
    *,
    keys: Keys = None,
    decrypt: Decrypt = None,
    against: VerifyOptions,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Count the rows of a topic; compare them with those of objects (--verify)."""
    from extentflow.cli.opening import open_runtime
    from extentflow.cli.progress import RunProgress
    from extentflow.errors import Misconfigured
    from extentflow.services.addressed import make_connector, parse_settings
    from extentflow.services.composition import open_orders, open_verifications
    from extentflow.services.orders import Order

    runtime = open_runtime(servers, creates=False)
    topics = _topics(runtime, decrypt)
    counting = RunProgress(output.err).counting
    if not against.verify:
        if against.connector or against.settings:
            raise Misconfigured("--connector, --set: only with --verify")
        counted = topics.count(topic, keys=keys or (), counting=counting)
        output.show(asdict(counted), *_count_lines(counted), as_json=as_json)
        return
    if keys:
        raise Misconfigured("--key: not together with --verify, which compares whole rows")
    if against.connector is not None:
        if against.settings:
            raise Misconfigured("--set: not together with --connector, which has all settings")
        order: Order = open_orders(runtime).stored(against.connector, against.verify, deleted=True)
    else:
        made = make_connector(against.verify, topic, parse_settings(against.settings or ()))
        order = open_orders(runtime).compare(made)
    found = open_verifications(runtime, topics).verify(topic, order, counting=counting)
    output.show(asdict(found) | {"equal": found.equal}, _verdict(found), as_json=as_json)
    if found.expected == found.missing and found.unexpected and against.connector is None:
        output.note(
            "no row is equal, as where values were made with other settings: give those of the"
            " delivery by --set, or its connector by -c"
        )
    if found.unexpected and order.config.dead_letter_topic is not None:
        output.note(
            "rows that `replay-dead-letters --repairs` corrected count as unexpected, because the"
            " object does not have them"
        )
    if not found.equal:
        raise typer.Exit(INCOMPLETE)


def _count_lines(found: "TopicCount") -> list[str]:
    records = output.counted(found.records, "Kafka record")
    rows, partitions = (
        output.counted(found.rows, "row"),
        output.counted(found.partitions, "partition"),
    )
    lines = [f"topic {found.topic}: {rows} in {records}, {partitions}"]
    if found.distinct is not None:
        lines.append(
            f"different keys: {found.distinct:,}; rows beyond the first: {found.doubled:,}"
        )
    lines += [f"{uri}: {output.counted(rows, 'row')}" for uri, rows in found.objects.items()]
    return lines


def _verdict(found: "Verification") -> str:
    facts = (
        f"{output.counted(found.expected, 'row')} in {output.counted(found.objects, 'object')},"
        f" {found.expected - found.missing:,} of them in topic {found.topic}"
    )
    rest = f"; {output.counted(found.others, 'row')} of other objects" if found.others else ""
    if found.unnamed:
        rest += f"; {output.counted(found.unnamed, 'row')} whose object no header names"
    if found.equal:
        return f"equal: {facts}, each once{rest}"
    if found.unexpected and not found.others:
        rest += "; rows of other objects count as unexpected, unless headers name their objects"
    return (
        f"DIFFERENT: {facts}: {found.missing:,} missing, {found.unexpected:,} unexpected or"
        f" doubled{rest}"
    )
