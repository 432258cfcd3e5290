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
TWICE = "records that were delivered before, and would be again"
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
        again = any(one.again for one in found.objects)
        columns = PLAN_COLUMNS if not again else (*PLAN_COLUMNS, "again", "delivered before")
        rest = attrgetter("topic", "job", "state", "revision")
        # What a run would deliver first; of a second delivery, what is delivered twice.
        shown = sorted(
            found.objects,
            key=lambda one: -_twice(one) if again else one.state == JobState.DONE,
        )[:SHOWN_JOBS]
        rows = [
            (
                one.version.uri,
                one.format,
                one.format_source,
                _compression(one),
                size(one.version.size),
                len(one.extents),
                *rest(one),
                *((one.again.value, f"{one.delivered_before:,}") if one.again else ()),
            )
            for one in shown
        ]
        output.print_table(columns, rows)
        if len(found.objects) > len(shown):
            output.say(_totals(found))
        if twice := sum(_twice(one) for one in found.objects):
            output.note(f"{TWICE}: {twice:,}")
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
        output.print_table(("object", "what", "delivered before", "job", "its revision"), rows)
        if len(found.objects) > len(shown):
            output.say(f"{len(found.objects):,} objects; {SHOWN_JOBS} shown, --json shows all")
        if again := sum(one.again for one in found.objects):
            output.note(f"{TWICE}: {again:,}")
        for one in shown:
            if one.job is not None and one.cause:
                output.note(f"{one.job.id}: {one.cause}")
    else:
        output.note("no object failed, was cancelled or replaced, that can be delivered now")


def _twice(one: "ObjectPlan") -> int:
    """Return how many records that were delivered before a run would begin to deliver again."""
    from extentflow.services.plans import Again

    return one.delivered_before or 0 if one.again is Again.FULL else 0


def _compression(one: "ObjectPlan") -> str:
    from extentflow.config.connector_keys import BY_CONTENT

    by_content = one.compression_source == BY_CONTENT
    return f"{one.compression} (by {BY_CONTENT})" if by_content else one.compression


def _plan_json(one: "ObjectPlan") -> dict[str, object]:
    facts = asdict(one)
    del facts["version"]
    if one.again is None:
        del facts["again"], facts["delivered_before"]
    else:
        facts["again"] = one.again.name
    version = one.version
    return {"object": version.uri, "etag": version.etag, "bytes": version.size, **facts}
