"""How the boto3 client is made: session, credentials, time-outs, addressing.

Owns: what of StoreOptions botocore is told, and what is checked before it is. Refuses to know:
requests. botocore's own retries are off: ours compare every answer with the pin, are bounded in
time and name the range.
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

from extentflow.aws.sessions import bare_session
from extentflow.storage import StoreOptions

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a single request.

    `read_seconds` is the longest silence of a server, not the longest download. `connections` is
    the pool's size: read-ahead times the extents that one process works on.
    """

    connect_seconds: float = 3.0
    read_seconds: float = 20.0
    connections: int = 32
    page_keys: int = 1000


def problems(options: StoreOptions) -> Iterator[str]:
    """Yield one line for everything in `options` that cannot work."""
    endpoint = options.endpoint
    if endpoint is not None and not _is_address(endpoint):
        yield f"aws.s3.endpoint {endpoint!r} is not an address like https://host:port"
    if bool(options.access_key_id) != bool(options.secret_access_key):
        yield "aws.access.key.id and aws.secret.access.key must be set together"
    if options.role_external_id and not options.role_arn:
        yield "aws.sts.role.external.id needs aws.sts.role.arn"
    if options.verify is not None and not Path(options.verify).exists():
        yield f"aws.s3.ca.bundle {options.verify} does not exist"


def _is_address(endpoint: str) -> bool:
    parts = urlsplit(endpoint)
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def connect(options: StoreOptions, limits: Limits) -> S3Client:
    """Return a new client; safe over threads, not over forks."""
    path_style = options.path_style
    if path_style is None and options.endpoint is not None:
        path_style = True
    style: Literal["auto", "path", "virtual"] = "auto"
    if path_style is not None:
        style = "path" if path_style else "virtual"
    return _session(options, limits).client(
        "s3",
        region_name=options.region,
        endpoint_url=options.endpoint,
        verify=options.verify,
        config=_config(limits).merge(Config(s3={"addressing_style": style})),
    )


def _config(limits: Limits) -> Config:
    return Config(
        connect_timeout=limits.connect_seconds,
        read_timeout=limits.read_seconds,
        max_pool_connections=limits.connections,
        retries={"mode": "standard", "total_max_attempts": 1},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
    )


def _session(options: StoreOptions, limits: Limits) -> boto3.session.Session:
    """Return a session of our own: boto3's default session is not safe over threads."""
    session = bare_session()
    if options.access_key_id and options.secret_access_key:
        session.set_credentials(options.access_key_id, options.secret_access_key)
    if options.role_arn:
        session = _in_role(session, options.role_arn, options=options, limits=limits)
    return boto3.session.Session(botocore_session=session)


def _in_role(
    source: botocore.session.Session, role_arn: str, *, options: StoreOptions, limits: Limits
) -> botocore.session.Session:
    own = source.get_credentials()
    if own is None:
        raise NoCredentialsError
    external = {"ExternalId": options.role_external_id} if options.role_external_id else {}
    fetcher = AssumeRoleCredentialFetcher(
        functools.partial(source.create_client, region_name=options.region, config=_config(limits)),
        own,
        role_arn,
        extra_args={"RoleSessionName": "extentflow", **external},
    )
    session = bare_session()
    session.register_component("credential_provider", CredentialResolver([_RoleProvider(fetcher)]))
    return session


class _RoleProvider(CredentialProvider):
    """The role's credentials, fetched at first use and again before they expire."""

    METHOD = "assume-role"

    def __init__(self, fetcher: AssumeRoleCredentialFetcher) -> None:
        super().__init__()
        self._fetcher = fetcher

    def load(self) -> DeferredRefreshableCredentials:
        return DeferredRefreshableCredentials(self._fetcher.fetch_credentials, self.METHOD)
