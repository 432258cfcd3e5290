"""The archive of Spark jobs: fits, works where Spark unpacks it, comes out the same every time."""

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from infra.project import Project
from infra.recipes import spark_archive, wheels
from tests.support import archive

ROOT = Project().root
CORE = "layers/core/python/extentflow"


@pytest.fixture(scope="session")
def here() -> wheels.Machine:
    return archive.this_machine()


@pytest.fixture(scope="session")
def interpreter() -> str:
    return archive.interpreter()


@pytest.fixture(scope="session")
def unpacked(here: wheels.Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which this machine's archive is unpacked as Spark does it."""
    archive.built(here)
    folder = tmp_path_factory.mktemp("worker")
    with tarfile.open(ROOT / spark_archive.archive(here)) as tar:
        tar.extractall(folder / spark_archive.UNPACKED, filter="data")
    return folder


# -- what is deployed -----------------------------------------------------------------------------


@pytest.mark.archive
def test_the_archive_fits_packed_and_unpacked() -> None:
    made = archive.built(spark_archive.MACHINE)

    assert made.packed_bytes == (ROOT / spark_archive.archive()).stat().st_size
    assert made.packed_bytes < made.unpacked_bytes < 350_000_000


@pytest.mark.archive
def test_the_archive_holds_library_jobs_and_packages_but_no_spark() -> None:
    archive.built(spark_archive.MACHINE)

    with tarfile.open(ROOT / spark_archive.archive()) as tar:
        entries = tar.getmembers()

    names = [entry.name for entry in entries]
    for package in ("boto3", "confluent_kafka", "extentflow", "pyarrow", "typer"):
        assert f"site-packages/{package}/__init__.py" in names
    assert "jobs/spark_deliver.py" in names
    assert not [name for name in names if name.startswith("site-packages/pyspark")]
    assert not [name for name in names if "__pycache__" in name or name.endswith("/RECORD")]
    assert names == sorted(names)
    assert {(entry.mtime, entry.uid, entry.gid, entry.uname) for entry in entries} == {
        (0, 0, 0, "")
    }


@pytest.mark.archive
def test_the_archives_libraries_are_of_its_machine() -> None:
    archive.built(spark_archive.MACHINE)
    folder = ROOT / spark_archive.FOLDER / spark_archive.MACHINE.tag / spark_archive.PACKAGES

    wheels.check(
        folder,
        wheels.Platform(spark_archive.PYTHON, spark_archive.MACHINE),
        most_bytes=spark_archive.MOST_BYTES,
    )


# -- it works: this machine's variant, in an interpreter that has nothing else, without network ---

IMPORT_ALL = """
import importlib, pkgutil, sys
def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise RuntimeError("the network is asked for", args)
sys.addaudithook(refuse)
import boto3, confluent_kafka, orjson, pyarrow, pyarrow.parquet, rich, typer, yaml
import extentflow
wanting = {{}}
for module in pkgutil.walk_packages(extentflow.__path__, "extentflow."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as exc:
        wanting[module.name] = exc.name
assert "extentflow.engines.spark" in wanting, wanting
roots = {{name.partition(".")[0] for name in wanting.values()}}
assert roots <= {{"pyspark", "py4j", "sqlalchemy"}}, wanting
for service in {services!r}:
    boto3.client(service, region_name="eu-central-1")
confluent_kafka.Producer({{"bootstrap.servers": "nowhere:1"}})
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
outside = [file for file in files if "-packages/" in file and "/environment/site-" not in file]
assert not outside, outside
print("works")
"""


def _run(unpacked: Path, interpreter: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the archive's packages, no others, and no network where that can be."""
    alone = ["unshare", "--map-root-user", "--net"]
    possible = shutil.which("unshare") and not subprocess.call(
        [*alone, "true"], stderr=subprocess.DEVNULL
    )
    # -S: no site-packages of the interpreter's own.
    command = [*(alone if possible else []), interpreter, "-s", "-S", "-B", *arguments]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": spark_archive.PYTHONPATH,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    return subprocess.run(
        command, cwd=unpacked, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.archive
def test_every_module_can_be_imported_without_network(unpacked: Path, interpreter: str) -> None:
    ran = _run(unpacked, interpreter, "-c", IMPORT_ALL.format(services=wheels.SERVICES))

    assert ran.stdout == "works\n", ran.stderr


@pytest.mark.archive
def test_the_entry_point_begins(unpacked: Path, interpreter: str) -> None:
    ran = _run(unpacked, interpreter, f"{spark_archive.UNPACKED}/jobs/spark_deliver.py", "--help")

    assert ran.returncode == 0, ran.stderr
    assert "--connector" in ran.stdout


# -- the recipe, on a project of a few files ------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for path in (f"{CORE}/__init__.py", f"{CORE}/model.py", "jobs/spark_deliver.py", "pack/b/c.py"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    lock = tmp_path / spark_archive.LOCK
    lock.parent.mkdir()
    lock.write_text("boto3==1\n")
    return tmp_path


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_same_files_give_the_same_bytes(project: Path) -> None:
    first, second = project / "1.tgz", project / "2.tgz"

    size = spark_archive.pack(project, project / "pack", first)
    for file in project.rglob("*.py"):
        os.utime(file, (1, 1))
        file.chmod(0o600)
    (project / CORE / "__pycache__").mkdir()
    (project / CORE / "__pycache__" / "model.cpython-311.pyc").write_text("")
    spark_archive.pack(project, project / "pack", second)

    assert _digest(first) == _digest(second)
    with tarfile.open(first) as tar:
        assert sum(entry.size for entry in tar) == size


@pytest.mark.parametrize(
    "changed", [f"{CORE}/model.py", "jobs/spark_deliver.py", str(spark_archive.LOCK)]
)
def test_what_is_in_the_archive_decides_whether_it_is_todays(project: Path, changed: str) -> None:
    before = spark_archive.fingerprint(project)

    (project / changed).write_text("other")

    assert spark_archive.fingerprint(project) != before


def test_a_file_that_is_called_otherwise_is_another_archive(project: Path) -> None:
    before = spark_archive.fingerprint(project)

    (project / CORE / "model.py").rename(project / CORE / "models.py")

    assert spark_archive.fingerprint(project) != before


def test_an_archive_that_is_missing_is_not_todays(project: Path) -> None:
    assert spark_archive.built(project) is None


def test_the_lock_names_no_address_and_every_package_has_a_hash() -> None:
    text = (ROOT / spark_archive.LOCK).read_text()

    assert "://" not in text
    assert text.count("==") <= text.count("--hash=sha256:")
