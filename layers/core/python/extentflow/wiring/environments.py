"""Servers that run on this machine, for commands to which no setting names any.

    [project.entry-points."extentflow.environments"]
    local = "extentflow_local.found:running_stack"

An entry point refers to a function without arguments that returns `FoundServers`, or None. It is
called only where neither a variable of extentflow, a file of settings nor an option is there.
"""

import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from extentflow.config.files import read_owned
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import configured_by
from extentflow.errors import ExtentflowError
from extentflow.ledger import LedgerOptions, open_ledger
from extentflow.plugins import ENVIRONMENTS, Registry

# Variables that select another account or server than those of the servers that were found.
OF_AWS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL")
# Whatever region they name, local servers take it.
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
MOST_COUNTED = 1_000


@dataclass(frozen=True, slots=True)
class FoundServers:
    """Servers, in words, and the variables with which commands use them.

    `parts` says which servers and which ledger, `switch` how to leave them out. Without variables,
    they do not run: `parts` says what their ledger records, and how to start them.
    """

    name: str
    parts: str
    variables: Mapping[str, str]
    switch: str


Find = Callable[[], FoundServers | None]
FINDERS: Registry[Find] = Registry(ENVIRONMENTS, "environment")


def use_running_servers(
    notify: Callable[[str], object],
    *,
    environ: MutableMapping[str, str] = os.environ,
    finders: Registry[Find] = FINDERS,
) -> None:
    """Set the variables of servers that run on this machine, unless anything is configured.

    Reports what is used, and which variable prevents it. A second call finds its own variables.
    """
    if configured_by(environ, read_owned) is not None:
        return
    for name in finders.names():
        found = finders.get(name)()
        if found is None:
            continue
        if not found.variables:
            notify(f"{found.name} does not run, and its ledger is not used: {found.parts}")
            continue
        if (other := _other_servers(environ, found.variables)) is not None:
            notify(
                f"{found.name} is not used, because {other} is set; unset it, or set"
                " EXTENTFLOW_BOOTSTRAP_SERVERS for a cluster of your own"
            )
            continue
        for variable, text in found.variables.items():
            environ.setdefault(variable, text)
        notify(f"using {found.name}: {found.parts}; {found.switch} leaves it out")
        return


def _other_servers(environ: Mapping[str, str], variables: Mapping[str, str]) -> str | None:
    """Return the first variable that selects other servers than `variables` do."""
    known = [name for name in variables if name.startswith("AWS_") and name not in REGIONS]
    for name in dict.fromkeys((*OF_AWS, *known)):
        if environ.get(name) and environ[name] != variables.get(name):
            return name
    return None


def other_ledger(
    used: LedgerAddress | None = None, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Return what the user's own ledger records, and how to use it; None: it is used, or empty."""
    try:
        own = LedgerAddress.in_state_folder(environ)
    except ExtentflowError:  # unusable; it is not what the command needs
        return None
    found = None if used == own else recorded(own.path)
    return found and f"{found}: EXTENTFLOW_LEDGER_URL={own} uses it"


def recorded(path: Path) -> str | None:
    """Return what a ledger of SQLite records, in words; None: no job, or it cannot be used."""
    try:
        count = count_jobs(path)
    except ExtentflowError:
        return None
    more = " or more" if count == MOST_COUNTED else ""
    jobs = f"{count:,} job{'' if count == 1 else 's'}{more}"
    return f"{path} records {jobs}" if count else None


def count_jobs(path: Path) -> int:
    """Return how many jobs a ledger of SQLite records, at most MOST_COUNTED; 0 without the file."""
    if not path.exists():
        return 0
    ledger = open_ledger(LedgerOptions(url=LedgerAddress.of_file(path).url))
    return sum(1 for _ in islice(ledger.jobs.list(), MOST_COUNTED))
