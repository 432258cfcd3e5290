"""A driver that finds our requirements, but our library only in what it was submitted with.

Owns: such an interpreter and its environment. Refuses to know: what is submitted.
"""

import os
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYER = ROOT / "layers" / "core" / "python"
PACKAGES = sysconfig.get_path("purelib")


def clean_python(folder: Path) -> Path:
    """Return an interpreter with our requirements but without our library: `-S` reads no .pth."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


def surroundings(python: Path) -> dict[str, str]:
    """Return what drivers find in their environment."""
    return {**os.environ, "PYTHONPATH": PACKAGES, "PYSPARK_PYTHON": str(python)}
