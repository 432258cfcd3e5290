"""Builds the layer `deps`: the packages that the functions import, for Lambda's Python on arm64.

    requirements/lambda.txt ──wheels.put──> build/layers/deps/python
                            ──────────────> build/layers/deps.json   written last: marks completion

Run as `python -m infra.recipes.lambda_layer` (`make layers`).
"""

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from . import wheels
from .wheels import ROOT

LOCK = Path("requirements/lambda.txt")
LAYER = Path("build/layers/deps")
STAMP = Path("build/layers/deps.json")

PLATFORM = wheels.Platform("3.13", wheels.ARM64)

# Lambda's limit for a function and all its layers is 262,144,000 bytes; this leaves the rest room.
MOST_BYTES = 250_000_000


@dataclass(frozen=True, slots=True)
class Built:
    """What a finished layer says about itself: from which recipe, how large."""

    fingerprint: str
    unzipped_bytes: int


def fingerprint(root: Path = ROOT) -> str:
    """Return what the layer depends on: the pins, this recipe, and how wheels are put there."""
    return wheels.fingerprint((root / LOCK, Path(__file__)))


def built(root: Path = ROOT) -> Built | None:
    """Return the layer below `root` when it is there, whole, and of today's pins; else None."""
    try:
        found = Built(**json.loads((root / STAMP).read_text()))
    except FileNotFoundError:
        return None
    return found if found.fingerprint == fingerprint(root) and (root / LAYER).is_dir() else None


def build(root: Path = ROOT) -> Built:
    """Build the layer from scratch.

    Raises:
        PackagingError: it is too large, or holds files that cannot work there.
    """
    layer, stamp = root / LAYER, root / STAMP
    stamp.unlink(missing_ok=True)
    shutil.rmtree(layer, ignore_errors=True)
    wheels.put(root / LOCK, layer / "python", PLATFORM, most_bytes=MOST_BYTES)
    made = Built(fingerprint(root), wheels.total_bytes(layer))
    stamp.write_text(json.dumps(asdict(made)))
    return made


if __name__ == "__main__":
    made = built() or build()
    (ROOT / STAMP).touch()
    sys.stdout.write(f"{LAYER}: {made.unzipped_bytes / 1e6:.1f} MB unzipped\n")
