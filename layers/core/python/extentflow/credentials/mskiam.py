"""Tokens for brokers that ask AWS IAM who we are, as MSK does.

Owns: the credentials that sign, what is wrong where none do. Refuses to know: Kafka, whom a token
is shown to.
"""

import os
from functools import cached_property

import boto3
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.credentials import CredentialProvider, Credentials
from botocore.exceptions import BotoCoreError, NoCredentialsError, NoRegionError

from extentflow.aws.failures import NO_ANSWER, remedy
from extentflow.aws.sessions import own_session
from extentflow.errors import CredentialsUnavailable, Misconfigured


class Signer:
    """Signs with what the SDK's own chain of credentials finds in this process."""

    @cached_property
    def _session(self) -> boto3.session.Session:
        return own_session()

    def __call__(self, region: str | None) -> tuple[str, float]:
        """Return a token for brokers in `region` (None: ours), and its end as seconds since 1970.

        Raises:
            CredentialsUnavailable: the credentials could not be renewed now.
            Misconfigured: there are none, or no region.
        """
        region = region or os.environ.get("AWS_REGION") or self._session.region_name
        try:
            if region is None:
                raise NoRegionError
            sign = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider
            token, end_ms = sign(region, _Chain(self._session))
        except NO_ANSWER as exc:
            raise CredentialsUnavailable(f"a token for the brokers: {exc}") from exc
        except BotoCoreError as exc:
            raise Misconfigured(f"a token for the brokers cannot be signed; {remedy(exc)}") from exc
        return token, end_ms / 1000


class _Chain(CredentialProvider):
    """The session's credentials, which renew themselves, where the signer wants a provider."""

    def __init__(self, session: boto3.session.Session) -> None:
        super().__init__()
        self._boto3 = session

    def load(self) -> Credentials:
        """Return them.

        Raises:
            NoCredentialsError: there are none.
        """
        found = self._boto3.get_credentials()
        if found is None:
            raise NoCredentialsError
        return found
