"""`run` for a driver that spark-submit started: the master is the submitter's choice.

Owns: this one command line. Refuses to know: anything that `runs` already does.
"""

import sys

import typer

from extentflow.cli import run_command_line
from extentflow.cli.options import AsJson
from extentflow.cli.runs import Addresses, Again, ConnectorName, run
from extentflow.wiring.engine import SUBMITTED


def ingest(
    addresses: Addresses = None,
    *,
    connector: ConnectorName,
    again: Again = False,
    as_json: AsJson = False,
) -> None:
    """Deliver objects into Kafka on the executors of the submitted application."""
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
