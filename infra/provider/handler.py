"""Connectors: writes the connectors that the stack declares into the ledger, at deployment.

Called by CDK's provider framework, which answers CloudFormation. Harmless when repeated: the same
configuration is the same revision. Jobs keep the revision that they began with.

A connector that existed before the stack declared it stays when the stack no longer does, also
where a deployment is rolled back. The resource's id records that:
CloudFormation repeats it.
"""

from typing import Any

from extentflow.wiring import Runtime, check_connector

FOUND = ":found"  # no name of a connector has a colon


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001 - AWS's
    """Store the connector, or hide it from new jobs when the stack no longer declares it."""
    config: dict[str, str] = event["ResourceProperties"]["config"]
    name = config["name"]
    ledger = Runtime.from_environment().ledger
    given: str = event.get("PhysicalResourceId", "")
    if event["RequestType"] == "Delete":
        if not given.endswith(FOUND):
            ledger.connectors.delete(name)
        return {"PhysicalResourceId": given}
    check_connector(config)
    if given.removesuffix(FOUND) != name:
        given = name if ledger.connectors.get(name) is None else f"{name}{FOUND}"
    stored = ledger.connectors.put(name, config)
    return {"PhysicalResourceId": given, "Data": {"revision": str(stored.revision)}}
