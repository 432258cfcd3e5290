"""Dialects are recognised, keys are decoded exactly, no entry is dropped."""

import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.discovery.posting import GRID, TOPIC, form, notification, record

from extentflow.discovery import Arrival, Dialect, documents
from extentflow.discovery.notifications import MAX_WRAPPINGS, ParsedNotification, parse_notification
from extentflow.queue import UNSENDABLE

REST_EVENT = {"requestContext": {"http": {}, "path": "/"}, "httpMethod": "POST"}
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
AWKWARD = [
    "a b",
    "a+b",
    "a%20b",
    "a,b",
    "%",
    "100%",
    "%zz",
    "ä☃𐍈",
    "a&b=c",
    "/",
    "a//b",
    "\x00",
    "é/",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)


def aws(key: str, **changes: object) -> str:
    return json.dumps({"Records": [record(key, **{"eventSource": "aws:s3", **changes})]})


def bridged(key: str) -> str:
    detail = {"bucket": {"name": "shop"}, "object": {"key": key}}
    return json.dumps({"source": "aws.s3", "detail-type": "Object Created", "detail": detail})


def enveloped(message: str) -> str:
    return json.dumps({"Type": "Notification", "MessageId": "1", "Message": message})


def in_queue(*bodies: str) -> str:
    return json.dumps({"Records": [{"eventSource": "aws:sqs", "body": body} for body in bodies]})


def keys(result: ParsedNotification) -> list[str]:
    return [arrival.key for arrival in result.arrivals]


@pytest.mark.parametrize("key", AWKWARD)
def test_trap_t20_awkward_keys_are_exact_in_every_dialect(key: str) -> None:
    """Trap: keys were decoded although their dialect does not encode them, or the reverse."""
    encoded = quote_plus(key, safe="/")
    dialects = (
        aws(encoded),
        aws(quote_plus(key)),
        aws(quote(key)),
        notification(encoded),
        bridged(key),
        enveloped(aws(encoded)),
        in_queue(enveloped(bridged(key))),
        form(notification(encoded)).decode(),
        documents.wrapped(notification(encoded).encode(), GRID),
    )

    found = [keys(parse_notification(document)) for document in dialects]

    assert found == [[key]] * len(dialects)


@given(KEYS)
def test_trap_t20_any_key_is_exact_whether_its_dialect_encodes_or_not(key: str) -> None:
    assert (
        keys(parse_notification(aws(quote_plus(key))))
        == keys(parse_notification(bridged(key)))
        == [key]
    )


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.6", "2.17", "2"])
def test_minor_event_versions_do_not_matter(version: str) -> None:
    assert keys(parse_notification(aws("k", eventVersion=version))) == ["k"]


@pytest.mark.parametrize(
    "name",
    [
        "ObjectCreated:Put",
        "ObjectCreated:Anything",
        "s3:ObjectCreated:Copy",
        "S3:OBJECTCREATED:PUT",
        "ObjectCreated",
        "s3:ObjectSynced:Create",
    ],
)
def test_every_created_event_is_an_arrival(name: str) -> None:
    assert keys(parse_notification(aws("k", eventName=name))) == ["k"]


@pytest.mark.parametrize("source", ["AWS:S3", "MinIO:S3"])
def test_the_case_of_a_source_does_not_matter(source: str) -> None:
    assert keys(parse_notification(aws("a+b", eventSource=source))) == ["a b"]


@pytest.mark.parametrize("name", ["ObjectRemoved:Delete", "ObjectRestore:Post", "EntirelyNew", ""])
def test_other_events_are_ignored_by_name(name: str) -> None:
    assert parse_notification(aws("k", eventName=name)) == ParsedNotification(ignored=(name,))


def test_an_ignored_event_needs_no_object() -> None:
    result = parse_notification(aws("k", eventName="ObjectRemoved:Delete", s3=None))

    assert result == ParsedNotification(ignored=("ObjectRemoved:Delete",))


def test_an_empty_list_of_records_is_a_test() -> None:
    assert parse_notification('{"Records":[]}') == ParsedNotification(
        tests=("an empty list of Records",)
    )


@pytest.mark.parametrize(
    ("source", "key", "arrive"),
    [
        ("minio:s3", "in%2Fa+b.csv", ["in/a b.csv"]),
        ("ceph:s3", "in/a.csv", ["in/a.csv"]),
        # Whether these encode keys is not documented, so that both readings are looked for.
        ("ceph:s3", "in/a+b.csv", ["in/a+b.csv", "in/a b.csv"]),
        ("vast:s3", "in/100%", ["in/100%"]),
        ("cloudian:s3", "in/%FF", ["in/%FF"]),
        ("wasabi:s3", "in/a%20b", ["in/a%20b", "in/a b"]),
    ],
)
def test_entries_of_other_s3_servers_are_arrivals(source: str, key: str, arrive: list[str]) -> None:
    entry = record(key, eventSource=source, awsRegion="zone", eventName="s3:ObjectCreated:Put")
    entry["s3"]["object"] |= {"size": "1024", "versionId": ""}
    body = json.dumps({"EventName": "s3:ObjectCreated:Put", "Key": "shop/in", "Records": [entry]})

    found = parse_notification(body).arrivals

    assert [one.key for one in found] == arrive
    assert {(one.dialect, one.region, one.version_id) for one in found} == {
        (Dialect.S3_COMPATIBLE, None, None)
    }


