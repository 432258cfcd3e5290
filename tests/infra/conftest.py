"""A project to synthesise, and one template per kind of stage for tests that only read it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk.assertions import Template
from tests.support.synthesis import STAGES, Bench

Templates = Callable[[str], Template]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.at(tmp_path)


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    bench = Bench.at(tmp_path_factory.mktemp("project"))
    made: dict[str, Template] = {}

    def template(name: str) -> Template:
        if name not in made:
            made[name] = bench.template(STAGES[name])
        return made[name]

    return template
