"""Pages for people name every alarm and every output of the stack, and no others."""

import re
from pathlib import Path

from tests.infra.conftest import Templates
from tests.support.synthesis import of_type

DOCS = Path(__file__).parents[2] / "docs"
HASH = 8


def test_operations_say_what_to_do_about_every_alarm(templates: Templates) -> None:
    _, _, text = (DOCS / "operations.md").read_text().partition("\n## Alarms\n")

    said = re.findall(r"^\| `(\w+)` \|", text.partition("\n## ")[0], re.MULTILINE)

    made = of_type(templates("plain"), "AWS::CloudWatch::Alarm")
    assert set(said) == {name.removeprefix("Alarms")[:-HASH] for name in made}


def test_deploy_names_every_output(templates: Templates) -> None:
    text = (DOCS / "deploy.md").read_text()

    said = {name for name in re.findall(r"`([A-Z]\w+)`", text) if name.endswith(("Url", "Table"))}

    outputs = templates("plain").to_json()["Outputs"]
    assert said == set(outputs) - {"ReceiverUrl"}
    assert "`ReceiverUrl`" in (DOCS / "storagegrid.md").read_text()
