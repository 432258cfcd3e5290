"""The layer `deps`: what the functions import, for Lambda's Python on arm64.

Owns: which files of the pinned packages are shipped, and that they fit and belong together.
Refuses to know: the library (the layer `core`), CDK, what a function needs of whom.

    requirements/lambda.txt ──pip, wheels of the platform──> build/layers/deps/python
                            ──trim──> check ──> build/layers/deps.json   written last: it is whole

Run as `python -m layers.deps.recipe` (`make layers`).
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
LOCK = Path("requirements/lambda.txt")
LAYER = Path("build/layers/deps")
STAMP = Path("build/layers/deps.json")

PYTHON = "3.13"
# Amazon Linux 2023 has glibc 2.34.
PLATFORMS = (
    "manylinux_2_34_aarch64",
    "manylinux_2_28_aarch64",
    "manylinux_2_17_aarch64",
    "manylinux2014_aarch64",
)
ABIS = ("cp313", "abi3", "none")
MACHINE = 183  # EM_AARCH64 in an ELF header
_MACHINE_AT = slice(18, 20)
_ARROW = re.compile(rb"(?<=\0)lib(?:arrow|parquet)\w*\.so\.\d+(?=\0)")

# Lambda's limit for a function and all its layers is 262,144,000 bytes; this leaves the rest room.
MOST_BYTES = 250_000_000

# botocore describes every service of AWS; a client needs its own service's description.
SERVICES = ("dynamodb", "events", "s3", "secretsmanager", "sqs", "sts")

# What no function imports, by path inside the layer. Anything that a library which stays is linked
# to has to stay, too; `unmet` finds out.
LEFT_OUT = (
    "*/__pycache__/*",
    "*/tests/*",
    "*.pyi",
    "*.pyx",
    "*.pxd",
    "*.pxi",
    "bin/*",
    "numpy/f2py/*",
    "pyarrow/include/*",
    "pyarrow/src/*",
    "pyarrow/*flight*",
    "pyarrow/*pyarrow_cpp_tests*",
    "pyarrow/_azurefs.*",
    "pyarrow/_gcsfs.*",
    "pyarrow/_hdfs.*",
    "pyarrow/_s3fs.*",
    "pyarrow/libarrow_s3.*",
    # Twins of libarrow_python*.so.<n>, the name that everything is linked to.
    "pyarrow/libarrow_python*.so",
    "pyarrow/libarrow_python*.so.*.*.*",
)


class LayerError(Exception):
    """The layer cannot be shipped; says which file and what to do."""


@dataclass(frozen=True, slots=True)
class Built:
    """What a finished layer says about itself: from which recipe, how large."""

    fingerprint: str
    unzipped_bytes: int


def fingerprint(root: Path = ROOT) -> str:
    """Return what the layer depends on: the pins and this recipe."""
    parts = (root / LOCK, Path(__file__))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in parts)).hexdigest()


def built(root: Path = ROOT) -> Built | None:
    """Return the layer below `root` when it is there, whole, and of today's pins; else None."""
    try:
        found = Built(**json.loads((root / STAMP).read_text()))
    except FileNotFoundError:
        return None
    return found if found.fingerprint == fingerprint(root) and (root / LAYER).is_dir() else None


def build(root: Path = ROOT) -> Built:
    """Make the layer anew.

    Raises:
        LayerError: it is too large, or holds files that cannot work there.
    """
    layer, stamp = root / LAYER, root / STAMP
    stamp.unlink(missing_ok=True)
    shutil.rmtree(layer, ignore_errors=True)
    install(root / LOCK, layer / "python")
    trim(layer / "python")
    check(layer / "python")
    made = Built(fingerprint(root), unzipped_bytes(layer))
    stamp.write_text(json.dumps(asdict(made)))
    return made


def install(lock: Path, target: Path) -> None:
    """Install the pinned wheels of the platform below `target`, hashes checked."""
    chosen = [("--platform", platform) for platform in PLATFORMS] + [("--abi", abi) for abi in ABIS]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile"]
    command += ["--implementation", "cp", "--python-version", PYTHON]
    command += [word for pair in chosen for word in pair]
    subprocess.run([*command, "--target", str(target), "-r", str(lock)], check=True)


def left_out(path: PurePosixPath) -> bool:
    """Whether a file, by its path inside the layer, is not shipped."""
    if path.match("botocore/data/*/*/*") and path.parts[2] not in SERVICES:
        return True
    return any(fnmatch(str(path), pattern) for pattern in LEFT_OUT)


def trim(target: Path) -> None:
    """Remove what is left out, and folders that are empty then."""
    for file in list(_files(target)):
        if left_out(PurePosixPath(file.relative_to(target))):
            file.unlink()
    for folder in sorted((path for path in target.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def check(target: Path) -> None:
    """Raise LayerError unless the layer fits and its libraries are of the platform and complete."""
    size = unzipped_bytes(target)
    if size > MOST_BYTES:
        raise LayerError(f"{target}: {size:,} bytes, {MOST_BYTES:,} are allowed; leave more out")
    libraries = [path for path in _files(target) if ".so" in path.suffixes]
    for library in libraries:
        if int.from_bytes(library.read_bytes()[_MACHINE_AT], "little") != MACHINE:
            raise LayerError(f"{library}: not built for arm64; correct PLATFORMS")
    for library, name in unmet(libraries):
        raise LayerError(f"{library}: linked to {name}, which is left out; keep it")


def unmet(libraries: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each library with each of Arrow's libraries that it needs and that is not there.

    Arrow's are the only libraries of which some are left out.
    """
    shipped = {path.name for path in libraries}
    for library in libraries:
        yield from ((library, name) for name in sorted(_arrow_names(library) - shipped))


def _arrow_names(library: Path) -> set[str]:
    """Return the names of Arrow's libraries in a library's table of strings."""
    return {name.decode() for name in _ARROW.findall(library.read_bytes())}


def unzipped_bytes(folder: Path) -> int:
    """Return the size of all files below `folder`."""
    return sum(path.stat().st_size for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    made = built() or build()
    (ROOT / STAMP).touch()
    sys.stdout.write(f"{LAYER}: {made.unzipped_bytes / 1e6:.1f} MB unzipped\n")
