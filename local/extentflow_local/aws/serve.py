"""The command `serve`: run the project's functions on this machine until Ctrl-C."""

import json
import os
import shlex
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from extentflow_local.stack.errors import ServiceFailed
from extentflow_local.stack.settings import LocalSettings, ledger

if TYPE_CHECKING:
    from extentflow_local.aws.event_path import LocalEventPath
    from extentflow_local.aws.event_source.delivery import Delivery
    from extentflow_local.stack.stack import Stack

_QUEUES = "queues.json"
_LOG_TAIL_BYTES = 256 << 10
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="Root directory; data goes to var/ below it. Default: here."),
]
_Project = Annotated[
    Path, typer.Option("--project", file_okay=False, help="The folder with app.py and functions/.")
]
_Template = Annotated[
    Path | None,
    typer.Option(
        "--template",
        exists=True,
        dir_okay=False,
        help="A template that `make synth` wrote; without it app.py is run.",
    ),
]
_Sources = Annotated[
    Path | None,
    typer.Option(
        "--sources",
        exists=True,
        dir_okay=False,
        help="Permitted sources of notifications, as JSON for the receiver's secret.",
    ),
]
_Buckets = Annotated[
    list[str] | None,
    typer.Option("--bucket", help="Send notifications of this bucket only; can be repeated."),
]
_Processes = Annotated[int, typer.Option(min=1, max=64, help="The most processes per function.")]
_Port = Annotated[int | None, typer.Option(min=1, max=65_535, help="The receiver's port.")]
_Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve the functions' metrics for Prometheus there, at /metrics.",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON when the functions are ready.")]


def serve(
    *,
    directory: _Directory = None,
    project: _Project = Path(),
    template: _Template = None,
    sources: _Sources = None,
    bucket: _Buckets = None,
    processes: _Processes = 2,
    receiver_port: _Port = None,
    metrics: _Metrics = None,
    as_json: _Json = False,
) -> None:
    """Run the functions on this machine: uploads and posted notifications become records."""
    from extentflow.services.metrics import serve_metrics
    from extentflow_local.aws.event_path import SOURCES, LocalEventPath
    from extentflow_local.aws.event_source.metrics import FunctionMetrics
    from extentflow_local.aws.event_source.source import GRACE_SECONDS
    from extentflow_local.aws.project import Project
    from extentflow_local.stack.ledgers import unused_ledger
    from extentflow_local.stack.stack import AWS, LIGHT, Stack

    notes = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, emoji=False)
    settings = LocalSettings.from_environment()
    if directory is not None:
        settings = replace(settings, root=directory.resolve())
    for number in _STOPS:
        signal.signal(number, signal.default_int_handler)
    checkout = Project(project.resolve())
    if template is None:
        checkout.require_cdk()  # before servers start, which takes a while
    stack = Stack(settings.root, settings=settings, notify=notes.print)
    stack.up((*LIGHT, *AWS))
    if unused := unused_ledger(stack):
        notes.print(unused)
    place = _place(stack)
    if template is None:
        notes.print("synthesising the template")
        template = checkout.synthesise(place / "cdk.out")
    path = LocalEventPath(
        stack=stack,
        project=checkout,
        template=template,
        directory=place,
        environment=ledger(),
        sources=sources.read_text(encoding="utf-8") if sources else SOURCES,
        processes=processes,
        http_port=receiver_port or settings.ports["receiver"],
    )
    _initialise(path)
    ended = threading.Event()
    with (
        serve_metrics(FunctionMetrics(path.logs).text, metrics) as scraped,
        path.run(
            buckets=bucket or (),
            observe=lambda delivery: notes.print(_line(delivery, path.logs)),
            on_end=ended.set,
        ) as source,
    ):
        _remember(path)
        url = source.url if path.deployment.routes else None
        if as_json:
            addresses = {"receiver": url, "metrics": scraped or None}
            typer.echo(json.dumps({**addresses, "logs": str(place), "queues": path.queues}))
        else:
            uploads = f"uploads to {_listed(bucket)} at {stack.endpoint('s3')}"
            where = f" at {url}: posted notifications, and {uploads}," if url else f": {uploads}"
            notes.print(f"ready{where} are delivered; Ctrl-C stops the functions")
            if scraped:
                notes.print(f"metrics for Prometheus: {scraped}")
            _explain(path, url, notes, own=sources is None)
        with suppress(KeyboardInterrupt):
            ended.wait()
        failed = ended.is_set()
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)
        notes.print(f"stopping; running invocations have {GRACE_SECONDS:.0f} s to end")
    if failed:
        raise ServiceFailed(
            "notifications of uploads ended with the error above; run `extentflow serve`"
            " again; the reconciler finds objects that were uploaded in the meantime"
        )


