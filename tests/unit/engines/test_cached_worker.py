"""The worker that a Python process of Spark keeps, and the CPU that later tasks save."""

import gc
import importlib
import sys
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from extentflow.engines import WorkerSpec
from extentflow.engines import spark as module
from extentflow.engines.spark import cached_worker


class ClosingWorker:
    """A worker that records that it was closed."""

    def __init__(self, settings: dict[str, str], owner: str) -> None:
        self.settings = settings
        self.owner = owner
        self.closed = False

    def close(self) -> None:
        """Record it."""
        self.closed = True


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start each test without a worker and unfreeze all objects afterwards."""
    monkeypatch.setattr(module, "_cached", None)
    monkeypatch.setattr(module, "_tasks", (0, 0))
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zip file with a package and modules on the path, as `--py-files` provides them."""
    archive = tmp_path / "shipped.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("shipped/__init__.py", "")
        packed.writestr("shipped/early.py", "")
        packed.writestr("shipped/late.py", "FOUND = True")
    monkeypatch.syspath_prepend(str(archive))
    for name in ("shipped", "shipped.early", "shipped.late", "shipped.another"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return archive


def spec(**settings: str) -> WorkerSpec[ClosingWorker]:
    return WorkerSpec(ClosingWorker, settings, "run")


def test_later_tasks_use_the_worker_of_the_first() -> None:
    first = cached_worker(spec(a="1"))

    assert cached_worker(spec(a="1")) is first
    assert first.owner.startswith("run/")
    assert not first.closed


def test_other_settings_close_the_worker_and_open_another() -> None:
    first = cached_worker(spec(a="1"))
    second = cached_worker(spec(a="2"))

    assert first.closed
    assert (second.settings, second.closed) == ({"a": "2"}, False)


def test_a_worker_that_fails_to_open_is_not_cached() -> None:
    def fails(_settings: dict[str, str], _owner: str) -> ClosingWorker:
        raise RuntimeError("no")

    first = cached_worker(spec(a="1"))
    with pytest.raises(RuntimeError):
        cached_worker(WorkerSpec(fails, {}, "run"))
    again = cached_worker(spec(a="1"))

    assert first.closed
    assert again is not first


def importers(archive: Path) -> list[str]:
    """Return the packages of a zip file that have their own importer."""
    return [path for path in sys.path_importer_cache if path.startswith(f"{archive}/")]


def test_a_later_task_drops_the_importers_of_packages_in_zip_files(zipped: Path) -> None:
    cached_worker(spec(a="1"))
    importlib.import_module("shipped.early")
    assert importers(zipped)

    cached_worker(spec(a="1"))

    assert not importers(zipped)
    importlib.invalidate_caches()  # as Spark does before a task
    assert importlib.import_module("shipped.late").FOUND


def test_modules_of_a_rewritten_zip_file_are_found(zipped: Path) -> None:
    importlib.import_module("shipped.early")
    cached_worker(spec(a="1"))
    with zipfile.ZipFile(zipped, "w") as packed:
        packed.writestr("shipped/another.py", "FOUND = True" + " " * 1_000)
        packed.writestr("shipped/late.py", "FOUND = 'changed'")

    importlib.invalidate_caches()

    assert importlib.import_module("shipped.late").FOUND == "changed"
    assert importlib.import_module("shipped.another").FOUND


def test_the_collector_skips_the_objects_of_the_first_task() -> None:
    cached_worker(spec(a="1"))
    assert gc.get_freeze_count() == 0  # the first task has not created its clients yet

    cached_worker(spec(a="1"))
    kept = gc.get_freeze_count()
    cached_worker(spec(a="1"))

    assert kept > 0
    assert gc.get_freeze_count() <= kept  # garbage of later tasks is still collected


def test_a_closed_worker_is_collected_and_the_next_one_is_frozen_too() -> None:
    for _ in range(2):
        first = cached_worker(spec(a="1"))
    first.itself = first  # type: ignore[attr-defined]  # a cycle, as in clients: only the collector frees it
    gone = weakref.ref(first)
    del first

    cached_worker(spec(a="2"))
    gc.collect()

    assert gone() is None
    assert gc.get_freeze_count() == 0
    cached_worker(spec(a="2"))
    assert gc.get_freeze_count() > 0
