"""The two ledgers that a stack may have: a file of SQLite, or DynamoDB while that runs."""

from extentflow.wiring.environments import recorded
from extentflow_local.stack.stack import LEDGER_ENDPOINT, Stack


def unused_ledger(stack: Stack) -> str | None:
    """Return what the file records while DynamoDB is the ledger; None: it is used, or empty."""
    if LEDGER_ENDPOINT not in stack.environment():
        return None
    found = recorded(stack.ledger)
    return found and f"{found}, and is not used while DynamoDB runs"
