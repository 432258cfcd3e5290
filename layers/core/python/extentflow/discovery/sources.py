"""The permitted sources of HTTP notifications, with their proofs.

A source belongs to one endpoint. Its proof determines the endpoint of its arrivals, so a source
cannot send notifications for buckets of another endpoint.

A signature is AWS Signature Version 4 in the request's headers, made with a shared secret. Source:
AWS IAM user guide, "Create a signed AWS API request". Presigned URLs, chunked and unsigned payloads
are not supported.

    Authorization: AWS4-HMAC-SHA256 Credential=<key id>/<date>/<region>/sns/aws4_request,
                   SignedHeaders=<names>, Signature=<hex>

The payload's hash is always computed and never taken from a header, so a request with another body
has another signature.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from extentflow.errors import AccessDenied, Misconfigured
from extentflow.http.requests import HttpRequest
from extentflow.wording import nearest

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sns"
TERMINATOR = "aws4_request"
MAX_SKEW_SECONDS = 15 * 60
# As many as http.client reads; each is looked for among all.
MAX_SIGNED_HEADERS = 100
# What every source reads before the proof. The header has three parts, a path a stage and a secret.
MAX_AUTHORIZATION_CHARACTERS = 8_192
MAX_AUTHORIZATION_PARTS = 8
MAX_PATH_CHARACTERS = 2_048
MAX_SEGMENTS = 16

_TIMESTAMP = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]{16,}")


class Proof(Protocol):
    """How a sender authenticates."""

    def claim(self, request: HttpRequest, *, now: float) -> None:
        """Check all of the proof that needs no body. Raises as `check`."""

    def check(self, request: HttpRequest, payload: bytes, *, now: float) -> None:
        """Return if the request has the proof. `now` is in seconds since 1970.

        Raises AccessDenied with what is wrong, but never with the correct value.
        """


@dataclass(frozen=True, slots=True)
class SignatureProof:
    """A signature, at most 15 minutes old, with a shared key: SNS endpoints of StorageGRID."""

    access_key_id: str
    secret_access_key: str = field(repr=False)

    def claim(self, request: HttpRequest, *, now: float) -> None:
        self._claim(request, now)

    def _claim(self, request: HttpRequest, now: float) -> _Claim:
        claim = _Claim.read(request)
        if not _same(claim.access_key_id, self.access_key_id):
            raise AccessDenied(
                f"the access key id {claim.access_key_id!a:.200} is not the shared one"
            )
        if not claim.scope.endswith(f"/{SERVICE}/{TERMINATOR}"):
            raise AccessDenied(
                f"signed for {claim.scope!a:.200}, expected */{SERVICE}/{TERMINATOR}"
            )
        skew = abs(now - claim.signed_at())
        if skew > MAX_SKEW_SECONDS:
            raise AccessDenied(
                f"signed {skew:.0f} s away from this clock, at most {MAX_SKEW_SECONDS} s are "
                "allowed; compare the clocks (NTP)"
            )
        return claim

    def check(self, request: HttpRequest, payload: bytes, *, now: float) -> None:
        claim = self._claim(request, now)
        canonical = _octets(_canonical(request, payload, claim.signed_headers))
        digest = hashlib.sha256(canonical).hexdigest()
        signing = _octets(f"AWS4{self.secret_access_key}")
        text = f"{ALGORITHM}\n{claim.timestamp}\n{claim.scope}\n{digest}"
        for part in (*claim.scope.split("/"), text):
            signing = hmac.digest(signing, _octets(part), "sha256")
        if not _same(claim.signature, signing.hex()):
            raise AccessDenied(
                "the signature does not match; compare the secrets, and look for a proxy that "
                "changes headers, path or body"
            )


@dataclass(frozen=True, slots=True)
class _Claim:
    """What a request states, unverified; `scope` is date/region/service/terminator."""

    access_key_id: str
    scope: str
    signed_headers: Sequence[str]
    signature: str
    timestamp: str

    @classmethod
    def read(cls, request: HttpRequest) -> _Claim:
        header = request.header("authorization") or ""
        if len(header) > MAX_AUTHORIZATION_CHARACTERS:
            raise AccessDenied(f"over {MAX_AUTHORIZATION_CHARACTERS} characters of Authorization")
        algorithm, _, rest = header.strip().partition(" ")
        if algorithm != ALGORITHM:
            raise AccessDenied(f"not signed: no Authorization header that begins with {ALGORITHM}")
        stated = rest.split(",", MAX_AUTHORIZATION_PARTS)
        if len(stated) > MAX_AUTHORIZATION_PARTS:
            raise AccessDenied(f"more than {MAX_AUTHORIZATION_PARTS} parts of Authorization")
        parts = dict(part.strip().partition("=")[::2] for part in stated)
        names = parts.get("SignedHeaders", "").split(";", MAX_SIGNED_HEADERS)
        if len(names) > MAX_SIGNED_HEADERS:
            raise AccessDenied(f"more than {MAX_SIGNED_HEADERS} headers are signed")
        match parts.get("Credential", "").rsplit("/", 4):
            case [key_id, _, _, _, _] as credential if "host" in names:
                scope, timestamp = "/".join(credential[1:]), request.header("x-amz-date") or ""
                return cls(key_id, scope, names, parts.get("Signature", ""), timestamp)
            case _:
                raise AccessDenied("the Authorization header is incomplete, or leaves out the host")

    def signed_at(self) -> float:
        """Return the time of signing in seconds since 1970; its day is part of the scope."""
        day = self.timestamp[:8]
        if not _TIMESTAMP.fullmatch(self.timestamp) or not self.scope.startswith(f"{day}/"):
            raise AccessDenied("X-Amz-Date is missing, or of another day than the scope")
        try:
            return calendar.timegm(time.strptime(self.timestamp, "%Y%m%dT%H%M%SZ"))
        except ValueError as exc:
            raise AccessDenied(f"X-Amz-Date {self.timestamp} is no time") from exc


def _canonical(request: HttpRequest, payload: bytes, names: Iterable[str]) -> str:
    pairs = sorted(pair.partition("=")[::2] for pair in request.query.split("&") if pair)
    lines = (
        request.method.upper(),
        _canonical_path(request.path),
        "&".join("=".join(pair) for pair in pairs),
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


def _canonical_header(request: HttpRequest, name: str) -> str:
    value = request.header(name)
    if value is None:
        raise AccessDenied(f"the signed header {name!a:.200} is not there")
    return " ".join(value.split())


def _same(left: str, right: str) -> bool:
    return hmac.compare_digest(_octets(left), _octets(right))


def _octets(text: str) -> bytes:
    # Servers pass undecodable bytes as lone surrogates.
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class SecretPathProof:
    """A secret segment of the path: webhooks, and endpoints without an access key."""

    segment: str = field(repr=False)

    def check(self, request: HttpRequest, payload: bytes, *, now: float) -> None:  # noqa: ARG002 - see Proof
        self.claim(request, now=now)

    def claim(self, request: HttpRequest, *, now: float) -> None:  # noqa: ARG002 - see Proof
        segments = request.path.split("/", MAX_SEGMENTS)
        if len(segments) > MAX_SEGMENTS or len(request.path) > MAX_PATH_CHARACTERS:
            raise AccessDenied(
                f"the path has more than {MAX_SEGMENTS - 1} segments, or {MAX_PATH_CHARACTERS}"
                " characters"
            )
        # No early exit: the time must not reveal which segment is similar.
        found = [_same(segment, self.segment) for segment in segments]
        if not any(found):
            raise AccessDenied("the path does not hold the secret segment")


@dataclass(frozen=True, slots=True)
class NoProof:
    """No proof: for a receiver on the loopback interface only."""

    def claim(self, request: HttpRequest, *, now: float) -> None:
        pass

    def check(self, request: HttpRequest, payload: bytes, *, now: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Source:
    """One permitted source. `endpoint` is the S3 endpoint as connectors name it, or None."""

    endpoint: str | None
    proof: Proof


def admitted(
    sources: Sequence[Source], request: HttpRequest, payload: bytes, *, now: float
) -> Source:
    """Return the first source whose proof the request has; AccessDenied says what each lacks."""
    return _first(sources, lambda proof: proof.check(request, payload, now=now))


def claimed(sources: Sequence[Source], request: HttpRequest, *, now: float) -> None:
    """Return if the body decides whether a source has sent the request. Raises as `admitted`."""
    _first(sources, lambda proof: proof.claim(request, now=now))


def _first(sources: Sequence[Source], check: Callable[[Proof], None]) -> Source:
    missed: list[str] = []
    for source in sources:
        try:
            check(source.proof)
        except AccessDenied as exc:
            missed.append(str(exc))
        else:
            return source
    raise AccessDenied("; ".join(dict.fromkeys(missed)))


_PROOFS: Mapping[frozenset[str], Callable[[Mapping[str, str]], Proof]] = {
    frozenset({"access_key_id", "secret_access_key"}): lambda entry: SignatureProof(
        entry["access_key_id"], entry["secret_access_key"]
    ),
    frozenset({"secret_path"}): lambda entry: SecretPathProof(entry["secret_path"]),
    frozenset({"open"}): lambda _: NoProof(),
}
_KEYS = ("endpoint", *sorted(frozenset().union(*_PROOFS)))


def declared(text: str, *, open_allowed: bool = False) -> tuple[Source, ...]:
    """Return the sources in a JSON list.

    Each is an object with `endpoint` (optional) and one of: `access_key_id` and
    `secret_access_key`; `secret_path`; `"open": true`, which must be the only source, and only
    where `open_allowed`. Raises Misconfigured with all problems at once; secrets are not shown.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise Misconfigured("sources: write a JSON list of objects") from exc
    if not isinstance(entries, list) or not entries:
        raise Misconfigured("sources: write a JSON list of at least one object")
    problems: list[str] = []
    found: list[Source] = []
    for number, entry in enumerate(entries):
        wrong = _mistakes(entry, f"sources[{number}]")
        problems += wrong
        if not wrong:
            make = _PROOFS[frozenset(entry) - {"endpoint"}]
            found.append(Source(entry.get("endpoint"), make(entry)))
    is_open = any(source.proof == NoProof() for source in found)
    if is_open and not open_allowed:
        problems.append(
            "sources: open: a public endpoint needs a proof; use access_key_id with"
            " secret_access_key, or secret_path"
        )
    elif is_open and len(entries) > 1:
        problems.append("sources: an open one lets everybody in; remove it, or all others")
    if problems:
        raise Misconfigured(problems)
    return tuple(found)


def _mistakes(entry: object, place: str) -> list[str]:
    if not isinstance(entry, dict):
        return [f"{place}: write an object"]
    wrong: list[str] = []
    for name, value in entry.items():
        if name not in _KEYS:
            known = nearest(name, _KEYS, f"known are {', '.join(_KEYS)}")
            wrong.append(f"{place}.{name}: unknown key; {known}")
        elif name == "open" and value is not True:
            wrong.append(f"{place}.open: write true, or remove it")
        elif name != "open" and not (isinstance(value, str) and value):
            wrong.append(f"{place}.{name}: write a text")
        elif name == "secret_path" and not _SEGMENT.fullmatch(value):
            wrong.append(f"{place}.{name}: write 16 characters or more of A-Z a-z 0-9 _ -")
    if not wrong and frozenset(entry) - {"endpoint"} not in _PROOFS:
        ways = "access_key_id with secret_access_key, secret_path, or open"
        wrong.append(f"{place}: give exactly one proof: {ways}")
    return wrong