def test_events_of_backblaze_are_arrivals() -> None:
    created = {
        "eventType": "b2:ObjectCreated:MultipartUpload",
        "eventVersion": 1,
        "eventTimestamp": 1_700_000_000_500,
        "bucketName": "shop",
        "objectName": "in/a+b c.csv",
        "objectSize": 10,
        "objectVersionId": "4_z1",
    }
    hidden = created | {"eventType": "b2:HideMarkerCreated:Hide"}
    tested = {"eventType": "b2:TestEvent", "bucketName": "shop"}

    found = parse_notification(json.dumps({"events": [created, hidden, tested]}))

    assert found.arrivals == (
        Arrival(
            "shop",
            "in/a+b c.csv",
            Dialect.BACKBLAZE,
            version_id="4_z1",
            size=10,
            event_time=1_700_000_000.5,
        ),
    )
    assert (found.ignored, found.tests) == (("b2:HideMarkerCreated:Hide",), ("shop",))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "neither JSON nor an SNS Publish request"),
        ("hello", "neither JSON"),
        ('{"Records":[', "neither JSON"),
        ('"text"', "no object"),
        ("[]", "no object"),
        ("{}", "no known dialect"),
        ('{"Records":{}}', "no known dialect"),
        ('{"Records":[7]}', "no object"),
        ('{"Records":[{}]}', "without eventSource"),
        (aws("k", eventVersion="3.0"), "eventVersion '3.0'"),
        (aws("k", eventVersion="20.0"), "eventVersion '20.0'"),
        (aws("k", eventVersion=2.1), "without eventSource, eventVersion"),
        (aws("k", eventSource="aws:sns"), "eventSource 'aws:sns'"),
        (aws("k", eventSource=":s3"), "eventSource ':s3'"),
        (aws("%FF", eventSource="minio:s3"), "does not decode to UTF-8"),
        ('{"events":[{"eventType":"b2:ObjectCreated:Upload"}]}', "an entry of events without"),
        ('{"events":[{"bucketName":"b","objectName":"k"}]}', "an entry of events without"),
        ('{"events":[7]}', "an entry of events without"),
        (aws("%FF"), "does not decode to UTF-8"),
        (aws(""), "no s3.bucket.name or no s3.object.key"),
        (aws("k", s3={"bucket": {"name": "shop"}}), "no s3.bucket.name or no s3.object.key"),
        (aws("k", s3={"bucket": {}, "object": {"key": "k"}}), "no s3.bucket.name"),
        (bridged(""), "EventBridge"),
        ('{"source":"aws.s3"}', "EventBridge"),
        ('{"source":"aws.s3","detail-type":"Object Created"}', "EventBridge"),
        ('{"source":"aws.ec2","detail-type":"Object Created"}', "no known dialect"),
        ('{"Type":"SubscriptionConfirmation","Message":"..."}', "no known dialect"),
        ('{"Type":"Notification","Message":"words"}', "neither JSON"),
        ('{"source":"http","v":2,"endpoint":null,"body":"{}"}', "version 2"),
        ('{"source":"http","v":1,"endpoint":null,"base64":"%"}', ""),
        ('{"source":"http","v":1,"endpoint":null,"base64":"/w=="}', "utf-8"),
        ('{"source":"arrival","v":2,"bucket":"b","key":"k"}', "version 2"),
        ('{"source":"arrival","v":1,"bucket":"b"}', "without bucket or key"),
        ('{"source":"arrival","v":1,"bucket":"b","key":"k","dialect":"x"}', "Dialect"),
        ('{"requestContext":{"http":{}},"rawPath":"/"}', "payload format 1.0 or 2.0"),
        ('{"requestContext":{"http":{"method":"POST"}},"rawPath":"/","body":7}', "payload format"),
        (json.dumps(REST_EVENT | {"multiValueQueryStringParameters": 7}), "payload format"),
        (form('{"Records":[').decode(), "neither JSON"),
        (form(' \r\n{"Records":[').decode(), "neither JSON"),
        (form('\ufeff{"Records":[]}').decode(), "neither JSON"),
        (form("[").decode(), "neither JSON"),
        ("Action=Publish&Message=a&Message=b", "neither JSON nor an SNS Publish request"),
        ("Action=Publish&Message=%7B%FF", "neither JSON nor an SNS Publish request"),
        ("Action=Subscribe&Message=a", "neither JSON nor an SNS Publish request"),
        ("Action=Publish" + "&a=b" * 200 + "&Message=a", "neither JSON nor an SNS Publish request"),
        ('{"Records":["\\ud800"]}', "neither JSON"),
        ("\ud800", "neither JSON"),
        ('{"Records":[' + "[" * 500 + "]" * 500 + "]}", "cannot be written again"),
        ("[" * 100_000, "neither JSON"),
    ],
)
def test_trap_t22_unknown_shapes_are_kept_with_the_reason(body: str, why: str) -> None:
    result = parse_notification(body)

    (unread,) = result.unparseable
    assert result == ParsedNotification(unparseable=(unread,))
    assert why in str(unread)
    assert "extentflow submit" in str(unread)


