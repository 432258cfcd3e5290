"""Writers of files from a topic of columnar values: `extentflow export`, and a program that copies.

A request has `topic`, `way` (export, copy), `to` (a folder or `s3://bucket/prefix/`), `bootstrap`
and `endpoint`. The copying program knows nothing of rows: it reads committed records, appends their
values to files of the same size, and stores these as safely (fsync, or an upload in parts), in the
background, as `extentflow export` does.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import boto3
from confluent_kafka import Consumer, KafkaError, TopicPartition

from bench.process import serve
from extentflow.export.partition_files import FILE_BYTES, ExportOptions
from extentflow.export.topic_export import FETCH, POLL_RECORDS, POLL_SECONDS, PUBLISHING_THREADS
from extentflow.services.composition import open_exports
from extentflow.wiring import Runtime

Store = Callable[[IO[bytes], str], None]


@dataclass
class _Copy:
    """Files of one partition."""

    partition: int
    folder: Path
    store: Store
    pool: ThreadPoolExecutor
    file: IO[bytes] | None = None
    size: int = 0
    count: int = 0
    running: list[Future[None]] = field(default_factory=list)

    def append(self, value: bytes) -> None:
        if self.file is not None and self.size + len(value) > FILE_BYTES:
            self.close()
        if self.file is None:
            self.file = tempfile.NamedTemporaryFile(dir=self.folder, delete=False)  # noqa: SIM115
        self.file.write(value)
        self.size += len(value)

    def close(self) -> None:
        if self.file is not None:
            name = f"{self.partition}-{self.count}"
            self.running.append(self.pool.submit(self.store, self.file, name))
            self.file, self.size, self.count = None, 0, self.count + 1


def _to_folder(folder: Path) -> Store:
    def store(file: IO[bytes], name: str) -> None:
        with file:
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).rename(folder / name)

    return store


def _to_s3(where: str, endpoint: str) -> Store:
    bucket, _, prefix = where.removeprefix("s3://").partition("/")
    client = boto3.client("s3", endpoint_url=endpoint)

    def store(file: IO[bytes], name: str) -> None:
        with file:
            file.flush()
            client.upload_file(file.name, bucket, f"{prefix}{name}")
            Path(file.name).unlink()

    return store


def _copy(request: dict[str, Any]) -> int:
    """Copy the values of a topic into files; return how many bytes."""
    topic, where = request["topic"], request["to"]
    consumer = Consumer(
        {
            "bootstrap.servers": request["bootstrap"],
            "group.id": f"{topic}.copy",
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            **FETCH,
        }
    )
    with tempfile.TemporaryDirectory(dir=request["scratch"]) as scratch:
        is_local = not where.startswith("s3://")
        if is_local:
            Path(where).mkdir(parents=True)
        store = _to_folder(Path(where)) if is_local else _to_s3(where, request["endpoint"])
        with ThreadPoolExecutor(PUBLISHING_THREADS) as pool:
            count = len(consumer.list_topics(topic).topics[topic].partitions)
            files = [_Copy(one, Path(scratch), store, pool) for one in range(count)]
            consumer.assign([TopicPartition(topic, one, 0) for one in range(count)])
            left, size = set(range(count)), 0
            while left:
                for message in consumer.consume(POLL_RECORDS, POLL_SECONDS):
                    error, value = message.error(), message.value()
                    partition: Any = message.partition()
                    if error is None and value is not None:
                        files[partition].append(value)
                        size += len(value)
                    elif error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
                        left.discard(partition)
            for one in files:
                one.close()
            for one in files:
                for running in one.running:
                    running.result()
    consumer.close()
    return size


def _export(runtime: Runtime, request: dict[str, Any]) -> int:
    settings = {"aws.s3.endpoint": request["endpoint"]} if request["to"].startswith("s3:") else {}
    found = open_exports(runtime, print).run(
        request["topic"],
        request["to"],
        ExportOptions(once=True),
        stop=lambda: False,
        settings=settings,
    )
    return sum(file.size_bytes for file in found)


def main() -> None:
    """Process runs, each into an empty place."""
    runtime = Runtime.from_environment()

    def run(request: dict[str, Any]) -> dict[str, Any]:
        started = time.perf_counter()
        is_ours = request["way"] == "export"
        size = _export(runtime, request) if is_ours else _copy(request)
        seconds = time.perf_counter() - started
        if not request["to"].startswith("s3:"):
            shutil.rmtree(request["to"])
        return {"bytes": size, "seconds": seconds}

    serve(run)


if __name__ == "__main__":
    main()
