"""Verify AWS Signature Version 4 in a request's headers with a shared secret.

Source: AWS IAM user guide, "Create a signed AWS API request". Presigned URLs, chunked and unsigned
payloads are not supported.

    Authorization: AWS4-HMAC-SHA256 Credential=<key id>/<date>/<region>/sns/aws4_request,
                   SignedHeaders=<names>, Signature=<hex>

The payload's hash is always computed and never taken from a header, so a request with another body
has another signature.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

from extentflow.discovery.request import HttpRequest
from extentflow.errors import AccessDenied

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sns"
TERMINATOR = "aws4_request"
MAX_SKEW_SECONDS = 15 * 60

_TIMESTAMP = re.compile(r"[0-9]{8}T[0-9]{6}Z")


@dataclass(frozen=True, slots=True)
class SharedKey:
    """An access key that both sides have."""

    access_key_id: str
    secret_access_key: str = field(repr=False)


def verify(request: HttpRequest, payload: bytes, key: SharedKey, *, now: float) -> None:
    """Return if `key` signed this request with this payload, within 15 minutes of `now`.

    `payload` is the body as sent, `now` is in seconds since 1970.

    Raises:
        AccessDenied: with what is wrong, but never with the correct value.
    """
    claim = _Claim.read(request)
    if not _same(claim.access_key_id, key.access_key_id):
        raise AccessDenied(f"the access key id {claim.access_key_id!a} is not the shared one")
    if (claim.service, claim.terminator) != (SERVICE, TERMINATOR):
        raise AccessDenied(f"signed for {claim.scope!a}, expected */{SERVICE}/{TERMINATOR}")
    skew = abs(now - claim.signed_at())
    if skew > MAX_SKEW_SECONDS:
        raise AccessDenied(
            f"signed {skew:.0f} s away from this clock, {MAX_SKEW_SECONDS} s are allowed; "
            "compare the clocks (NTP)"
        )
    expected = _signature(claim, _canonical(request, payload, claim.signed_headers), key)
    if not _same(claim.signature, expected):
        raise AccessDenied(
            "the signature does not match; compare the secrets, and look for a proxy that changes "
            "headers, path or body"
        )


@dataclass(frozen=True, slots=True)
class _Claim:
    """What the request states about its signature; nothing of it is verified yet."""

    access_key_id: str
    date: str
    region: str
    service: str
    terminator: str
    signed_headers: tuple[str, ...]
    signature: str
    timestamp: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/{self.terminator}"

    @classmethod
    def read(cls, request: HttpRequest) -> _Claim:
        algorithm, _, rest = (request.header("authorization") or "").strip().partition(" ")
        if algorithm != ALGORITHM:
            raise AccessDenied(f"not signed: no Authorization header that begins {ALGORITHM}")
        parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        names = tuple(parts.get("SignedHeaders", "").split(";"))
        match parts.get("Credential", "").rsplit("/", 4):
            case [key_id, date, region, service, terminator] if "host" in names:
                timestamp = request.header("x-amz-date") or ""
                signature = parts.get("Signature", "")
                return cls(key_id, date, region, service, terminator, names, signature, timestamp)
            case _:
                raise AccessDenied("the Authorization header is incomplete, or leaves out the host")

    def signed_at(self) -> float:
        """Return the time of signing in seconds since 1970; its day is part of the scope."""
        if not _TIMESTAMP.fullmatch(self.timestamp) or self.timestamp[:8] != self.date:
            raise AccessDenied("X-Amz-Date is missing, or of another day than the scope")
        try:
            return calendar.timegm(time.strptime(self.timestamp, "%Y%m%dT%H%M%SZ"))
        except ValueError as exc:
            raise AccessDenied(f"X-Amz-Date {self.timestamp} is no time") from exc


def _canonical(request: HttpRequest, payload: bytes, names: Iterable[str]) -> str:
    lines = (
        request.method.upper(),
        _canonical_path(request.path),
        "&".join("=".join(pair) for pair in _canonical_query(request.query)),
        *(f"{name}:{_canonical_header(request, name)}" for name in names),
        "",
        ";".join(names),
        hashlib.sha256(payload).hexdigest(),
    )
    return "\n".join(lines)


def _canonical_path(path: str) -> str:
    """Return the path without empty and dot segments, encoded again (all services but S3)."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    slash = "/" if path.endswith("/") and kept else ""
    return quote(_octets("/" + "/".join(kept) + slash), safe="/~")


def _canonical_query(query: str) -> list[tuple[str, str]]:
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    return sorted((name, value) for name, _, value in pairs)


def _canonical_header(request: HttpRequest, name: str) -> str:
    value = request.header(name)
    if value is None:
        raise AccessDenied(f"the signed header {name!a} is not there")
    return " ".join(value.split())


def _signature(claim: _Claim, canonical: str, key: SharedKey) -> str:
    digest = hashlib.sha256(_octets(canonical)).hexdigest()
    signing = _octets(f"AWS4{key.secret_access_key}")
    for part in (claim.date, claim.region, claim.service, claim.terminator):
        signing = _hmac(signing, part)
    return _hmac(signing, f"{ALGORITHM}\n{claim.timestamp}\n{claim.scope}\n{digest}").hex()


def _hmac(key: bytes, message: str) -> bytes:
    return hmac.digest(key, _octets(message), "sha256")


def _same(left: str, right: str) -> bool:
    return hmac.compare_digest(_octets(left), _octets(right))


def _octets(text: str) -> bytes:
    # Servers pass undecodable bytes as lone surrogates.
    return text.encode("utf-8", "surrogatepass")
