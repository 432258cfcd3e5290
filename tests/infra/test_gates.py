"""What has to be clean before anything is deployed: cdk-nag, cfn-lint, offline synthesis."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_sqs as sqs
from infra.project import Project
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
# A dependency that CDK writes although a reference implies it.
REDUNDANT_DEPENDENCY = "W3005"
SYNTHESIS_SECONDS = 60


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return each stage's template, after cdk-nag has found nothing unexplained in it."""
    bench = Bench.at(tmp_path_factory.mktemp("project"))
    found: dict[str, Path] = {}
    for name, stage in STAGES.items():
        out = tmp_path_factory.mktemp(name)
        app = checked_app(out)
        bench.stack(stage, app)
        app.synth()
        found[name] = out / f"extentflow-{name}.template.json"
    return found


def accepted(template: Path) -> list[dict[str, Any]]:
    """Return every finding that the template says was accepted."""
    resources = json.loads(template.read_text())["Resources"].values()
    return [
        finding
        for resource in resources
        for finding in resource.get("Metadata", {}).get("cdk_nag", {}).get("rules_to_suppress", [])
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_cdk_nag_finds_nothing_that_is_not_explained(checked: dict[str, Path], stage: str) -> None:
    found = accepted(checked[stage])

    rules = {finding["id"].partition("[")[0] for finding in found}

    assert rules == {rule for rule, stages in ACCEPTED.items() if stage in stages}


@pytest.mark.parametrize("stage", STAGES)
def test_every_accepted_finding_has_a_reason(checked: dict[str, Path], stage: str) -> None:
    found = accepted(checked[stage])

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


def test_templates_are_clean_under_cfn_lint(checked: dict[str, Path]) -> None:
    found = lint(*checked.values())

    assert (found.stdout, found.returncode) == ("", 0), found.stdout


def test_cfn_lint_would_find_a_wrong_property(checked: dict[str, Path], tmp_path: Path) -> None:
    text = checked["plain"].read_text()
    broken = tmp_path / "broken.json"
    broken.write_text(text.replace('"BatchSize": 1,', '"BatchSize": "many",'))

    found = lint(broken)

    assert broken.read_text() != text
    assert found.returncode != 0
    assert "'many' is not of type 'integer'" in found.stdout


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
