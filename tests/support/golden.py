"""Texts that tests compare in full; `tests/golden` has one file per command or room.

The test and the ordinal of the text within it are the head of an entry:

    unit/config/test_connector.py::test_missing_keys_are_named[name] #1
        name: missing; write the connector's unique name

`make golden` rewrites the entries after a change of wording; the diff shows what users will read.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

E = TypeVar("E", bound=BaseException)

TESTS = Path(__file__).parents[1]
FOLDER = TESTS / "golden"
INDENT = "    "
# The tests of a command share its file; those of no single command are in `cli.txt`.
COMMANDS = {
    "test_connector_commands": "connectors",
    "test_dry_runs": "run",
    "test_first_record": "run",
    "test_health_commands": "doctor",
    "test_job_commands": "job",
    "test_lake_commands": "lake",
    "test_peek_commands": "peek",
    "test_receive_commands": "receive",
    "test_run_commands": "run",
    "test_stream_commands": "stream",
    "test_topic_commands": "topic",
}
# What differs between two runs: ports of servers that a test starts, random identifiers, time,
# and a line of Python's own source. What a test is about it asserts itself.
VARYING = {
    r"\b(127\.0\.0\.1|localhost):\d{5}\b": r"\1:<port>",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "<id>",
    r"\b[0-9a-f]{20}\b": "<job>",
    r"(?<=-)[0-9a-f]{8}\b": "<id>",
    r"\bin \d+\.\d s\b": "in <n> s",
    r"^\d+\.\d s:": "<n> s:",
    r"\([\d,.]+/s\)": "(<n>/s)",
    r"\b(at|at most) [\d,.]+ [KMG]iB(?=/s|$)": r"\1 <n> MiB",
    r"\(_ssl\.c:\d+\)": "(_ssl.c:<line>)",
}

# The test and the ordinal of a text within it.
Head = tuple[str, int]


def to_text(entries: Mapping[Head, str]) -> str:
    """Return the text of a golden file, sorted by test and ordinal."""
    return "\n".join(
        f"{test} #{ordinal}\n"
        + "".join(f"{INDENT}{line}".rstrip(" ") + "\n" for line in text.split("\n"))
        for (test, ordinal), text in sorted(entries.items())
    )


def to_entries(text: str) -> dict[Head, str]:
    """Return the entries of a golden file's text."""
    found: dict[Head, list[str]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line and not line.startswith(INDENT):
            test, _, ordinal = line.rpartition(" #")
            lines = found[test, int(ordinal)] = []
        else:
            lines.append(line.removeprefix(INDENT))
    return {head: "\n".join(lines).rstrip("\n") for head, lines in found.items()}


@cache
def entries(name: str) -> Mapping[Head, str]:
    """Return the entries of the golden file with that name."""
    path = FOLDER / f"{name}.txt"
    return to_entries(path.read_text(encoding="utf-8")) if path.exists() else {}


def test_id(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/")


def file_of(item: pytest.Item) -> str:
    """Return the name of a test's golden file: its command, or else its room."""
    _, *rooms = item.path.relative_to(TESTS).with_suffix("").parts
    if rooms[0] == "cli":
        return COMMANDS.get(rooms[1], "cli")
    return rooms[0] if len(rooms) > 1 else "extentflow"


@dataclass(slots=True)
class Golden:
    """The entries of one test, compared in the order of its calls."""

    test: str
    file: str
    is_write: bool
    folders: Mapping[str, str]
    texts: list[str] = field(default_factory=list)

    def __call__(self, *texts: str | BaseException, **varying: object) -> None:
        """Compare each text, in full, with the next entry of the test.

        A value of `varying` differs between runs; the entry holds `<name>` in its place.
        """
        __tracebackhide__ = True
        for said in texts:
            self.texts.append(text := self.without_varying(said, varying))
            expected = entries(self.file).get((self.test, len(self.texts)))
            if not self.is_write and text != expected:
                pytest.fail(self.difference(expected, text))

    @contextmanager
    def raises(
        self, kind: type[E] | tuple[type[E], ...], *, match: str | None = None, **varying: object
    ) -> Iterator[pytest.ExceptionInfo[E]]:
        """Expect an error of that type, compare its whole text; `match` names what must occur."""
        __tracebackhide__ = True
        with pytest.raises(kind, match=match) as raised:
            yield raised
        self(raised.value, **varying)

    def without_varying(self, said: str | BaseException, varying: Mapping[str, object]) -> str:
        text = str(said)
        for value, name in [
            *((str(value), name) for name, value in varying.items()),
            *self.folders.items(),
        ]:
            text = text.replace(value, f"<{name}>")
        for pattern, name in VARYING.items():
            text = re.sub(pattern, name, text, flags=re.MULTILINE)
        text = "\n".join(line.rstrip(" ") for line in text.split("\n")).rstrip("\n")
        # A control character within a text file hides it from a diff.
        return "".join(
            c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text.rstrip("\n")
        )

    def difference(self, expected: str | None, text: str) -> str:
        place = f"entry #{len(self.texts)} of {self.test} in tests/golden/{self.file}.txt"
        if expected is None:
            return f"there is no {place}; `make golden` adds it:\n{text}"
        lines = difflib.ndiff(expected.split("\n"), text.split("\n"))
        return "\n".join(
            [f"differs from {place}; after a change of wording, `make golden`", *lines]
        )


# The identifiers of the collected tests that use the fixture, and of all collected files.
USERS = pytest.StashKey[set[str]]()
FILES = pytest.StashKey[set[str]]()
# The entries of the tests that ran, by golden file.
WRITTEN = pytest.StashKey[dict[str, dict[Head, str]]]()


@pytest.fixture
def golden(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Golden]:
    """Compare texts of the test with its entries in `tests/golden`."""
    folders = {}
    if "tmp_path" in request.fixturenames:
        folders[str(request.getfixturevalue("tmp_path"))] = "tmp"
    folders |= {str(tmp_path_factory.getbasetemp()): "base", str(TESTS.parent): "project"}
    config, failed = request.config, request.session.testsfailed
    made = Golden(
        test_id(request.node), file_of(request.node), config.getoption("golden_write"), folders
    )
    yield made
    if made.is_write:
        written = config.stash.setdefault(WRITTEN, {}).setdefault(made.file, {})
        written.update({(made.test, at): text for at, text in enumerate(made.texts, 1)})
    elif made.texts and request.session.testsfailed == failed:
        left = [at for test, at in entries(made.file) if test == made.test][len(made.texts) :]
        assert not left, f"{made.test} does not use its entries {left}; `make golden` removes them"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-write",
        action="store_true",
        help="rewrite tests/golden from the tests that use it, in one process",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    users = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
    config.stash[USERS] = {test_id(item) for item in users}
    config.stash[FILES] = {test_id(item).partition("::")[0] for item in items}
    if config.getoption("golden_write"):
        if config.getoption("numprocesses", None) or any("::" in given for given in config.args):
            raise pytest.UsageError("--golden-write takes whole files, and one process (-n 0)")
        config.hook.pytest_deselected(items=[item for item in items if item not in users])
        items[:] = users


def pytest_sessionfinish(session: pytest.Session) -> None:
    stash = session.config.stash
    if not session.config.getoption("golden_write") or USERS not in stash:
        return
    written = stash.get(WRITTEN, {})
    for name in {path.stem for path in FOLDER.glob("*.txt")} | set(written):
        ran = {test for test, _ in written.get(name, {})}
        kept = {
            head: text
            for head, text in entries(name).items()
            if head[0] not in ran and not is_stale(head[0], session.config)
        }
        text = to_text(kept | written.get(name, {}))
        path = FOLDER / f"{name}.txt"
        path.write_text(text, encoding="utf-8") if text else path.unlink(missing_ok=True)


def is_stale(test: str, config: pytest.Config) -> bool:
    """Return whether no test uses an entry, as far as the collected files show."""
    file = test.partition("::")[0]
    is_unused = file in config.stash[FILES] and test not in config.stash[USERS]
    return is_unused or not (TESTS / file).exists()
