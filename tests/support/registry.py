"""A schema registry on the loopback interface, with Confluent's API and Avro's rule BACKWARD.

It holds versions by subject, gives equal schemas one id, and logs requests. `fail` makes the next
answers, `user_info` is what clients have to send.
"""

import base64
import io
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import fastavro

PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


@dataclass
class RegistryDouble:
    """The state of a registry; `url` is where it listens."""

    url: str = ""
    user_info: str | None = None
    first_id: int = 1
    subjects: dict[str, list[str]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    fail: deque[tuple[int, Any]] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, subject: str, schema: Any, kind: str = "AVRO") -> int:  # noqa: ANN401 - JSON
        """Register a schema without any check, as another producer would have."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        versions = self.subjects.setdefault(subject, [])
        if text not in versions:
            versions.append(text)
        self.kinds[text] = kind
        return self.ids.setdefault(text, self.first_id + len(self.ids))

    def schema(self, number: int) -> str:
        """Return the text of the schema with that id."""
        return next(text for text, known in self.ids.items() if known == number)

    def decode(self, payload: bytes, *, raw: bool = False) -> Any:  # noqa: ANN401 - any value
        """Return the value of a payload as fastavro reads it; `raw`: without logical types."""
        assert payload[:1] == b"\0"
        schema = json.loads(self.schema(int.from_bytes(payload[1:5], "big")))
        return decoded(payload[5:], without_logical_types(schema) if raw else schema)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:  # noqa: ANN401, C901, PLR0911 - JSON; a route per return
        """Return status and body of a response."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        with self.lock:
            self.requests.append((method, path))
            if self.fail:
                return self.fail.popleft()
            match (method, parts):
                case ("GET", ["config"]):
                    return 200, {"compatibilityLevel": "BACKWARD"}
                case ("GET", ["schemas", "ids", number]):
                    return self._by_id(int(number))
                case ("GET", ["schemas", "ids", number, "versions"]):
                    return 200, self._uses(int(number))
                case ("GET", ["subjects", subject, "versions"]):
                    count = len(self.subjects.get(subject, ()))
                    return (200, [*range(1, count + 1)]) if count else self._version(subject, 0)
                case ("GET", ["subjects", subject, "versions", "latest"]):
                    return self._version(subject, -1)
                case ("GET", ["subjects", subject, "versions", number]):
                    return self._version(subject, int(number) - 1)
                case ("POST", ["subjects", subject]):
                    return self._lookup(subject, body["schema"])
                case ("POST", ["subjects", subject, "versions"]):
                    return self._register(subject, body)
                case ("POST", ["compatibility", "subjects", subject, "versions", "latest"]):
                    return self._compatible(subject, body["schema"])
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, number: int) -> tuple[int, Any]:
        if number not in self.ids.values():
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        text = self.schema(number)
        kind = self.kinds.get(text, "AVRO")
        return 200, {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})

    def _uses(self, number: int) -> list[dict[str, Any]]:
        return [
            {"subject": subject, "version": at}
            for subject, texts in self.subjects.items()
            for at, text in enumerate(texts, 1)
            if self.ids[text] == number
        ]

    def _version(self, subject: str, index: int) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        text = self.subjects[subject][index]
        kind = self.kinds.get(text, "AVRO")
        named = {} if kind == "AVRO" else {"schemaType": kind}
        return 200, {"subject": subject, "id": self.ids[text], "schema": text, **named}

    def _lookup(self, subject: str, text: str) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if text not in self.subjects[subject]:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, {"subject": subject, "id": self.ids[text], "schema": text}

    def _register(self, subject: str, body: Any) -> tuple[int, Any]:  # noqa: ANN401 - JSON
        why = self._misfit(subject, body["schema"])
        if why:
            return 409, {"error_code": 409, "message": f"Schema being registered: {why}"}
        return 200, {"id": self.add(subject, body["schema"], body.get("schemaType", "AVRO"))}

    def _compatible(self, subject: str, text: str) -> tuple[int, Any]:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        why = self._misfit(subject, text)
        return 200, {"is_compatible": not why, "messages": [why] if why else []}

    def _misfit(self, subject: str, text: str) -> str:
        latest = self.subjects[subject][-1] if subject in self.subjects else None
        if latest is None or self.kinds[latest] != "AVRO":
            return ""
        return misfit(json.loads(text), json.loads(latest), "")


def misfit(reader: Any, writer: Any, path: str) -> str:  # noqa: ANN401, PLR0911 - JSON; a rule per return
    """Return why a reader of one schema cannot read what another one wrote; "" if it can."""
    if isinstance(writer, list):
        return next(filter(None, (misfit(reader, one, path) for one in writer)), "")
    if isinstance(reader, list):
        fits = any(not misfit(one, writer, path) for one in reader)
        return "" if fits else f"MISSING_UNION_BRANCH at {path}"
    kinds = [one["type"] if isinstance(one, dict) else one for one in (reader, writer)]
    if kinds == ["record", "record"]:
        written = {one["name"]: one["type"] for one in writer["fields"]}
        for one in reader["fields"]:
            inner = f"{path}/{one['name']}"
            if one["name"] not in written and "default" not in one:
                return f"READER_FIELD_MISSING_DEFAULT_VALUE at {inner}"
            if one["name"] in written and (why := misfit(one["type"], written[one["name"]], inner)):
                return why
        return ""
    if kinds in (["array", "array"], ["map", "map"]):
        inner = "items" if kinds[0] == "array" else "values"
        return misfit(reader[inner], writer[inner], f"{path}/{inner}")
    if kinds[0] != kinds[1] and kinds[0] not in PROMOTIONS.get(kinds[1], ()):
        return f"TYPE_MISMATCH at {path}: reader {kinds[0]}, writer {kinds[1]}"
    return ""


def decoded(data: bytes, schema: Any) -> Any:  # noqa: ANN401 - as fastavro's
    """Return the one value in `data`, whole."""
    source = io.BytesIO(data)
    value = fastavro.schemaless_reader(source, fastavro.parse_schema(schema), None)
    assert source.read() == b""
    return value


def without_logical_types(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema of the stored types alone."""
    if isinstance(schema, list):
        return [without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {
            name: without_logical_types(one)
            for name, one in schema.items()
            if name not in {"logicalType", "precision", "scale"}
        }
    return schema


@contextmanager
def registry_double(**state: Any) -> Iterator[RegistryDouble]:  # noqa: ANN401 - its fields
    """Run a registry until the block ends."""
    double = RegistryDouble(**state)

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            status, found = double.answer(self.command, self.path, body)
            if double.user_info is not None and self._user() != double.user_info:
                status, found = 401, {"error_code": 401, "message": "Unauthorized"}
            data = json.dumps(found).encode()
            self.send_response(status)
            if isinstance(found, dict) and "location" in found:
                self.send_header("Location", found["location"])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _respond  # noqa: N815 - named by the base class

        def _user(self) -> str | None:
            kind, _, token = self.headers.get("Authorization", "").partition(" ")
            return base64.b64decode(token).decode() if kind == "Basic" else None

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        double.url = f"http://127.0.0.1:{server.server_port}"
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
