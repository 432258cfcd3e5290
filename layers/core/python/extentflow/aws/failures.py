"""Failures of the SDK itself: nobody answered, or there is nothing to sign a request with.

Owns: which of them pass, the remedies for the others. Refuses to know: what a service refuses.
"""

from botocore.exceptions import (
    BotoCoreError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

SERVER_ERROR = 500  # and above: HTTP says that the server is at fault

NO_ANSWER = (
    BotoConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    ResponseParserError,
)
_REMEDIES: dict[type[BotoCoreError], str] = {
    NoRegionError: "no AWS region; set AWS_DEFAULT_REGION or a profile's region",
    NoCredentialsError: "no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or "
    "AWS_PROFILE, or give this machine a role",
}


def remedy(error: BotoCoreError) -> str:
    """Return what is wrong on our side, and what to do about it."""
    return _REMEDIES.get(type(error), str(error))
