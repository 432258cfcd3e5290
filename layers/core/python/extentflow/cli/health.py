"""`extentflow init` and `extentflow doctor`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from extentflow.cli import output
from extentflow.cli.output import INCOMPLETE, AsJson
from extentflow.services.health import Finding, examine, initialise
from extentflow.wiring import Runtime

Connector = Annotated[
    str | None, typer.Option("--connector", "-c", help="Check this one's objects and topics.")
]


def init(*, as_json: AsJson = False) -> None:
    """Create the ledger table and the progress topic where they are missing."""
    found = initialise(Runtime.from_environment())
    facts = (
        f"ledger table {found.table} {'created' if found.created else 'exists'} (id "
        f"{found.ledger}); progress topic exists on Kafka cluster {found.cluster}"
    )
    warnings = (f"warning: {warning}" for warning in found.warnings)
    output.show(asdict(found), "\n".join((facts, *warnings)), as_json=as_json)


def doctor(*, connector: Connector = None, as_json: AsJson = False) -> None:
    """Check credentials, table, clock, broker, transactions, topics, buckets; say what to do."""
    findings = list(examine(Runtime.from_environment(), connector))
    if as_json:
        output.print_json([asdict(finding) for finding in findings])
    else:
        show(findings, terminal=output.out.is_terminal)
    if any(finding.verdict == "problem" for finding in findings):
        raise typer.Exit(INCOMPLETE)


def show(findings: Sequence[Finding], *, terminal: bool) -> None:
    """Print findings: as a table on a terminal, elsewhere one line per check."""
    if terminal:
        rows = [(f.check, f.verdict, f.fact, f.remedy) for f in findings]
        output.print_table(("check", "", "fact", "what to do"), rows)
        return
    for found in findings:
        text = "; ".join(filter(None, (found.fact, found.remedy)))
        output.say(" ".join(f"{found.check}: {found.verdict}: {text}".split()))
