"""Receiver: the HTTP endpoint for notifications of StorageGRID and other stores.

Responds after the notification is on the queue; `extentflow.discovery.receiver` has the rules.
Imports neither `extentflow.wiring` nor Powertools' parameters: both would import Arrow, the Kafka
client or S3's transfer library, which a cold start pays for and a notification does not need.
"""

import os
from functools import cache, lru_cache
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from extentflow.aws.function_metrics import FunctionMetrics
from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.files import read_if_present
from extentflow.config.worker import WorkerSettings, load
from extentflow.discovery.receiver import Receiver
from extentflow.discovery.sources import declared
from extentflow.errors import Misconfigured
from extentflow.http.requests import HttpRequest
from extentflow.metric_table import BY_STATUS
from extentflow.queue.sqs_queue import SqsQueue

logger = Logger()
metrics = FunctionMetrics()


@cache
def settings() -> WorkerSettings:
    """Return the environment's settings."""
    return load(os.environ, read_text=read_if_present)


@cache
def secrets() -> SecretsManager:
    """Open the reader of secrets of this execution environment; it caches them for minutes."""
    return SecretsManager()


@cache
def arrivals() -> SqsQueue:
    """Open the queue of this execution environment."""
    url = settings().arrivals_queue_url
    if url is None:
        raise Misconfigured("arrivals.queue.url is not set; give the URL of the arrivals queue")
    return SqsQueue(url)


@lru_cache(maxsize=1)
def receiver_of(sources: str) -> Receiver:
    """Return the receiver for these sources, as the secret declares them."""
    allowed = declared(sources, open_allowed=settings().receiver_open_allowed)
    return Receiver(allowed, lambda body: arrivals().send([body]))


def receiver() -> Receiver:
    """Return a receiver with the sources that the secret declares now."""
    secret = settings().receiver_secret_id
    if secret is None:
        raise Misconfigured("receiver.secret.id is not set; name the secret with the sources")
    return receiver_of(secrets().read(secret))


@logger.inject_lambda_context
@metrics.written()
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - AWS's
    """Respond to one request."""
    answer = receiver().answer(HttpRequest.of_event(event))
    metrics.add({BY_STATUS[answer.status // 100]: 1})
    return {
        "statusCode": answer.status,
        "headers": {"content-type": answer.content_type},
        "body": answer.body,
    }
