"""Pages for people name only what there is: keys, variables, commands, options, targets, files."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from infra.config import Bucket, Cluster, Network, Receiver, Stage
from infra.config_spark import Spark

from extentflow import __version__
from extentflow.cli import app
from extentflow.config.files import parse_text
from extentflow.config.parsing import connector_table
from extentflow.config.worker import CONFIG_VARIABLE, variable
from extentflow.config.worker import TABLE as WORKER_KEYS
from extentflow.discovery.sources import declared
from extentflow.kafka import JOBS_TOPIC, PROGRESS_TOPIC, SCHEMAS_TOPIC
from extentflow.metric_table import STREAM, TABLE
from extentflow.wiring import check_connector

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "layers" / "core" / "python" / "extentflow"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
EVENT_PATH = [ROOT / "docs" / f"{name}.md" for name in ("deploy", "operations", "storagegrid")]
# Names commands, keys and headings of its time.
HISTORY = ROOT / "docs" / "history.md"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page != HISTORY),
]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
ROOMS = [
    ROOT / room / "README.md"
    for room in ("events", "jobs", "local/extentflow_local/aws", "local/extentflow_local/stack")
]
# A path with a folder, and with `*` where several files are meant.
PATH = re.compile(r"[\w*-][\w.*-]*(?:/[\w.*-]+)+/?|[\w-]+/")
SOURCE = re.compile(r"\.(?:env|in|java|md|py|service|toml|txt)$")
# Folders that commands write, and files that a user adds.
WRITTEN = {"build", "node_modules", "var"}
OF_USERS = {
    "extentflow/ledger.db",
    "layers/core/grid-ca.pem",
    "registry/NAME",
    "requirements/wheels",
}
# Settings of brokers, consumers and topics, which are not ours.
KAFKAS = {
    "isolation.level",
    "max.message.bytes",
    "offsets.retention.minutes",
    "transaction.partition.verification.enable",
    "transaction.version",
}
SECRET_ARN = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:grid-AbCdEf"


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=page_id)
event_path_page = pytest.mark.parametrize("page", EVENT_PATH, ids=page_id)


def blocks(page: Path, language: str = "") -> list[str]:
    """The fenced code blocks of a page, of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def spans(page: Path) -> list[str]:
    """The code within a page's lines."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", prose)


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `extentflow` command of a page."""
    lines = [line for block in blocks(page) for line in block.replace("\\\n", " ").splitlines()]
    for text in [*lines, *spans(page)]:
        if found := re.search(r"(?:^|[\s(\"])(extentflow [a-z].*)", text):
            yield shlex.split(found[1].strip(')"'), comments=True)[1:]


def command_line() -> Any:  # noqa: ANN401 - typer keeps the types of commands to itself
    """The command line with the commands that the local stack adds."""
    whole: Any = typer.main.get_command(app)
    assert {"run", "up"} <= set(whole.list_commands(None))
    return whole


def section(page: Path, title: str) -> str:
    """What stands below a heading."""
    _, _, after = page.read_text().partition(f"\n## {title}\n")
    assert after, title
    return after.partition("\n## ")[0]


