"""What commands open first: a runtime, of settings or of servers that run on this machine."""

from collections.abc import Mapping

from extentflow.cli import output
from extentflow.wiring import Runtime
from extentflow.wiring.environments import use_running_servers


def open_runtime(given: Mapping[str, str] | None = None, *, creates: bool = True) -> Runtime:
    """Return the runtime of a command; `given` are settings of its options, over all others.

    `creates` False: the user's own ledger is not created where it is missing.
    """
    if not given:
        use_running_servers(output.note)
    return Runtime.from_environment(given, notify=output.note, creates=creates)
