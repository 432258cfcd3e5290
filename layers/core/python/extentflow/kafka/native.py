"""Passes Arrow arrays to librdkafka's queue without a Python object per record.

Calls `rd_kafka_produce_batch` of the library that confluent-kafka bundles, through ctypes.
librdkafka copies the payloads, so that the arrays may be dropped.

    rd_kafka_message_t, 64-bit Linux (rdkafka.h)
    err i32, pad, topic ptr, partition i32, pad, payload ptr, size, key ptr, size, offset i64, ptr

Limits: no headers and timestamps, and no delivery reports. Only a transactional producer may send
this way, because its commit fails when a delivery failed.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import confluent_kafka
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from extentflow.kafka import Records, RejectedRecord
from extentflow.kafka.partitioning import PartitionBalancer

log = logging.getLogger(__name__)

Array: TypeAlias = "np.ndarray[Any, Any]"

_HEAD = [("err", "i4"), ("_1", "i4"), ("topic", "u8"), ("partition", "i4"), ("_2", "i4")]
_BYTES = [("payload", "u8"), ("payload_bytes", "u8"), ("key", "u8"), ("key_bytes", "u8")]
MESSAGE = np.dtype([*_HEAD, *_BYTES, ("offset", "i8"), ("private", "u8")])
# rdkafka.h: RD_KAFKA_MSG_F_COPY and _F_PARTITION; below, error codes of single messages.
COPY, EACH_ITS_PARTITION = 0x2, 0x8
ANY_PARTITION = -1
QUEUE_FULL = -184
TOO_LARGE = 10
SLICE_ROWS = 8_192
FULL_QUEUE_POLL_SECONDS = 0.1
OBJECT_HEADER_BYTES = 16

# A non-null address for values that are empty: a null pointer means a null value.
_NOT_NULL = np.zeros(1, np.uint8)


class Library:
    """librdkafka as the confluent-kafka wheel bundles it. Raises OSError where it is missing."""

    def __init__(self) -> None:
        package = Path(confluent_kafka.__file__).parent
        found = sorted((package.parent / "confluent_kafka.libs").glob("librdkafka-*.so*"))
        if len(found) != 1:
            raise OSError(f"{len(found)} librdkafka libraries beside {package}")
        self.path = found[0]
        library = ctypes.CDLL(str(self.path))

        def declare(name: str, result: Any, *arguments: Any) -> Any:  # noqa: ANN401 - of ctypes
            function = library[f"rd_kafka_{name}"]
            function.restype, function.argtypes = result, arguments
            return function

        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        self.name = declare("name", text, pointer)
        self.topic_new = declare("topic_new", pointer, pointer, text, pointer)
        self.topic_destroy = declare("topic_destroy", None, pointer)
        self.produce_batch = declare(
            "produce_batch", number, pointer, ctypes.c_int32, number, pointer, number
        )

    @staticmethod
    def handle(producer: Producer) -> int:
        """Return the `rd_kafka_t *` of a producer: the first field after the object header."""
        return int(ctypes.c_void_p.from_address(id(producer) + OBJECT_HEADER_BYTES).value or 0)


def enqueue_arrays(
    library: Library,
    producer: Producer,
    records: Records,
    check: Callable[[], None],
    balancer: PartitionBalancer | None = None,
) -> list[RejectedRecord]:
    """Queue `records` (without headers, timestamps) in order; return those too large for the topic.

    Waits while the queue is full. `check` raises when a delivery failed; it is called after each
    slice and while waiting. `balancer` chooses a partition for each slice of records without one.
    Raises KafkaException for any error except a full queue or a too large record.
    """
    rejected: list[RejectedRecord] = []
    with _topic(library, producer, records.topic) as topic:
        for start in range(0, len(records.values), SLICE_ROWS):
            rest = _messages(records, start)
            first = start
            # A call for one partition takes a third less CPU than one with a partition per record.
            partition = records.partition if balancer is None else balancer.choose(len(rest))
            while len(rest):
                # Once the queue is full, librdkafka rejects all later messages of the call, so
                # offering the rest again keeps the order.
                taken, oversized = _offer(library, topic, partition, rest)
                rejected += [
                    too_large(first + at, rest["payload_bytes"][at], rest["key_bytes"][at])
                    for at in oversized
                ]
                rest, first = rest[taken:], first + taken
                producer.poll(FULL_QUEUE_POLL_SECONDS if len(rest) else 0)
                check()
    return rejected


@contextmanager
def _topic(library: Library, producer: Producer, name: str) -> Iterator[int]:
    topic = library.topic_new(library.handle(producer), name.encode(), None)
    if not topic:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"topic {name}"))  # noqa: SLF001 - its only name
    try:
        yield topic
    finally:
        library.topic_destroy(topic)


def _offer(library: Library, topic: int, partition: int, messages: Array) -> tuple[int, list[int]]:
    """Offer messages once; return how many were consumed, and which of these are too large."""
    count = len(messages)
    flags = COPY | EACH_ITS_PARTITION if partition == ANY_PARTITION else COPY
    taken = library.produce_batch(topic, partition, flags, messages.ctypes.data, count)
    if taken == count:
        return count, []
    full = np.flatnonzero(messages["err"] == QUEUE_FULL)
    end = int(full[0]) if len(full) else count
    faults = [int(index) for index in np.flatnonzero(messages["err"][:end])]
    for index in faults:
        if messages["err"][index] != TOO_LARGE:
            raise KafkaException(KafkaError(int(messages["err"][index])))
    return end, faults


def too_large(index: int, *sizes: int) -> RejectedRecord:
    """Return the rejection of a record whose key and value exceed the topic's limit."""
    return RejectedRecord(index, f"a record of {sum(sizes)} bytes is too large for the topic")


