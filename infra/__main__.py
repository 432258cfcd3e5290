"""Build what a deployment from a folder of one's own needs: `python -m extentflow_cdk layers`.

Tests: infra/test_own_folder.py
"""

import sys
from pathlib import Path

from extentflow.errors import Misconfigured

from .project import Project
from .recipes import lambda_layer, spark_archive

RECIPES = {"layers": lambda_layer, "spark-archive": spark_archive}


def main(words: list[str]) -> None:
    """Build one artifact below the current folder, unless it is there already."""
    if len(words) != 1 or words[0] not in RECIPES:
        sys.exit(f"usage: python -m {__package__} {'|'.join(RECIPES)}")
    try:
        root = Project.gathered(Path.cwd()).root
    except Misconfigured as exc:
        sys.exit(f"error: {exc}")
    recipe = RECIPES[words[0]]
    made = recipe.built(root) or recipe.build(root)
    sys.stdout.write(f"{root}: {made}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
