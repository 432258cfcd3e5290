"""The stack of the working directory, for commands to which no setting names a cluster."""

from extentflow.wiring.environments import FoundServers
from extentflow_local.aws.serve import queues_of
from extentflow_local.stack.ledgers import unused_ledger
from extentflow_local.stack.settings import OFF, LocalSettings, is_switched_off
from extentflow_local.stack.stack import LEDGER_ENDPOINT, Stack


def running_stack() -> FoundServers | None:
    """Return the stack whose Kafka runs here; None where there is none, or it is switched off."""
    if is_switched_off():
        return None
    settings = LocalSettings.from_environment()
    if not (settings.root / "var" / "kafka").is_dir():
        return None
    stack = Stack(settings.root, settings=settings)
    endpoints = stack.endpoints()
    if "kafka" not in endpoints:
        return None
    variables = stack.environment()
    ledger = "DynamoDB" if LEDGER_ENDPOINT in variables else str(stack.ledger)
    shown = {"kafka": "Kafka", "s3": "S3"}
    parts = [f"{shown[name]} {endpoints[name]}" for name in shown if name in endpoints]
    parts.append(f"ledger {ledger}")
    if unused := unused_ledger(stack):
        parts.append(unused)
    return FoundServers(
        name=f"the local stack of {settings.root}",
        parts=", ".join(parts),
        variables=variables | queues_of(stack),
        switch=OFF,
    )