def _messages(records: Records, start: int) -> Array:
    values = records.values.slice(start, SLICE_ROWS)
    messages = np.zeros(len(values), MESSAGE)
    messages["partition"] = ANY_PARTITION
    if records.partitions is not None:
        messages["partition"] = records.partitions.slice(start, SLICE_ROWS).to_numpy()
    messages["payload"], messages["payload_bytes"] = _pointers(values)
    if records.keys is not None:
        messages["key"], messages["key_bytes"] = _pointers(records.keys.slice(start, SLICE_ROWS))
    return messages


def _pointers(array: pa.BinaryArray | pa.LargeBinaryArray) -> tuple[Array, Array]:
    """Return address and length of each element; a null has a null address."""
    wide = pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    kind = np.dtype(np.int64 if wide else np.int32)
    ends = np.frombuffer(
        offsets, kind, count=len(array) + 1, offset=array.offset * kind.itemsize
    ).astype(np.uint64)
    base = data.address if data is not None and data.size else _NOT_NULL.ctypes.data
    addresses, lengths = ends[:-1] + np.uint64(base), np.diff(ends)
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        addresses[missing] = lengths[missing] = 0
    return addresses, lengths


# -- whether this installation may be trusted ------------------------------------------------------
#
# A wrong assumption about memory layout would crash the worker. A child process therefore queues
# records on a producer without a broker first; a mark in the temporary folder, owned by this user,
# spares other processes the same check.

TESTED_VERSIONS = frozenset({"2.16.0", "2.16.1"})
PROOF_SECONDS = 30.0
MACHINES = frozenset({"x86_64", "aarch64"})


@cache
def trusted_library() -> Library | None:
    """Return librdkafka if this installation passed the check, None for the per-record path."""
    why = _untrusted()
    if why is not None:
        log.info("records are queued one by one: %s", why)
        return None
    return Library()


def explain(*, wanted: bool = True) -> str:
    """Return how records reach librdkafka here, and why; `wanted` unless `sink.enqueue=records`."""
    why = _untrusted() if wanted else "sink.enqueue=records"
    if why is None:
        return "the Kafka client takes the records of an array in one call"
    return f"the Kafka client takes records one by one, with more CPU time ({why})"


def _untrusted() -> str | None:
    """Return why the direct way may not be used; None when it may."""
    version = metadata.version("confluent-kafka")
    if sys.platform != "linux" or platform.machine() not in MACHINES or sys.maxsize < 2**32:
        return f"{sys.platform} on {platform.machine()} is not 64-bit Linux"
    if platform.python_implementation() != "CPython":
        return f"{platform.python_implementation()} is not CPython"
    if version not in TESTED_VERSIONS:
        return f"confluent-kafka {version} is not among the tested {sorted(TESTED_VERSIONS)}"
    try:
        library = Library()
    except OSError as exc:
        return str(exc)
    return None if _is_proven(library) else "the check in a child process failed"


def _mark(library: Library) -> Path:
    seen = library.path.stat()
    identity = f"{library.path}:{seen.st_size}:{seen.st_mtime_ns}:{sys.version}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"extentflow-layout-{os.getuid()}-{digest}")


def _is_proven(library: Library) -> bool:
    """Whether `prove` succeeded in a child process, now or before (recorded by the mark)."""
    with suppress(OSError):
        if _mark(library).lstat().st_uid == os.getuid():
            return True
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", "from extentflow.kafka.native import prove; prove()"]
    try:
        subprocess.run(
            command, env=env, capture_output=True, text=True, check=True, timeout=PROOF_SECONDS
        )
    except subprocess.CalledProcessError as exc:
        log.warning(
            "the check of librdkafka's layout ended with %s: %s", exc.returncode, exc.stderr
        )
        return False
    except (OSError, subprocess.TimeoutExpired) as exc:
        log.warning("the check of librdkafka's layout did not run: %s", exc)
        return False
    try:
        _mark(library).touch(mode=0o600)
    except OSError as exc:
        log.debug("the result of the layout check was not stored: %s", exc)
    return True


def prove() -> None:
    """Raise, or crash, unless librdkafka reads our messages correctly; runs in a child process.

    The handle must return the name of the client, and the queue must hold as many records as were
    sent. Exactly the two too large records must be rejected, by their index and size.
    """
    settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.max.bytes": 1_000}
    producer = Producer(settings)
    library = Library()
    name = library.name(library.handle(producer))
    if name is None or not name.startswith(b"rdkafka#producer-"):
        raise RuntimeError(f"the handle's name is {name!r}")
    values = pa.array([b"a", None, b"v" * 5_000, b"", b"b", b"last"], pa.binary())
    keys = pa.array([None, b"k", b"", b"kk", b"k" * 7_000, None], pa.large_binary())
    for partition in (-1, 3):
        records = Records("layout", values, keys, partition=partition)
        rejected = enqueue_arrays(library, producer, records, lambda: None)
        reported = [(one.index, "".join(filter(str.isdigit, one.reason))) for one in rejected]
        if reported != [(2, "5000"), (4, "7001")]:
            raise RuntimeError(f"rejected were {rejected}")
    if len(producer) != 2 * (len(values) - len(reported)):
        raise RuntimeError(f"{len(producer)} records are queued")
    producer.purge(blocking=False)
    producer.flush(10)
    if len(producer):
        raise RuntimeError(f"{len(producer)} records were not purged")
