"""Paths of the deployed files in the project."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Project:
    """The project's folders; tests use others."""

    root: Path = ROOT
    functions: Path = ROOT / "functions"
    core: Path = ROOT / "layers" / "core"
    provider: Path = ROOT / "infra" / "provider"
    placeholder: Path = ROOT / "infra" / "placeholder"
