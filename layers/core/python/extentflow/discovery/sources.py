"""The permitted sources of HTTP notifications, with their proofs.

A source belongs to one endpoint. Its proof determines the endpoint of its arrivals, so a source
cannot send notifications for buckets of another endpoint.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from extentflow.discovery import signature
from extentflow.discovery.request import HttpRequest
from extentflow.errors import AccessDenied, Misconfigured, nearest

_SEGMENT = re.compile(r"[A-Za-z0-9_-]{16,}")


class Proof(Protocol):
    """How a sender authenticates."""

    def check(self, request: HttpRequest, payload: bytes, *, now: float) -> None:
        """Return if the request has the proof. Raises AccessDenied."""


@dataclass(frozen=True, slots=True)
class SignatureProof:
    """A signature with a shared access key: SNS endpoints of StorageGRID."""

    key: signature.SharedKey

    def check(self, request: HttpRequest, payload: bytes, *, now: float) -> None:
        """See `Proof`."""
        signature.verify(request, payload, self.key, now=now)


@dataclass(frozen=True, slots=True)
class SecretPathProof:
    """A secret segment of the path: webhooks, and endpoints without an access key."""

    segment: str = field(repr=False)

    def check(self, request: HttpRequest, payload: bytes, *, now: float) -> None:  # noqa: ARG002 - see Proof
        """See `Proof`."""
        wanted = self.segment.encode()
        # No early exit: the time must not reveal which segment is similar.
        found = [
            hmac.compare_digest(segment.encode("utf-8", "surrogatepass"), wanted)
            for segment in request.path.split("/")
        ]
        if not any(found):
            raise AccessDenied("the path does not hold the secret segment")


@dataclass(frozen=True, slots=True)
class NoProof:
    """No proof here: a component before the receiver authenticates, for example with mutual TLS."""

    def check(self, request: HttpRequest, payload: bytes, *, now: float) -> None:
        """See `Proof`."""


@dataclass(frozen=True, slots=True)
class Source:
    """One permitted source. `endpoint` is the S3 endpoint as connectors name it, or None."""

    endpoint: str | None
    proof: Proof


def admitted(
    sources: Sequence[Source], request: HttpRequest, payload: bytes, *, now: float
) -> Source:
    """Return the first source whose proof the request has.

    Raises:
        AccessDenied: none; with what each of them lacks.
    """
    missed: list[str] = []
    for source in sources:
        try:
            source.proof.check(request, payload, now=now)
        except AccessDenied as exc:
            missed.append(str(exc))
        else:
            return source
    raise AccessDenied("; ".join(dict.fromkeys(missed)))


def declared(text: str) -> tuple[Source, ...]:
    """Return the sources in a JSON list.

    Each is an object with `endpoint` (optional) and one of: `access_key_id` and
    `secret_access_key`; `secret_path`; `"open": true`, which must be the only source.

    Raises:
        Misconfigured: all problems at once; secrets are not shown.
    """
    try:
        entries = json.loads(text)
    except ValueError as exc:
        raise Misconfigured("sources: write a JSON list of objects") from exc
    if not isinstance(entries, list) or not entries:
        raise Misconfigured("sources: write a JSON list of one object or more")
    problems: list[str] = []
    found = [_declared(entry, f"sources[{n}]", problems) for n, entry in enumerate(entries)]
    if len(found) > 1 and any(source and source.proof == NoProof() for source in found):
        problems.append("sources: an open one lets everybody in; remove it, or all others")
    if problems:
        raise Misconfigured(problems)
    return tuple(source for source in found if source)


_PROOFS: Mapping[frozenset[str], Callable[[Mapping[str, str]], Proof]] = {
    frozenset({"access_key_id", "secret_access_key"}): lambda entry: SignatureProof(
        signature.SharedKey(entry["access_key_id"], entry["secret_access_key"])
    ),
    frozenset({"secret_path"}): lambda entry: SecretPathProof(entry["secret_path"]),
    frozenset({"open"}): lambda _: NoProof(),
}
_KEYS = ("endpoint", *sorted(frozenset().union(*_PROOFS)))


def _declared(entry: object, place: str, problems: list[str]) -> Source | None:
    if not isinstance(entry, dict):
        problems.append(f"{place}: write an object")
        return None
    wrong = [*_unknown(entry, place), *_unfit(entry, place)]
    make = _PROOFS.get(frozenset(entry) - {"endpoint"})
    if make is None and not wrong:
        ways = "access_key_id with secret_access_key, secret_path, or open"
        wrong.append(f"{place}: give exactly one proof: {ways}")
    problems += wrong
    return Source(entry.get("endpoint"), make(entry)) if make and not wrong else None


def _unknown(entry: Mapping[str, object], place: str) -> list[str]:
    strange = [name for name in entry if name not in _KEYS]
    known = f"known are {', '.join(_KEYS)}"
    return [f"{place}.{name}: unknown key; {nearest(name, _KEYS, known)}" for name in strange]


def _unfit(entry: Mapping[str, object], place: str) -> list[str]:
    wrong = [
        f"{place}.{name}: write a text"
        for name, value in entry.items()
        if name in _KEYS and name != "open" and not (isinstance(value, str) and value)
    ]
    if "open" in entry and entry["open"] is not True:
        wrong.append(f"{place}.open: write true, or remove it")
    segment = entry.get("secret_path")
    if isinstance(segment, str) and segment and not _SEGMENT.fullmatch(segment):
        wrong.append(f"{place}.secret_path: write 16 characters or more of A-Z a-z 0-9 _ -")
    return wrong
