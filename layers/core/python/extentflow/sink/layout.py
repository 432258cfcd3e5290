"""Whether arrays may be handed to librdkafka directly, in this process's installation.

Owns: the versions that were tested, the proof in a child process. Refuses to know: what is sent.

The proof runs where a wrong assumption crashes nobody: a child process hands records to a producer
that has no broker, and looks at what is queued and what is refused. A mark in the temporary folder,
owned by this user, spares other processes the same.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import subprocess
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer

from extentflow.sink import Records
from extentflow.sink.native import Library, enqueue_arrays

log = logging.getLogger(__name__)

TESTED_VERSIONS = frozenset({"2.16.0", "2.16.1"})
PROOF = "from extentflow.sink.layout import prove; prove()"
PROOF_SECONDS = 30.0
MACHINES = frozenset({"x86_64", "aarch64"})


@cache
def trusted_library() -> Library | None:
    """Return librdkafka when arrays may be handed to it, None for the per-record path."""
    why = _untrusted()
    if why is not None:
        log.info("records are queued one by one: %s", why)
        return None
    return Library()


def explain(*, wanted: bool = True) -> str:
    """Return which way records are queued here, and why; for `doctor`.

    `wanted`: whether arrays are queued where they may be.
    """
    why = _untrusted() if wanted else "sink.enqueue=records"
    return "whole arrays" if why is None else f"one record after the other: {why}"


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
    return None if _marked(library) or _proved(library) else "the proof in a child process failed"


def _mark(library: Library) -> Path:
    seen = library.path.stat()
    identity = f"{library.path}:{seen.st_size}:{seen.st_mtime_ns}:{sys.version}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"extentflow-layout-{os.getuid()}-{digest}")


def _marked(library: Library) -> bool:
    try:
        return _mark(library).lstat().st_uid == os.getuid()
    except OSError:
        return False


def _proved(library: Library) -> bool:
    """Run the proof in a child; leave the mark when it held."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        child = subprocess.run(
            [sys.executable, "-c", PROOF],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROOF_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        log.warning("the proof of librdkafka's layout did not run: %s", exc)
        return False
    if child.returncode != 0:
        log.warning(
            "the proof of librdkafka's layout ended with %s: %s", child.returncode, child.stderr
        )
        return False
    try:
        _mark(library).touch(mode=0o600)
    except OSError as exc:
        log.debug("the proof is not remembered: %s", exc)
    return True


def prove() -> None:
    """Raise, or crash, unless librdkafka reads what is handed over; runs in a child process.

    The handle answers with the client's name; the number queued is the number sent; and exactly
    the two records whose value or key is too large are refused, each by its own index and size.
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
        refused = enqueue_arrays(library, producer, records, lambda: None)
        told = [(one.index, "".join(filter(str.isdigit, one.reason))) for one in refused]
        if told != [(2, "5000"), (4, "7001")]:
            raise RuntimeError(f"refused were {refused}")
    if len(producer) != 2 * (len(values) - len(told)):
        raise RuntimeError(f"{len(producer)} records are queued")
    producer.purge(blocking=False)
    producer.flush(10)
    if len(producer):
        raise RuntimeError(f"{len(producer)} records were not purged")