def first_cells(text: str) -> list[str]:
    """The code in the first column of a section's tables."""
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def first_paths(text: str) -> set[str]:
    """The paths in the second column of a section's tables: what to open first."""
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([^`]+/[^`]*)`", row)}


def markdown() -> Iterator[Path]:
    """Every page of the repository."""
    rooms = ("docs", "events", "examples", "connectors", "jobs", "local", "tests")
    folders = ("", ".github/**/", *(f"{room}/**/" for room in rooms))
    tracked = [f"{folder}*.md" for folder in folders]
    yield from (page for pattern in tracked for page in sorted(ROOT.glob(pattern)))


def test_every_heading_stands_between_blank_lines() -> None:
    wrong: list[str] = []
    for page in markdown():
        # A comment in a code block looks like a heading.
        prose = re.sub(
            r"^```.*?^```", "code", page.read_text(), flags=re.MULTILINE | re.DOTALL
        ).splitlines()
        padded = ["", *prose, ""]
        for number, line in enumerate(padded):
            if re.match(r"#{1,6} ", line) and (padded[number - 1] or padded[number + 1]):
                wrong.append(f"{page.relative_to(ROOT)}: {line}")

    assert wrong == []


@every_page
def test_every_command_and_option_exists(page: Path) -> None:
    for words in commands(page):
        command = command_line()
        while known := getattr(command, "commands", {}):
            assert words, f"{page.name}: an incomplete command"
            assert words[0] in known, f"{page.name}: extentflow {words[0]}"
            command = known[words.pop(0)]
            command = getattr(command, "imported", command)
        options = {option for parameter in command.params for option in parameter.opts}
        given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert given <= options, f"{page.name}: extentflow {command.name} {given - options}"


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    named = {word for span in first_cells(page) for word in re.findall(r"^[a-z-]+", span)}
    former = set(re.findall(r"^`([a-z-]+)` is the former name", page, re.MULTILINE))

    assert set(command_line().commands) <= named | former


@every_page
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = [line for block in blocks(page) for line in block.splitlines()] + spans(page)
    named = {name for text in texts for name in re.findall(r"(?:^|&& )make ([a-z-]+)", text)}

    assert named <= targets


@pytest.mark.parametrize(("target", "said"), [("setup", True), ("lint", False)])
def test_only_make_setup_says_what_to_type_next(target: str, *, said: bool) -> None:
    words = ["make", "--dry-run", target]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert ("next: `make demo`" in shown) is said


@every_page
def test_every_link_leads_to_a_page_and_to_a_heading_of_it(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE) if heading else []
        slugs = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
        assert not heading or heading in slugs, target


@pytest.mark.parametrize("page", [*PAGES, *DECISIONS, *ROOMS], ids=page_id)
def test_every_file_and_folder_that_is_named_is_there(page: Path) -> None:
    roots = (ROOT, LIBRARY.parent, LIBRARY, ROOT / "tests", page.parent)
    missing = []
    for span in spans(page):
        name = re.sub(r"<\w+>", "*", span)
        if name in OF_USERS or not PATH.fullmatch(name):
            continue
        first = name.partition("/")[0]
        ours = first not in WRITTEN and any((root / first).is_dir() for root in roots)
        if (ours or SOURCE.search(name)) and not any(any(root.glob(name)) for root in roots):
            missing.append(name)

    assert missing == []


def test_the_readme_and_the_architecture_name_the_same_files_to_change() -> None:
    readme = first_paths(section(ROOT / "README.md", "Where things are"))
    table = first_paths(section(ARCHITECTURE, "Where to change what"))

    missing = {name for name in readme if not any(other.startswith(name) for other in table)}

    assert readme
    assert missing == set()


def test_every_package_is_described() -> None:
    packages = {path.parent.name for path in LIBRARY.glob("*/__init__.py")}

    assert packages <= set(first_cells(section(ARCHITECTURE, "Packages")))


def test_every_page_is_listed_by_task() -> None:
    contents = ROOT / "docs" / "README.md"
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", contents.read_text()))

    assert {page.name for page in contents.parent.glob("*.md")} - {contents.name} == linked


def test_the_changelog_has_the_version_with_its_date() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()

    assert re.search(rf"^## {re.escape(__version__)} - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE)


@event_path_page
def test_every_key_is_a_setting_a_connectors_key_or_kafkas_own(page: Path) -> None:
    ours = {JOBS_TOPIC, PROGRESS_TOPIC, SCHEMAS_TOPIC}
    known = {*WORKER_KEYS.names(), *connector_table().names(), *KAFKAS, *ours}
    known |= {f"network.{field.name}" for field in fields(Network)}
    files = r".*\.(?:py|md|json|yaml|yml|pem|properties|out)"
    for span in spans(page):
        key = span.partition("=")[0]
        if re.fullmatch(r"[a-z]+(?:\.[a-z]+)+", key) and not re.fullmatch(files, key):
            assert key in known, f"{page.name}: {key}"


@event_path_page
def test_every_variable_is_read(page: Path) -> None:
    known = {variable(name) for name in WORKER_KEYS.names()} | {CONFIG_VARIABLE}

    named = set(re.findall(r"EXTENTFLOW_[A-Z_]*[A-Z]", page.read_text()))

    assert named - {"EXTENTFLOW_KAFKA"} <= known


def test_every_setting_of_a_stage_is_explained() -> None:
    text = section(EVENT_PATH[0], "A stage's settings")

    assert set(first_cells(text)) == {field.name for field in fields(Stage)}
    for kind in (Bucket, Cluster, Network, Receiver, Spark):
        (given,) = re.findall(rf"`{kind.__name__}\(([^)]+)\)`", text)
        assert given.split(", ") == [field.name for field in fields(kind)]


def test_the_metrics_of_functions_are_those_of_the_table() -> None:
    text = section(EVENT_PATH[1], "Alarms").partition("Metrics have the namespace")[2]
    lists, _, own = text.partition("With `metrics.connectors=")
    first, *_ = lists.partition("- ")[2].partition("\n- ")
    found = {one.name: one for one in TABLE.values() if {*one.writers} - {STREAM}}

    alarmed = {"FailedJobs", "StalledJobs", "MessagesReturned", "ReconciliationProblems"}
    alarmed |= {"OldestOpenJobSeconds"}
    assert metrics_in(lists) == found.keys() - alarmed
    measured = {name for name, one in found.items() if one.per_connector}
    assert metrics_in(first) | metrics_in(own) == measured
    for name in re.findall(r"`(\w+)` \(`[a-z-]+`", lists):
        assert f"`{name}` (`{found[name].connect}`" in lists
    assert len(re.findall(r"\(`[a-z-]+`", lists)) == sum(
        bool(one.connect) for one in found.values()
    )


def metrics_in(text: str) -> set[str]:
    return {*re.findall(r"`([A-Z]\w+)`", text)}


def test_the_declared_sources_of_the_page_are_sources() -> None:
    (example,) = blocks(EVENT_PATH[2], "json")

    assert [source.endpoint for source in declared(example)] == [
        one["endpoint"] for one in json.loads(example)
    ]


def test_the_connector_of_the_page_is_one() -> None:
    (example,) = blocks(EVENT_PATH[2], "yaml")

    checked = check_connector(parse_text(example.replace("SECRET_ARN", SECRET_ARN), "grid.yaml"))

    assert (checked.endpoint_type, checked.ca_bundle) == ("storagegrids3", "/opt/grid-ca.pem")
