"""Events of EMR Serverless on EventBridge."""

import time
from typing import Any
from uuid import uuid4

SOURCE = "aws.emr-serverless"
KIND = "EMR Serverless Job Run State Change"


def changed(run: dict[str, Any], previous: str | None) -> dict[str, Any]:
    """Return the event of a run's state change; the run is in the form of GetJobRun."""
    _, _, _, region, account, _ = run["arn"].split(":", 5)
    detail = {
        **{name: run[name] for name in ("jobRunId", "applicationId", "arn", "releaseLabel")},
        "jobRunName": run.get("name"),
        "state": run["state"],
        "previousState": previous,
        "createdBy": run["createdBy"],
        "updatedAt": _written(run["updatedAt"]),
        "createdAt": _written(run["createdAt"]),
    }
    return {
        "version": "0",
        "id": str(uuid4()),
        "detail-type": KIND,
        "source": SOURCE,
        "account": account,
        "time": _written(run["updatedAt"]),
        "region": region,
        "resources": [],
        "detail": {name: value for name, value in detail.items() if value is not None},
    }


def _written(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
