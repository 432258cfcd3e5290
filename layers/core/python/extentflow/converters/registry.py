"""A client of schema registries with Confluent's API, and the wire format of their serializers.

A payload begins with a zero byte and the schema's id in four bytes. Before the first record, the
schema is looked up, checked against the subject's compatibility rule, and registered. Registration
is idempotent by content, so all workers get the same id.
"""

import base64
import http.client
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from extentflow.config.registry import TOPIC_NAME, RegistryOptions
from extentflow.converters import Destination
from extentflow.errors import AccessDenied, IncompatibleSchema, Misconfigured, RegistryUnavailable

# Receives method, path and body; returns status and body of the response.
Transport: TypeAlias = Callable[[str, str, Mapping[str, Any] | None], tuple[int, Any]]

TIMEOUT_SECONDS: Final = 10.0
MOST_RESPONSE_BYTES: Final = 8 << 20
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_OK, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_MANY = 200, 401, 403, 404, 409, 429
_UNPROCESSABLE, _SERVER_ERROR = 422, 500
# Of `error_code` with status 404.
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema of a subject: its id, and the text where the registry was asked for it."""

    id: int
    text: str

    @property
    def prefix(self) -> bytes:
        """What begins every payload: the magic byte and the id."""
        return b"\0" + self.id.to_bytes(4, "big")


@dataclass(slots=True)
class SchemaRegistry:
    """The registry of one set of options; one per process, safe for threads.

    `kind` is AVRO, JSON or PROTOBUF, as the API has it.
    """

    options: RegistryOptions
    transport: Transport
    kind: str = "AVRO"
    _known: dict[tuple[str, str], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def settle(self, subject: str, text: str, *, preview: bool = False) -> Registered:
        """Return the schema `text` as the subject has it, registered if it is new.

        With `preview`, a schema that the subject lacks is checked, not registered; its id is 0.
        Raises IncompatibleSchema with the registry's reason; RegistryUnavailable; AccessDenied.
        """
        with self._lock:
            if (subject, text) not in self._known:
                found = self._settled(subject, text, preview=preview)
                if found is None:
                    return Registered(0, text)
                self._known[subject, text] = found
            return Registered(self._known[subject, text], text)

    def latest(self, subject: str) -> Registered:
        """Return the latest schema of the subject. Raises as `settle`."""
        path = f"/subjects/{_quoted(subject)}/versions/latest"
        found = self._call("GET", path, None, subject)
        if found is None:
            raise IncompatibleSchema(
                f"the subject {subject} has no schema yet; register one, or set"
                " use.latest.version=false and auto.register.schemas=true"
            )
        kind = found.get("schemaType") or "AVRO"
        if kind != self.kind:
            raise IncompatibleSchema(
                f"the latest schema of the subject {subject} is of the type {kind}; name the"
                " converter of that type, or use another subject"
            )
        if found.get("references"):
            raise IncompatibleSchema(
                f"the latest schema of the subject {subject} refers to other subjects, which is not"
                " read; register it in one piece"
            )
        return Registered(self._id(found), str(found.get("schema")))

    def describe(self) -> str:
        """Return what the registry says of itself, for checks. Raises as `settle`."""
        found = self._call("GET", "/config", None, "its configuration")
        level = None if found is None else found.get("compatibilityLevel")
        if level is None:
            raise self._foreign("GET /config names no compatibility level")
        return f"{self.options.urls[0]}, compatibility {level}"

    def _settled(self, subject: str, text: str, *, preview: bool) -> int | None:
        known = self._call("POST", f"/subjects/{_quoted(subject)}", self._body(text), subject)
        if known is not None:
            return self._id(known)
        if not self.options.auto_register:
            raise IncompatibleSchema(
                f"the subject {subject} has no such schema; register it, or set"
                f" auto.register.schemas=true. The schema: {text}"
            )
        self._require_compatible(subject, text)
        if preview:
            return None
        path = f"/subjects/{_quoted(subject)}/versions"
        made = self._call("POST", path, self._body(text), subject)
        return self._id(made)

    def _require_compatible(self, subject: str, text: str) -> None:
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        found = self._call("POST", path, self._body(text), subject)
        if found is None or found.get("is_compatible", True):
            return
        reasons = [str(one) for one in found.get("messages") or ["it gives no reason"]]
        raise _incompatible(subject, "; ".join(reasons[:_MOST_REASONS]))

    def _id(self, found: Mapping[str, Any] | None) -> int:
        number = None if found is None else found.get("id")
        if not isinstance(number, int) or not 0 <= number < 1 << 32:
            raise self._foreign(f"it answered with the id {number!r}")
        return number

    def _foreign(self, what: str) -> Misconfigured:
        return Misconfigured(
            f"{self._where}: {what}; write the address of Confluent's API to schema.registry.url"
        )

    def _body(self, text: str) -> dict[str, Any]:
        # Registries before 5.5 do not take the type of an Avro schema.
        return {"schema": text} | ({} if self.kind == "AVRO" else {"schemaType": self.kind})

    @property
    def _where(self) -> str:
        return f"schema registry {self.options.urls[0]}"

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None, subject: str
    ) -> dict[str, Any] | None:
        """Return the response; None where the registry has no such subject, version or schema."""
        status, found = self.transport(method, path, body)
        said = found.get("message", "") if isinstance(found, dict) else ""
        if status == _OK and isinstance(found, dict):
            return found
        code = found.get("error_code") if isinstance(found, dict) else None
        if status == _NOT_FOUND and code in {_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA}:
            return None
        where = f"{self._where}: {method} {path} answered {status}: {said or 'no message'}"
        if status in {_UNAUTHORIZED, _FORBIDDEN}:
            raise AccessDenied(
                f"{where}; correct basic.auth.user.info, or give that user rights on {subject}"
            )
        if status == _CONFLICT:
            raise _incompatible(subject, said)
        if status >= _SERVER_ERROR or status == _TOO_MANY:
            raise RegistryUnavailable(where)
        if status == _UNPROCESSABLE:
            raise IncompatibleSchema(
                f"{where}; correct the schema, or another key of the converter"
            )
        raise self._foreign(f"{method} {path} answered {status}")


def _incompatible(subject: str, why: str) -> IncompatibleSchema:
    return IncompatibleSchema(
        f"the schema is not compatible with the latest one of the subject {subject}:"
        f" {why or 'the registry gives no reason'}; change the columns by transforms, the subject's"
        " compatibility level, or the topic"
    )


def subject_name(options: RegistryOptions, destination: Destination, record: str) -> str:
    """Return the subject of a schema whose record is called `record`."""
    topic, strategy = destination.topic, options.strategy
    if strategy == TOPIC_NAME:
        return f"{topic}-{'key' if destination.is_key else 'value'}"
    return record if strategy == "RecordNameStrategy" else f"{topic}-{record}"


@lru_cache(maxsize=64)
def open_registry(options: RegistryOptions, kind: str = "AVRO") -> SchemaRegistry:
    """Return this process's client of a registry; `options` have resolved secrets."""
    return SchemaRegistry(options, _HttpTransport(options).call, kind)


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the request carries a password."""

    def redirect_request(self, *_: object) -> None:
        return None


class _HttpTransport:
    """Calls a registry over HTTP; the first of its addresses that answers."""

    def __init__(self, options: RegistryOptions) -> None:
        self._urls = options.urls
        self._headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        if options.user_info is not None:
            token = base64.b64encode(options.user_info.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._ca_location = options.ca_location
        self._opener: urllib.request.OpenerDirector | None = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        """Return status and decoded body. RegistryUnavailable: no address answers."""
        failures: list[str] = []
        for url in self._urls:
            try:
                return self._once(method, url + path, body)
            except urllib.error.URLError as exc:
                if isinstance(exc.reason, ssl.SSLCertVerificationError):
                    raise Misconfigured(
                        f"schema registry {url}: its certificate is not trusted ({exc.reason}); set"
                        " schema.registry.ssl.ca.location to its CA"
                    ) from exc
                failures.append(f"{url} ({exc.reason})")
            except (OSError, http.client.HTTPException) as exc:
                failures.append(f"{url} ({type(exc).__name__}: {exc})")
        raise RegistryUnavailable(f"schema registry {', '.join(failures)} does not answer")

    def _once(self, method: str, url: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if data is None else {"Content-Type": _CONTENT_TYPE})
        # The key's kind admits http and https only.
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
        try:
            with self._open(request, timeout=TIMEOUT_SECONDS) as response:
                return response.status, _decoded(response.read(MOST_RESPONSE_BYTES))
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, _decoded(exc.read(MOST_RESPONSE_BYTES))

    @property
    def _open(self) -> Callable[..., Any]:
        if self._opener is None:
            try:
                context = ssl.create_default_context(cafile=self._ca_location)
            except (OSError, ssl.SSLError) as exc:
                raise Misconfigured(
                    f"schema.registry.ssl.ca.location={self._ca_location}: cannot be read as PEM on"
                    f" this worker ({exc})"
                ) from exc
            self._opener = urllib.request.build_opener(
                urllib.request.HTTPSHandler(context=context), _NoRedirects()
            )
        return self._opener.open


def _decoded(data: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
