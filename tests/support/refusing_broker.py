"""A broker that refuses transactions, at the request that the parameters name.

Speaks the oldest versions of the few requests that producers and their groups send. Which requests
it lists (ApiVersions), and the errors of its answers, are parameters. It drops records. No real
broker refuses transactions on demand.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.loopback_broker import HOST, LoopbackBroker, serving, text

CLUSTER = "a-cluster-without-transactions"
NODE = 1

PRODUCE, FETCH, METADATA, COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 10, 18, 22
OFFSET_FETCH, DESCRIBE_CONFIGS = 9, 32
ADD_PARTITIONS, ADD_OFFSETS, END_TXN, OFFSET_COMMIT = 24, 25, 26, 28
TRANSACTIONAL = (ADD_PARTITIONS, ADD_OFFSETS, END_TXN, OFFSET_COMMIT)
# Versions that have no compact encoding.
VERSIONS: Mapping[int, tuple[int, int]] = {
    PRODUCE: (3, 7),
    FETCH: (0, 4),
    OFFSET_FETCH: (0, 1),
    METADATA: (0, 8),
    COORDINATOR: (0, 1),
    API_VERSIONS: (0, 2),
    INIT_PRODUCER_ID: (0, 1),
    ADD_PARTITIONS: (0, 0),
    ADD_OFFSETS: (0, 0),
    END_TXN: (0, 1),
    OFFSET_COMMIT: (0, 0),
    DESCRIBE_CONFIGS: (0, 0),
}
TOPICS = ("records", "extentflow.progress", "extentflow.jobs")
OF_TRANSACTIONS = 1  # a coordinator's kind
UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
ENCODING_OF_API_VERSIONS = 3  # and later: compact


@dataclass
class RefusingBroker(LoopbackBroker):
    """Answers the requests in `refused` with their error code, and lacks those in `lacking`.

    `received` counts requests by their number.
    """

    refused: Mapping[int, int] = field(default_factory=dict)
    lacking: Sequence[int] = ()
    received: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def address(self) -> str:
        """The bootstrap server."""
        return f"{HOST}:{self.port}"

    def answer(self, key: int, version: int, request: bytes) -> bytes:
        """See `LoopbackBroker`; counts the request."""
        with self._lock:
            self.received[key] = self.received.get(key, 0) + 1
        (length,) = struct.unpack(">h", request[8:10])
        body = _Reader(request, 10 + max(length, 0))
        code = self.refused.get(key, 0)
        # As brokers without transactions do, which have groups and idempotent producers.
        if key == COORDINATOR and request[-1] != OF_TRANSACTIONS:
            code = 0
        if key == INIT_PRODUCER_ID and body.is_null():
            code = 0
        answers: Mapping[int, Callable[[], bytes]] = {
            API_VERSIONS: lambda: self._versions(version),
            METADATA: lambda: self._metadata(version, body),
            COORDINATOR: lambda: struct.pack(">ihhi", 0, code, -1, NODE) + self._itself(),
            INIT_PRODUCER_ID: lambda: struct.pack(">ihqh", 0, code, 1_000, 0),
            ADD_OFFSETS: lambda: struct.pack(">ih", 0, code),
            END_TXN: lambda: struct.pack(">ih", 0, code),
            ADD_PARTITIONS: lambda: self._added(body, code),
            OFFSET_COMMIT: lambda: self._committed(body, code),
            PRODUCE: lambda: self._produced(body, code),
            OFFSET_FETCH: lambda: self._no_offset(body),
            DESCRIBE_CONFIGS: lambda: self._no_settings(body),
        }
        if key not in answers:
            raise OSError(f"request {key} is not supported")
        return answers[key]()

    def _itself(self) -> bytes:
        return text(HOST) + struct.pack(">i", self.port)

    @staticmethod
    def _added(body: "_Reader", code: int) -> bytes:
        body.text()
        body.skip(10)
        return struct.pack(">i", 0) + body.topics(lambda: None, struct.pack(">h", code))

    @staticmethod
    def _committed(body: "_Reader", code: int) -> bytes:
        body.text()
        body.text()
        body.skip(10)

        def offset() -> None:
            body.skip(8)
            body.text()

        return struct.pack(">i", 0) + body.topics(offset, struct.pack(">h", code))

    @staticmethod
    def _produced(body: "_Reader", code: int) -> bytes:
        body.text()
        body.skip(6)
        rest = struct.pack(">hqqq", code, 0, -1, 0)
        return body.topics(lambda: body.skip(body.number()), rest) + struct.pack(">i", 0)

    @staticmethod
    def _no_offset(body: "_Reader") -> bytes:
        """Answer that the group committed nothing."""
        body.text()
        rest = struct.pack(">q", -1) + text("") + struct.pack(">h", 0)
        return body.topics(lambda: None, rest)

    @staticmethod
    def _no_settings(body: "_Reader") -> bytes:
        """Answer that nothing is set for the resources."""
        count = body.number()
        answer = struct.pack(">ii", 0, count)
        for _ in range(count):
            resource = struct.pack(">hh", 0, -1) + body.octets(1) + body.text()
            for _ in range(max(body.number(), 0)):
                body.text()
            answer += resource + struct.pack(">i", 0)
        return answer

    def _versions(self, version: int) -> bytes:
        listed = {key: VERSIONS[key] for key in VERSIONS if key not in self.lacking}
        if version >= ENCODING_OF_API_VERSIONS:
            code = struct.pack(">h", UNSUPPORTED_VERSION)  # answered by version 0
        else:
            code = struct.pack(">h", 0)
        rows = b"".join(struct.pack(">hhh", key, *span) for key, span in listed.items())
        answer = code + struct.pack(">i", len(listed)) + rows
        return answer + struct.pack(">i", 0) if version in (1, 2) else answer

    def _metadata(self, version: int, body: "_Reader") -> bytes:
        """Describe the topics that a request names, and no others: librdkafka ends with those."""
        count = body.number()
        every = count < 0 or (count == 0 and version == 0)
        names = [*TOPICS] if every else [body.text()[2:].decode() for _ in range(count)]
        broker = struct.pack(">i", NODE) + text(HOST) + struct.pack(">ih", self.port, -1)
        partition = (
            struct.pack(">hii", 0, 0, NODE)
            + (struct.pack(">i", 0) if version >= 7 else b"")
            + struct.pack(">iiii", 1, NODE, 1, NODE)
            + (struct.pack(">i", 0) if version >= 5 else b"")
        )
        absent = struct.pack(">i", 0)
        topics = b"".join(
            struct.pack(">h", 0 if name in TOPICS else UNKNOWN_TOPIC_OR_PARTITION)
            + text(name)
            + b"\0"
            + (struct.pack(">i", 1) + partition if name in TOPICS else absent)
            + (struct.pack(">i", -(2**31)) if version >= 8 else b"")
            for name in names
        )
        return (
            (struct.pack(">i", 0) if version >= 3 else b"")
            + struct.pack(">i", 1)
            + broker
            + (text(CLUSTER) if version >= 2 else b"")
            + struct.pack(">ii", NODE, len(names))
            + topics
            + (struct.pack(">i", -(2**31)) if version >= 8 else b"")
        )


class _Reader:
    """Reads a request from a place on."""

    def __init__(self, request: bytes, at: int) -> None:
        self._request, self._at = request, at

    def is_null(self) -> bool:
        return self._request[self._at : self._at + 2] == b"\xff\xff"

    def skip(self, count: int) -> None:
        self._at += count

    def octets(self, count: int) -> bytes:
        self._at += count
        return self._request[self._at - count : self._at]

    def number(self) -> int:
        (found,) = struct.unpack_from(">i", self._request, self._at)
        self._at += 4
        return int(found)

    def text(self) -> bytes:
        """Return a string with its length; -1 has no content."""
        (length,) = struct.unpack_from(">h", self._request, self._at)
        begin, self._at = self._at, self._at + 2 + max(length, 0)
        return self._request[begin : self._at]

    def topics(self, rest: Callable[[], object], code: bytes) -> bytes:
        """Return an answer for each partition of the topics; `rest` reads what follows a number."""
        count = self.number()
        answer = struct.pack(">i", count)
        for _ in range(count):
            answer += self.text()
            partitions = self.number()
            answer += struct.pack(">i", partitions)
            for _ in range(partitions):
                answer += struct.pack(">i", self.number()) + code
                rest()
        return answer


@contextmanager
def refusing_broker(
    refused: Mapping[int, int] | None = None, lacking: Sequence[int] = ()
) -> Iterator[RefusingBroker]:
    """Run a broker that refuses these requests with their codes, and does not list `lacking`."""
    with serving(RefusingBroker(refused=refused or {}, lacking=lacking)) as broker:
        yield broker
