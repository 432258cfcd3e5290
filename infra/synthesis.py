"""The CDK application of one or more stages: what an `app.py` calls.

from extentflow_cdk.config import Auth, Bucket, Cluster, Stage
from extentflow_cdk.synthesis import synthesise

synthesise(Stage(name="dev", ...))
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from extentflow.errors import Misconfigured
from extentflow.services.planned import CDK_FILE, CDK_OUTPUT

from .config import Stage
from .msk import kept
from .project import Project
from .stack import ExtentflowStack


def synthesise(*stages: Stage, project: Project | None = None) -> None:
    """Write the template of each stage, or of the one that CDK's context `stage` names.

    Connectors are below the current folder. Ends the process with the problems of a stage.
    """
    try:
        require_fits(stages)
        found = project or Project.gathered(Path.cwd())
        settings = _settings(found.home)
        output = os.environ.get("CDK_OUTDIR") or str(
            found.home / settings.get("output", CDK_OUTPUT)
        )
        context = settings.get("context", {}) | kept(found.home)
        app = cdk.App(outdir=output, context=context, analytics_reporting=False)
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        keep_apart(stages)
        for stage in choose(stages, app.node.try_get_context("stage")):
            with naming(stage):
                ExtentflowStack(app, stage=stage, project=found)
    except Misconfigured as exc:
        sys.exit("\n".join(f"error: {problem}" for problem in exc.problems))
    app.synth()


def require_fits(stages: Sequence[Stage]) -> None:
    """Raise Misconfigured with all settings of all stages that do not fit their classes."""
    if found := [f"{stage}: {problem}" for stage in stages for problem in stage.misfits()]:
        raise Misconfigured(found)


@contextmanager
def naming(stage: Stage) -> Iterator[None]:
    """Begin each problem with the stage that has it."""
    try:
        yield
    except Misconfigured as exc:
        begin = f"{stage}: "
        raise Misconfigured(
            [f"{begin}{problem.removeprefix(begin)}" for problem in exc.problems]
        ) from exc


def choose(stages: Sequence[Stage], name: str | None) -> Sequence[Stage]:
    """Return the stage of this name, or all without one.

    Raises:
        Misconfigured: there is none.
    """
    found = [stage for stage in stages if name in {None, stage.name}]
    if not found:
        known = ", ".join(stage.name for stage in stages)
        raise Misconfigured(f"no stage {name}; defined are {known}")
    return found


def keep_apart(stages: Sequence[Stage]) -> None:
    """Raise Misconfigured with the stages that would be one stack, or one application in Kafka."""
    problems: list[str] = []
    for number, one in enumerate(stages):
        for other in stages[:number]:
            if one.name == other.name:
                problems.append(f"{one}: name: two stages have it; write another")
            elif one.same_app(other):
                problems.append(
                    f"{one}: app_id: {other} has it too, or a part of it before a dot, for the same"
                    " cluster: one could stop the other's transactions; write another"
                )
    if problems:
        raise Misconfigured(problems)


def _settings(folder: Path) -> dict[str, Any]:
    """Return the settings of CDK's command line, which only it passes on."""
    path = folder / CDK_FILE
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found
