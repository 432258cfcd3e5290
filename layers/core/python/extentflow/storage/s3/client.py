"""Create the boto3 client from StoreOptions: session, credentials, timeouts, addressing style.

botocore's own retries are off. The store retries instead, because it must compare every response
with the pin, bound the total time, and name the range in errors.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import boto3.session
import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError

from extentflow.aws import new_botocore_session
from extentflow.storage import StoreOptions

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of a single request.

    `read_seconds` bounds the time without any received byte, not the whole download. `connections`
    is the size of the pool: windows read ahead times extents in work in one process.
    """

    connect_seconds: float = 3.0
    read_seconds: float = 20.0
    connections: int = 32
    page_keys: int = 1000


def find_problems(options: StoreOptions) -> Iterator[str]:
    """Yield one line for each invalid option or combination of options."""
    if (endpoint := options.endpoint) is not None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            yield f"aws.s3.endpoint {endpoint!r} is not a URL of the form https://host:port"
    if bool(options.access_key_id) != bool(options.secret_access_key):
        yield "aws.access.key.id and aws.secret.access.key must be set together"
    if options.role_external_id and not options.role_arn:
        yield "aws.sts.role.external.id needs aws.sts.role.arn"
    if options.verify is not None and not Path(options.verify).exists():
        yield f"aws.s3.ca.bundle {options.verify}: no such file or directory"


def connect(options: StoreOptions, limits: RequestLimits) -> S3Client:
    """Return a new client; usable from several threads, but not in a forked child."""
    config = Config(
        connect_timeout=limits.connect_seconds,
        read_timeout=limits.read_seconds,
        max_pool_connections=limits.connections,
        retries={"mode": "standard", "total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
    )
    session = new_botocore_session()
    if options.access_key_id and options.secret_access_key:
        session.set_credentials(options.access_key_id, options.secret_access_key)
    if options.role_arn:
        session = _in_role(session, options.role_arn, options=options, config=config)
    style: Literal["auto", "path", "virtual"] = "path" if options.endpoint else "auto"
    if options.path_style is not None:
        style = "path" if options.path_style else "virtual"
    return boto3.session.Session(botocore_session=session).client(
        "s3",
        region_name=options.region,
        endpoint_url=options.endpoint,
        verify=options.verify,
        config=config.merge(Config(s3={"addressing_style": style})),
    )


def _in_role(
    source: botocore.session.Session, role_arn: str, *, options: StoreOptions, config: Config
) -> botocore.session.Session:
    credentials = source.get_credentials()
    if credentials is None:
        raise NoCredentialsError
    external = {"ExternalId": options.role_external_id} if options.role_external_id else {}
    fetcher = AssumeRoleCredentialFetcher(
        functools.partial(source.create_client, region_name=options.region, config=config),
        credentials,
        role_arn,
        extra_args={"RoleSessionName": "extentflow", **external},
    )
    session = new_botocore_session()
    session.register_component("credential_provider", CredentialResolver([_RoleProvider(fetcher)]))
    return session


class _RoleProvider(CredentialProvider):
    """Credentials of an assumed role, fetched at first use and refreshed before they expire."""

    METHOD = "assume-role"

    def __init__(self, fetcher: AssumeRoleCredentialFetcher) -> None:
        super().__init__()
        self._fetcher = fetcher

    def load(self) -> DeferredRefreshableCredentials:
        return DeferredRefreshableCredentials(self._fetcher.fetch_credentials, self.METHOD)
