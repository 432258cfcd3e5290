"""The stack of the working directory, for commands to which no setting names a cluster."""

from extentflow.wiring.environments import FoundServers, recorded
from extentflow_local.aws.serve import queues_of
from extentflow_local.stack.ledgers import unused_ledger
from extentflow_local.stack.settings import OFF, LocalSettings, is_switched_off
from extentflow_local.stack.stack import LEDGER_ENDPOINT, Stack


def running_stack() -> FoundServers | None:
    """Return the stack whose Kafka runs here; None where there is none, or it is switched off.

    Without variables, a stack that does not run and whose ledger records jobs.
    """
    if is_switched_off():
        return None
    settings = LocalSettings.from_environment()
    if not (settings.root / "var" / "kafka").is_dir():
        return None
    stack = Stack(settings.root, settings=settings)
    endpoints = stack.endpoints()
    name = f"the local stack of {settings.root}"
    if "kafka" not in endpoints:
        if (jobs := recorded(stack.ledger)) is None:
            return None
        return FoundServers(name, f"{jobs}; `extentflow up` starts it", {}, OFF)
    variables = stack.environment()
    ledger = "DynamoDB" if LEDGER_ENDPOINT in variables else str(stack.ledger)
    shown = {"kafka": "Kafka", "s3": "S3"}
    parts = [f"{shown[name]} {endpoints[name]}" for name in shown if name in endpoints]
    parts.append(f"ledger {ledger}")
    if unused := unused_ledger(stack):
        parts.append(unused)
    return FoundServers(
        name=name,
        parts=", ".join(parts),
        variables=variables | queues_of(stack),
        switch=OFF,
    )
