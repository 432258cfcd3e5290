"""The Lambda Runtime API of one execution environment, one invocation at a time.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html

    offer ──> GET  /runtime/invocation/next            -> InvocationStart
              POST /runtime/invocation/<id>/response   -> InvocationResult
              POST /runtime/invocation/<id>/error      -> InvocationError
              POST /runtime/init/error                 -> InitFailed
"""

import json
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from extentflow.retry import Clock
from extentflow_local.aws.event_source.serving import Handler, LoopbackServer
from extentflow_local.stack.ports import HOST

_VERSION = "/2018-06-01/runtime"
# Lambda allows less; the whole response is in memory anyway.
_MOST_ANSWER_BYTES = 64 << 20
_NEXT = f"{_VERSION}/invocation/next"
_INIT_ERROR = f"{_VERSION}/init/error"


@dataclass(frozen=True, slots=True)
class Invocation:
    """One call of a function; `event` is JSON. The deadline counts from its pick-up."""

    request_id: str
    event: bytes
    function_arn: str
    timeout_seconds: float
    trace: str


@dataclass(frozen=True, slots=True)
class InvocationStart:
    """The runtime fetched the invocation; its time starts."""


@dataclass(frozen=True, slots=True)
class InvocationResult:
    """The handler returned; `payload` is JSON."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class InvocationError:
    """The handler raised; `error` is JSON with errorType and errorMessage."""

    error: bytes


@dataclass(frozen=True, slots=True)
class InitFailed:
    """The handler could not be imported; `error` as in `InvocationError`."""

    error: bytes


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The process ended, or was killed."""

    code: int


Said = InvocationStart | InvocationResult | InvocationError | InitFailed | ProcessEnd


class RuntimeApi:
    """Serves one process; `tell` is called from other threads, in the order of its requests."""

    def __init__(self, tell: Callable[[Said], None], clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._offered: queue.SimpleQueue[Invocation | None] = queue.SimpleQueue()
        self._current: str | None = None
        self._lock = threading.Lock()
        self._server = LoopbackServer(_handler_of(self)).start()

    @property
    def address(self) -> str:
        """The value of AWS_LAMBDA_RUNTIME_API."""
        return f"{HOST}:{self._server.port}"

    def offer(self, invocation: Invocation) -> None:
        """Pass an invocation to the runtime at its next request; one at a time."""
        self._offered.put(invocation)

    def close(self) -> None:
        """Stop serving."""
        self._offered.put(None)
        self._server.stop()

    def next(self) -> tuple[Invocation, dict[str, str]] | None:
        """Wait for an invocation; return it with its headers, or None after `close`."""
        invocation = self._offered.get()
        if invocation is None:
            # Another thread may wait too: that of a connection whose process has ended.
            self._offered.put(None)
            return None
        with self._lock:
            self._current = invocation.request_id
        self._tell(InvocationStart())
        deadline = self._clock.wall() + invocation.timeout_seconds
        return invocation, {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
            "Lambda-Runtime-Deadline-Ms": str(round(deadline * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": invocation.function_arn,
            "Lambda-Runtime-Trace-Id": invocation.trace,
        }

    def post(self, path: str, body: bytes) -> HTTPStatus:
        """Accept a post of the runtime; only for the current invocation."""
        if path == _INIT_ERROR:
            self._tell(InitFailed(body))
            return HTTPStatus.ACCEPTED
        with self._lock:
            said = _answer(path, body, self._current)
            if said is None:
                return HTTPStatus.BAD_REQUEST
            self._current = None
        self._tell(said)
        return HTTPStatus.ACCEPTED


def _answer(
    path: str, body: bytes, current: str | None
) -> InvocationResult | InvocationError | None:
    if current is not None and path == f"{_VERSION}/invocation/{current}/response":
        return InvocationResult(body)
    if current is not None and path == f"{_VERSION}/invocation/{current}/error":
        return InvocationError(body)
    return None


def _handler_of(api: RuntimeApi) -> type[Handler]:
    class RuntimeHandler(Handler):
        def do_GET(self) -> None:  # noqa: N802 - the base class's
            if self.path != _NEXT:
                self._say(HTTPStatus.NOT_FOUND, {"errorMessage": f"no {self.path}"})
                return
            given = api.next()
            if given is None:
                self.close_connection = True
                return
            invocation, headers = given
            self.answer(HTTPStatus.OK, invocation.event, headers.items())

        def do_POST(self) -> None:  # noqa: N802 - the base class's
            body = self.body(_MOST_ANSWER_BYTES)
            status = api.post(self.path, body)
            if status is HTTPStatus.ACCEPTED:
                self._say(status, {"status": "OK"})
            else:
                self._say(status, {"errorType": "InvalidRequestID", "errorMessage": self.path})

        def _say(self, status: HTTPStatus, document: dict[str, str]) -> None:
            headers = [("Content-Type", "application/json")]
            self.answer(status, json.dumps(document).encode(), headers)

    return RuntimeHandler
