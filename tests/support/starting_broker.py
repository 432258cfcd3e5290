"""A broker that has just started: for a while, it lists no broker in its metadata.

Speaks ApiVersions 3 and Metadata 0 to 8 of Kafka's protocol, and nothing else.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.loopback_broker import HOST, LoopbackBroker, serving, text

CLUSTER = "a-cluster-of-one-broker"
_API_VERSIONS, _METADATA = 18, 3
_VERSIONS = ((_API_VERSIONS, 0, 3), (_METADATA, 0, 8), (32, 0, 1))
_NODE = 1


class StartingBroker(LoopbackBroker):
    """Answers `empty` (numbers of Metadata requests, from 1) with neither brokers nor topics."""

    def __init__(self, empty: range) -> None:
        super().__init__()
        self.asked = 0
        self._empty = empty

    def answer(self, key: int, version: int, request: bytes) -> bytes:  # noqa: ARG002 - see base
        """See `LoopbackBroker`."""
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
            + text(CLUSTER)
            + struct.pack(">ii", _NODE, 0)
            + (struct.pack(">i", -(2**31)) if version >= 8 else b"")
        )

    def _itself(self) -> bytes:
        return struct.pack(">i", _NODE) + text(HOST) + struct.pack(">ih", self.port, -1)


@contextmanager
def starting_broker(empty: range) -> Iterator[StartingBroker]:
    """Run a broker that lists no broker in its answers `empty`."""
    with serving(StartingBroker(empty)) as broker:
        yield broker
