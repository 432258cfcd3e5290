"""Pinned, compared, retried reads over S3."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError
from tests.support.golden import Golden
from tests.unit.storage.conftest import HandTurnedClock, OpenStore
from tests.unit.storage.loopback import Loopback, Reply, Request, error

from extentflow.config.hosts import OF_FUNCTIONS
from extentflow.config.trust import Trust
from extentflow.errors import (
    AccessDenied,
    Misconfigured,
    ObjectChanged,
    ObjectGone,
    Permanent,
    StoreUnavailable,
)
from extentflow.model import ObjectVersion
from extentflow.storage import ranges
from extentflow.storage.ranges import RangeReader
from extentflow.storage.s3 import RequestLimits, S3Store

BODY = bytes(range(256)) * 4
VERSION = ObjectVersion("bucket", "key", None, "aaa", len(BODY))
WHERE = r"s3://bucket/key\[100-200\)"


@pytest.fixture(autouse=True)
def held(server: Loopback) -> None:
    server.hold("/bucket/key", BODY, "aaa")


def partial(body: bytes, start: int, *, end: int, size: int = len(BODY), **headers: str) -> Reply:
    """A 206 that claims `[start, end)` of `size`, whatever its body is."""
    claimed = {"ETag": '"aaa"', "Content-Range": f"bytes {start}-{end - 1}/{size}", **headers}
    return Reply(206, body, claimed)


def test_a_read_returns_exactly_the_range(store: S3Store) -> None:
    assert store.read(VERSION, 100, 200) == BODY[100:200]
    assert store.read(VERSION, 0, 1) == BODY[:1]
    assert store.read(VERSION, 0, len(BODY)) == BODY
    assert store.read(VERSION, len(BODY) - 1, len(BODY)) == BODY[-1:]


def test_a_read_is_conditional_on_the_pinned_etag_and_version(
    store: S3Store, server: Loopback
) -> None:
    store.read(replace(VERSION, version_id="v7"), 100, 200)

    (request,) = server.seen
    assert request.headers["if-match"] == '"aaa"'
    assert request.headers["range"] == "bytes=100-199"
    assert request.query["versionId"] == "v7"


def test_an_unversioned_read_names_no_version(store: S3Store, server: Loopback) -> None:
    store.read(VERSION, 100, 200)

    assert "versionId" not in server.seen[0].query


def test_checksums_are_neither_requested_nor_sent(store: S3Store, server: Loopback) -> None:
    store.read(VERSION, 100, 200)

    assert not [name for name in server.seen[0].headers if "checksum" in name]


def test_bytes_and_requests_are_counted_with_the_failed_ones(
    store: S3Store, server: Loopback
) -> None:
    server.script.append(partial(BODY[100:150], 100, end=200))

    store.read(VERSION, 100, 200)

    assert store.counters.requests == 2
    assert store.fetched_bytes == 150


def test_a_range_outside_the_object_is_rejected_before_any_request(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    for start, end in ((5, 5), (6, 5), (-1, 5), (0, len(BODY) + 1)):
        with golden.raises(ValueError, match="1024"):
            store.read(VERSION, start, end)

    assert server.seen == []


def test_trap_t12_overwritten_between_two_reads_is_object_changed(
    store: S3Store, server: Loopback
) -> None:
    store.read(VERSION, 0, 100)
    server.hold("/bucket/key", BODY[::-1], "bbb")

    with pytest.raises(ObjectChanged, match=WHERE):
        store.read(VERSION, 100, 200)

    assert len(server.seen) == 2


def test_trap_t12_overwritten_is_noticed_where_the_server_ignores_if_match(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    server.ignores_if_match = True
    store.read(VERSION, 0, 100)
    server.hold("/bucket/key", BODY[::-1], "bbb")

    with golden.raises(ObjectChanged):
        store.read(VERSION, 100, 200)

    assert store.fetched_bytes == 100


def test_trap_t12_another_total_size_is_object_changed_despite_its_etag(
    store: S3Store, server: Loopback
) -> None:
    server.script.append(partial(BODY[100:200], 100, end=200, size=5000))

    with pytest.raises(ObjectChanged, match="it has 5000 bytes, not 1024"):
        store.read(VERSION, 100, 200)


def test_trap_t12_shorter_than_the_range_is_object_changed(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    server.ignores_if_match = True
    server.hold("/bucket/key", BODY[:50], "bbb")

    with golden.raises(ObjectChanged):
        store.read(VERSION, 100, 200)


def test_trap_t12_a_response_without_etag_is_an_error(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    server.script.append(Reply(206, BODY[100:200], {"Content-Range": "bytes 100-199/1024"}))

    with golden.raises(Permanent, match=f"{WHERE}.*{server.url}"):
        store.read(VERSION, 100, 200)


def test_trap_t15_reading_changes_nothing_at_the_source(store: S3Store, server: Loopback) -> None:
    """Trap: objects were deleted after they were read, by default."""
    version = store.head("bucket", "key")
    reader = RangeReader(store, version, window_bytes=100)

    assert b"".join(reader.stream(0, version.size)) == BODY
    assert [listed.key for listed in store.list("bucket")] == ["key"]

    assert set(server.methods) == {"GET", "HEAD"}


def test_trap_t17_more_than_64_mib_in_one_read_is_rejected(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    """Trap: a whole body was held in memory or on disk."""
    large = replace(VERSION, size=1 << 40)

    with golden.raises(ValueError, match="67108864"):
        store.read(large, 7, 7 + ranges.MAX_READ_BYTES + 1)

    assert server.seen == []


def test_trap_t18_a_position_is_reached_by_a_range_and_not_by_skipping(
    store: S3Store, server: Loopback
) -> None:
    """Trap: a position was reached by reading and discarding all bytes before it."""
    store.read(VERSION, 900, 910)

    server.settle()
    assert store.fetched_bytes == server.body_bytes_sent == 10


def test_trap_t24_a_cut_body_is_read_again(store: S3Store, server: Loopback) -> None:
    """Trap: a short body was taken for a complete one."""
    cut = partial(BODY[100:200], 100, end=200)
    server.script.extend([replace(cut, cut=0), replace(cut, cut=1), replace(cut, cut=99)])

    assert store.read(VERSION, 100, 200) == BODY[100:200]

    assert len(server.seen) == 4


def test_trap_t24_a_short_body_with_matching_length_is_read_again(
    store: S3Store, server: Loopback
) -> None:
    server.script.append(partial(BODY[100:199], 100, end=200))

    assert store.read(VERSION, 100, 200) == BODY[100:200]

    assert len(server.seen) == 2


def test_trap_t24_bodies_that_stay_short_raise_with_range_and_endpoint(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    server.script.extend([partial(BODY[100:199], 100, end=200)] * 100)

    with pytest.raises(StoreUnavailable) as raised:
        store.read(VERSION, 100, 200)

    golden(raised.value)
    assert "s3://bucket/key[100-200)" in str(raised.value)


def test_trap_t24_a_body_longer_than_the_range_is_never_returned(
    store: S3Store, server: Loopback
) -> None:
    server.script.append(partial(BODY[100:300], 100, end=200))

    assert store.read(VERSION, 100, 200) == BODY[100:200]

    assert store.fetched_bytes == 101 + 100


@pytest.mark.parametrize("claim", ["bytes 0-99/1024", "bytes 100-150/1024", "pages 1-2", ""])
def test_trap_t24_a_response_with_another_range_is_requested_again(
    store: S3Store, server: Loopback, claim: str
) -> None:
    server.script.append(Reply(206, BODY[100:200], {"ETag": '"aaa"', "Content-Range": claim}))

    assert store.read(VERSION, 100, 200) == BODY[100:200]

    assert len(server.seen) == 2
    assert store.fetched_bytes == 100


def test_trap_t24_an_object_overwritten_during_a_retry_is_not_taken(
    store: S3Store, server: Loopback
) -> None:
    server.ignores_if_match = True

    def cut_and_overwrite(_: Request) -> Reply:
        server.hold("/bucket/key", BODY[::-1], "bbb")
        return replace(partial(BODY[100:200], 100, end=200), cut=50)

    server.script.append(cut_and_overwrite)

    with pytest.raises(ObjectChanged):
        store.read(VERSION, 100, 200)


def test_trap_t25_a_server_that_ignores_range_is_named_and_not_read(
    store: S3Store, server: Loopback
) -> None:
    """Trap: the whole object of a 200 response was taken for the range, or buffered."""
    large = bytes(32 << 20)
    server.hold("/bucket/key", large, "aaa")
    server.ignores_range = True

    with pytest.raises(Permanent) as raised:
        store.read(replace(VERSION, size=len(large)), 100, 200)

    assert f"s3://bucket/key[100-200): {server.url} ignored the Range header" in str(raised.value)
    assert len(server.seen) == 1
    server.settle()
    assert store.fetched_bytes == 0
    assert server.body_bytes_sent < len(large) // 2


def test_a_200_is_taken_where_the_range_is_the_whole_object(
    store: S3Store, server: Loopback
) -> None:
    server.ignores_range = True

    assert store.read(VERSION, 0, len(BODY)) == BODY


def test_a_200_for_the_whole_object_is_still_compared_with_the_pin(
    store: S3Store, server: Loopback
) -> None:
    server.ignores_range = server.ignores_if_match = True
    server.hold("/bucket/key", BODY[::-1], "bbb")

    with pytest.raises(ObjectChanged):
        store.read(VERSION, 0, len(BODY))


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "InternalError"), (503, "SlowDown"), (429, "TooManyRequests"), (400, "RequestTimeout")],
)
def test_server_errors_and_throttling_are_retried_by_us_alone(
    store: S3Store, server: Loopback, hand_turned: HandTurnedClock, status: int, code: str
) -> None:
    server.script.extend([error(status, code)] * 3)

    assert store.read(VERSION, 100, 200) == BODY[100:200]

    assert len(server.seen) == 4
    assert hand_turned.pauses == pytest.approx([0.1, 0.2, 0.4])


def test_resets_are_retried(store: S3Store, server: Loopback) -> None:
    server.script.extend([Reply(reset=True), Reply(reset=True)])

    assert store.read(VERSION, 100, 200) == BODY[100:200]

    assert len(server.seen) == 3


def test_a_silent_server_times_out_and_is_retried(open_store: OpenStore, server: Loopback) -> None:
    store = open_store(limits=RequestLimits(connect_seconds=1.0, read_seconds=0.2))
    answered = threading.Event()

    def silent(_: Request) -> Reply:
        answered.wait(10)
        return Reply()

    server.script.append(silent)

    assert store.read(VERSION, 100, 200) == BODY[100:200]

    answered.set()
    assert len(server.seen) == 2


def test_an_unavailable_endpoint_raises_with_range_and_endpoint(
    hand_turned: HandTurnedClock, open_store: OpenStore, golden: Golden
) -> None:
    with Loopback().running() as gone:
        url = gone.url
    store = open_store(endpoint=url)

    with golden.raises(StoreUnavailable, match=f"{WHERE}.*{url}"):
        store.read(VERSION, 100, 200)

    assert 15.0 < hand_turned.now <= 20.0


def test_a_missing_key_version_and_bucket_raise_distinct_errors(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    with golden.raises(ObjectGone, match=r"s3://bucket/other\[0-1\)"):
        store.read(replace(VERSION, key="other"), 0, 1)
    with golden.raises(ObjectGone, match=r"s3://nowhere/key\[0-1\)"):
        store.read(replace(VERSION, bucket="nowhere"), 0, 1)
    server.script.append(error(404, "NoSuchVersion"))
    with golden.raises(ObjectGone, match=r"s3://bucket/key\?versionId=v7\[0-1\)"):
        store.read(replace(VERSION, version_id="v7"), 0, 1)


def test_denied_names_range_and_remedy_and_is_not_retried(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    server.script.append(error(403, "AccessDenied"))

    with golden.raises(AccessDenied, match=f"{WHERE}.*{server.url}.*s3:GetObject"):
        store.read(VERSION, 100, 200)

    assert len(server.seen) == 1


def test_translate_errors_errors_keep_their_cause(store: S3Store, server: Loopback) -> None:
    server.script.append(error(403, "AccessDenied"))

    with pytest.raises(AccessDenied) as raised:
        store.read(VERSION, 100, 200)

    assert isinstance(raised.value.__cause__, ClientError)


def test_connections_are_reused(store: S3Store, server: Loopback) -> None:
    for start in range(10):
        store.read(VERSION, start, start + 100)

    assert len({request.client for request in server.seen}) == 1


def test_many_threads_share_one_store(
    store: S3Store, server: Loopback, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor(16) as threads:
        starts = list(range(200))
        bodies = list(threads.map(lambda at: store.read(VERSION, at, at + 50), starts))

    assert bodies == [BODY[at : at + 50] for at in starts]
    assert store.counters.requests == len(server.seen) == 200
    assert store.fetched_bytes == 200 * 50
    assert not [record for record in caplog.records if "pool is full" in record.message]


@pytest.mark.parametrize(
    ("host", "bucket"),
    [("localhost", "bucket"), ("0.0.1", "127")],  # with its bucket, the second is 127.0.0.1
)
def test_a_connection_that_leads_to_a_refused_address_sends_no_request(
    open_store: OpenStore,
    server: Loopback,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    bucket: str,
) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")
    endpoint = server.url.replace("127.0.0.1", host)
    store = open_store(endpoint=endpoint, path_style=bucket == "bucket", trust=Trust())

    with pytest.raises(Misconfigured, match=r"s3://.*/key.* leads to 127\.0\.0\.1: connectors may"):
        store.read(replace(VERSION, bucket=bucket), 100, 200)

    assert server.seen == []


def test_an_owner_admits_an_address_and_names_endpoints_of_his_own(
    open_store: OpenStore, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OF_FUNCTIONS, "worker")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
    admitted = open_store(trust=Trust(hosts=("127.0.0.1",)))
    own = open_store(endpoint=None, path_style=True, trust=Trust())

    assert admitted.read(VERSION, 0, 9) == own.read(VERSION, 0, 9) == BODY[:9]
