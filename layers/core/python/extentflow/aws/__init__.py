"""What the adapters of AWS services share: sessions, error translation, batches.

Each adapter (S3, DynamoDB, SQS, EventBridge, Secrets Manager and others) defines its own
client, its own error codes and its own entries.
"""

import logging
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

import boto3.session
import botocore.session
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.configprovider import ConfiguredEndpointProvider
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError

from extentflow.errors import Misconfigured, Retryable, reason
from extentflow.retry import Clock

# At DEBUG botocore writes session tokens, signatures and response bodies: enough to repeat a
# request or to read a secret. Set at import, before any client exists, whatever the root level.
logging.getLogger("botocore").setLevel(logging.WARNING)

# Shared by all sessions: reading the description of DynamoDB takes longer than making its client.
_SERVICE_DESCRIPTIONS = create_loader(os.environ.get("AWS_DATA_PATH"))


def new_session() -> boto3.session.Session:
    """Return a new session with the environment's credentials and region.

    boto3's default session must not be initialised from several threads.
    """
    return boto3.session.Session(botocore_session=new_botocore_session())


def new_botocore_session() -> botocore.session.Session:
    """Return a botocore session without credentials, for a caller that sets its own."""
    session = botocore.session.Session()
    session.register_component("data_loader", _SERVICE_DESCRIPTIONS)
    return session


def configured_endpoint(service: str) -> str | None:
    """Return the endpoint that variables or the profile set for a service, as clients use it.

    Misconfigured: `AWS_PROFILE` names no profile.
    """
    session = new_botocore_session()
    try:
        if session.get_config_variable("ignore_configured_endpoint_urls"):
            return None
        found: str | None = ConfiguredEndpointProvider(
            session.full_config, session.get_scoped_config(), service
        ).provide()
    except BotoCoreError as exc:
        raise Misconfigured(describe_sdk_error(exc)) from exc
    return found


def is_configured() -> bool:
    """Return whether variables and files give a region and credentials; sends no request."""
    session = new_botocore_session()
    try:
        if not session.get_config_variable("region"):
            return False
        chain = session.get_component("credential_provider")
        for name in ASKING_PROVIDERS:
            chain.remove(name)
        return chain.load_credentials() is not None
    except BotoCoreError:  # a profile that does not exist, or half of a key
        return False


def open_client(service: str, region: str | None = None) -> Any:  # noqa: ANN401 - made by boto3
    """Return a client of any service with short timeouts, for a person who waits for it.

    It is in `region`, or in that of the environment.
    """
    config = Config(
        retries={"total_max_attempts": 4, "mode": "standard"}, connect_timeout=3, read_timeout=20
    )
    session: Any = new_session()
    return session.client(service, region_name=region, config=config)


def check_connections(client: Any, check: Callable[[socket.socket, str], None]) -> None:  # noqa: ANN401 - of any service
    """Have a client pass each connection and its host to `check`, before TLS and requests.

    Connections to proxies are not passed: proxies look up names, and the owner chose them. What
    `check` raises is what `refusal` returns for the client's error.
    """

    class Checked(AWSHTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _passed(super()._new_conn(), self.host, check)

    class CheckedTls(AWSHTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _passed(super()._new_conn(), self.host, check)

    class Pool(AWSHTTPConnectionPool):
        ConnectionCls = Checked

    class TlsPool(AWSHTTPSConnectionPool):
        ConnectionCls = CheckedTls

    # The SDK offers no setting for it. The tests of stores and of Glue fail where this changes.
    session = client._endpoint.http_session  # noqa: SLF001
    session._manager.pool_classes_by_scheme = {"http": Pool, "https": TlsPool}  # noqa: SLF001


def _passed(
    made: socket.socket, host: str, check: Callable[[socket.socket, str], None]
) -> socket.socket:
    try:
        check(made, host)
    except BaseException:
        made.close()
        raise
    return made


def refusal(error: Exception) -> Misconfigured | None:
    """Return why a connection was refused, where that is the cause of an error of the SDK."""
    cause = error.kwargs.get("error") if isinstance(error, BotoCoreError) else None
    return cause if isinstance(cause, Misconfigured) else None


# The SDK's sources of credentials that send requests, or run programs, before they have any.
ASKING_PROVIDERS = ("container-role", "iam-role", "custom-process")
SERVER_ERROR = 500  # the first status of the class in which the server is at fault

NO_ANSWER = (BotoConnectionError, CredentialRetrievalError, HTTPClientError, ResponseParserError)
_REMEDIES: dict[type[BotoCoreError], str] = {
    NoRegionError: "no AWS region; set AWS_DEFAULT_REGION or a profile's region",
    NoCredentialsError: "no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or "
    "AWS_PROFILE, or give this machine a role",
}


@contextmanager
def translate_errors(
    subject: str,
    unavailable: type[Retryable],
    *,
    transient: Collection[str],
    remedies: Mapping[str, str],
    otherwise: str = "check the credentials and the role's policy",
) -> Iterator[None]:
    """Translate the errors of one call; `subject` names in messages what the call is about.

    Raises `unavailable` for no usable response, a code in `transient`, or a status of 500 and
    above; Misconfigured for everything else, with the remedy of its code, or
    `otherwise`.
    """
    try:
        yield
    except ClientError as exc:
        code = exc.response["Error"].get("Code", "")
        status = exc.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        if code in transient or status >= SERVER_ERROR:
            raise unavailable(f"{subject}: {exc}") from exc
        raise Misconfigured(f"{subject}: {exc}; {remedies.get(code, otherwise)}") from exc
    except NO_ANSWER as exc:
        if refused := refusal(exc):
            raise Misconfigured(f"{subject}: {reason(refused)}") from exc
        raise unavailable(f"{subject}: {type(exc).__name__}: {exc}") from exc
    except BotoCoreError as exc:
        raise Misconfigured(f"{subject}: {describe_sdk_error(exc)}") from exc


def describe_sdk_error(error: BotoCoreError) -> str:
    """Return the cause of an error that the SDK raised before it sent a request, and the remedy."""
    return _REMEDIES.get(type(error), str(error))


BATCH_ENTRIES = 10
BATCH_BYTES = 256 << 10  # limit of one entry and of a batch; some regions and servers accept more
FIRST_PAUSE_SECONDS = 0.1

Entry = TypeVar("Entry")


def split_into_batches(
    entries: Sequence[Entry], size: Callable[[Entry], int]
) -> Iterator[list[Entry]]:
    """Yield batches within the limits of SQS and EventBridge; `size` returns an entry's bytes."""
    batch: list[Entry] = []
    taken = 0
    for entry in entries:
        length = size(entry)
        if batch and (len(batch) == BATCH_ENTRIES or taken + length > BATCH_BYTES):
            yield batch
            batch, taken = [], 0
        batch.append(entry)
        taken += length
    if batch:
        yield batch


class BatchSender:
    """Sends a batch up to `tries` times, with full-jitter pauses whose bound doubles."""

    def __init__(self, tries: int, clock: Clock | None, random: Random | None) -> None:
        self._tries = tries
        self._clock = clock or Clock()
        self._random = random or Random()  # noqa: S311 - jitter, no secrets

    def send(self, batch: list[Entry], send: Callable[[list[Entry]], list[Entry]]) -> list[Entry]:
        """Return the entries that were never accepted; `send` returns those it rejected."""
        for tried in range(self._tries):
            if tried:
                bound = FIRST_PAUSE_SECONDS * 2.0**tried
                self._clock.sleep(self._random.random() * bound)
            batch = send(batch)
            if not batch:
                break
        return batch
