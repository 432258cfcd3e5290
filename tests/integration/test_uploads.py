"""Each upload to the local S3 server is reported once, also across restarts of its parts."""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import EndpointConnectionError
from tests.integration.conftest import s3_client
from tests.support.waiting import eventually

from extentflow.discovery import Arrival
from extentflow.discovery.notifications import parse_notification
from extentflow_local.aws.event_source.notifier import Notifier
from extentflow_local.stack.servers.s3 import SeaweedS3, follow_command
from extentflow_local.stack.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PART_BYTES = 5 << 20


class UploadListener:
    """A notifier that runs, and keeps what it sends, or refuses while it is asked to."""

    def __init__(self, stack: Stack, buckets: tuple[str, ...], output: Path) -> None:
        weed = stack.toolbox.weed()
        (ports,) = (state.ports for state in stack.state() if state.name == "s3")
        self.arrivals: list[Arrival] = []
        self.refusing = threading.Event()
        self.refused = threading.Event()
        self.notifier = Notifier(
            lambda seconds: follow_command(weed, ports, seconds),
            self._take,
            output,
            buckets=buckets,
        )
        self.notifier.start()

    def stop(self) -> None:
        self.notifier.stop()
        self.notifier.join()

    def _take(self, document: str) -> None:
        if self.refusing.is_set():
            self.refused.set()
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")
        self.arrivals += parse_notification(document).arrivals

    def await_key(self, key: str) -> list[Arrival]:
        """Wait for an object, which is uploaded last; return what was reported until then."""
        eventually(f"{key} is reported", lambda: any(one.key == key for one in self.arrivals))
        return self.arrivals[:-1]


Listen = Callable[..., UploadListener]


@pytest.fixture
def listen(stack: Stack, tmp_path: Path) -> Iterator[Listen]:
    """Start notifiers of some buckets, or of all; they are stopped at the end."""
    with ExitStack() as running:

        def start(*buckets: str, of: Stack = stack) -> UploadListener:
            listener = UploadListener(of, buckets, tmp_path / "follow.log")
            running.callback(listener.stop)
            return listener

        yield start


def test_only_new_objects_are_notified(
    s3: "S3Client", bucket: str, prefix: str, listen: Listen
) -> None:
    s3.put_object(Bucket=bucket, Key=f"{prefix}before", Body=b"0")
    listener = listen(bucket)
    parts = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES)

    first = s3.put_object(Bucket=bucket, Key=f"{prefix}a b+c%25 ü☃.csv", Body=b"1")
    second = s3.put_object(Bucket=bucket, Key=f"{prefix}a b+c%25 ü☃.csv", Body=b"22")
    s3.put_object_tagging(
        Bucket=bucket,
        Key=f"{prefix}a b+c%25 ü☃.csv",
        Tagging={"TagSet": [{"Key": "a", "Value": "b"}]},
    )
    s3.upload_fileobj(io.BytesIO(bytes(2 * PART_BYTES + 1)), bucket, f"{prefix}parts", Config=parts)
    source = {"Bucket": bucket, "Key": f"{prefix}parts"}
    s3.copy_object(Bucket=bucket, Key=f"{prefix}copy", CopySource=source)  # type: ignore[arg-type]
    s3.delete_object(Bucket=bucket, Key=f"{prefix}parts")
    s3.put_object(Bucket=bucket, Key=f"{prefix}last", Body=b"")

    found = listener.await_key(f"{prefix}last")
    assert [(one.key.removeprefix(prefix), one.size) for one in found] == [
        ("a b+c%25 ü☃.csv", 1),
        ("a b+c%25 ü☃.csv", 2),
        ("parts", 2 * PART_BYTES + 1),
        ("copy", 2 * PART_BYTES + 1),
    ]
    assert [one.etag for one in found[:2]] == [
        first["ETag"].strip('"'),
        second["ETag"].strip('"'),
    ]
    assert {one.bucket for one in found} == {bucket}


def test_each_version_is_notified_with_its_id(
    s3: "S3Client", versioned_bucket: str, prefix: str, listen: Listen
) -> None:
    listener = listen(versioned_bucket)
    key = f"{prefix}a.csv"

    ids = [
        s3.put_object(Bucket=versioned_bucket, Key=key, Body=body)["VersionId"]
        for body in (b"1", b"22", b"22")
    ]
    s3.delete_object(Bucket=versioned_bucket, Key=key)
    s3.put_object(Bucket=versioned_bucket, Key=f"{prefix}last", Body=b"")

    found = listener.await_key(f"{prefix}last")
    assert [(one.key, one.version_id) for one in found] == [(key, each) for each in ids]


def test_other_buckets_are_not_notified(
    s3: "S3Client", bucket: str, versioned_bucket: str, prefix: str, listen: Listen
) -> None:
    listener = listen(bucket)

    s3.put_object(Bucket=versioned_bucket, Key=f"{prefix}other", Body=b"1")
    s3.put_object(Bucket=bucket, Key=f"{prefix}last", Body=b"1")

    assert listener.await_key(f"{prefix}last") == []


def test_a_notification_that_the_queue_rejects_is_sent_once_later(
    s3: "S3Client", bucket: str, prefix: str, listen: Listen
) -> None:
    listener = listen(bucket)
    listener.refusing.set()

    for number in range(3):
        s3.put_object(Bucket=bucket, Key=f"{prefix}{number}", Body=b"1")
    assert listener.refused.wait(60)
    listener.refusing.clear()
    s3.put_object(Bucket=bucket, Key=f"{prefix}last", Body=b"1")

    found = listener.await_key(f"{prefix}last")
    assert [one.key for one in found] == [f"{prefix}{number}" for number in range(3)]


@pytest.mark.long
def test_uploads_are_notified_once_after_server_and_reader_restart(
    tmp_path: Path, listen: Listen
) -> None:
    with Stack(tmp_path, services=[SeaweedS3()], free_ports=True) as stack:
        stack.up()
        client = s3_client(stack.endpoint("s3"))
        client.create_bucket(Bucket="shop")
        listener = listen(of=stack)
        client.put_object(Bucket="shop", Key="0", Body=b"0")
        listener.await_key("0")

        stack.restart("s3")
        client.put_object(Bucket="shop", Key="1", Body=b"1")
        listener.await_key("1")
        psutil.Process(listener.notifier.pid).kill()
        client.put_object(Bucket="shop", Key="2", Body=b"2")

        listener.await_key("2")
        listener.stop()
        assert [one.key for one in listener.arrivals] == ["0", "1", "2"]
        assert not psutil.pid_exists(listener.notifier.pid)
        client.close()
