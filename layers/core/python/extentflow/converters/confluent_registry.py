"""A client of schema registries with Confluent's API, and the wire format of their serializers.

A payload begins with a zero byte and the schema's id in four bytes. Registration is idempotent by
content, so all workers get the same id.

Tests: unit/converters/test_schema_registry.py
"""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from extentflow.config.hosts import HostRule
from extentflow.config.registry import RegistryOptions
from extentflow.converters.schema_registry import AVRO, RegisteredSchema
from extentflow.errors import (
    AccessDenied,
    IncompatibleSchema,
    Misconfigured,
    RegistryUnavailable,
    reason,
)

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


@dataclass(slots=True)
class ConfluentRegistry:
    """The registry of one set of options, for schemas of one kind."""

    options: RegistryOptions
    transport: Transport
    kind: str = AVRO

    def find(self, subject: str, text: str) -> RegisteredSchema | None:
        """Return the schema `text` if the subject has it."""
        found = self._call("POST", f"/subjects/{_quoted(subject)}", self._body(text), subject)
        return None if found is None else _registered(self._id(found), text)

    def check(self, subject: str, text: str) -> None:
        """Raise IncompatibleSchema for a schema that the subject's rule excludes."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        found = self._call("POST", path, self._body(text), subject)
        if found is None or found.get("is_compatible", True):
            return
        reasons = [str(one) for one in found.get("messages") or ["it gives no reason"]]
        raise _incompatible(subject, "; ".join(reasons[:_MOST_REASONS]))

    def register(self, subject: str, text: str) -> RegisteredSchema:
        """Make the schema the subject's latest one. Raises as `check`."""
        path = f"/subjects/{_quoted(subject)}/versions"
        made = self._call("POST", path, self._body(text), subject)
        return _registered(self._id(made), text)

    def versions(self, subject: str) -> list[str]:
        """Return the texts of the subject's schemas of this kind, the newest first."""
        path = f"/subjects/{_quoted(subject)}/versions"
        numbers = self._call("GET", path, None, subject, answer=list) or []
        if not all(type(one) is int for one in numbers):
            raise self._foreign(f"GET {path} answered with other versions than numbers")
        found = [
            self._call("GET", f"{path}/{number}", None, subject)
            for number in sorted(numbers, reverse=True)
        ]
        # A version may have been deleted in between.
        return [str(one.get("schema")) for one in found if one and _kind(one) == self.kind]

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest schema of the subject. Raises as `settle`."""
        path = f"/subjects/{_quoted(subject)}/versions/latest"
        found = self._call("GET", path, None, subject)
        if found is None:
            raise IncompatibleSchema(
                f"the subject {subject} has no schema yet; register one, or set"
                " use.latest.version=false and auto.register.schemas=true"
            )
        kind = _kind(found)
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
        return _registered(self._id(found), str(found.get("schema")))

    def by_id(self, number: int) -> tuple[str, str]:
        """Return kind (AVRO, JSON, PROTOBUF) and text of the schema with an id, of any kind.

        Raises IncompatibleSchema where the registry has none, or one that refers to others.
        """
        found = self._call("GET", f"/schemas/ids/{number}", None, f"the schema {number}")
        if found is None:
            raise IncompatibleSchema(
                f"{self._where} has no schema {number}: another registry gave that id, or the"
                " schema was deleted"
            )
        if found.get("references"):
            raise IncompatibleSchema(
                f"schema {number} refers to other subjects, which is not read; register it in one"
                " piece"
            )
        return _kind(found), str(found.get("schema"))

    def versions_of(self, number: int) -> list[tuple[str, int]]:
        """Return the subjects that have the schema with an id, and the version in each.

        Empty where the registry does not offer that: those before 5.5 do not.
        """
        path = f"/schemas/ids/{number}/versions"
        status, found = self.transport("GET", path, None)
        if status != _OK or not isinstance(found, list):
            return []
        pairs = [(one.get("subject"), one.get("version")) for one in found if isinstance(one, dict)]
        return [(str(subject), version) for subject, version in pairs if isinstance(version, int)]

    def describe(self) -> str:
        """Return what the registry says of itself, for checks. Raises as `settle`."""
        found = self._call("GET", "/config", None, "its configuration")
        level = None if found is None else found.get("compatibilityLevel")
        if level is None:
            raise self._foreign("GET /config names no compatibility level")
        return f"{self.options.urls[0]}, compatibility {level}"

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
        return {"schema": text} | ({} if self.kind == AVRO else {"schemaType": self.kind})

    @property
    def _where(self) -> str:
        return f"schema registry {self.options.urls[0]}"

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        subject: str,
        *,
        answer: type = dict,
    ) -> Any:  # noqa: ANN401 - JSON
        """Return the response; None where the registry has no such subject, version or schema."""
        status, found = self.transport(method, path, body)
        said = found.get("message", "") if isinstance(found, dict) else ""
        if status == _OK and isinstance(found, answer):
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


def _registered(number: int, text: str) -> RegisteredSchema:
    return RegisteredSchema(str(number), text, b"\0" + number.to_bytes(4, "big"))


def _kind(found: Mapping[str, Any]) -> str:
    return str(found.get("schemaType") or AVRO)


def open_confluent(options: RegistryOptions, kind: str) -> ConfluentRegistry:
    """Return a client of a registry; `options` have resolved secrets."""
    return ConfluentRegistry(options, _HttpTransport(options).call, kind)


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the request carries a password."""

    def redirect_request(self, *_: object) -> None:
        return None


