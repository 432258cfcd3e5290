"""Folders of a bucket: the contract, and what a folder asks its server before it writes."""

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws
from tests.contracts.folder import FolderContract
from tests.support.golden import Golden
from tests.unit.storage.conftest import HandTurnedClock, OpenStore
from tests.unit.storage.loopback import Loopback, Reply

from extentflow.errors import BucketGone, StoreUnavailable
from extentflow.storage import StoreOptions
from extentflow.storage.folders import Folder
from extentflow.storage.s3 import S3Store


class TestS3Folder(FolderContract):
    @pytest.fixture
    def folder(self) -> Iterator[Folder]:
        with mock_aws():
            boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="lake")
            yield S3Store(StoreOptions(region="us-east-1")).folder("lake", "in/")


def test_a_bucket_that_does_not_exist_is_named_before_anything_is_put(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    server.script.append(Reply(404))

    with golden.raises(BucketGone, match=f"s3://tpyo.*{server.url}"):
        store.folder("tpyo", "").require_bucket()

    assert [(one.method, one.path) for one in server.seen] == [("HEAD", "/tpyo")]


@pytest.mark.parametrize("status", [200, 403])
def test_a_bucket_that_may_exist_is_used(store: S3Store, server: Loopback, status: int) -> None:
    server.script.append(Reply(status))

    store.folder("lake", "").require_bucket()


def test_a_server_that_does_not_answer_is_waited_for_once(
    open_store: OpenStore, server: Loopback, hand_turned: HandTurnedClock
) -> None:
    server.script.extend([Reply(503)] * 1000)
    folder = open_store().folder("lake", "in/")

    with pytest.raises(StoreUnavailable, match="gave up after"):
        folder.creates_once()

    assert hand_turned.now <= 20.0
    assert {one.method for one in server.seen} == {"PUT"}
