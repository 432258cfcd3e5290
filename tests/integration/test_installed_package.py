"""The wheel, installed into an empty environment that holds only the packages it requires."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from tests.support.delivery import Delivery, joined, numbered_lines

from extentflow import __version__, plugins
from extentflow.kafka.reading import read_committed
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = tuple(PYPROJECT["tool"]["setuptools"]["dynamic"]["optional-dependencies"])

# Imported by modules that are for users of Spark only; other extras are imported when needed.
OF_SPARK = {"pyspark", "py4j"}
SECONDS = 180

IMPORT_EVERY_MODULE = """
import importlib, json, pkgutil
import extentflow
missing = {}
for module in pkgutil.walk_packages(extentflow.__path__, "extentflow."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing[module.name] = error.name.partition(".")[0]
print(json.dumps({"file": extentflow.__file__, "missing": missing}))
"""

# Imported in the same process: each command as a process of its own would take minutes.
HELP_OF_EVERY_COMMAND = """
import contextlib, io, json, sys
from typer.main import get_command
from extentflow.cli import app, main

def command_lines(command, words):
    yield words
    for name, child in getattr(command, "commands", {}).items():
        yield from command_lines(getattr(child, "imported", child), [*words, name])

shown = {}
for words in command_lines(get_command(app), []):
    sys.argv = ["extentflow", *words, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            main()
        except SystemExit as error:
            shown[" ".join(words)] = error.code
print(json.dumps(shown))
"""


# What needs an extra, each tried where there is none; in one process.
MISSING_EXTRAS = """
import json
from typer.main import get_command
from extentflow.aws.msk import TokenSigner
from extentflow.cli import app
from extentflow.errors import Misconfigured
from extentflow.ledger import LedgerOptions, open_ledger

database = LedgerOptions(url="postgresql://localhost/ledger")
tried = {
    "postgres": lambda: open_ledger(database).admin.exists(),
    "aws": lambda: TokenSigner()("eu-central-1"),
    "spark": lambda: get_command(app)(["stream"], standalone_mode=False),
}
reported = {}
for extra, use in tried.items():
    try:
        use()
    except Misconfigured as error:
        reported[extra] = str(error)
print(json.dumps(reported))
"""


class Environment:
    """A virtual environment with the wheel, its requirements and nothing else."""

    def __init__(self, folder: Path, wheel: Path, extras: Sequence[str]) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False, symlinks=True)
        self._pip_install(wheel)
        (self._packages,) = (folder / "lib").glob("python*/site-packages")
        (metadata,) = self._packages.glob("extentflow-*.dist-info")
        for required in required_distributions(PathDistribution(metadata), extras):
            self._link(required)

    def run(self, *words: str, env: dict[str, str] | None = None) -> str:
        """Run a program of the environment outside the checkout; return what it prints."""
        ran = subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            env={"PATH": os.environ["PATH"], **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def _pip_install(self, wheel: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        target = ["--python", str(self.folder / "bin" / "python"), "install"]
        subprocess.run([*pip, *target, "--no-index", "--no-deps", str(wheel)], check=True)

    def _link(self, required: Distribution) -> None:
        """Make an installed distribution importable, without its programs."""
        for name in {file.parts[0] for file in required.files or ()} - {"..", "__pycache__"}:
            link = self._packages / name
            if not link.exists():
                link.symlink_to(Path(str(required.locate_file(name))))


def required_distributions(root: Distribution, extras: Sequence[str]) -> list[Distribution]:
    """Return the distributions that pip would install with `root`, from this environment."""
    found: dict[tuple[str, str], Distribution] = {}
    pending = [(root, extra) for extra in ("", *extras)]
    while pending:
        requiring, for_extra = pending.pop()
        for requirement in map(Requirement, requiring.requires or ()):
            marker = requirement.marker
            if marker is not None and not marker.evaluate({"extra": for_extra}):
                continue
            for each in ("", *requirement.extras):
                if (requirement.name, each) not in found:
                    found[requirement.name, each] = distribution(requirement.name)
                    pending.append((found[requirement.name, each], each))
    return list(found.values())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy: a checkout's `build/` may hold files of older versions."""
    copy, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("layers/core/python", "requirements"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built)]
    subprocess.run([*pip, "wheel", *options, str(copy)], check=True, timeout=SECONDS)
    (wheel,) = built.glob("extentflow-*.whl")
    return wheel


@pytest.fixture(scope="module", params=[(), EXTRAS], ids=["no extra", "every extra"])
def extras(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


without_extras = pytest.mark.parametrize("extras", [()], ids=["no extra"], indirect=True)


@pytest.fixture(scope="module")
def environment(
    extras: tuple[str, ...], wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment") / "venv", wheel, extras)


def test_every_import_of_the_wheel_is_a_declared_requirement(
    environment: Environment, extras: tuple[str, ...]
) -> None:
    report = json.loads(environment.run("python", "-c", IMPORT_EVERY_MODULE))

    assert Path(report["file"]).is_relative_to(environment.folder)
    assert set(report["missing"].values()) <= (set() if extras else OF_SPARK)


@without_extras
def test_what_an_extra_is_missing_for_names_the_command_that_installs_it(
    environment: Environment,
) -> None:
    reported = json.loads(environment.run("python", "-c", MISSING_EXTRAS))

    assert set(reported) == set(EXTRAS)
    assert all(f"{plugins.EXTRAS[name]}'` installs it" in reported[name] for name in EXTRAS)


def test_the_command_and_the_module_are_one_program(environment: Environment) -> None:
    version = f"extentflow {__version__}\n"

    assert environment.run("extentflow", "--version") == version
    assert environment.run("python", "-m", "extentflow", "--version") == version


def test_every_command_of_the_wheel_shows_its_help(environment: Environment) -> None:
    assert "Usage: extentflow" in environment.run("extentflow", "--help")

    shown = json.loads(environment.run("python", "-c", HELP_OF_EVERY_COMMAND))

    assert {"run", "connectors put", "doctor", "status"} <= set(shown)
    assert set(shown.values()) == {0}


def test_the_wheel_does_not_hold_the_local_stack(environment: Environment) -> None:
    (packages,) = environment.folder.glob("lib/python*/site-packages")

    assert not (packages / "extentflow_local").exists()
    assert "up" not in environment.run("extentflow", "--help").split()


@without_extras
def test_the_first_command_delivers_with_nothing_configured(
    environment: Environment, stack: Stack, unique: str, tmp_path: Path
) -> None:
    (tmp_path / "orders.csv").write_text("o_orderkey,total\n1,9.90\n2,5.00\n", encoding="utf-8")
    topic, servers = f"orders-{unique}", stack.endpoint("kafka")
    words = ("run", str(tmp_path / "orders.csv"), "--topic", topic)
    kafka = ("--bootstrap-servers", servers, "--create-topic", "partitions=2")
    home = {"HOME": str(tmp_path)}

    first, second = (
        json.loads(environment.run("extentflow", *words, *kafka, "--json", env=home))
        for _ in range(2)
    )

    batches = read_committed({"bootstrap.servers": servers}, topic)
    values = sorted(record.value or b"" for batch in batches for record in batch)
    assert values == [b'{"o_orderkey":"1","total":"9.90"}', b'{"o_orderkey":"2","total":"5.00"}']
    assert (first["records_this_run"], second["records_this_run"]) == (2, 0)
    assert [job["delivered_before"] for job in second["jobs"]] == [True]
    assert [path.name for path in tmp_path.rglob("ledger.db")] == ["ledger.db"]


@pytest.mark.parametrize("engine", ["inline", pytest.param("spark", marks=pytest.mark.variant)])
def test_the_wheel_delivers_an_object(
    environment: Environment, extras: tuple[str, ...], engine: str, delivery: Delivery
) -> None:
    if engine not in {"inline", *extras}:
        pytest.skip(f"the engine {engine} needs the extra of its name")
    lines = numbered_lines("line ", 2_000)
    delivery.put("lines.txt", joined(lines))
    delivery.connector({"extent.bytes": "8KiB"})
    words = ("run", delivery.address, "--connector", delivery.connector_name)
    # Without PYTHONPATH, which may name the checkout.
    settings = {
        name: value
        for name, value in delivery.environment.items()
        if name.startswith(("AWS_", "EXTENTFLOW_")) or name == "JAVA_HOME"
    }

    output = environment.run("extentflow", *words, "--engine", engine, "--json", env=settings)

    (job,) = json.loads(output)["jobs"]
    assert (job["state"], job["records"]) == ("DONE", len(lines))
    assert sorted(delivery.values()) == sorted(lines)
