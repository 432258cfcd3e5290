"""`extentflow init` and `doctor`: create what is missing, and check what a delivery needs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions, expand_options
from extentflow.cli.output import INCOMPLETE, AsJson
from extentflow.errors import Misconfigured

if TYPE_CHECKING:
    from extentflow.services.account_checks import AccountChecks
    from extentflow.services.health import Finding

Connector = Annotated[
    str | None, Option("--connector", "-c", help="Check this one's objects and topics.")
]
Deployed = Annotated[
    str | None,
    Option(
        "--deployed",
        metavar="STAGE",
        help="Check this stage in AWS instead: stack, queues, functions, alarms, last errors.",
    ),
]
Planned = Annotated[
    str | None,
    Option(
        "--stage",
        metavar="STAGE",
        help="Before its deployment, check the AWS account of this synthesised stage instead.",
    ),
]


@expand_options
def init(*, servers: ServerOptions, as_json: AsJson = False) -> None:
    """Create the ledger and the progress topic where they are missing."""
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_initialisation

    found = open_initialisation(open_runtime(servers)).run()
    facts = (
        f"ledger {found.url} {'created' if found.created else 'exists'} (id "
        f"{found.ledger}); progress topic exists on Kafka cluster {found.cluster}"
    )
    warnings = (f"warning: {warning}" for warning in found.warnings)
    output.show(asdict(found), "\n".join((facts, *warnings)), as_json=as_json)


@expand_options
def doctor(
    *,
    connector: Connector = None,
    stage: Planned = None,
    deployed: Deployed = None,
    servers: ServerOptions,
    as_json: AsJson = False,
) -> None:
    """Check credentials, ledger, clock, broker, transactions, topics, buckets; say what to do."""
    from extentflow.cli.opening import open_runtime
    from extentflow.services.composition import open_health
    from extentflow.services.deployed import DeployedStage

    if stage is not None and deployed is not None:
        raise Misconfigured(
            "--stage checks before a deployment, and --deployed after it: leave one of them out"
        )
    if stage is not None:
        findings = list(_account(stage).examine())
    elif deployed is not None:
        findings = list(DeployedStage(deployed).examine())
    else:
        findings = list(open_health(open_runtime(servers)).examine(connector))
    if as_json:
        output.print_json([asdict(finding) for finding in findings])
    else:
        show_findings(findings, terminal=output.out.is_terminal)
    if any(finding.verdict == "problem" for finding in findings):
        raise typer.Exit(INCOMPLETE)


def _account(stage: str) -> "AccountChecks":
    """Return the checks of the account for the stage that was synthesised in this folder."""
    from extentflow.services.account_checks import AccountChecks
    from extentflow.services.planned import read_planned

    return AccountChecks(read_planned(stage, Path.cwd()))


def show_findings(findings: "Sequence[Finding]", *, terminal: bool) -> None:
    """Print findings: as a table on a terminal, elsewhere one line per check."""
    if terminal:
        rows = [(f.check, f.verdict, f.fact, f.remedy) for f in findings]
        output.print_table(("check", "", "fact", "what to do"), rows)
        return
    for found in findings:
        text = "; ".join(filter(None, (found.fact, found.remedy)))
        output.say(" ".join(f"{found.check}: {found.verdict}: {text}".split()))
