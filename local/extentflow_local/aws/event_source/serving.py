"""An HTTP server on the loopback interface that ends all its threads when it stops."""

from http.server import BaseHTTPRequestHandler

from extentflow.http.serving import AnyMethod, Handler, HttpServer
from extentflow_local.stack.ports import HOST

__all__ = ["AnyMethod", "Handler", "LoopbackServer"]


class LoopbackServer(HttpServer):
    """Serves from `start` to `stop`; port 0 picks a free one."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        super().__init__((HOST, port), handler)
