"""The plan that a template carries is that of its stage, and asks about all that it creates."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from infra.plan import plan
from infra.stages import STAGES as EXAMPLES
from tests.infra.conftest import Templates
from tests.support.planned import DEV
from tests.support.synthesis import STAGES

from extentflow.services.account_checks import CREATES
from extentflow.services.planned import read_planned

# Made by functions of the stack, not by CloudFormation.
OWN = ("Custom", "AWS::CloudFormation")


def test_the_plan_of_the_example_is_the_one_that_recorded_accounts_describe() -> None:
    assert plan(EXAMPLES[0]) == replace(DEV, resources=(), bootstrap=None)


@pytest.mark.parametrize("name", STAGES)
def test_a_template_carries_the_plan_of_its_stage(
    name: str, templates: Templates, tmp_path: Path
) -> None:
    path = tmp_path / "cdk.out" / f"extentflow-{name}.template.json"
    path.parent.mkdir()
    path.write_text(json.dumps(templates(name).to_json()))

    found = read_planned(name, tmp_path)

    assert found == replace(
        plan(STAGES[name]), resources=found.resources, bootstrap=found.bootstrap
    )
    asked = {kind.rpartition("::")[0] for kind in CREATES}
    made = {kind.rpartition("::")[0] for kind in found.resources}
    assert made - asked <= {*OWN}
    assert found.bootstrap == DEV.bootstrap
