"""`run` for a driver that spark-submit started: the master is the submitter's choice."""

import sys
from typing import Annotated

import typer

from extentflow.cli import run_command_line
from extentflow.cli.options import AsJson
from extentflow.cli.runs import Addresses, Again, resume_job, run
from extentflow.errors import Misconfigured
from extentflow.wiring.engine import SUBMITTED

_Connector = Annotated[
    str | None, typer.Option("--connector", "-c", help="The connector to use; or give --job.")
]
_JobId = Annotated[
    str | None,
    typer.Option("--job", help="Deliver what this job has left, instead of finding objects."),
]


def ingest(
    addresses: Addresses = None,
    *,
    connector: _Connector = None,
    job: _JobId = None,
    again: Again = False,
    as_json: AsJson = False,
) -> None:
    """Deliver objects into Kafka on the executors of the submitted application."""
    if job is not None:
        if addresses or connector or again:
            raise Misconfigured("--job goes without addresses, --connector and --again")
        resume_job(job, engine="spark", master=SUBMITTED, as_json=as_json)
        return
    if connector is None:
        raise Misconfigured("give --connector, or --job")
    run(
        addresses,
        connector=connector,
        engine="spark",
        master=SUBMITTED,
        again=again,
        as_json=as_json,
    )


def main() -> None:
    """Run and exit."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(ingest)
    sys.exit(run_command_line(app))
