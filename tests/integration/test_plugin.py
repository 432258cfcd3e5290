"""A plug-in format, installed as a package, delivers on both engines and through functions."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.delivery import PROGRAM, Delivery
from tests.support.eventpath import Feed, Ground
from tests.support.plugin import build_wheel, install_in_layer

from extentflow.model import JobState

if TYPE_CHECKING:
    pass

ROWS = 2_000
# The transform of the package drops the pairs without a value.
BODY = "".join(f"n{row}:v{row}\nempty:\n" for row in range(ROWS)).encode()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed as in the functions' layer of dependencies."""
    folder = tmp_path_factory.mktemp("packages")
    install_in_layer(build_wheel(tmp_path_factory.mktemp("wheel")), folder)
    return folder


@dataclass(frozen=True)
class Commands:
    """The command line with the example package on its path."""

    delivery: Delivery
    packages: Path
    folder: Path

    def extentflow(self, *words: str) -> str:
        path = os.pathsep.join(filter(None, (str(self.packages), os.environ.get("PYTHONPATH"))))
        environment = {**self.delivery.environment, "PYTHONPATH": path}
        ran = subprocess.run(
            [str(PROGRAM), *words], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def put_connector(self) -> None:
        """Store a connector with a key of the format; the extension selects the format."""
        delivery = self.delivery
        config = {
            "name": delivery.connector_name,
            "topic": delivery.topic,
            "aws.s3.bucket.name": delivery.bucket,
            "aws.s3.prefix": delivery.prefix,
            "aws.s3.endpoint": delivery.stack.endpoint("s3"),
            "acme.separator": ":",
            "transforms": "filled",
            "transforms.filled.type": "acme_has_value",
            "extent.bytes": "4KiB",
        }
        assert delivery.runtime.ledger.id
        file = self.folder / "acme.json"
        file.write_text(json.dumps(config))
        self.extentflow("connectors", "put", str(file))


def assert_every_row_arrived(delivery: Delivery) -> None:
    names = sorted(json.loads(value)["name"] for value in delivery.values())
    assert names == sorted(f"n{row}" for row in range(ROWS))


@pytest.mark.parametrize("engine", ["inline", "spark"])
@pytest.mark.long
def test_an_installed_format_is_delivered(
    delivery: Delivery, packages: Path, tmp_path: Path, engine: str
) -> None:
    commands = Commands(delivery, packages, tmp_path)
    delivery.put("rows.acme", BODY)
    commands.put_connector()

    words = ("run", delivery.address, "--connector", delivery.connector_name)
    output = commands.extentflow(*words, "--engine", engine, "--json")

    (job,) = json.loads(output)["jobs"]
    assert (job["state"], job["records"]) == ("DONE", ROWS)
    assert job["extents"] > 1
    assert_every_row_arrived(delivery)


@pytest.mark.long
def test_functions_deliver_the_format_of_a_package_in_their_layer(
    ground: Ground, packages: Path, tmp_path: Path, unique: str
) -> None:
    with ground.open(layers=[packages]) as path:
        feed = Feed(path, path.delivery(unique))
        Commands(feed.delivery, packages, tmp_path).put_connector()

        job = feed.await_state(feed.upload("rows.acme", BODY), JobState.DONE)

        assert job.plan.count > 1
        assert_every_row_arrived(feed.delivery)
