"""What commands open first: a runtime, of settings or of servers that run on this machine.

Tests: unit/cli/test_command_line.py, unit/cli/test_settings_problems.py
"""

from extentflow.cli import output
from extentflow.cli.option_groups import ServerOptions
from extentflow.wiring import Runtime
from extentflow.wiring.environments import use_running_servers


def open_runtime(
    servers: ServerOptions = ServerOptions(),  # noqa: B008 - frozen
    *,
    creates: bool = True,
    brokers: bool = True,
) -> Runtime:
    """Return the runtime of a command; the given servers go over all settings.

    `creates` False: the user's own ledger is not created where it is missing. `brokers` False: the
    command connects to no broker, so that no setting has to name one.
    """
    given = servers.settings
    if not given:
        use_running_servers(output.note)
    return Runtime.from_environment(given, notify=output.note, creates=creates, brokers=brokers)
