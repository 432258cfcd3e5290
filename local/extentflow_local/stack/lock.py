"""Write the lock file of components from components.toml.

    python -m extentflow_local.stack.lock [component ...]

The lock entries of components that are not named stay unchanged.
"""

import sys
import tempfile
from pathlib import Path

from extentflow_local.stack.components import (
    LOCK,
    Component,
    Coordinate,
    LockedComponent,
    read_components,
    read_lock,
    sha256_of,
    write_lock,
)
from extentflow_local.stack.errors import FetchFailed, LocalStackError
from extentflow_local.stack.fetch import tail
from extentflow_local.stack.ivy import Ivy
from extentflow_local.stack.programs import java, spark_jar
from extentflow_local.stack.settings import LocalSettings


def resolve(component: Component, ivy: Ivy, *, work: Path) -> LockedComponent:
    """Resolve a component to its exact artifacts and hash them.

    Raises:
        FetchFailed: its closure does not resolve completely.
    """
    into, log = work / "lib", work / "ivy.log"
    into.mkdir(parents=True)
    retrieve = ivy.retrieve_closure if component.transitive else ivy.retrieve_exactly
    if not retrieve(component.roots, into=into, cache=work / "cache", log=log):
        raise FetchFailed(f"{component.name} does not resolve:\n{tail(log, 30)}")
    if component.transitive:
        files = {_from_path(file, into): file for file in into.rglob("*") if file.is_file()}
    else:
        files = {root: into / root.file_name for root in component.roots}
    return LockedComponent(
        component.name,
        {key: sha256_of(file) for key, file in sorted(files.items()) if component.keeps(key)},
    )


def _from_path(file: Path, root: Path) -> Coordinate:
    group, artifact, version, name = file.relative_to(root).parts
    stem = f"{artifact}-{version}"
    rest = name.removeprefix(stem)
    classifier, _, extension = rest.partition(".")
    coordinate = Coordinate(group, artifact, version, classifier.removeprefix("-"), extension)
    if not name.startswith(stem) or coordinate.file_name != name:
        raise FetchFailed(
            f"{group}:{artifact}:{version} has a file {name}, which no coordinate names"
        )
    return coordinate


def main(names: list[str]) -> None:
    """Resolve the named components (all, if none is named) and write the lock file."""
    settings = LocalSettings.from_environment()
    ivy = Ivy(
        java(home=settings.java_home, search_path=settings.search_path),
        spark_jar("ivy"),
        settings.ivy_settings,
    )
    wanted = read_components()
    before = read_lock() if LOCK.exists() else {}
    locked = {}
    for name, component in wanted.items():
        if names and name not in names and name in before:
            locked[name] = before[name]
            continue
        with tempfile.TemporaryDirectory(prefix="extentflow-lock-") as work:
            locked[name] = resolve(component, ivy, work=Path(work))
        sys.stdout.write(f"{name}: {len(locked[name].artifacts)} artifacts\n")
    write_lock(locked)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LocalStackError as error:
        sys.exit(str(error))
