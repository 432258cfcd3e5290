"""A server on 127.0.0.1 for requests of Kafka's protocol; a subclass makes the answers."""

import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

HOST = "127.0.0.1"
B = TypeVar("B", bound="LoopbackBroker")


class LoopbackBroker(ABC):
    """Answers the requests of any number of connections, each on a thread of its own."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()

    @abstractmethod
    def answer(self, key: int, version: int, request: bytes) -> bytes:
        """Return the body of an answer; OSError ends the connection."""

    def accept(self) -> None:
        """Serve connections until `close`."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Stop accepting."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, struct.error):
            while True:
                (size,) = struct.unpack(">i", _exactly(client, 4))
                request = _exactly(client, size)
                key, version, correlation = struct.unpack(">hhi", request[:8])
                answer = struct.pack(">i", correlation) + self.answer(key, version, request)
                client.sendall(struct.pack(">i", len(answer)) + answer)


def text(value: str) -> bytes:
    """Return a text as the protocol encodes it."""
    return struct.pack(">h", len(value)) + value.encode()


@contextmanager
def serving(broker: B) -> Iterator[B]:
    """Run a broker."""
    accepting = threading.Thread(target=broker.accept, daemon=True)
    accepting.start()
    try:
        yield broker
    finally:
        broker.close()
        accepting.join()


def _exactly(client: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        block = client.recv(size - len(read))
        if not block:
            raise OSError("the client has ended")
        read += block
    return read
