"""Synthesise a stage's template in a process of its own, because the CDK starts Node."""

import os
import pickle
import subprocess
import sys
import sysconfig
from pathlib import Path

from infra.config import Stage

PROJECT = Path(__file__).parents[2]
SECONDS = 300


def synthesised(stage: Stage, root: Path) -> Path:
    """Return the template of a stage whose connectors stand below `root`."""
    search_path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.deployed", str(root)],
        input=pickle.dumps(stage),
        env={**os.environ, "PATH": search_path},
        cwd=PROJECT,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0
    (template,) = (root / "cdk.out").glob("*.template.json")
    return template


def main() -> None:
    """Synthesise the stage on standard input."""
    import aws_cdk as cdk  # noqa: PLC0415 - starts Node
    from infra.project import Project  # noqa: PLC0415
    from infra.stack import ExtentflowStack  # noqa: PLC0415

    stage = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own parent
    root = Path(sys.argv[1])
    context = {"aws:cdk:disable-asset-staging": True}
    app = cdk.App(context=context, outdir=str(root / "cdk.out"), analytics_reporting=False)
    ExtentflowStack(app, stage=stage, project=Project(root=root))
    app.synth()


if __name__ == "__main__":
    main()
