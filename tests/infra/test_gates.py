"""What has to be clean before a deployment: cdk-nag, cfn-lint, cfn-guard, offline synthesis."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_sqs as sqs
from infra.project import Project
from tests.support.control_tower import ControlTower
from tests.support.synthesis import PLAIN, STAGES, Bench, checked_app

ROOT = Project().root

# Findings that are meant to be, and nothing else; the reasons stand beside the constructs.
ACCEPTED = {
    "AwsSolutions-APIG1": {"rest"},
    "AwsSolutions-APIG2": {"rest"},
    "AwsSolutions-APIG4": {"plain", "vpc", "spark", "rest", "canary", "brokers"},
    "AwsSolutions-APIG6": {"rest"},
    "AwsSolutions-COG4": {"rest"},
    "AwsSolutions-IAM5": set(STAGES),
    "AwsSolutions-L1": set(STAGES),
    "AwsSolutions-S1": set(STAGES),
    "AwsSolutions-SNS2": {"plain", "vpc", "spark", "canary", "brokers"},
}
# What AWS Control Tower's proactive controls refuse of these stages, and why it stays.
IN_ALL = set(STAGES)
ACCEPTED_CONTROLS: Mapping[str, tuple[set[str], str]] = {
    "CT.APIGATEWAY.PR.1": ({"rest"}, "execution logs would hold notifications and keys of senders"),
    "CT.APIGATEWAY.PR.2": ({"rest"}, "traces cost money; `tracing` of a stage turns them on"),
    "CT.APIGATEWAY.PR.5": (
        {"plain", "vpc", "spark", "canary", "brokers"},
        "senders have no identity in AWS; the receiver checks the proof of each request",
    ),
    "CT.CLOUDWATCH.PR.1": (
        {"canary"},
        "alarms of a deployment take it back; operators are notified by others",
    ),
    "CT.CLOUDWATCH.PR.2": (IN_ALL, "a year of logs costs money; `log_days` of a stage decides"),
    "CT.CLOUDWATCH.PR.3": (
        IN_ALL - {"rest"},
        "log groups are encrypted by AWS's key, or by `kms_key_arn` of a stage",
    ),
    "CT.DYNAMODB.PR.2": (
        IN_ALL - {"rest", "existing"},
        "tables are encrypted by AWS's key, or by `kms_key_arn` of a stage",
    ),
    "CT.LAMBDA.PR.2": (
        IN_ALL - {"existing"},
        "permissions have a SourceArn; the rule reads none that Fn::Join makes",
    ),
    "CT.LAMBDA.PR.3": (
        IN_ALL,
        "only functions that connect to brokers need a VPC; `network` of a stage decides",
    ),
    "CT.S3.PR.2": (IN_ALL, "access to objects is logged by CloudTrail, if their owner wants it"),
    "CT.S3.PR.9": (IN_ALL, "a lock would forbid `after.completion` to delete and move objects"),
    "CT.S3.PR.10": (
        IN_ALL - {"rest"},
        "new buckets are encrypted by S3's key, or by `kms_key_arn` of a stage",
    ),
    "CT.SQS.PR.1": (IN_ALL, "the queues without a dead letter queue are dead letter queues"),
}
# A dependency that CDK writes although a reference implies it.
REDUNDANT_DEPENDENCY = "W3005"
SYNTHESIS_SECONDS = 60


Checked = Callable[[str], Path]
FURTHER = ("plain", "vpc")  # other stages have all that these have
EACH = pytest.mark.parametrize(
    "stage",
    [pytest.param(name, marks=pytest.mark.variant if name in FURTHER else ()) for name in STAGES],
)
SOME = pytest.mark.parametrize(
    "chosen",
    [
        tuple(name for name in STAGES if name not in FURTHER),
        pytest.param(FURTHER, marks=pytest.mark.variant),
    ],
    ids="-".join,
)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """Return a stage's template, after cdk-nag has found nothing unexplained in it."""
    bench = Bench.at(tmp_path_factory.mktemp("project"))

    @cache
    def template(name: str) -> Path:
        out = tmp_path_factory.mktemp(name)
        app = checked_app(out)
        bench.stack(STAGES[name], app)
        app.synth()
        return out / f"extentflow-{name}.template.json"

    return template


def accepted(template: Path) -> list[dict[str, Any]]:
    """Return every finding that the template says was accepted."""
    resources = json.loads(template.read_text())["Resources"].values()
    return [
        finding
        for resource in resources
        for finding in resource.get("Metadata", {}).get("cdk_nag", {}).get("rules_to_suppress", [])
    ]


