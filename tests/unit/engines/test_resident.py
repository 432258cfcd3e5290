"""What stays in a Python process of Spark's, and what that spares the tasks after the first."""

import gc
import importlib
import sys
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from extentflow.engines import WorkerSpec
from extentflow.engines import resident as module
from extentflow.engines.resident import resident


class Guest:
    """A resident that knows whether it was closed."""

    def __init__(self, settings: dict[str, str], owner: str) -> None:
        self.settings = settings
        self.owner = owner
        self.closed = False

    def close(self) -> None:
        """Remember it."""
        self.closed = True


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test begin without a resident, and the collector look through everything after."""
    monkeypatch.setattr(module, "_resident", None)
    monkeypatch.setattr(module, "_tasks", (0, 0))
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zip file on the path, with a package and modules, as executors have libraries."""
    archive = tmp_path / "shipped.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("shipped/__init__.py", "")
        packed.writestr("shipped/early.py", "")
        packed.writestr("shipped/late.py", "FOUND = True")
    monkeypatch.syspath_prepend(str(archive))
    for name in ("shipped", "shipped.early", "shipped.late", "shipped.another"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return archive


def spec(**settings: str) -> WorkerSpec[Guest]:
    return WorkerSpec(Guest, settings, "run")


def test_the_same_is_kept_from_task_to_task() -> None:
    first = resident(spec(a="1"))

    assert resident(spec(a="1")) is first
    assert first.owner.startswith("run/")
    assert not first.closed


def test_one_of_other_settings_takes_its_place() -> None:
    first = resident(spec(a="1"))
    second = resident(spec(a="2"))

    assert first.closed
    assert (second.settings, second.closed) == ({"a": "2"}, False)


def test_one_that_cannot_be_opened_leaves_nobody() -> None:
    def refuses(_settings: dict[str, str], _owner: str) -> Guest:
        raise RuntimeError("no")

    first = resident(spec(a="1"))
    with pytest.raises(RuntimeError):
        resident(WorkerSpec(refuses, {}, "run"))
    again = resident(spec(a="1"))

    assert first.closed
    assert again is not first


def importers(archive: Path) -> list[str]:
    """The packages of a zip file that have an importer of their own."""
    return [path for path in sys.path_importer_cache if path.startswith(f"{archive}/")]


def test_importers_of_zip_files_do_not_all_read_them_again_for_every_task(zipped: Path) -> None:
    resident(spec(a="1"))
    importlib.import_module("shipped.early")
    assert importers(zipped)

    resident(spec(a="1"))

    assert not importers(zipped)
    importlib.invalidate_caches()  # as Spark does before a task
    assert importlib.import_module("shipped.late").FOUND


def test_modules_of_a_zip_file_that_was_built_anew_are_found(zipped: Path) -> None:
    importlib.import_module("shipped.early")
    resident(spec(a="1"))
    with zipfile.ZipFile(zipped, "w") as packed:
        packed.writestr("shipped/another.py", "FOUND = True" + " " * 1_000)
        packed.writestr("shipped/late.py", "FOUND = 'changed'")

    importlib.invalidate_caches()

    assert importlib.import_module("shipped.late").FOUND == "changed"
    assert importlib.import_module("shipped.another").FOUND


def test_the_collector_passes_over_what_the_first_task_left() -> None:
    resident(spec(a="1"))
    assert gc.get_freeze_count() == 0  # of clients that the first task will need, nothing is there

    resident(spec(a="1"))
    kept = gc.get_freeze_count()
    resident(spec(a="1"))

    assert kept > 0
    assert gc.get_freeze_count() <= kept  # no garbage of later tasks is kept for good


def test_what_was_is_collected_with_its_resident_and_the_next_one_settles_as_well() -> None:
    for _ in range(2):
        first = resident(spec(a="1"))
    first.itself = first  # type: ignore[attr-defined]  # as clients do, which only collecting ends
    gone = weakref.ref(first)
    del first

    resident(spec(a="2"))
    gc.collect()

    assert gone() is None
    assert gc.get_freeze_count() == 0
    resident(spec(a="2"))
    assert gc.get_freeze_count() > 0
