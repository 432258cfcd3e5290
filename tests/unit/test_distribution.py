"""What is installed from where: extras, requirement files, the image of workers, what pages say."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from extentflow import plugins

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DYNAMIC = PROJECT["tool"]["setuptools"]["dynamic"]
EXTRAS = DYNAMIC["optional-dependencies"]
SCRIPTS = PROJECT["project"]["scripts"]
# `pip install '.[spark,aws]'` of a checkout; what names the packages of an extra.
INSTALLED = re.compile(r"""(?:extentflow\[|'\.\[|from_extra\(")([a-z]+(?:,[a-z]+)*)(?:\]|", )""")
# What needs a package that is not always installed: its extra, or nothing; its name; a command or,
# in Python, a call.
OPTIONAL = {
    "run": ("spark", "pyspark", ["run", "a.txt", "--topic", "t", "--engine", "spark"]),
    "stream": ("spark", "pyspark", ["stream"]),
    "lake": ("spark", "pyspark", ["lake", "t", "--to", "lake"]),
    "status": ("postgres", "psycopg", ["status", "--ledger", "postgresql://me@127.0.0.1:1/db"]),
    "deliver": (
        "spark",
        "pyspark",
        "extentflow.Extentflow().deliver(connector='c', engine='spark')",
    ),
    "ledger": (
        "postgres",
        "psycopg",
        "extentflow.Extentflow({**SERVERS, 'ledger.url': 'postgresql://me@127.0.0.1:1/db'}).init()",
    ),
    "pandas": ("", "pandas", "next(extentflow.TopicConsumer(SERVERS, 't', group='g').pandas())"),
    "polars": ("", "polars", "next(extentflow.TopicConsumer(SERVERS, 't', group='g').polars())"),
    # Last: it sets variables.
    "tail": ("aws", "aws_msk_iam_sasl_signer", ["tail", "t"]),
}
# In one process without any of the packages, whose imports fail as where they are not installed.
WITHOUT = """
import contextlib, io, json, os, sys
from pathlib import Path

IAM = {
    "EXTENTFLOW_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "EXTENTFLOW_KAFKA_SASL_MECHANISM": "AWS_MSK_IAM",
    "AWS_REGION": "eu-central-1",
}
OPTIONAL, HIDDEN = json.loads(sys.argv[1])

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import extentflow
from extentflow.cli import app, run_command_line

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
Path("a.txt").write_text("a")
extentflow.Extentflow().connectors.put(
    {"name": "c", "topic": "t", "endpoint.type": "localfile", "directory": str(Path.cwd())}
)
reported = {}
for name, (extra, _, use) in OPTIONAL.items():
    os.environ.update(IAM if extra == "aws" else {})
    with contextlib.redirect_stderr(io.StringIO()) as said:
        if isinstance(use, list):
            code = run_command_line(app, use)
        else:
            try:
                code = eval(use)
            except extentflow.Misconfigured as error:
                code = 2
                print("error:", error, file=sys.stderr)
    reported[name] = [code, said.getvalue()]
print(json.dumps(reported))
"""
CONTAINERFILE = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8")


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of a name in the recipe, on one line."""
    recipe = re.sub(r"^#.*\n", "", CONTAINERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", recipe, re.MULTILINE)


def included(file: Path) -> Iterator[Path]:
    """A requirement file, and those that it includes."""
    yield file
    for name in re.findall(r"^-r (\S+)", file.read_text(encoding="utf-8"), re.MULTILINE):
        yield from included((file.parent / name).resolve())


def of_the_wheel() -> set[Path]:
    files = [*DYNAMIC["dependencies"]["file"], *(f for one in EXTRAS.values() for f in one["file"])]
    return {ROOT / file for file in files}


def named_extras() -> Iterator[tuple[Path, str]]:
    patterns = ("README.md", "docs/**/*.md", "deploy/**/*", "layers/core/python/**/*.py")
    for file in (file for pattern in patterns for file in sorted(ROOT.glob(pattern))):
        if file.is_file():
            for found in INSTALLED.findall(file.read_text(encoding="utf-8")):
                yield from ((file.relative_to(ROOT), extra) for extra in found.split(","))


def test_pages_and_messages_name_extras_that_exist() -> None:
    named = list(named_extras())

    assert {extra for _, extra in named} == set(EXTRAS)
    assert [(str(file), extra) for file, extra in named if extra not in EXTRAS] == []


def test_messages_name_the_packages_that_an_extra_requires() -> None:
    required = {
        extra: [
            line
            for file in found["file"]
            for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
            if line and not line.startswith("#")
        ]
        for extra, found in EXTRAS.items()
    }

    assert required == {extra: [package] for extra, package in plugins.EXTRAS.items()}


def test_what_lacks_an_optional_package_names_it_and_a_command_that_installs_it(
    tmp_path: Path,
) -> None:
    """Each package that is not always installed, from the command line and from Python."""
    hidden = [*{package for _, package, _ in OPTIONAL.values()}, "py4j"]
    variables = {
        "XDG_STATE_HOME": str(tmp_path),
        "EXTENTFLOW_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    words = [sys.executable, "-c", WITHOUT, json.dumps([OPTIONAL, hidden])]
    ran = subprocess.run(
        words,
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    reported = json.loads(ran.stdout)
    for name, (extra, package, _) in OPTIONAL.items():
        code, said = reported[name]
        errors = [line for line in said.splitlines() if not line.startswith("note: ")]
        assert (code, len(errors)) == (2, 1), (name, said)
        assert package in errors[0]
        assert f"{plugins.EXTRAS[extra] if extra else package}'` installs it" in errors[0]
    assert {extra for extra, _, _ in OPTIONAL.values()} - {""} == set(EXTRAS)


def test_the_environment_of_a_checkout_has_every_extra() -> None:
    assert of_the_wheel() <= set(included(ROOT / "requirements" / "dev.in"))


@pytest.mark.parametrize("deployed", ["lambda", "emr"])
def test_what_runs_in_aws_can_sign_tokens_for_its_brokers(deployed: str) -> None:
    files = set(included(ROOT / "requirements" / f"{deployed}.in"))

    assert {ROOT / "requirements" / name for name in ("runtime.in", "aws.in")} <= files


def test_the_command_and_the_module_are_one_program() -> None:
    module, _, function = SCRIPTS["extentflow"].partition(":")

    assert import_module("extentflow.__main__").main is getattr(import_module(module), function)


def test_the_image_is_built_from_all_that_the_wheel_is_built_from() -> None:
    *copied, environment = instructions("COPY")
    sources = {word for line in copied for word in line.split()[:-1]}

    assert environment == "--from=build /opt/extentflow /opt/extentflow"
    project = PROJECT["project"]
    assert sources == {
        "pyproject.toml",
        project["readme"],
        *project["license-files"],
        *{str(file.parent.relative_to(ROOT)) for file in of_the_wheel()},
        *PROJECT["tool"]["setuptools"]["packages"]["find"]["where"],
    }
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_starts_the_command() -> None:
    (entry_point,) = instructions("ENTRYPOINT")
    environments = [line for line in instructions("RUN") if "python -m venv " in line]

    assert json.loads(entry_point) == list(SCRIPTS)
    assert 'PATH="/opt/extentflow/bin:$PATH"' in instructions("ENV")
    assert [line.split("&&")[0].strip() for line in environments] == [
        "python -m venv /opt/extentflow"
    ]


def test_the_image_is_made_of_what_has_been_checked() -> None:
    bases = {line.split()[0] for line in instructions("FROM")}
    installs = [
        part
        for line in instructions("RUN")
        for part in line.split("&&")
        if re.search(r"pip\w* (?:install|wheel|download)", part)
    ]

    # Without a default, so that who builds it names a digest.
    assert bases == {"${BASE}"}
    assert "BASE" in instructions("ARG")
    assert any("*@sha256:*) ;;" in line and "exit 1" in line for line in instructions("RUN"))
    assert len(installs) == 3
    assert all("--require-hashes" in one or "--no-index --no-deps" in one for one in installs)


def pinned(name: str) -> dict[str, str]:
    """The version of each requirement in a lock; each must have a hash."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and line.lstrip()[0] not in "#-"]
    assert all("--hash=sha256:" in line for line in lines)
    return dict(line.split(" ")[0].split("==") for line in lines)


@pytest.mark.parametrize("name", ["build", "image"])
def test_the_image_has_the_versions_that_are_tested(name: str) -> None:
    (ours, tested) = (pinned(f"{lock}.txt") for lock in (name, "dev"))

    assert ours.items() <= tested.items()
    installed = " ".join(instructions("RUN"))
    assert "--require-hashes " in installed
    assert f"-r requirements/{name}.txt" in installed


def test_the_image_has_every_extra() -> None:
    assert of_the_wheel() <= set(included(ROOT / "requirements" / "image.in"))
