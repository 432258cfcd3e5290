"""A plug-in format, installed as a package, delivers through `extentflow run` on both engines."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.delivery import PROGRAM, Delivery

from extentflow_local.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "extentflow-acme"
ROWS = 2_000


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed from a copy into a folder of its own."""
    copy = tmp_path_factory.mktemp("example") / EXAMPLE.name
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("*.egg-info", "build"))
    folder = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([*pip, *options, str(copy)], check=True)
    return folder


@pytest.fixture
def delivery(stack: Stack, s3: "S3Client", bucket: str, unique: str) -> Delivery:
    return Delivery(stack, s3, bucket, unique)


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_an_installed_format_is_delivered(
    delivery: Delivery, packages: Path, tmp_path: Path, engine: str
) -> None:
    delivery.put("rows.acme", "".join(f"n{row}:v{row}\n" for row in range(ROWS)).encode())
    assert delivery.runtime.ledger.id
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    environment = {**delivery.environment, "PYTHONPATH": path}
    config = {
        "name": delivery.connector_name,
        "topic": delivery.topic,
        "aws.s3.bucket.name": delivery.bucket,
        "aws.s3.prefix": delivery.prefix,
        "aws.s3.endpoint": delivery.stack.endpoint("s3"),
        "acme.separator": ":",
        "extent.bytes": "4KiB",
    }
    (tmp_path / "acme.json").write_text(json.dumps(config))

    def extentflow(*words: str) -> str:
        ran = subprocess.run(
            [str(PROGRAM), *words], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    extentflow("connectors", "put", str(tmp_path / "acme.json"))
    words = ("run", delivery.address, "--connector", delivery.connector_name)
    output = extentflow(*words, "--engine", engine, "--json")

    (job,) = json.loads(output)["jobs"]
    assert (job["state"], job["records"]) == ("DONE", ROWS)
    assert job["extents"] > 1
    names = sorted(json.loads(value)["name"] for value in delivery.values())
    assert names == sorted(f"n{row}" for row in range(ROWS))
