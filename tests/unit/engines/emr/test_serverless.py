"""EMR Serverless behind the port of remote engines: who names it, and what the registry returns."""

import re
from pathlib import Path

import extentflow
from extentflow.engines import run_service
from extentflow.engines.emr.serverless import EMR_SERVERLESS

LIBRARY = Path(extentflow.__file__).parent
# What a user reads: the settings of its application, the option --engine, the checks of a stage.
FOR_USERS = {
    "cli/option_groups.py",
    "config/worker.py",
    "plugins.py",
    "services/account_checks.py",
    "services/deployed.py",
    "services/network_checks.py",
}


def test_only_its_adapter_and_texts_for_users_name_emr() -> None:
    named = {
        path.relative_to(LIBRARY).as_posix()
        for path in LIBRARY.rglob("*.py")
        if re.search(r"(?<![a-z])emr(?![a-z])", path.read_text(encoding="utf-8"), re.IGNORECASE)
    }

    assert {one for one in named if not one.startswith("engines/emr/")} == FOR_USERS


def test_the_registry_says_which_engines_are_remote() -> None:
    found = {name: run_service(name) for name in ("emr", "inline", "spark", "unheard-of")}

    assert found == {"emr": EMR_SERVERLESS, "inline": None, "spark": None, "unheard-of": None}
