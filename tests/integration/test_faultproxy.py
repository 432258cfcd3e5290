"""The fault proxy against the real S3 server and the real DynamoDB API."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    IncompleteReadError,
    ResponseStreamingError,
)
from tests.integration.conftest import dynamodb_client, s3_client
from tests.integration.faultproxy import (
    Answer,
    ChangedHead,
    CutBody,
    Delay,
    DropResponse,
    FaultProxy,
    Hold,
    Request,
    Reset,
    ShortBody,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

BODY = bytes(range(256)) * 4 * 1024


@pytest.fixture
def through(s3_proxy: FaultProxy) -> Iterator["S3Client"]:
    client = s3_client(s3_proxy.endpoint)
    yield client
    client.close()


@pytest.fixture
def table_through(
    dynamodb_proxy: FaultProxy, dynamodb: "DynamoDBClient", table_name: str
) -> Iterator["DynamoDBClient"]:
    dynamodb.create_table(
        TableName=table_name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client = dynamodb_client(dynamodb_proxy.endpoint)
    yield client
    client.close()


@pytest.fixture
def key(s3: "S3Client", bucket: str, prefix: str) -> str:
    key = f"{prefix}an object, 100% +ünïcode.bin"
    s3.put_object(Bucket=bucket, Key=key, Body=BODY)
    return key


def read(client: "S3Client", bucket: str, key: str, byte_range: str = "bytes=0-") -> bytes:
    return client.get_object(Bucket=bucket, Key=key, Range=byte_range)["Body"].read()


def is_get(request: Request) -> bool:
    return request.method == "GET"


def test_signed_requests_with_large_bodies_pass_unchanged_both_ways(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, prefix: str
) -> None:
    large = BODY * 24

    through.put_object(Bucket=bucket, Key=f"{prefix}large", Body=large)
    back = read(through, bucket, f"{prefix}large")

    assert back == large
    assert s3_proxy.response_body_bytes("GET") == len(large)
    assert {exchange.status for exchange in s3_proxy.exchanges} == {200, 206}


def test_multipart_uploads_pass(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, prefix: str
) -> None:
    through.upload_fileobj(BytesIO(BODY * 20), bucket, f"{prefix}parts")

    assert read(through, bucket, f"{prefix}parts", "bytes=-1024") == BODY[-1024:]
    assert s3_proxy.count("POST") == 2


def test_one_connection_serves_many_requests_also_after_a_head_request(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, key: str
) -> None:
    for start in range(0, 50, 10):
        size = through.head_object(Bucket=bucket, Key=key)["ContentLength"]
        assert size == len(BODY)
        assert read(through, bucket, key, f"bytes={start}-{start + 9}") == BODY[start : start + 10]

    ranges = [exchange.byte_range for exchange in s3_proxy.exchanges if exchange.method == "GET"]
    assert ranges == [f"bytes={start}-{start + 9}" for start in range(0, 50, 10)]
    assert s3_proxy.response_body_bytes() == 50
    assert s3_proxy.accepted == 1


def test_an_injected_answer_never_reaches_the_server(
    s3_proxy: FaultProxy, through: "S3Client", s3: "S3Client", bucket: str, prefix: str
) -> None:
    rule = s3_proxy.inject(Answer(503), when=lambda request: request.method == "PUT")

    with pytest.raises(ClientError) as caught:
        through.put_object(Bucket=bucket, Key=f"{prefix}refused", Body=BODY)

    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert rule.hits == 1
    assert s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["KeyCount"] == 0


def test_a_rule_skips_and_then_stops_after_its_times(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, key: str
) -> None:
    s3_proxy.inject(Answer(500), when=is_get, times=2, skip=1)

    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(len(read(through, bucket, key, "bytes=0-9")))
        except ClientError:
            outcomes.append(-1)

    assert outcomes == [10, -1, -1, 10]


def test_a_reset_connection_is_an_error_and_the_next_request_works(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, key: str
) -> None:
    s3_proxy.inject(Reset(), when=is_get)

    with pytest.raises((ConnectionClosedError, EndpointConnectionError)):
        read(through, bucket, key)

    assert read(through, bucket, key) == BODY


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_body_shows_fewer_bytes_than_it_announced(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, key: str, *, reset: bool
) -> None:
    s3_proxy.inject(CutBody(after_bytes=1000, reset=reset), when=is_get)

    with pytest.raises((IncompleteReadError, ResponseStreamingError)):
        read(through, bucket, key)

    assert s3_proxy.response_body_bytes("GET") == 1000


def test_a_short_body_looks_complete_to_the_http_client(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, key: str
) -> None:
    s3_proxy.inject(ShortBody(body_bytes=1000), when=is_get)

    body = read(through, bucket, key)

    assert body == BODY[:1000]


def test_a_dropped_response_leaves_the_write_done_and_the_client_unsure(
    dynamodb_proxy: FaultProxy,
    table_through: "DynamoDBClient",
    dynamodb: "DynamoDBClient",
    table_name: str,
) -> None:
    rule = dynamodb_proxy.inject(
        DropResponse(),
        when=lambda request: (
            request.headers["x-amz-target"].endswith(".PutItem") and b"claim-7" in request.body
        ),
    )
    table_through.put_item(TableName=table_name, Item={"pk": {"S": "other"}})

    with pytest.raises(ConnectionClosedError):
        table_through.put_item(TableName=table_name, Item={"pk": {"S": "claim-7"}})

    rule.await_hits(1)
    item = dynamodb.get_item(TableName=table_name, Key={"pk": {"S": "claim-7"}})["Item"]
    assert item == {"pk": {"S": "claim-7"}}
    assert [exchange.status for exchange in dynamodb_proxy.exchanges] == [200, None]


def test_dynamodb_conditions_are_answered_through_the_proxy(
    table_through: "DynamoDBClient", table_name: str
) -> None:
    item = {"pk": {"S": "once"}}
    condition = "attribute_not_exists(pk)"
    table_through.put_item(TableName=table_name, Item=item, ConditionExpression=condition)

    with pytest.raises(table_through.exceptions.ConditionalCheckFailedException):
        table_through.put_item(TableName=table_name, Item=item, ConditionExpression=condition)


def test_a_held_request_waits_until_released(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, key: str
) -> None:
    released = threading.Event()
    rule = s3_proxy.inject(Hold(released), when=is_get)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(through.get_object, Bucket=bucket, Key=key)
        rule.await_hits()
        with pytest.raises(TimeoutError):
            asked.result(timeout=0.5)
        released.set()

    assert asked.result()["Body"].read() == BODY


def test_a_delayed_request_arrives_whole(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, key: str
) -> None:
    s3_proxy.inject(Delay(0.5), when=is_get)
    started = time.monotonic()

    body = read(through, bucket, key)

    assert body == BODY
    assert time.monotonic() - started >= 0.5


def test_many_clients_at_once_each_get_their_own_bytes(
    s3_proxy: FaultProxy, through: "S3Client", bucket: str, key: str
) -> None:
    def nth(index: int) -> bytes:
        return read(through, bucket, key, f"bytes={index * 1000}-{index * 1000 + 9_999}")

    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(nth, range(100)))

    assert blocks == [BODY[index * 1000 : index * 1000 + 10_000] for index in range(100)]
    assert s3_proxy.response_body_bytes("GET") == 100 * 10_000


def test_unavailable_server_breaks_connections_until_it_is_back(
    through: "S3Client", s3_proxy: FaultProxy, bucket: str, key: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        unused_address = unused.getsockname()
    server, s3_proxy.upstream = s3_proxy.upstream, unused_address

    with pytest.raises(ConnectionClosedError):
        read(through, bucket, key)

    s3_proxy.upstream = server
    assert read(through, bucket, key) == BODY


def test_closing_ends_connections_that_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        proxy = FaultProxy(f"http://{host}:{port}")
        with socket.create_connection(urlsplit_endpoint(proxy), timeout=60) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            silent.accept()[0].close()

            proxy.close()

            with pytest.raises(ConnectionResetError):
                client.recv(1)


def urlsplit_endpoint(proxy: FaultProxy) -> tuple[str, int]:
    host, _, port = proxy.endpoint.removeprefix("http://").partition(":")
    return host, int(port)


def test_a_changed_head_passes_the_same_body_on(
    through: "S3Client", s3_proxy: FaultProxy, bucket: str, prefix: str
) -> None:
    through.put_object(Bucket=bucket, Key=f"{prefix}a", Body=BODY)
    rule = s3_proxy.inject(
        ChangedHead(lambda head: head.replace(b" 200 ", b" 203 ", 1)), times=None
    )

    changed = through.get_object(Bucket=bucket, Key=f"{prefix}a")
    body = changed["Body"].read()
    s3_proxy.withdraw(rule)
    unchanged = through.get_object(Bucket=bucket, Key=f"{prefix}a")
    unchanged["Body"].close()

    assert changed["ResponseMetadata"]["HTTPStatusCode"] == 203
    assert body == BODY
    assert (unchanged["ResponseMetadata"]["HTTPStatusCode"], rule.hits) == (200, 1)