def queues_of(stack: "Stack") -> dict[str, str]:
    """Return the settings of the queues that exist in the running SQS server."""
    endpoint = stack.endpoints().get("sqs")
    file = _place(stack) / _QUEUES
    if endpoint is None or not file.is_file():
        return {}
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return {name: url for name, url in found.items() if url.startswith(f"{endpoint}/")}


def _place(stack: "Stack") -> Path:
    return stack.settings.root / "var" / "functions"


def _remember(path: "LocalEventPath") -> None:
    fresh = path.directory / f"{_QUEUES}.new"
    fresh.write_text(json.dumps(path.queues), encoding="utf-8")
    fresh.rename(path.directory / _QUEUES)


def _initialise(path: "LocalEventPath") -> None:
    """Create the ledger's table and the progress topic, as `extentflow init` does."""
    command = [str(Path(sysconfig.get_path("scripts"), "extentflow")), "init"]
    environment = {**os.environ, **path.stack.environment(), **path.settings}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise ServiceFailed(f"`extentflow init` ended with {done.returncode}\n{done.stdout}")


def _explain(path: "LocalEventPath", url: str | None, notes: Console, *, own: bool) -> None:
    from extentflow_local.aws.event_path import SECRET_PATH
    from extentflow_local.stack.servers import ACCESS_KEY

    if url is not None and own:
        notes.print(f"post notifications as JSON to {url}/{SECRET_PATH}, or, to {url}, signed for")
        notes.print(f"    SNS with the access key {ACCESS_KEY} and its secret")
    notes.print(f"functions write their logs to {path.directory}")
    for name, value in path.queues.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


def _listed(buckets: list[str] | None) -> str:
    return ", ".join(buckets) if buckets else "any bucket"


def _line(delivery: "Delivery", logs: Mapping[str, Path]) -> str:
    """Return one line about an invocation, with the reason where messages go back to the queue."""
    outcome = delivery.outcome
    count = len(delivery.received)
    messages = f", {count} message{'s' if count > 1 else ''}" if count else ""
    said = f"{delivery.function} {outcome.verdict} in {outcome.seconds:.2f} s{messages}"
    if not outcome.ok or not delivery.failed:
        return said
    log = logs.get(delivery.function)
    reason = _last_warning(log, outcome.request_id) if log else ""
    many = f"{len(delivery.failed)} of them " if len(delivery.failed) < count else ""
    return f"{said}; {many}returned to the queue: {reason or f'{log} has the reason'}"


def _last_warning(log: Path, request: str) -> str:
    """Return the last warning that the invocation `request` wrote, "" where there is none."""
    try:
        with log.open("rb") as lines:
            lines.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            tail = lines.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""  # the line names the file instead
    for line in reversed(tail):
        try:
            entry = json.loads(line)
        except ValueError:  # of another library, or cut
            continue
        if not isinstance(entry, dict) or entry.get("function_request_id") != request:
            continue
        if entry.get("level") in {"WARNING", "ERROR"}:
            return str(entry.get("message", ""))
    return ""
