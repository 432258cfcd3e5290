"""Where the deployed files stand in the project.

Owns: these paths. Refuses to know: what is in the files.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Project:
    """The project's folders; tests put some of them elsewhere."""

    root: Path = ROOT
    functions: Path = ROOT / "functions"
    core: Path = ROOT / "layers" / "core"
    provider: Path = ROOT / "infra" / "provider"
    placeholder: Path = ROOT / "infra" / "placeholder"
