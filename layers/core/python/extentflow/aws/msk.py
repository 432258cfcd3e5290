"""Tokens for the SASL mechanism OAUTHBEARER of MSK with IAM access control."""

import os
from functools import cached_property

import boto3
from botocore.credentials import CredentialProvider, Credentials
from botocore.exceptions import BotoCoreError, NoCredentialsError, NoRegionError

from extentflow.aws import NO_ANSWER, describe_sdk_error, new_session
from extentflow.errors import CredentialsUnavailable, Misconfigured
from extentflow.plugins import from_extra


class TokenSigner:
    """Signs tokens with the credentials that the SDK's default chain finds in this process."""

    @cached_property
    def _session(self) -> boto3.session.Session:
        return new_session()

    def __call__(self, region: str | None) -> tuple[str, float]:
        """Return a token for brokers in `region`, and its expiry in seconds since 1970.

        Where `region` is None, the region of this process is used. Raises CredentialsUnavailable
        where credentials could not be refreshed; Misconfigured without credentials, region or the
        signer, which the extra `aws` installs.
        """
        with from_extra("aws", "sasl.mechanism=AWS_MSK_IAM"):
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415
        failed = "a token for the Kafka brokers cannot be signed"
        region = region or os.environ.get("AWS_REGION") or self._session.region_name
        try:
            if region is None:
                raise NoRegionError
            sign = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider
            token, end_ms = sign(region, _SessionCredentials(self._session))
        except NO_ANSWER as exc:
            raise CredentialsUnavailable(f"{failed} now: {exc}") from exc
        except BotoCoreError as exc:
            raise Misconfigured(f"{failed}; {describe_sdk_error(exc)}") from exc
        return token, end_ms / 1000


class _SessionCredentials(CredentialProvider):
    """Adapts a session's refreshable credentials to the provider that the signer takes."""

    def __init__(self, session: boto3.session.Session) -> None:
        super().__init__()
        self._boto3 = session

    def load(self) -> Credentials:
        """Return the credentials; raises NoCredentialsError where the session has none."""
        found = self._boto3.get_credentials()
        if found is None:
            raise NoCredentialsError
        return found
