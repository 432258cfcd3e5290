"""Library folders: whole, verified, made once."""

import hashlib
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow_local.stack.components import Coordinate, LockedComponent
from extentflow_local.stack.errors import FetchFailed, WrongHash
from extentflow_local.stack.fetch import Fetcher, tail

FIRST, SECOND = Coordinate("org.a", "first", "1"), Coordinate("org.b", "second", "2", "", "so")
CONTENT = {FIRST: b"first jar", SECOND: b"second native"}
COMPONENT = LockedComponent(
    "store", {key: hashlib.sha256(content).hexdigest() for key, content in CONTENT.items()}
)


class Repository:
    """A retriever that keeps what it brought, as Ivy's cache does, and may fail in between."""

    def __init__(self, *answers: Mapping[Coordinate, bytes]) -> None:
        self.answers = list(answers)
        self.calls = 0
        self.at_once = 0
        self.most_at_once = 0

    def retrieve_exactly(
        self, artifacts: Iterable[Coordinate], *, into: Path, cache: Path, log: Path
    ) -> bool:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.calls += 1
        served = self.answers.pop(0) if self.answers else CONTENT
        wanted = set(artifacts)
        for coordinate, content in served.items():
            kept = cache / coordinate.group / coordinate.artifact / coordinate.file_name
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(content)
        log.write_text(f"served {len(served)}\n")
        kept_files = {file.name: file for file in cache.rglob("*") if file.is_file()}
        for coordinate in wanted & {c for c in wanted if c.file_name in kept_files}:
            source = kept_files[coordinate.file_name]
            (into / coordinate.file_name).write_bytes(source.read_bytes())
        self.at_once -= 1
        return all((into / coordinate.file_name).exists() for coordinate in wanted)


def fetcher(cache: Path, repository: Repository) -> Fetcher:
    return Fetcher(cache, repository, pauses_seconds=(1, 2), pause=lambda _seconds: None)


def folders(cache: Path) -> list[Path]:
    return list((cache / "lib").iterdir()) if (cache / "lib").exists() else []


def test_a_folder_holds_exactly_the_locked_artifacts(tmp_path: Path) -> None:
    folder = fetcher(tmp_path, Repository()).folder(COMPONENT)

    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "first-1.jar": b"first jar",
        "second-2.so": b"second native",
    }


def test_a_whole_folder_is_not_fetched_again(tmp_path: Path) -> None:
    repository = Repository()

    first = fetcher(tmp_path, repository).folder(COMPONENT)
    second = fetcher(tmp_path, repository).folder(COMPONENT)

    assert (first, repository.calls) == (second, 1)


def test_an_interrupted_fetch_is_resumed(tmp_path: Path) -> None:
    repository = Repository({FIRST: CONTENT[FIRST]}, {SECOND: CONTENT[SECOND]})

    folder = fetcher(tmp_path, repository).folder(COMPONENT)

    assert len(list(folder.iterdir())) == 2
    assert repository.calls == 2


def test_what_never_comes_is_named_and_leaves_no_folder(tmp_path: Path, golden: Golden) -> None:
    repository = Repository(*[{FIRST: CONTENT[FIRST]}] * 3)

    with pytest.raises(FetchFailed) as caught:
        fetcher(tmp_path, repository).folder(COMPONENT)

    message = str(caught.value)
    golden(message)
    assert "org.b:second:2@so" in message
    assert "EXTENTFLOW_IVY_SETTINGS" in message
    assert "served 1" in message
    assert repository.calls == 3
    assert folders(tmp_path) == []


def test_a_wrong_hash_names_artifact_and_hashes_and_leaves_no_folder(
    tmp_path: Path,
) -> None:
    repository = Repository({**CONTENT, FIRST: b"something else"})

    with pytest.raises(WrongHash) as caught:
        fetcher(tmp_path, repository).folder(COMPONENT)

    message = str(caught.value)
    assert "org.a:first:1: SHA-256 is" in message
    assert hashlib.sha256(b"something else").hexdigest() in message
    assert COMPONENT.artifacts[FIRST] in message
    assert "org.b:second" not in message
    assert folders(tmp_path) == []


def test_after_a_wrong_hash_the_artifact_is_fetched_again(tmp_path: Path) -> None:
    repository = Repository({**CONTENT, FIRST: b"something else"}, {FIRST: CONTENT[FIRST]})
    with pytest.raises(WrongHash):
        fetcher(tmp_path, repository).folder(COMPONENT)

    folder = fetcher(tmp_path, repository).folder(COMPONENT)

    assert (folder / "first-1.jar").read_bytes() == b"first jar"


def test_leftovers_of_a_killed_fetch_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "lib" / f".partial-store-{COMPONENT.digest}"
    left.mkdir(parents=True)
    (left / "half.jar").write_bytes(b"ha")

    folder = fetcher(tmp_path, Repository()).folder(COMPONENT)

    assert folders(tmp_path) == [folder]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", ["changed", "deleted"])
def test_a_folder_that_was_damaged_is_fetched_again(tmp_path: Path, damage: str) -> None:
    repository = Repository()
    folder = fetcher(tmp_path, repository).folder(COMPONENT)
    if damage == "changed":
        (folder / "first-1.jar").write_bytes(b"first jax")
    else:
        (folder / "first-1.jar").unlink()

    again = fetcher(tmp_path, repository).folder(COMPONENT)

    assert (again / "first-1.jar").read_bytes() == b"first jar"
    assert repository.calls == 2


def test_two_at_once_take_turns_and_fetch_once(tmp_path: Path) -> None:
    repository = Repository()
    found: list[Path] = []

    def fetch() -> None:
        found.append(fetcher(tmp_path, repository).folder(COMPONENT))

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 1
    assert (repository.calls, repository.most_at_once) == (1, 1)


def test_the_end_of_a_log_is_its_last_lines_that_say_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\ntwo\n\nthr\xffee\n")

    assert tail(log, 2) == "    two\n    thr\N{REPLACEMENT CHARACTER}ee"
    assert tail(tmp_path / "absent", 2) == "    (no output)"
