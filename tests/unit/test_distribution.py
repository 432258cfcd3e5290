"""What is installed from where: extras, requirement files, the image of workers, what pages say."""

import json
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DYNAMIC = PROJECT["tool"]["setuptools"]["dynamic"]
EXTRAS = DYNAMIC["optional-dependencies"]
SCRIPTS = PROJECT["project"]["scripts"]
# `pip install 'extentflow[spark,aws]'`, in a checkout '.[spark]'; what writes the former.
INSTALLED = re.compile(r"""(?:extentflow\[|'\.\[|from_extra\(")([a-z]+(?:,[a-z]+)*)(?:\]|", )""")
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
    *copied, wheels = instructions("COPY")
    sources = {word for line in copied for word in line.split()[:-1]}

    assert wheels == "--from=wheel /wheels /wheels"
    project = PROJECT["project"]
    assert sources == {
        "pyproject.toml",
        project["readme"],
        *project["license-files"],
        *{str(file.parent.relative_to(ROOT)) for file in of_the_wheel()},
        *PROJECT["tool"]["setuptools"]["packages"]["find"]["where"],
    }
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_installs_extras_that_exist_and_starts_the_command() -> None:
    arguments = dict(line.split("=", 1) for line in instructions("ARG"))
    (entry_point,) = instructions("ENTRYPOINT")
    (install,) = (line for line in instructions("RUN") if "pip install" in line)

    assert set(arguments["EXTRAS"].split(",")) == set(EXTRAS)
    assert install.endswith('"$(ls /wheels/extentflow-*.whl)[$EXTRAS]"')
    assert json.loads(entry_point) == list(SCRIPTS)
    assert 'PATH="/opt/extentflow/bin:$PATH"' in instructions("ENV")
    assert "python -m venv /opt/extentflow " in install