class _Checked(http.client.HTTPConnection):
    """A connection whose address is judged before TLS and before the request."""

    rule: HostRule | None = None

    def connect(self) -> None:
        super().connect()
        if self.rule is not None:
            self.rule.check(self.sock, self.host)


class _CheckedTls(http.client.HTTPSConnection, _Checked):
    """The same, with TLS: its `connect` calls that of `_Checked` before the handshake."""


class _Http(urllib.request.HTTPHandler):
    def __init__(self, rule: HostRule | None) -> None:
        super().__init__()
        self._rule = rule

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_opening(_Checked, req, self._rule), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext, rule: HostRule | None) -> None:
        super().__init__(context=context)
        self._tls, self._rule = context, rule

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        opening = _opening(_CheckedTls, req, self._rule)
        return self.do_open(opening, req, context=self._tls)


def _opening(
    kind: type[_Checked], request: urllib.request.Request, rule: HostRule | None
) -> Callable[..., _Checked]:
    """Return how a connection for a request is made; proxies look up names, and are the owner's."""
    direct = request.host == urllib.request.Request(request.full_url).host  # noqa: S310 - not opened

    def made(host: str, **settings: Any) -> _Checked:  # noqa: ANN401 - as the class
        connection = kind(host, **settings)
        connection.rule = rule if direct else None
        return connection

    return made


class _HttpTransport:
    """Calls a registry over HTTP; the first of its addresses that answers."""

    def __init__(self, options: RegistryOptions) -> None:
        self._urls = options.urls
        self._headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        if options.user_info is not None:
            token = base64.b64encode(options.user_info.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._ca_location = options.ca_location
        self._rule = options.hosts
        self._opener: urllib.request.OpenerDirector | None = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        """Return status and decoded body. RegistryUnavailable: no address answers."""
        failures: list[str] = []
        opened = self._open
        for url in self._urls:
            try:
                return self._once(opened, method, url + path, body)
            except urllib.error.URLError as exc:
                if isinstance(exc.reason, ssl.SSLCertVerificationError):
                    raise Misconfigured(
                        f"schema registry {url}: its certificate is not trusted ({exc.reason}); set"
                        " schema.registry.ssl.ca.location to its CA"
                    ) from exc
                failures.append(f"{url} ({exc.reason})")
            except Misconfigured as exc:
                raise Misconfigured(f"schema registry {url}: {reason(exc)}") from exc
            except (OSError, http.client.HTTPException) as exc:
                failures.append(f"{url} ({type(exc).__name__}: {exc})")
        raise RegistryUnavailable(f"schema registry {', '.join(failures)} does not answer")

    def _once(
        self, opened: Callable[..., Any], method: str, url: str, body: Mapping[str, Any] | None
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if data is None else {"Content-Type": _CONTENT_TYPE})
        # The key's kind admits http and https only.
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
        try:
            with opened(request, timeout=TIMEOUT_SECONDS) as response:
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
                _Http(self._rule), _Https(context, self._rule), _NoRedirects()
            )
        return self._opener.open


def _decoded(data: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
