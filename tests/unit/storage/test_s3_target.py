"""What a target in S3 asks its server before it writes."""

import pytest
from tests.unit.storage.conftest import HandTurnedClock, OpenStore
from tests.unit.storage.loopback import Loopback, Reply

from extentflow.errors import BucketGone, StoreUnavailable
from extentflow.storage.s3 import S3Store, S3Target


def test_a_bucket_that_does_not_exist_is_named_before_anything_is_put(
    store: S3Store, server: Loopback
) -> None:
    server.script.append(Reply(404))

    with pytest.raises(BucketGone, match=rf"s3://tpyo: no such bucket at {server.url}"):
        S3Target(store.uploads(), "tpyo", "").require_bucket()

    assert [(one.method, one.path) for one in server.seen] == [("HEAD", "/tpyo")]


@pytest.mark.parametrize("status", [200, 403])
def test_a_bucket_that_may_exist_is_used(store: S3Store, server: Loopback, status: int) -> None:
    server.script.append(Reply(status))

    S3Target(store.uploads(), "lake", "").require_bucket()


def test_a_server_that_does_not_answer_is_waited_for_once(
    open_store: OpenStore, server: Loopback, hand_turned: HandTurnedClock
) -> None:
    server.script.extend([Reply(503)] * 1000)
    target = S3Target(open_store().uploads(), "lake", "in/")

    with pytest.raises(StoreUnavailable, match="gave up after"):
        target.refuses_existing()

    assert hand_turned.now <= 20.0
    assert {one.method for one in server.seen} == {"PUT"}
