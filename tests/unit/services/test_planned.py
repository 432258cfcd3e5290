"""The plan of a stage is read from the template that its synthesis wrote."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.planned import DEV

from extentflow.errors import Misconfigured
from extentflow.services.planned import read_planned

PARAMETER = "/cdk-bootstrap/hnb659fds/version"


def template(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    resources = {f"R{number}": {"Type": kind} for number, kind in enumerate(DEV.resources)}
    return {
        "Metadata": DEV.metadata(),
        "Resources": resources,
        "Parameters": {"BootstrapVersion": {"Default": PARAMETER}},
        **changes,
    }


def write(folder: Path, text: str, output: str = "cdk.out") -> None:
    path = folder / output / "extentflow-dev.template.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_a_plan_survives_its_template(tmp_path: Path) -> None:
    write(tmp_path, json.dumps(template()))

    assert read_planned("dev", tmp_path) == DEV


def test_a_plan_without_network_and_spark_survives_its_template(tmp_path: Path) -> None:
    plain = replace(DEV, network=None, spark=None, buckets=())
    write(tmp_path, json.dumps(template(Metadata=plain.metadata())))

    assert read_planned("dev", tmp_path) == plain


def test_the_output_of_cdk_settings_is_read(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text('{"app": "python app.py", "output": "build/cdk.out"}')
    write(tmp_path, json.dumps(template()), "build/cdk.out")

    assert read_planned("dev", tmp_path).name == "dev"


def test_what_was_not_built_is_read(tmp_path: Path) -> None:
    rule = {"Assertions": [{"Assert": {}, "AssertDescription": "run `make layers`"}]}
    parameters = {"DepsLayer": {"Default": "missing"}}
    write(
        tmp_path,
        json.dumps(template(Rules={"DepsLayerIsBuilt": rule}, Parameters=parameters)),
    )

    found = read_planned("dev", tmp_path)

    assert found.unbuilt == ("run `make layers`",)
    assert found.bootstrap is None


JOINED = ("arn:", {"Ref": "AWS::Partition"}, ":iam::", {"Ref": "AWS::AccountId"}, ":policy/b")


@pytest.mark.parametrize(
    ("boundaries", "wanted"),
    [
        ([{"Fn::Join": ["", JOINED]}], "arn:${AWS::Partition}:iam::${AWS::AccountId}:policy/b"),
        (
            [{"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:policy/b"}] * 2,
            "arn:aws:iam::${AWS::AccountId}:policy/b",
        ),
        (["arn:b"], "arn:b"),
        (["arn:b", "arn:c"], None),
        (["arn:b", ""], None),
        ([], None),
    ],
)
def test_the_boundary_is_that_of_all_roles(
    boundaries: list[Any], wanted: str | None, tmp_path: Path
) -> None:
    roles = {
        f"Role{number}": {
            "Type": "AWS::IAM::Role",
            "Properties": {"PermissionsBoundary": one} if one else {},
        }
        for number, one in enumerate(boundaries)
    }
    write(tmp_path, json.dumps(template(Resources=roles)))

    assert read_planned("dev", tmp_path).boundary == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, "make synth STAGE=dev"),
        ("{", "no JSON"),
        ("{}", "another version of extentflow wrote it"),
        (json.dumps(template(Metadata={"extentflow": '{"name": "dev"}'})), "another version"),
    ],
)
def test_without_a_plan_the_way_to_one_is_named(
    text: str | None, wanted: str, tmp_path: Path
) -> None:
    if text is not None:
        write(tmp_path, text)

    with pytest.raises(Misconfigured, match=wanted) as caught:
        read_planned("dev", tmp_path)

    assert str(tmp_path) in str(caught.value)


def test_settings_of_cdk_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text("[]")

    with pytest.raises(Misconfigured, match=r"cdk\.json: no JSON object"):
        read_planned("dev", tmp_path)


def test_a_folder_in_place_of_a_template_is_named(tmp_path: Path) -> None:
    (tmp_path / "cdk.out" / "extentflow-dev.template.json").mkdir(parents=True)

    with pytest.raises(Misconfigured, match=r"extentflow-dev\.template\.json"):
        read_planned("dev", tmp_path)
