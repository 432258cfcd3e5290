"""One verified library folder per component, in the user's cache.

<cache>/lib/<component>-<lock digest>/    complete and verified, because a rename creates it
<cache>/ivy/<component>/                  partial results of an interrupted retrieval
<cache>/locks/<component>.lock            held during a retrieval; other processes wait
"""

import fcntl
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from extentflow_local.stack.components import Coordinate, LockedComponent, sha256_of
from extentflow_local.stack.errors import FetchFailed, WrongHash

_LOG_LINES_SHOWN = 12


class Retriever(Protocol):
    """Retrieves artifacts from repositories; see `ivy.Ivy.retrieve_exactly`."""

    def retrieve_exactly(
        self, artifacts: Iterable[Coordinate], *, into: Path, cache: Path, log: Path
    ) -> bool:
        """Retrieve exactly these artifacts into one folder; return whether all were found."""
        ...


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Creates the library folder of a locked component."""

    cache: Path
    retriever: Retriever
    pauses_seconds: tuple[float, ...] = (2, 10)
    pause: Callable[[float], None] = time.sleep
    notify: Callable[[str], None] = lambda _line: None

    def folder(self, component: LockedComponent) -> Path:
        """Return the component's library folder, and fetch it first if it is incomplete.

        Several processes may call this at once. A damaged folder is fetched again.

        Raises:
            FetchFailed: some artifacts could not be retrieved; a second call continues.
            WrongHash: an artifact differs from the locked one.
        """
        folder = self.cache / "lib" / f"{component.name}-{component.digest}"
        with self._turn(component.name):
            if folder.exists():
                damaged = _unlike_lock(component, folder)
                if not damaged:
                    return folder
                self.notify(
                    f"{component.name}: {damaged[0].file_name} is damaged, fetching it again"
                )
                shutil.rmtree(folder)
            self._fetch(component, folder)
        return folder

    def _fetch(self, component: LockedComponent, folder: Path) -> None:
        self.notify(f"{component.name}: fetching {len(component.artifacts)} artifacts")
        started = time.monotonic()
        partial = folder.with_name(f".partial-{folder.name}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            self._retrieve(component, partial)
            self._verify(component, partial)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(self._resumable(component), ignore_errors=True)
        self.notify(f"{component.name}: fetched in {time.monotonic() - started:.0f} s")

    def _retrieve(self, component: LockedComponent, into: Path) -> None:
        log = self.cache / "ivy" / f"{component.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        for pause_seconds in (*self.pauses_seconds, None):
            complete = self.retriever.retrieve_exactly(
                component.artifacts, into=into, cache=self._resumable(component), log=log
            )
            missing = [c for c in component.artifacts if not (into / c.file_name).is_file()]
            if complete and not missing:
                return
            if pause_seconds is not None:
                self.notify(
                    f"{component.name}: retrieval incomplete; retrying in {pause_seconds} s"
                )
                self.pause(pause_seconds)
        raise FetchFailed(_explain_missing(component, missing, log))

    def _verify(self, component: LockedComponent, folder: Path) -> None:
        wrong = _unlike_lock(component, folder)
        if not wrong:
            return
        for coordinate in wrong:
            shutil.rmtree(
                self._resumable(component) / coordinate.group / coordinate.artifact,
                ignore_errors=True,
            )
        raise WrongHash(
            "\n".join(
                f"{coordinate}: SHA-256 is {sha256_of(folder / coordinate.file_name)},"
                f" locked is {component.artifacts[coordinate]}"
                for coordinate in wrong
            )
            + "\nThe folder is not used. Run the command again; if this repeats, "
            "your repository serves another"
            f" {wrong[0].file_name} than the one this project was tested with."
        )

    def _resumable(self, component: LockedComponent) -> Path:
        return self.cache / "ivy" / component.name

    @contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        path = self.cache / "locks" / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _unlike_lock(component: LockedComponent, folder: Path) -> list[Coordinate]:
    return [
        coordinate
        for coordinate, sha256 in component.artifacts.items()
        if not (folder / coordinate.file_name).is_file()
        or sha256_of(folder / coordinate.file_name) != sha256
    ]


def _explain_missing(component: LockedComponent, missing: list[Coordinate], log: Path) -> str:
    names = ", ".join(map(str, missing[:5])) + (" ..." if missing[5:] else "")
    return (
        f"{component.name}: {len(missing)} of {len(component.artifacts)} artifacts "
        "could not be retrieved"
        f" ({names}). Is the network up? Behind a proxy: JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=<it>,"
        " behind a mirror EXTENTFLOW_IVY_SETTINGS=<your ivysettings.xml>. "
        "Retrieved files are kept for"
        f" the next attempt. The end of {log}:\n{tail(log, _LOG_LINES_SHOWN)}"
    )


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a log, indented; reads at most its last 64 KiB."""
    if not path.exists():
        return "    (no output)"
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 65_536))
        text = file.read().decode("utf-8", "replace")
    shown = [line for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(f"    {line}" for line in shown) or "    (no output)"
