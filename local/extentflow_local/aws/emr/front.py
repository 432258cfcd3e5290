"""The API of EMR Serverless on a port of this machine; signatures are not checked."""

import json
from http import HTTPStatus
from typing import Any

from extentflow_local.aws.emr.application import Application
from extentflow_local.aws.emr.description import Call, Refused, call_of, status_of
from extentflow_local.aws.event_source.serving import AnyMethod, Handler, LoopbackServer
from extentflow_local.stack.ports import HOST

_MOST_BODY_BYTES = 1 << 20
_LONGEST_MESSAGE = 1024
_JSON = ("Content-Type", "application/json")


class Front:
    """Serves one application on a port of 127.0.0.1; 0 picks a free one."""

    def __init__(self, application: Application, port: int = 0) -> None:
        self._application = application
        self._server = LoopbackServer(_handler_of(self), port)

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

    def answer(self, call: Call) -> dict[str, Any]:
        """Return the response of an operation. Raises Refused."""
        match call.name:
            case "StartJobRun":
                return self._application.start(call.parameters)
            case "GetJobRun":
                return self._application.get(call.parameters)
            case _:
                return self._application.cancel(call.parameters)


def _handler_of(front: Front) -> type[Handler]:
    class EmrHandler(AnyMethod):
        def take(self) -> None:
            try:
                body = self.body(_MOST_BODY_BYTES)
                answer = front.answer(call_of(self.command, self.path, body))
            except Refused as exc:
                self._refuse(exc.kind, str(exc))
            except (ValueError, OverflowError) as exc:
                self.close_connection = True  # the unread rest would be read as the next request
                self._refuse("ValidationException", f"the body cannot be read: {exc}")
            else:
                self.answer(HTTPStatus.OK, json.dumps(answer).encode(), [_JSON])

        def _refuse(self, kind: str, message: str) -> None:
            body = json.dumps({"message": message[:_LONGEST_MESSAGE]}).encode()
            self.answer(status_of(kind), body, [_JSON, ("x-amzn-ErrorType", kind)])

    return EmrHandler
