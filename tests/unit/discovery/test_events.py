"""Every file of events/ and the arrivals that it stands for."""

import pytest
from tests.unit.discovery.posting import (
    ANYONE,
    EVENTS,
    GRID,
    SECRET,
    SIGNED,
    Post,
    event,
    request_of,
    signing_time,
)

from extentflow.discovery import Arrival, Dialect
from extentflow.discovery.notifications import ParsedNotification, parse_notification
from extentflow.discovery.sources import Proof

FLOWER = "in/2026/red flower+100% ☃.csv"
ETAG = "30d36109951f4ae1ed0887a1c4a6bc08"
PARTS_ETAG = "9b2cf535f27731c974343645a3985328-2048"
UPLOADED = 1_795_169_698.0

PUT = Arrival(
    bucket="shop",
    key=FLOWER,
    dialect=Dialect.AWS,
    version_id="096fKKXTRTtl3on89fVO.nfljtsv6qko",
    etag=ETAG,
    size=5_242_880,
    sequencer="0055AED6DCD90281E5",
    event_time=UPLOADED + 0.317,
    region="eu-central-1",
)
MULTIPART = Arrival(
    bucket="shop",
    key="in/2026/orders, large.parquet",
    dialect=Dialect.AWS,
    etag=PARTS_ETAG,
    size=107_374_182_400,
    sequencer="0055AED6DCD90281F1",
    event_time=UPLOADED + 0.317,
    region="us-west-2",
)
BRIDGED = Arrival(
    bucket="shop",
    key=FLOWER,
    dialect=Dialect.EVENTBRIDGE,
    version_id="IYV3p45BT0ac8hjHg1houSdS1a.Mro8e",
    etag=ETAG,
    size=5_242_880,
    sequencer="00617F08299329D189",
    event_time=UPLOADED,
    region="eu-central-1",
)
EMULATED = Arrival(
    bucket="shop",
    key="in/2026/100%+a%20b.csv",
    dialect=Dialect.EVENTBRIDGE,
    etag=ETAG,
    size=12,
    sequencer="00617F08299329D18A",
    event_time=UPLOADED,
    region="eu-central-1",
)
STORED = Arrival(
    bucket="shop",
    key=FLOWER,
    dialect=Dialect.STORAGEGRID,
    etag=ETAG,
    size=5_242_880,
    sequencer="18B3F1A2C4D5E6F7",
    event_time=UPLOADED,
)
STORED_MULTIPART = Arrival(
    bucket="shop",
    key="in/2026/orders.parquet",
    dialect=Dialect.STORAGEGRID,
    version_id="NTZEMDQxNTgtQzVBMy0xMUVDLTgwMDAtMDA1MDU2QTg",
    etag=PARTS_ETAG,
    size=107_374_182_400,
    sequencer="18B3F1A2C4D5E6F8",
    event_time=UPLOADED,
)
STORED_AT_GRID = Arrival(
    bucket="shop",
    key=FLOWER,
    dialect=Dialect.STORAGEGRID,
    etag=ETAG,
    size=5_242_880,
    sequencer="18B3F1A2C4D5E6F7",
    event_time=UPLOADED,
    endpoint=GRID,
)
LISTED = Arrival(
    bucket="shop",
    key=FLOWER,
    dialect=Dialect.LISTING,
    etag=ETAG,
    size=5_242_880,
    event_time=UPLOADED,
    endpoint=GRID,
)

EXPECTED = {
    "arrival": ParsedNotification((LISTED,)),
    "aws-s3-multipart": ParsedNotification((MULTIPART,)),
    "aws-s3-put": ParsedNotification((PUT,)),
    "aws-s3-removed": ParsedNotification(
        ignored=("ObjectRemoved:Delete", "ObjectRemoved:DeleteMarkerCreated", "ObjectTagging:Put")
    ),
    "aws-s3-test": ParsedNotification(tests=("shop",)),
    "eventbridge-created": ParsedNotification((BRIDGED,)),
    "eventbridge-created-emulator": ParsedNotification((EMULATED,)),
    "eventbridge-deleted": ParsedNotification(ignored=("Object Deleted",)),
    "function-url-sns": ParsedNotification((STORED,)),
    "function-url-webhook": ParsedNotification((STORED,)),
    "http-api-probe": ParsedNotification(tests=("an empty request",)),
    "http-api-sns-base64": ParsedNotification((STORED,)),
    "http-api-sns-plain": ParsedNotification((STORED,)),
    "http-api-sns-test": ParsedNotification(tests=("urn:grid:sns:eu-central-1:shop:uploads",)),
    "http-api-webhook": ParsedNotification((STORED,)),
    "sns-envelope": ParsedNotification((PUT,)),
    "sqs-aws-s3": ParsedNotification((PUT, MULTIPART), tests=("shop",)),
    "sqs-eventbridge": ParsedNotification((BRIDGED,)),
    "sqs-receiver": ParsedNotification((STORED_AT_GRID,)),
    "sqs-sns": ParsedNotification((PUT,)),
    "storagegrid": ParsedNotification(
        (STORED, STORED_MULTIPART), ignored=("ObjectRemoved:Delete",)
    ),
}


@pytest.mark.parametrize("name", sorted(path.stem for path in EVENTS.glob("*.json")))
def test_trap_t22_every_event_file_says_what_it_stands_for(name: str) -> None:
    """Trap: notifications of an unexpected dialect or region were dropped without a message."""
    found = parse_notification(event(name))

    assert found == EXPECTED[name]


def test_every_event_file_is_described() -> None:
    page = (EVENTS / "README.md").read_text()

    assert [name for name in EXPECTED if f"| `{name}.json` |" not in page] == []


@pytest.mark.parametrize(
    ("name", "proof"),
    [
        ("http-api-sns-base64", SIGNED),
        ("http-api-sns-plain", SIGNED),
        ("http-api-webhook", SECRET),
        ("function-url-sns", SECRET),
        ("function-url-webhook", SECRET),
        ("function-url-webhook", ANYONE),
    ],
)
def test_every_http_event_is_queued_and_read_again(name: str, proof: Proof) -> None:
    request = request_of(name)
    post = Post(proof, now=signing_time(request) if proof == SIGNED else 0.0)

    answer = post.answer(request)

    assert answer.status == 200
    assert [parse_notification(body) for body in post.queued] == [
        ParsedNotification((STORED_AT_GRID,))
    ]


@pytest.mark.parametrize("name", ["http-api-sns-test", "http-api-probe"])
def test_probes_are_answered_and_not_queued(name: str) -> None:
    post = Post(ANYONE)

    answer = post.answer(request_of(name))

    assert answer.status == 200
    assert post.queued == []