def test_trap_t09_an_odd_entry_does_not_hold_up_its_neighbours() -> None:
    odd = record("k", eventSource="strange:sqs")
    document = json.dumps({"Records": [record("a"), odd, 7, record("b")]})

    result = parse_notification(in_queue(document, "words", aws("c")))

    assert keys(result) == ["a", "b", "c"]
    assert [unread.document for unread in result.unparseable] == [
        documents.dump({"Records": [odd]}).decode(),
        '{"Records":[7]}',
        "words",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "words",
        '{"a":1}',
        aws("k", eventSource="strange:sqs"),
        documents.wrapped(b"words", GRID),
        documents.wrapped(b"\xff\xfe", None),
        documents.wrapped(json.dumps({"Records": [7]}).encode(), GRID),
        in_queue(enveloped("words")),
        in_queue(enveloped("\x00\uffff words")),
        enveloped(documents.wrapped(b"\x00", GRID)),
        bridged("").replace("shop", "\\u0000\\uffff"),
        aws("k", eventSource="\uffff"),
        "\ud800",
    ],
)
def test_what_is_kept_reads_the_same_when_it_is_queued_again(body: str) -> None:
    (unread,) = parse_notification(body).unparseable

    (again,) = parse_notification(unread.document).unparseable

    assert not UNSENDABLE.search(unread.document)
    assert again.document == unread.document


def test_the_receivers_endpoint_counts_whatever_the_document_claims() -> None:
    claimed = documents.wrapped(notification("k").encode(), "https://other.example.com")

    (known,) = parse_notification(documents.wrapped(claimed.encode(), GRID)).arrivals
    (unknown,) = parse_notification(documents.wrapped(claimed.encode(), None)).arrivals

    assert (known.endpoint, unknown.endpoint) == (GRID, None)


def test_a_kept_notification_contains_its_endpoint() -> None:
    entries = documents.dump({"Records": [record("k", eventVersion="9")]})

    (unread,) = parse_notification(in_queue(documents.wrapped(entries, GRID))).unparseable

    assert documents.unwrapped(json.loads(unread.document)) == (entries, GRID)


def test_wrappings_are_unwrapped_eight_deep_and_then_kept() -> None:
    body = aws("k")
    for _ in range(MAX_WRAPPINGS - 1):
        body = enveloped(body)

    assert keys(parse_notification(body)) == ["k"]
    (unread,) = parse_notification(enveloped(body)).unparseable
    assert unread.document == aws("k")


@pytest.mark.parametrize("message", ["words", "", "7", '"{}"', "true"])
def test_a_published_message_that_is_no_document_is_a_test(message: str) -> None:
    assert parse_notification(form(message).decode()) == ParsedNotification(tests=(TOPIC,))


def test_hints_of_an_odd_type_are_as_good_as_none() -> None:
    found = {"key": "k", "size": "5", "eTag": 7, "versionId": "null", "sequencer": ["x"]}
    odd = {"s3": {"bucket": {"name": "shop"}, "object": found}, "eventTime": "soon"}

    (arrival,) = parse_notification(aws("k", **odd, awsRegion=3)).arrivals

    (plain,) = parse_notification(aws("k")).arrivals
    assert arrival == plain


@given(st.text(st.characters()))
def test_any_text_is_news_of_some_kind(body: str) -> None:
    result = parse_notification(body)

    assert result != ParsedNotification()
    assert not any(UNSENDABLE.search(unread.document) for unread in result.unparseable)


@given(VALUES)
def test_any_json_is_news_of_some_kind(document: object) -> None:
    result = parse_notification(json.dumps(document))

    assert result != ParsedNotification()


@given(st.dictionaries(st.sampled_from(["bucket", "object", "key"]), VALUES), VALUES, VALUES)
def test_any_entry_is_an_arrival_or_kept(s3: object, version: object, name: object) -> None:
    for source in ("aws:s3", "sgws:s3", "aws:sqs"):
        entry = record("k", eventSource=source, s3=s3, eventVersion=version, eventName=name)

        result = parse_notification(json.dumps({"Records": [entry]}))

        assert len(result.arrivals) + len(result.ignored) + len(result.unparseable) == 1


@given(st.lists(st.sampled_from(["created", "removed", "odd"]), min_size=1, max_size=12))
def test_every_entry_of_a_list_is_accounted_for(kinds: list[str]) -> None:
    entry = {
        "created": record("k"),
        "removed": record("k", eventName="ObjectRemoved:Delete"),
        "odd": record("k", eventVersion="9"),
    }

    result = parse_notification(json.dumps({"Records": [entry[kind] for kind in kinds]}))

    counted = (len(result.arrivals), len(result.ignored), len(result.unparseable))
    assert counted == (kinds.count("created"), kinds.count("removed"), kinds.count("odd"))
