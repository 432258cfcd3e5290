"""A checkout of the project: its folders, and the synthesis of its template."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from extentflow.errors import Misconfigured
from extentflow_local.stack.errors import ServiceFailed


@dataclass(frozen=True, slots=True)
class Project:
    """The checkout at `root`.

    Raises:
        Misconfigured: there is none.
    """

    root: Path

    def __post_init__(self) -> None:
        if not self.app.is_file() or not self.functions.is_dir():
            raise Misconfigured(
                f"{self.root}: no app.py and functions/ here; `extentflow serve --project"
                " CHECKOUT` names the folder of the project's checkout"
            )

    @property
    def app(self) -> Path:
        """The CDK application."""
        return self.root / "app.py"

    @property
    def functions(self) -> Path:
        """One folder with code per function."""
        return self.root / "functions"

    @property
    def layer(self) -> Path:
        """The library."""
        return self.root / "layers" / "core" / "python"

    def require_cdk(self) -> None:
        """Raise Misconfigured where this Python lacks the CDK, with which app.py is run."""
        if find_spec("aws_cdk") is None:
            raise Misconfigured(
                "`extentflow serve` needs aws_cdk to synthesise the template; `make setup` in"
                f" {self.root} installs it in .venv there, and --template FILE takes a template"
                " that `make synth` wrote"
            )

    def synthesise(self, folder: Path) -> Path:
        """Run app.py, offline, for the stage that cdk.json names; return the template.

        Raises:
            ServiceFailed: it failed; its errors are on standard error.
        """
        shutil.rmtree(folder, ignore_errors=True)  # it may be that of another stage
        environment = {
            **os.environ,
            # Node, which the CDK needs, is installed beside Python.
            "PATH": os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"])),
            "CDK_OUTDIR": str(folder),
        }
        command = [sys.executable, str(self.app)]
        done = subprocess.run(command, env=environment, cwd=self.root, check=False)
        if done.returncode != 0:
            raise ServiceFailed(f"app.py ended with {done.returncode}")
        (template,) = folder.glob("*.template.json")
        return template
