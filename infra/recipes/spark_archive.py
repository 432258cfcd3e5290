"""Builds the archive of Spark jobs for EMR Serverless: the library and the packages it imports.

The same pins and code give the same archive. Spark and its Python come with the EMR release
(docs/decisions/0010-emr-brings-the-interpreter.md).

    requirements/emr.txt ──wheels.put──> build/spark/<machine>/site-packages
    layers/core/python ──┐             └──────────────────────────────────┐
    jobs/ ───────────────┴──────────────────────> build/spark/<machine>/extentflow-spark.tgz
                                                  build/spark/<machine>/archive.json   written last

    environment/site-packages/   packages, extentflow      spark.archives=s3://...tgz#environment
    environment/jobs/            the entry points

Run as `python -m infra.recipes.spark_archive` (`make spark-archive`).
"""

import gzip
import hashlib
import json
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from . import wheels
from .wheels import ROOT, Machine

LOCK = Path("requirements/emr.txt")
LIBRARY = Path("layers/core/python/extentflow")
JOBS = Path("jobs")
FOLDER = Path("build/spark")

# The oldest that the library runs on, the one it is tested on, and one that releases have beside
# their default.
PYTHON = "3.11"
# A fifth cheaper on EMR Serverless, and the same wheels as the functions'.
MACHINE = wheels.ARM64

# The most that the archive may weigh, packed or unpacked: every worker fetches and unpacks it.
MOST_BYTES = 350_000_000

# Spark unpacks the archive below this name in the working directory of every process.
UNPACKED = "environment"
PACKAGES = "site-packages"
PYTHONPATH = f"./{UNPACKED}/{PACKAGES}"

_COMPRESSION = 6
_MODE = 0o644


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """What a finished archive says about itself: from which pins and code, how large."""

    fingerprint: str
    packed_bytes: int
    unpacked_bytes: int


def archive(machine: Machine = MACHINE) -> Path:
    """Return where the archive stands, below the project."""
    # Spark unpacks by the name, and an asset's name in S3 ends in what follows the last dot.
    return FOLDER / machine.tag / "extentflow-spark.tgz"


def stamp(machine: Machine = MACHINE) -> Path:
    """Return where stands what the archive says about itself."""
    return FOLDER / machine.tag / "archive.json"


def fingerprint(root: Path = ROOT) -> str:
    """Return what the archive depends on: the pins, the recipes, the library, the jobs."""
    digest = hashlib.sha256(_pins(root).encode())
    for name, path in _own(root):
        digest.update(f"\0{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def built(root: Path = ROOT, machine: Machine = MACHINE) -> ArchiveRecord | None:
    """Return the archive below `root` when it is there and of today's pins and code; else None."""
    try:
        found = ArchiveRecord(**json.loads((root / stamp(machine)).read_text()))
    except FileNotFoundError:
        return None
    whole = (root / archive(machine)).is_file()
    return found if found.fingerprint == fingerprint(root) and whole else None


def build(root: Path = ROOT, machine: Machine = MACHINE) -> ArchiveRecord:
    """Build the archive; packages are installed again only when pins or recipes changed.

    Raises:
        PackagingError: it is too large, or holds files that cannot work there.
    """
    said, packed = root / stamp(machine), root / archive(machine)
    said.unlink(missing_ok=True)
    packages = _packages(root, machine)
    unpacked = pack(root, packages, packed)
    made = ArchiveRecord(fingerprint(root), packed.stat().st_size, unpacked)
    for what, size in (("packed", made.packed_bytes), ("unpacked", made.unpacked_bytes)):
        if size > MOST_BYTES:
            packed.unlink()
            raise wheels.PackagingError(
                f"{packed}: {size:,} bytes {what}, {MOST_BYTES:,} are allowed; leave more out"
            )
    said.write_text(json.dumps(asdict(made)))
    return made


def _pins(root: Path) -> str:
    return wheels.fingerprint((root / LOCK, Path(__file__)))


def _packages(root: Path, machine: Machine) -> Path:
    """Return the folder of installed packages, of today's pins."""
    folder = root / FOLDER / machine.tag / PACKAGES
    note = folder.with_suffix(".sha256")
    wanted = _pins(root)
    if not (folder.is_dir() and note.is_file() and note.read_text() == wanted):
        note.unlink(missing_ok=True)
        platform = wheels.Platform(PYTHON, machine)
        wheels.put(root / LOCK, folder, platform, most_bytes=MOST_BYTES)
        note.write_text(wanted)
    return folder


def pack(root: Path, packages: Path, target: Path) -> int:
    """Write the archive and return the size of what is in it.

    The same files give the same bytes: entries are sorted, and have neither times nor owners.
    """
    entries = sorted((*_below(packages, PACKAGES), *_own(root)))
    size = 0
    with (
        target.open("wb") as file,
        gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in entries:
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = _MODE
            size += entry.size
            with path.open("rb") as content:
                tar.addfile(entry, content)
    return size


def _own(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the library's files and the jobs', by their names in the archive."""
    yield from _below(root / LIBRARY, f"{PACKAGES}/{LIBRARY.name}")
    yield from _below(root / JOBS, JOBS.name)


def _below(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Yield the files below `folder`, apart from what Python leaves behind."""
    for path in sorted(wheels.files(folder)):
        if "__pycache__" not in path.parts:
            yield f"{name}/{path.relative_to(folder).as_posix()}", path


if __name__ == "__main__":
    made = built() or build()
    (ROOT / stamp()).touch()
    sys.stdout.write(
        f"{archive()}: {made.packed_bytes / 1e6:.1f} MB,"
        f" {made.unpacked_bytes / 1e6:.1f} MB unpacked\n"
    )
