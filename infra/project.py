"""Paths of the deployed files: in a checkout, or gathered for a folder of one's own.

a checkout            functions/, jobs/, layers/core/, requirements/, and what `make` builds
a folder of one's own the same below build/extentflow/, from the installed packages
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import extentflow
from extentflow.errors import Misconfigured

HERE = Path(__file__).parent
ROOT = HERE.parent
# What the installed distribution brings along; a checkout has it beside this package.
BROUGHT = HERE / "sources"
GATHERED = Path("build/extentflow")
CORE = Path("layers/core")
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.egg-info")


@dataclass(frozen=True, slots=True)
class Project:
    """The folders of one application; tests use others.

    `root` has what is deployed, and the connectors, unless `folder` has these; `command` builds
    artifacts.
    """

    root: Path = ROOT
    functions: Path = ROOT / "functions"
    core: Path = ROOT / CORE
    provider: Path = HERE / "provider"
    placeholder: Path = HERE / "placeholder"
    folder: Path | None = None
    command: str = "make"

    @property
    def home(self) -> Path:
        """The folder of connectors and of CDK's settings."""
        return self.folder or self.root

    @classmethod
    def gathered(cls, folder: Path) -> "Project":
        """Gather what is deployed below `folder`, and return it as a project.

        Files in `layers/core` of the folder, such as certificates, become part of the layer.

        Raises:
            Misconfigured: the package was not installed with `pip install`.
        """
        if not BROUGHT.is_dir():
            raise Misconfigured(
                f"{BROUGHT}: no such folder; install the distribution with `pip install ./infra`,"
                " not editable"
            )
        root = folder / GATHERED
        for name in ("functions", "jobs", "requirements", "layers"):
            shutil.rmtree(root / name, ignore_errors=True)
        shutil.copytree(BROUGHT, root, ignore=NOT_COPIED, dirs_exist_ok=True)
        library = Path(extentflow.__file__).parent
        shutil.copytree(library, root / CORE / "python" / library.name, ignore=NOT_COPIED)
        if (folder / CORE).is_dir():
            shutil.copytree(folder / CORE, root / CORE, ignore=NOT_COPIED, dirs_exist_ok=True)
        return cls(
            root=root,
            functions=root / "functions",
            core=root / CORE,
            folder=folder,
            command=f"python -m {__package__}",
        )
