"""Installs pinned wheels for another platform into a folder, trims and checks them.

The layer `deps` and the archive of Spark jobs are built from such folders.

    requirements/*.txt ──pip, wheels of the platform──> a folder ──trim──> check
"""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

# Amazon Linux 2023 has glibc 2.34.
_GLIBCS = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
_MACHINE_AT = slice(18, 20)
_ARROW = re.compile(rb"(?<=\0)lib(?:arrow|parquet)\w*\.so\.\d+(?=\0)")

# botocore describes every service of AWS; a client needs its own service's description.
SERVICES = (
    "dynamodb",
    "emr-serverless",
    "events",
    "glue",
    "kms",
    "s3",
    "secretsmanager",
    "sqs",
    "sts",
)

# Files that no code imports, by path below the folder. Libraries that a kept library links to must
# be kept; `unmet` checks this.
LEFT_OUT = (
    "*/__pycache__/*",
    "*/tests/*",
    "*.pyi",
    "*.pyx",
    "*.pxd",
    "*.pxi",
    "bin/*",
    # pip's own list: it has hashes of scripts that name this machine's Python.
    "*.dist-info/RECORD",
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


class PackagingError(Exception):
    """The packages cannot be shipped; says which file and what to do."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor as people, wheels and ELF headers call it."""

    shown: str
    tag: str
    elf: int


ARM64 = Machine("arm64", "aarch64", 183)  # EM_AARCH64
X86_64 = Machine("x86_64", "x86_64", 62)  # EM_X86_64
MACHINES = (ARM64, X86_64)


@dataclass(frozen=True, slots=True)
class Platform:
    """What wheels have to fit: a Python such as `3.13` on Amazon Linux 2023, and its processor."""

    python: str
    machine: Machine

    def pip_options(self) -> Iterator[str]:
        """Yield how pip chooses wheels of this platform, wherever it runs."""
        yield from ("--implementation", "cp", "--python-version", self.python)
        for glibc in _GLIBCS:
            yield from ("--platform", f"{glibc}_{self.machine.tag}")
        for abi in (f"cp{self.python.replace('.', '')}", "abi3", "none"):
            yield from ("--abi", abi)


def fingerprint(paths: Iterable[Path]) -> str:
    """Return what files hold, in this order; this module counts as one of them."""
    parts = (*paths, Path(__file__))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in parts)).hexdigest()


def put(lock: Path, target: Path, platform: Platform, *, most_bytes: int) -> None:
    """Install what `lock` pins into `target`, without the files in LEFT_OUT.

    Raises:
        PackagingError: it is too large, or holds files that cannot work there.
    """
    shutil.rmtree(target, ignore_errors=True)
    install(lock, target, platform)
    trim(target)
    check(target, platform, most_bytes=most_bytes)


def install(lock: Path, target: Path, platform: Platform) -> None:
    """Install the pinned wheels of the platform below `target`, hashes checked."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile"]
    command += platform.pip_options()
    subprocess.run([*command, "--target", str(target), "-r", str(lock)], check=True)


def left_out(path: PurePosixPath) -> bool:
    """Whether a file, by its path below the folder, is not shipped."""
    if path.match("botocore/data/*/*/*") and path.parts[2] not in SERVICES:
        return True
    return any(fnmatch(str(path), pattern) for pattern in LEFT_OUT)


def trim(target: Path) -> None:
    """Remove what is left out, and folders that are empty then."""
    for file in list(files(target)):
        if left_out(PurePosixPath(file.relative_to(target))):
            file.unlink()
    for folder in sorted((path for path in target.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def check(target: Path, platform: Platform, *, most_bytes: int) -> None:
    """Raise PackagingError unless it fits and its libraries are of the platform and complete."""
    size = total_bytes(target)
    if size > most_bytes:
        raise PackagingError(
            f"{target}: {size:,} bytes, {most_bytes:,} are allowed; leave more out"
        )
    libraries = [path for path in files(target) if ".so" in path.suffixes]
    machine = platform.machine
    for library in libraries:
        if int.from_bytes(library.read_bytes()[_MACHINE_AT], "little") != machine.elf:
            raise PackagingError(f"{library}: not built for {machine.shown}; correct the platform")
    for library, name in unmet(libraries):
        raise PackagingError(f"{library}: linked to {name}, which is left out; keep it")


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


def total_bytes(folder: Path) -> int:
    """Return the size of all files below `folder`."""
    return sum(path.stat().st_size for path in files(folder))


def files(folder: Path) -> Iterator[Path]:
    """Yield the files below `folder`."""
    return (path for path in folder.rglob("*") if path.is_file())
