"""Connectors: writes the connectors that the stack declares into the ledger, at deployment.

Called by CDK's provider framework, which answers CloudFormation. Harmless when repeated: the same
configuration is the same revision. Jobs keep the revision that they began with.
"""

from typing import Any

from extentflow.wiring import Site, check_connector


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:  # noqa: ARG001 - AWS's
    """Store the connector, or hide it from new jobs when the stack no longer declares it."""
    config: dict[str, str] = event["ResourceProperties"]["config"]
    name = config["name"]
    ledger = Site.from_environment().ledger
    if event["RequestType"] == "Delete":
        ledger.delete_connector(name)
        return {"PhysicalResourceId": name}
    check_connector(config)
    stored = ledger.put_connector(name, config)
    return {"PhysicalResourceId": name, "Data": {"revision": str(stored.revision)}}
