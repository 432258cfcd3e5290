"""Stages outside of a checkout: the installed package, a file of ten lines, an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from extentflow.services.planned import read_planned

ROOT = Path(__file__).parents[2]
APP = """\
from extentflow_cdk.config import Auth, Bucket, Cluster, Stage
from extentflow_cdk.synthesis import synthesise

synthesise(
    Stage(
        name="mine",
        region="eu-central-1",
        app_id="extentflow-mine",
        buckets=(Bucket(name="acme-landing"),),
        cluster=Cluster(bootstrap_servers="kafka.acme.example:9092", auth=Auth.NONE),
    )
)
"""
CONNECTOR = "name: orders\ntopic: orders\naws.s3.bucket.name: acme-landing\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package as `pip install ./infra` does, and return the folder that has it."""
    folder = tmp_path_factory.mktemp("site-packages")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(ROOT / "infra")], check=True)
    return folder


def run(folder: Path, installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with the installed package and without the checkout's."""
    environment = {key: value for key, value in os.environ.items() if key != "CDK_OUTDIR"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_a_stage_of_ten_lines_is_synthesised_in_an_empty_folder(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)

    refused = run(tmp_path, installed, "app.py")

    assert refused.returncode == 1
    assert f"error: stage mine: {tmp_path}/connectors: it is not a folder" in refused.stderr

    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors/orders.yaml").write_text(CONNECTOR)
    (tmp_path / "layers/core").mkdir(parents=True)
    (tmp_path / "layers/core/grid-ca.pem").write_text("a certificate")

    made = run(tmp_path, installed, "app.py")

    assert made.returncode == 0, made.stderr
    planned = read_planned("mine", tmp_path)
    assert planned.buckets[0].name == "acme-landing"
    assert "run `python -m extentflow_cdk layers`" in planned.unbuilt[0]
    template = json.loads((tmp_path / "cdk.out/extentflow-mine.template.json").read_text())
    kinds = {one["Type"] for one in template["Resources"].values()}
    assert {"AWS::Lambda::Function", "Custom::ExtentflowConnector"} <= kinds
    core = tmp_path / "build/extentflow/layers/core"
    assert (core / "python/extentflow/__init__.py").is_file()
    assert (core / "grid-ca.pem").is_file()
    assert not (installed / "extentflow_cdk/stages.py").exists()


@pytest.mark.long
def test_artifacts_are_built_by_the_package(installed: Path, tmp_path: Path) -> None:
    asked = run(tmp_path, installed, "-m", "extentflow_cdk")

    assert asked.returncode == 1
    assert asked.stderr == "usage: python -m extentflow_cdk layers|spark-archive|lookup ARN\n"


def test_modules_of_the_stack_do_not_name_the_checkout() -> None:
    """The package has another name where it is installed."""
    for path in (ROOT / "infra").rglob("*.py"):
        if path.name not in ("stages.py", "setup.py"):
            assert "\nfrom infra" not in path.read_text(), path
