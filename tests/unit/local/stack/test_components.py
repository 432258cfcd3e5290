"""Coordinates, the wanted components and their lock."""

import json
from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow_local.stack.components import (
    LOCK,
    Component,
    Coordinate,
    read_components,
    read_lock,
    write_lock,
)
from extentflow_local.stack.errors import LockInvalid

SHA = "0" * 64


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock.json"


@pytest.mark.parametrize(
    ("text", "file_name"),
    [
        ("org.apache.kafka:kafka_2.13:4.1.2", "kafka_2.13-4.1.2.jar"),
        ("com.acme:native-linux:1.0.392@so", "native-linux-1.0.392.so"),
        ("io.acme:app:3.3.3:all@tar.gz", "app-3.3.3-all.tar.gz"),
    ],
)
def test_a_coordinate_reads_back_as_written_and_names_its_file(text: str, file_name: str) -> None:
    coordinate = Coordinate.parse(text)

    assert str(coordinate) == text
    assert coordinate.file_name == file_name


@pytest.mark.parametrize("text", ["", "a:b", "a:b:1:c:d", "a:b:1@", "a:../b:1", "a:b:1 "])
def test_an_invalid_coordinate_is_rejected_with_its_text(text: str) -> None:
    with pytest.raises(LockInvalid, match="is not an artifact"):
        Coordinate.parse(text)


def test_a_component_drops_excluded_artifacts(tmp_path: Path) -> None:
    path = tmp_path / "components.toml"
    path.write_text('[store]\nroots = ["a:b:1"]\nwithout = ["org.mockito:*"]\n')

    component = read_components(path)["store"]

    assert component == Component("store", (Coordinate("a", "b", "1"),), without=("org.mockito:*",))
    assert not component.keeps(Coordinate("org.mockito", "core", "1"))
    assert component.keeps(Coordinate("org.slf4j", "api", "1"))


def test_the_lock_reads_back_as_written(lock: Path) -> None:
    lock.write_text(json.dumps({"store": {"a:z:1": SHA, "a:b:1@so": "1" * 64}}))

    read = read_lock(lock)
    write_lock(read, lock)

    assert read_lock(lock) == read
    assert list(json.loads(lock.read_text())["store"]) == ["a:b:1@so", "a:z:1"]


def test_the_digest_changes_with_any_artifact(lock: Path) -> None:
    digests = set()
    for artifacts in ({"a:b:1": SHA}, {"a:b:2": SHA}, {"a:b:1": "1" * 64}):
        lock.write_text(json.dumps({"store": artifacts}))
        digests.add(read_lock(lock)["store"].digest)

    assert len(digests) == 3


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "Expecting"),
        ("[]", "lock"),
        ('{"store": {}}', "store has no artifacts"),
        ('{"store": {"a:b": "' + SHA + '"}}', "'a:b' is not an artifact"),
        ('{"store": {"a:b:1": "abc"}}', "a:b:1 has no SHA-256"),
        ('{"store": {"a:b:1": 7}}', "a:b:1 has no SHA-256"),
        (json.dumps({"store": {"a:b:1": SHA, "c:b:1": SHA}}), "two artifacts are called"),
    ],
)
def test_a_broken_lock_is_rejected_with_its_path_and_the_reason(
    lock: Path, document: str, complaint: str
) -> None:
    lock.write_text(document)

    with pytest.raises(LockInvalid, match=complaint) as caught:
        read_lock(lock)

    assert str(lock) in str(caught.value)


def test_a_missing_lock_is_rejected_with_its_path(lock: Path, golden: Golden) -> None:
    with golden.raises(LockInvalid):
        read_lock(lock)


def test_the_committed_lock_holds_every_wanted_root() -> None:
    locked = read_lock()

    for name, component in read_components().items():
        assert set(component.roots) <= set(locked[name].artifacts)
        assert all(component.keeps(coordinate) for coordinate in locked[name].artifacts)


def test_the_committed_lock_names_no_place_to_download_from() -> None:
    text = LOCK.read_text() + LOCK.with_name("ivysettings.xml").read_text()

    assert "://" not in text
