"""What commands open first: a runtime, of settings or of servers that run on this machine.

Tests: unit/cli/test_command_line.py, unit/cli/test_settings_problems.py
"""

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions
from extentflow.wiring import Runtime
from extentflow.wiring.environments import use_running_servers


def open_runtime(servers: ServerOptions = ServerOptions(), *, creates: bool = True) -> Runtime:  # noqa: B008 - frozen
    """Return the runtime of a command; the given servers go over all settings.

    `creates` False: the user's own ledger is not created where it is missing.
    """
    given = servers.settings
    if not given:
        use_running_servers(output.note)
    return Runtime.from_environment(given, notify=output.note, creates=creates)
