"""A broker that has just started: for a while, it lists no broker in its metadata.

Speaks ApiVersions 3 and Metadata 0 to 8 of Kafka's protocol, and nothing else.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HOST = "127.0.0.1"
CLUSTER = "a-cluster-of-one-broker"
_API_VERSIONS, _METADATA = 18, 3
_VERSIONS = ((_API_VERSIONS, 0, 3), (_METADATA, 0, 8), (32, 0, 1))
_NODE = 1


class StartingBroker:
    """Answers `empty` (numbers of Metadata requests, from 1) with neither brokers nor topics."""

    def __init__(self, empty: range) -> None:
        self.asked = 0
        self._empty = empty
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()

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
                answer = struct.pack(">i", correlation) + self._answer(key, version)
                client.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, key: int, version: int) -> bytes:
        if key == _API_VERSIONS:
            listed = b"".join(struct.pack(">hhh", *one) + b"\0" for one in _VERSIONS)
            return struct.pack(">hB", 0, len(_VERSIONS) + 1) + listed + struct.pack(">ib", 0, 0)
        if key != _METADATA:
            raise OSError(f"request {key} is not supported")
        with self._lock:
            self.asked += 1
            number = self.asked
        brokers = b"" if number in self._empty else self._itself()
        return (
            struct.pack(">ii", 0, int(bool(brokers)))
            + brokers
            + _text(CLUSTER)
            + struct.pack(">ii", _NODE, 0)
            + (struct.pack(">i", -(2**31)) if version >= 8 else b"")
        )

    def _itself(self) -> bytes:
        return struct.pack(">i", _NODE) + _text(HOST) + struct.pack(">ih", self.port, -1)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _exactly(client: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        block = client.recv(size - len(read))
        if not block:
            raise OSError("the client has ended")
        read += block
    return read


@contextmanager
def starting_broker(empty: range) -> Iterator[StartingBroker]:
    """Run a broker that lists no broker in its answers `empty`."""
    broker = StartingBroker(empty)
    accepting = threading.Thread(target=broker.accept, daemon=True)
    accepting.start()
    try:
        yield broker
    finally:
        broker.close()
        accepting.join()
