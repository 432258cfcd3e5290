"""Clients of AWS Glue Schema Registry, and its errors.

Tests: unit/converters/test_glue_registry.py
"""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from botocore.config import Config

from extentflow.aws import check_connections, new_session, translate_errors
from extentflow.errors import RegistryUnavailable

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

TRANSIENT_CODES = frozenset(
    (
        "ConcurrentModificationException",
        "InternalServiceException",
        "OperationTimeoutException",
        "RequestTimeout",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    )
)
REMEDIES = {
    "AccessDeniedException": "allow glue:GetSchemaByDefinition, GetSchema, GetSchemaVersion,"
    " RegisterSchemaVersion and CreateSchema on the registry and the schema",
    "EntityNotFoundException": "create the registry, or correct registry.name and region",
    "ResourceNumberLimitExceededException": "delete schema versions, or raise the account's quota",
}


def connect(
    region: str | None,
    endpoint: str | None,
    check: Callable[[socket.socket, str], None] | None = None,
) -> "GlueClient":
    """Return a client; the SDK's settings give region and endpoint where they are None.

    `check` judges the connections to an endpoint that is given, as `check_connections`.
    """
    config = Config(
        retries={"total_max_attempts": 4, "mode": "standard"}, connect_timeout=3, read_timeout=10
    )
    client = new_session().client("glue", region_name=region, endpoint_url=endpoint, config=config)
    if endpoint is not None and check is not None:
        check_connections(client, check)
    return client


def translated(subject: str) -> AbstractContextManager[None]:
    """Translate the errors of one call about `subject`, as `translate_errors`."""
    return translate_errors(
        subject, RegistryUnavailable, transient=TRANSIENT_CODES, remedies=REMEDIES
    )
