"""Receiver: the HTTP endpoint for notifications of StorageGRID and other stores.

Responds after the notification is on the queue; `extentflow.discovery.receiver` has the rules.
"""

from functools import cache
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.parameters import get_secret
from aws_lambda_powertools.utilities.typing import LambdaContext

from extentflow.config.worker import WorkerSettings
from extentflow.discovery.receiver import Receiver
from extentflow.discovery.requests import HttpRequest
from extentflow.discovery.sources import declared
from extentflow.errors import Misconfigured
from extentflow.wiring import Runtime
from extentflow.wiring.functions import queue

SECRET_SECONDS = 300

logger = Logger()
metrics = Metrics()


@cache
def settings() -> WorkerSettings:
    """Return the environment's settings."""
    return Runtime.from_environment().settings


def receiver() -> Receiver:
    """Return a receiver with the sources that the secret declares now."""
    secret = settings().receiver_secret_id
    if secret is None:
        raise Misconfigured("receiver.secret.id is not set; name the secret with the sources")
    sources = declared(str(get_secret(secret, max_age=SECRET_SECONDS)))
    arrivals = queue(settings(), "arrivals_queue_url")
    return Receiver(sources, lambda body: arrivals.send([body]))


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - AWS's
    """Respond to one request."""
    answer = receiver().answer(HttpRequest.of_event(event))
    metrics.add_metric(f"Status{answer.status // 100}xx", MetricUnit.Count, 1)
    return {
        "statusCode": answer.status,
        "headers": {"content-type": answer.content_type},
        "body": answer.body,
    }
