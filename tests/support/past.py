"""Jobs that were registered some time ago, by the clock of a DynamoDB ledger."""

import time
from unittest import mock

from extentflow.jobs.planner import JobRequest
from extentflow.ledger.dynamodb_calls import DynamoItems
from extentflow.model import Job
from extentflow.wiring import Runtime


def registered_ago(runtime: Runtime, request: JobRequest, seconds: float) -> Job:
    """Register a job as a planner did that died `seconds` ago, before it sent anything."""
    with mock.patch.object(DynamoItems, "now", return_value=time.time() - seconds):
        return runtime.planner().register(request)
