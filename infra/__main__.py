"""What a deployment needs beside its template: `python -m extentflow_cdk layers`, or `lookup ARN`.

Tests: infra/test_own_folder.py
"""

import sys
from pathlib import Path

from extentflow.errors import ExtentflowError, Misconfigured

from . import msk
from .project import Project
from .recipes import lambda_layer, spark_archive

RECIPES = {"layers": lambda_layer, "spark-archive": spark_archive}


def main(words: list[str]) -> None:
    """Build one artifact below the current folder unless it is there, or look a cluster up."""
    match words:
        case ["lookup", arn]:
            _say(_looked_up(arn))
        case [name] if name in RECIPES:
            _say(_built(name))
        case _:
            sys.exit(f"usage: python -m {__package__} {'|'.join(RECIPES)}|lookup ARN")


def _built(name: str) -> str:
    try:
        root = Project.gathered(Path.cwd()).root
    except Misconfigured as exc:
        sys.exit(f"error: {exc}")
    recipe = RECIPES[name]
    made = recipe.built(root) or recipe.build(root)
    return f"{root}: {made}"


def _looked_up(arn: str) -> str:
    try:
        return msk.keep(arn, Path.cwd())
    except ExtentflowError as exc:
        sys.exit(f"error: {exc}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
