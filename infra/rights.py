"""Permissions of every delivering role: publish job events, read secrets, assume roles."""

from collections.abc import Iterator

from constructs import Construct

from infra import broker, secrets
from infra.context import StackContext
from infra.grants import Grant


def publish_events(context: StackContext) -> Iterator[Grant]:
    """Yield permission to publish job events; any role that can end a job needs it."""
    yield Grant(
        "TellEventBus",
        "job events go to the event bus",
        ("events:PutEvents",),
        (context.event_bus_arn,),
    )
    yield from broker.publish_job_events(context.stage.cluster)


def read_secrets(scope: Construct, context: StackContext, *, producer: bool) -> Iterator[Grant]:
    """Yield permission to read referenced secrets, including those of producers."""
    found = [one.secrets(producer=producer) for one in context.connectors]
    names = secrets.referred(context.stage.settings).union(*found)
    yield from secrets.read(scope, names, context.stage.secret_key_arns)


def authenticate(context: StackContext) -> Iterator[Grant]:
    """Yield permission to authenticate to the brokers, and to assume roles for other accounts."""
    yield from broker.credentials(context.stage.cluster)
    connectors = context.connectors
    roles = sorted({one.checked.role_arn for one in connectors if one.checked.role_arn})
    if roles:
        yield Grant(
            "AssumeRoles",
            "connectors read buckets of other accounts with these roles",
            ("sts:AssumeRole",),
            tuple(roles),
        )
