"""A TCP proxy with a bandwidth: what all its clients send shares one rate."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HOST = "127.0.0.1"
# Small, so that the rate holds within fractions of a second, not only on average.
PIECE_BYTES = 16 << 10


class SlowLink:
    """Passes connections on to `target`; `bytes_per_second` bounds what clients send.

    `passed_bytes` is what they have sent so far. The next `losses` answers that contain `lost` are
    lost, each with its connection.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.target = 0
        self.passed_bytes = 0
        self.lost, self.losses = b"", 0
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._passing: list[threading.Thread] = []

    def accept(self) -> None:
        """Accept connections until `close`."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection((HOST, self.target))
            except OSError:  # the broker has ended before its clients
                client.close()
                continue
            self._passing = [one for one in self._passing if one.is_alive()]
            self._open = [one for one in self._open if one.fileno() >= 0] + [client, broker]
            for source, sink, slow in ((client, broker, True), (broker, client, False)):
                # A small window: bytes wait at the client, as with a slow network.
                source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
                passing = threading.Thread(target=self._pass, args=(source, sink, slow))
                passing.start()
                self._passing.append(passing)

    def hang_up(self) -> int:
        """Reset the open connections; return how many. New ones are accepted."""
        ended = 0
        for each in self._open:
            with suppress(OSError):  # it has ended by itself
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.shutdown(socket.SHUT_RDWR)
                ended += 1
        return ended

    def close(self) -> None:
        """Close every connection."""
        # Wakes the blocking `accept`, which a plain close leaves waiting.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for passing in self._passing:
            passing.join()

    def _pass(self, source: socket.socket, sink: socket.socket, slow: bool) -> None:  # noqa: FBT001
        with source, suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if slow:
                    self._wait(len(piece))
                elif self._loses(piece):
                    source.shutdown(socket.SHUT_RDWR)
                    sink.shutdown(socket.SHUT_RDWR)
                    return
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)

    def _loses(self, piece: bytes) -> bool:
        with self._lock:
            if not self.losses or self.lost not in piece:
                return False
            self.losses -= 1
        return True

    def _wait(self, size: int) -> None:
        with self._lock:
            self.passed_bytes += size
            # A late thread may catch up for a second, so that the average rate holds.
            start = max(self._free_at, time.monotonic() - 1.0)
            free_at = self._free_at = start + size / self.bytes_per_second
        time.sleep(max(0.0, free_at - time.monotonic()))


@contextmanager
def slow_link(bytes_per_second: float) -> Iterator[SlowLink]:
    """Run a proxy; set its `target` port before the first connection."""
    link = SlowLink(bytes_per_second)
    accepting = threading.Thread(target=link.accept, daemon=True)
    accepting.start()
    try:
        yield link
    finally:
        link.close()
        accepting.join()
