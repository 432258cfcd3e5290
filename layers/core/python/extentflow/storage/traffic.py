"""What a store has fetched so far.

Owns: two counters that many threads may feed. Refuses to know: from where, and whether the bytes
were any good: a body that had to be fetched again counts twice.
"""

import threading


class Traffic:
    """Requests made and body bytes received by one store in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = 0
        self._fetched_bytes = 0

    @property
    def requests(self) -> int:
        """Requests made, attempts that failed included."""
        return self._requests

    @property
    def fetched_bytes(self) -> int:
        """Bytes of object bodies received, those of discarded bodies included."""
        return self._fetched_bytes

    def asked(self) -> None:
        """Count one request."""
        with self._lock:
            self._requests += 1

    def received(self, body_bytes: int) -> None:
        """Count the bytes of one body."""
        with self._lock:
            self._fetched_bytes += body_bytes
