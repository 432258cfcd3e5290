"""An HTTP port in front of functions, as API Gateway or a function URL."""

import json
from collections.abc import Callable, Sequence
from http import HTTPStatus

from extentflow.retry import Clock
from extentflow_local.aws.event_source.delivery import Delivery, Observe
from extentflow_local.aws.event_source.deployment import FrontKind, Route
from extentflow_local.aws.event_source.execution import Outcome
from extentflow_local.aws.event_source.http_events import (
    HttpAnswer,
    HttpRequest,
    answer_of,
    event_of,
)
from extentflow_local.aws.event_source.routes import match
from extentflow_local.aws.event_source.serving import AnyMethod, Handler, LoopbackServer
from extentflow_local.stack.errors import PortTaken
from extentflow_local.stack.ports import HOST

# Limit of API Gateway.
_MOST_BODY_BYTES = 10 << 20

# Calls a function, by the name of its folder.
Invoke = Callable[[str, bytes], Outcome]


class Front:
    """Serves the routes on a port of 127.0.0.1; 0 picks a free one."""

    def __init__(
        self, routes: Sequence[Route], port: int, *, invoke: Invoke, observe: Observe, clock: Clock
    ) -> None:
        self._routes = routes
        self._invoke = invoke
        self._observe = observe
        self._clock = clock
        try:
            self._server = LoopbackServer(_handler_of(self), port)
        except OSError as exc:
            raise PortTaken(
                f"port {port} (receiver) is taken by another process: stop it, for example another"
                " `extentflow serve`, or choose another port: --receiver-port or"
                " EXTENTFLOW_LOCAL_RECEIVER_PORT"
            ) from exc

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{HOST}:{self._server.port}"

    def start(self) -> None:
        """Start to serve."""
        self._server.start()

    def stop(self) -> None:
        """Complete requests in progress, and stop."""
        self._server.stop()

    def take(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, source: str
    ) -> HttpAnswer:
        """Invoke the function for a request and send its response."""
        found = match(self._routes, method, target.partition("?")[0])
        if found is None:
            return _message(HTTPStatus.NOT_FOUND, "Not Found")
        route, matched = found
        request = HttpRequest(
            method=method,
            target=target,
            headers=tuple(headers),
            body=body,
            source=source,
            received=self._clock.wall(),
        )
        outcome = self._invoke(route.function, event_of(request, matched))
        self._observe(Delivery(function=route.function, outcome=outcome))
        return _answer(outcome, route.front)


def _answer(outcome: Outcome, front: FrontKind) -> HttpAnswer:
    if outcome.ok:
        try:
            return answer_of(outcome.payload)
        except ValueError:
            pass
    if front == "function-url":
        return _message(HTTPStatus.BAD_GATEWAY, "Internal Server Error")
    return _message(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error")


def _message(status: HTTPStatus, message: str) -> HttpAnswer:
    body = json.dumps({"message": message}).encode()
    return HttpAnswer(status, (("content-type", "application/json"),), body)


def _handler_of(front: Front) -> type[Handler]:
    class FrontHandler(AnyMethod):
        def take(self) -> None:
            try:
                body = self.body(_MOST_BODY_BYTES)
            except ValueError:
                self._refuse(HTTPStatus.BAD_REQUEST, "Bad Request")
            except OverflowError:
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Request Entity Too Large")
            else:
                source = str(self.client_address[0])
                self._send(front.take(self.command, self.path, self.headers.items(), body, source))

        def _refuse(self, status: HTTPStatus, message: str) -> None:
            # The unread rest of the request would be read as the next one.
            self.close_connection = True
            self._send(_message(status, message))

        def _send(self, answer: HttpAnswer) -> None:
            self.answer(answer.status, answer.body, answer.headers)

    return FrontHandler
