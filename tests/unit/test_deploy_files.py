"""Units, manifest and their examples use what there is."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from tests.support.declared import CONFIGURED, DEPLOY, INSTALLED, Declared, of_manifest, of_unit
from tests.unit.test_docs import blocks

from extentflow.cli import app
from extentflow.config.files import parse_text
from extentflow.config.worker import load
from extentflow.discovery.sources import SecretPathProof, declared
from extentflow.wiring import check_connector

PAGE = DEPLOY.parent / "docs" / "on-premises.md"
SERVICES = ("extentflow-receive", "extentflow-stream")

both = pytest.mark.parametrize("read", [of_unit, of_manifest])
services = pytest.mark.parametrize("name", SERVICES)


@both
@services
def test_a_declared_command_exists_with_its_options(
    read: Callable[[str], Declared], name: str
) -> None:
    program, *words = read(name).command

    command = typer.main.get_command(app).commands[words.pop(0)]  # type: ignore[attr-defined]
    options = {option for parameter in command.imported.params for option in parameter.opts}
    assert program == f"{INSTALLED}extentflow"
    assert {word for word in words if word.startswith("--")} <= options


@both
@services
def test_every_declared_variable_is_a_setting(read: Callable[[str], Declared], name: str) -> None:
    found = load(read(name).environment, read_text=lambda _path: None)

    assert found.ledger_url is not None
    assert found.ledger_url.scheme == "postgresql"
    assert found.ledger_password == f"${{file:{CONFIGURED}ledger.properties:password}}"


def test_the_example_files_of_the_manifest_are_what_the_page_describes() -> None:
    files = of_manifest("extentflow-receive").files

    (source,) = declared(files["sources.json"])
    assert isinstance(source.proof, SecretPathProof)
    assert parse_text(files["ledger.properties"], "ledger.properties").keys() == {"password"}
    keys = set(re.findall(r"grid\.properties:(\w+)", PAGE.read_text()))
    assert parse_text(files["grid.properties"], "grid.properties").keys() == keys


def test_the_connector_of_the_page_is_one() -> None:
    (example,) = blocks(PAGE, "yaml")

    assert check_connector(parse_text(example, "grid.yaml")).endpoint_type == "storagegrids3"


def test_units_name_no_file_that_the_page_does_not_explain() -> None:
    named = {
        Path(file).name
        for name in SERVICES
        for file in re.findall(rf"{CONFIGURED}[\w.-]+", " ".join(of_unit(name).command))
    }

    assert named - {"receiver.pem", "receiver.key"} <= set(re.findall(r"[\w.-]+", PAGE.read_text()))
