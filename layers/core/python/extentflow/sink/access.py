"""Who we are to the brokers, where IAM decides: `sasl.mechanism=AWS_MSK_IAM`.

Owns: what librdkafka is told instead, when a token is signed. Refuses to know: how it is signed;
other mechanisms, which librdkafka knows itself.

librdkafka asks for a token in a thread of its own: before a client is handed out (which therefore
takes a second), and whenever four fifths of a token's time are over.
"""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from extentflow.errors import ExtentflowError, Misconfigured

log = logging.getLogger(__name__)

AWS_MSK_IAM = "AWS_MSK_IAM"
MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")

# Region (None: ours) -> token, its end in seconds since 1970. Raises CredentialsUnavailable,
# Misconfigured.
Sign = Callable[[str | None], tuple[str, float]]

_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2}[a-z0-9-]*-[0-9]+)\.amazonaws\.com")


def identified(settings: Mapping[str, Any], sign: Sign | None) -> dict[str, Any]:
    """Return a client's settings as librdkafka takes them, with a source of tokens if need be.

    The first token is signed here, where somebody hears why it cannot be.

    Raises:
        CredentialsUnavailable, Misconfigured: as `sign`; the latter without TLS, too.
    """
    if not wants_token(settings):
        return dict(settings)
    if sign is None:
        raise Misconfigured(f"sasl.mechanism={AWS_MSK_IAM}: nothing to sign tokens with was given")
    if settings.get("security.protocol", "").upper() != "SASL_SSL":
        raise Misconfigured(
            f"sasl.mechanism={AWS_MSK_IAM}: brokers take tokens over TLS only; set"
            " security.protocol=SASL_SSL"
        )
    region = region_of(settings.get("bootstrap.servers", ""))
    sign(region)

    def token(_: str) -> tuple[str, float]:
        try:
            return sign(region)
        except ExtentflowError as exc:
            # librdkafka asks again in a few seconds, and says only that there was an exception.
            log.warning("the brokers' token was not renewed: %s", exc)
            raise

    return {**spelled_out(settings), "oauth_cb": token}


def wants_token(settings: Mapping[str, Any]) -> bool:
    """Whether brokers are to ask IAM; of the two spellings the later one counts."""
    return [text for key, text in settings.items() if key in MECHANISMS][-1:] == [AWS_MSK_IAM]


def spelled_out(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the mechanism as brokers call it: the token is what is MSK's own."""
    if not wants_token(settings):
        return dict(settings)
    others = {key: value for key, value in settings.items() if key not in MECHANISMS}
    return {**others, "sasl.mechanisms": "OAUTHBEARER"}


def described(settings: Mapping[str, Any]) -> str:
    """Return how brokers are spoken to and what they are shown, without any of it."""
    mechanism = [text for key, text in settings.items() if key in MECHANISMS][-1:]
    protocol = settings.get("security.protocol", "plaintext").upper()
    return " with ".join((protocol, *mechanism)) if protocol.startswith("SASL") else protocol


def region_of(servers: str) -> str | None:
    """Return the region that MSK's names of brokers carry; None where they are other names."""
    found = _REGION.search(servers)
    return None if found is None else found[1]
