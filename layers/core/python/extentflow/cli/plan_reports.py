"""What `plan` and `run --dry-run` print: objects, their cut, and what prevents a delivery.

Tests: unit/cli/test_dry_runs.py
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import TYPE_CHECKING

import typer

from extentflow.cli import output
from extentflow.cli.output import INCOMPLETE, NOTHING_STARTED, counted, size
from extentflow.cli.run_reports import SHOWN_JOBS, by_state
from extentflow.model import JobState

if TYPE_CHECKING:
    from extentflow.services.plans import FailedPlans, ObjectPlan, Plans

SHOWN_PROBLEMS = 20
PLAN_COLUMNS = (
    *("object", "format", "by", "compression", "size", "extents"),
    *("topic", "job", "state", "revision"),
)


def show_plans(found: "Plans | FailedPlans", *, as_json: bool) -> None:
    """Print plans; end the command as the run would, where an object has a problem."""
    from extentflow.services.plans import Plans

    if isinstance(found, Plans):
        _show_plans(found, as_json=as_json)
    else:
        _show_failed(found, as_json=as_json)
    _show_problems(found.problems)
    if found.problems:
        raise typer.Exit(NOTHING_STARTED if found.prevented else INCOMPLETE)


def _show_plans(found: "Plans", *, as_json: bool) -> None:
    if as_json:
        output.print_json([_plan_json(one) for one in found.objects])
    elif found.objects:
        rest = attrgetter("topic", "job", "state", "revision")
        # What a run would deliver first.
        shown = sorted(found.objects, key=lambda one: one.state == JobState.DONE)[:SHOWN_JOBS]
        rows = [
            (
                one.version.uri,
                one.format,
                one.format_source,
                _compression(one),
                size(one.version.size),
                len(one.extents),
                *rest(one),
            )
            for one in shown
        ]
        output.print_table(PLAN_COLUMNS, rows)
        if len(found.objects) > len(shown):
            output.say(_totals(found))
        for one in shown:
            if one.facts:
                output.note(f"{one.version.uri}: found {one.facts}")
    elif not found.problems:
        output.note(f"there is nothing to deliver below {found.source}")


def _totals(found: "Plans") -> str:
    plans = found.objects
    states = Counter(one.state for one in plans)
    extents = sum(len(one.extents) for one in plans)
    without = " without a problem" if found.problems else ""
    return (
        f"{len(plans):,} objects{without}, {size(sum(one.version.size for one in plans))},"
        f" {counted(extents, 'extent')}: {by_state(states)}; {SHOWN_JOBS} shown, --json shows all"
    )


def _show_problems(problems: Sequence[str]) -> None:
    """Show what prevents a delivery."""
    for problem in problems[:SHOWN_PROBLEMS]:
        output.complain(problem)
    if more := len(problems[SHOWN_PROBLEMS:]):
        output.note(f"and {more:,} more problems; give fewer addresses to see them")


def _show_failed(found: "FailedPlans", *, as_json: bool) -> None:
    """Show what `--failed` would do with each object."""
    if as_json:
        output.print_json([one.to_json() for one in found.objects])
    elif found.objects:
        # First what is delivered a second time.
        shown = sorted(found.objects, key=lambda one: -one.again)[:SHOWN_JOBS]
        rows = [
            (
                one.version.uri,
                one.step.value,
                f"{one.before:,}",
                one.job.id if one.job else "",
                one.job.revision if one.job else "",
            )
            for one in shown
        ]
        output.print_table(("object", "what", "delivered before", "job", "revision"), rows)
        if len(found.objects) > len(shown):
            output.say(f"{len(found.objects):,} objects; {SHOWN_JOBS} shown, --json shows all")
        if again := sum(one.again for one in found.objects):
            output.note(f"records that were delivered before, and would be again: {again:,}")
        for one in shown:
            if one.job is not None and one.cause:
                output.note(f"{one.job.id}: {one.cause}")
    else:
        output.note("no object failed, or was cancelled, that can be delivered now")


def _compression(one: "ObjectPlan") -> str:
    from extentflow.config.connector_keys import BY_CONTENT

    by_content = one.compression_source == BY_CONTENT
    return f"{one.compression} (by {BY_CONTENT})" if by_content else one.compression


def _plan_json(one: "ObjectPlan") -> dict[str, object]:
    facts = asdict(one)
    del facts["version"]
    version = one.version
    return {"object": version.uri, "etag": version.etag, "bytes": version.size, **facts}
