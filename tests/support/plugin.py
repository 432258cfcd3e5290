"""The example plug-in `extentflow-acme`, packaged as users package theirs."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from infra.recipes import lambda_layer, wheels

NAME = "extentflow-acme"
EXAMPLE = wheels.ROOT / "examples" / NAME
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def build_wheel(folder: Path) -> Path:
    """Build the example's wheel from a copy below `folder`; return the wheel."""
    copy = folder / NAME
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("*.egg-info", "build"))
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    subprocess.run([*PIP, "wheel", *options, str(copy)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_in_layer(wheel: Path, target: Path) -> None:
    """Install the wheel below `target` as `make layers` installs a pinned plug-in.

    The lock has the form that `make lock` writes for a wheel in `requirements/wheels`.
    """
    lock = wheel.with_name("lambda.txt")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock.write_text(f"--find-links .\n{NAME}==1.0 --hash=sha256:{digest}\n")
    wheels.put(lock, target, lambda_layer.PLATFORM, most_bytes=lambda_layer.MOST_BYTES)