@EACH
def test_cdk_nag_finds_nothing_that_is_not_explained(checked: Checked, stage: str) -> None:
    found = accepted(checked(stage))

    rules = {finding["id"].partition("[")[0] for finding in found}

    assert rules == {rule for rule, stages in ACCEPTED.items() if stage in stages}


@EACH
def test_every_accepted_finding_has_a_reason(checked: Checked, stage: str) -> None:
    found = accepted(checked(stage))

    assert found
    assert all(len(finding["reason"].split()) > 5 for finding in found)


def test_cdk_nag_would_find_a_queue_without_encryption_in_transit(
    bench: Bench, tmp_path: Path
) -> None:
    app = checked_app(tmp_path / "out")
    sqs.Queue(bench.stack(PLAIN, app), "Careless")

    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()

    report = (tmp_path / "out" / "validation-report.json").read_text()
    assert set(re.findall(r"AwsSolutions-\w+", report)) == {
        "AwsSolutions-SQS3",
        "AwsSolutions-SQS4",
    }


def lint(*templates: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("cfn-lint")
    command = [str(program), "--ignore-checks", REDUNDANT_DEPENDENCY, "--template"]
    return subprocess.run(
        [*command, *map(str, templates)], capture_output=True, text=True, check=False
    )


@SOME
def test_templates_are_clean_under_cfn_lint_which_would_find_a_wrong_property(
    checked: Checked, tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    """One run, because cfn-lint takes seconds to start."""
    *clean, last = chosen
    text = checked(last).read_text()
    broken = tmp_path / "broken.json"
    broken.write_text(text.replace('"BatchSize": 1,', '"BatchSize": "many",'))

    found = lint(*map(checked, clean), broken)

    (problem,) = found.stdout.strip().split("\n\n")
    assert broken.read_text() != text
    assert found.returncode != 0
    assert "'many' is not of type 'integer'" in problem
    assert f"\n{broken}:" in problem


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> ControlTower:
    return ControlTower.unpacked(tmp_path_factory.mktemp("guard"))


@SOME
def test_control_tower_refuses_only_what_is_explained(
    checked: Checked, guard: ControlTower, chosen: tuple[str, ...]
) -> None:
    """A company's account may have these controls: CloudFormation then refuses what they find."""
    stages = {checked(stage): stage for stage in chosen}

    refused = guard.refused(stages)

    found = {
        control: {stages[path] for path, controls in refused.items() if control in controls}
        for controls in refused.values()
        for control in controls
    }
    accepted = {control: where & {*chosen} for control, (where, _) in ACCEPTED_CONTROLS.items()}
    assert found == {control: where for control, where in accepted.items() if where}
    assert all(len(reason.split()) > 5 for _, reason in ACCEPTED_CONTROLS.values())


def test_control_tower_would_refuse_a_table_without_backups(
    checked: Checked, guard: ControlTower, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    backup = '"PointInTimeRecoveryEnabled": true'
    text = checked("canary").read_text()
    assert backup in text
    broken.write_text(text.replace(backup, '"PointInTimeRecoveryEnabled": false'))

    refused = guard.refused([broken])

    assert "CT.DYNAMODB.PR.1" in refused[broken]


def test_the_project_is_synthesised_without_network_and_credentials(tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    kept = ("PATH", "HOME", "JSII_NODE", "LANG")
    environment = {
        **{name: os.environ[name] for name in kept if name in os.environ},
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), nowhere),
        "AWS_CONFIG_FILE": str(tmp_path / "absent"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "absent"),
        "CDK_OUTDIR": str(tmp_path / "out"),
        # The library of this checkout, not one that is installed from another one.
        "PYTHONPATH": str(ROOT / "layers/core/python"),
    }
    started = time.monotonic()

    ran = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert time.monotonic() - started < SYNTHESIS_SECONDS
    written = json.loads((tmp_path / "out" / "extentflow-dev.template.json").read_text())
    assert "Custom::ExtentflowConnector" in {one["Type"] for one in written["Resources"].values()}


def test_the_application_is_short() -> None:
    assert len((ROOT / "app.py").read_text().splitlines()) <= 25


def test_the_cdk_command_line_is_pinned_and_its_lock_names_no_address() -> None:
    asked = json.loads((ROOT / "package.json").read_text())["devDependencies"]["aws-cdk"]
    lock = (ROOT / "package-lock.json").read_text()

    locked = json.loads(lock)["packages"]["node_modules/aws-cdk"]

    assert re.fullmatch(r"\d+\.\d+\.\d+", asked)
    assert locked["version"] == asked
    assert locked["integrity"].startswith("sha512-")
    assert "http" not in lock
