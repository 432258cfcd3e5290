"""Finding Java and SeaweedFS, and saying what to do when they are missing."""

from pathlib import Path

import pytest
from tests.support.golden import Golden

from extentflow_local.stack import programs
from extentflow_local.stack.errors import ProgramMissing


def fake_java(directory: Path, version_line: str) -> Path:
    program = directory / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("version", ["17.0.15", "21", "21.0.3-ea"])
def test_a_recent_java_is_taken(tmp_path: Path, version: str) -> None:
    program = fake_java(tmp_path, f'openjdk version "{version}" 2025-04-15')

    assert programs.java(home=None, search_path=str(tmp_path)) == program


@pytest.mark.parametrize(("version", "number"), [("1.8.0_392", "8"), ("11.0.2", "11")])
def test_an_old_java_is_rejected_with_its_version_and_the_remedy(
    tmp_path: Path, version: str, number: str, golden: Golden
) -> None:
    fake_java(tmp_path, f'java version "{version}"')

    with golden.raises(ProgramMissing, match=f"{number}"):
        programs.java(home=None, search_path=str(tmp_path))


def test_java_home_wins_over_the_search_path(tmp_path: Path) -> None:
    chosen = fake_java(tmp_path / "home" / "bin", 'openjdk version "21"')
    fake_java(tmp_path / "path", 'openjdk version "8"')

    found = programs.java(home=str(tmp_path / "home"), search_path=str(tmp_path / "path"))

    assert found == chosen


def test_a_missing_java_is_explained(tmp_path: Path, golden: Golden) -> None:
    with golden.raises(ProgramMissing, match="`java`"):
        programs.java(home=None, search_path=str(tmp_path))


def test_something_else_called_java_is_explained(tmp_path: Path, golden: Golden) -> None:
    fake_java(tmp_path, "hello")

    with golden.raises(ProgramMissing):
        programs.java(home=None, search_path=str(tmp_path))


def test_a_jar_that_pyspark_lacks_is_named(golden: Golden) -> None:
    with golden.raises(ProgramMissing, match="absent-thing"):
        programs.spark_jar("absent-thing")


def test_ivy_is_found_inside_pyspark() -> None:
    assert programs.spark_jar("ivy").is_file()
