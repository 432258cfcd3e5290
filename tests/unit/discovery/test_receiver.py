"""What the receiver answers, and what is on the queue by then."""

import base64
import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote_plus

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.unit.discovery.posting import (
    ANYONE,
    EVENTS,
    GRID,
    KEY,
    SECRET,
    SEGMENT,
    SIGNED,
    Post,
    form,
    notification,
    post,
    publish,
    record,
    signed,
    signing_time,
)

from extentflow.discovery import documents
from extentflow.discovery.notifications import ParsedNotification, parse_notification
from extentflow.discovery.receiver import Receiver
from extentflow.discovery.sources import Proof, SignatureProof, Source
from extentflow.errors import Misconfigured
from extentflow.http import requests
from extentflow.http.requests import MAX_REQUEST_BYTES, HttpRequest, HttpResponse
from extentflow.retry import Clock

WEBHOOK = notification("in/a.csv").encode()
PUBLISH = form(notification("in/a.csv"))

# Lone surrogates, too: servers hand on what they cannot decode.
ANYTHING = st.text(st.characters())
TEXTS = [path.read_text() for path in sorted(EVENTS.glob("*.json"))]
BODIES = (
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.sampled_from(TEXTS).map(str.encode)
    | st.sampled_from(TEXTS).map(form)
)
REQUESTS = st.builds(
    HttpRequest,
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT"]) | ANYTHING,
    path=ANYTHING,
    headers=st.dictionaries(ANYTHING, ANYTHING),
    body=BODIES,
    is_base64=st.booleans(),
    query=ANYTHING,
)
CUT = st.tuples(BODIES, st.integers(0, 4000)).map(lambda pair: pair[0][: pair[1]])


def keys(queued: list[str]) -> list[str]:
    return [arrival.key for body in queued for arrival in parse_notification(body).arrivals]


def encoded(request: HttpRequest) -> HttpRequest:
    return replace(request, body=base64.b64encode(request.body), is_base64=True)


def test_a_webhook_is_queued_as_it_was_sent() -> None:
    there = Post(ANYONE)

    answer = there.answer(post(WEBHOOK))

    assert answer == HttpResponse(200, "text/plain", "queued\n", proven=True)
    assert [documents.unwrapped(json.loads(body)) for body in there.queued] == [(WEBHOOK, GRID)]


def test_a_publish_is_answered_as_sns_does() -> None:
    there = Post(SIGNED)

    answer = publish(there, notification("in/a+b.csv"))

    assert re.fullmatch(r"[0-9a-f-]{36}", answer["MessageId"])
    assert re.fullmatch(r"[0-9a-f-]{36}", answer["ResponseMetadata"]["RequestId"])
    assert keys(there.queued) == ["in/a b.csv"]


@pytest.mark.parametrize("blank", ["", " ", "\ufeff"])
def test_a_document_that_was_encoded_twice_is_no_test_message(blank: str) -> None:
    there = Post(ANYONE)
    twice = quote_plus(blank + notification("a"))

    answer = there.answer(post(form(twice)))

    assert answer.status == 200
    (queued,) = there.queued
    assert documents.unwrapped(json.loads(queued)) == (twice.encode(), GRID)
    assert parse_notification(queued).unparseable


def test_a_publish_with_attributes_is_a_publish() -> None:
    there = Post(SIGNED)
    attributes = {f"name{n}": {"DataType": "String", "StringValue": "x"} for n in range(10)}

    publish(there, notification("a"), Subject="s", MessageAttributes=attributes)

    assert keys(there.queued) == ["a"]


def test_a_client_with_another_secret_gets_an_error(golden: Golden) -> None:
    there = Post(SIGNED)
    other = SignatureProof(KEY.access_key_id, "another")

    with golden.raises(ClientError, match="AccessDenied"):
        publish(there, notification("a"), key=other)

    assert there.queued == []


@pytest.mark.parametrize(
    ("make", "now", "reason"),
    [
        (
            lambda: signed(PUBLISH, key=SignatureProof("AKIAOTHER", "x")),
            None,
            "access key id 'AKIAOTHER'",
        ),
        (
            lambda: signed(PUBLISH, key=SignatureProof(KEY.access_key_id, "x")),
            None,
            "does not match",
        ),
        (lambda: signed(PUBLISH, service="s3"), None, "signed for"),
        (lambda: signed(PUBLISH), 4e9, "compare the clocks"),
        (lambda: post(PUBLISH), None, "not signed"),
    ],
    ids=["key", "secret", "scope", "clock", "unsigned"],
)
def test_every_refusal_has_the_same_body_and_the_log_has_the_reason(
    make: Callable[[], HttpRequest],
    now: float | None,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A body with the reason would tell a stranger which keys exist, and this clock."""
    there = Post(SIGNED) if now is None else Post(SIGNED, now=now)

    answer = there.answer(make())
    other = Post(SECRET).answer(post(WEBHOOK))

    assert answer == other
    assert answer.status == 403
    assert reason in caplog.text


def test_the_queue_has_it_before_the_answer() -> None:
    there = Post(ANYONE, taking=0)

    answer = there.answer(post(WEBHOOK))

    assert answer.status == 503
    assert "tries again" not in answer.body


def test_a_queue_that_stops_half_way_is_an_answer_to_try_again() -> None:
    document = notification(*(f"in/{n}.csv" for n in range(40))).encode()
    there = Post(ANYONE, message_bytes=2_000, taking=2)

    answer = there.answer(post(document))

    assert answer.status == 503
    assert len(there.queued) == 2


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("proof", [ANYONE, SECRET, SIGNED])
def test_who_looks_whether_we_are_there_is_answered(method: str, proof: Proof) -> None:
    there = Post(proof)

    answer = there.answer(replace(post(b""), method=method))

    assert answer.status == 200
    assert bool(answer.body) == (method == "GET")


@pytest.mark.parametrize("body", [b"", b" \r\n"])
@pytest.mark.parametrize("proof", [ANYONE, SECRET, SIGNED])
def test_an_empty_body_is_answered(body: bytes, proof: Proof) -> None:
    there = Post(proof)

    answers = [there.answer(post(body)), there.answer(encoded(post(body)))]

    assert [answer.status for answer in answers] == [200, 200]
    assert there.queued == []


def test_the_grids_own_test_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    there = Post(SIGNED)

    with caplog.at_level(logging.INFO):
        answer = publish(there, "a test\nmessage")

    assert answer["MessageId"]
    assert there.queued == []
    assert r"'a test\nmessage'" in caplog.text


def test_the_grids_own_test_with_a_wrong_secret_fails() -> None:
    there = Post(SIGNED)

    assert there.answer(post(form("a test message"))).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "", "post"])
def test_other_methods_are_not_allowed(method: str) -> None:
    there = Post(ANYONE)

    assert there.answer(replace(post(WEBHOOK), method=method)).status == 405
    assert there.queued == []


@pytest.mark.parametrize(
    ("size", "status"), [(MAX_REQUEST_BYTES, 200), (MAX_REQUEST_BYTES + 1, 413)]
)
def test_one_mebibyte_is_the_limit(size: int, status: int) -> None:
    body = b'{"Records":[]}'.ljust(size)
    there = Post(ANYONE, message_bytes=2 * size)

    answers = [there.answer(post(body)), there.answer(encoded(post(body)))]

    assert [answer.status for answer in answers] == [status, status]


def test_a_large_document_goes_in_several_messages() -> None:
    names = [f"in/{n}.csv" for n in range(1_000)]
    there = Post(ANYONE, message_bytes=documents.MAX_BODY_BYTES)
    entries = [record(name, userIdentity={"principalId": "☃" * 100}) for name in names]
    body = json.dumps({"Records": entries}, ensure_ascii=False).encode()

    answer = there.answer(post(body))

    assert answer.status == 200
    assert len(there.queued) > 1
    assert max(len(one.encode()) for one in there.queued) <= 256 * 1024
    assert keys(there.queued) == names


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 3_000,
        b'{"a":"' + b"x" * 3_000 + b'"}',
        b'{"Records":"' + b"x" * 3_000 + b'"}',
        json.dumps({"Records": [record("a"), record("x" * 3_000)]}).encode(),
    ],
)
def test_what_fits_no_message_is_rejected_as_a_whole(body: bytes) -> None:
    there = Post(ANYONE, message_bytes=2_000)

    assert there.answer(post(body)).status == 413
    assert there.queued == []


@pytest.mark.parametrize(
    "request_",
    [
        post(WEBHOOK),
        post(PUBLISH),
        post(WEBHOOK, f"/{SEGMENT}x/"),
        post(WEBHOOK, f"/{SEGMENT[:-1]}"),
        post(WEBHOOK, "/" + SEGMENT.upper()),
        post(WEBHOOK, "/\udc80/☃"),
        replace(post(WEBHOOK), query=SEGMENT),
        signed(PUBLISH),
    ],
)
def test_a_wrong_secret_in_the_path_is_rejected(request_: HttpRequest) -> None:
    there = Post(SECRET)

    assert there.answer(request_).status == 403
    assert there.queued == []


@pytest.mark.parametrize("path", [f"/{SEGMENT}", f"/{SEGMENT}/", f"/stage/{SEGMENT}/x"])
def test_the_secret_may_be_any_segment_of_the_path(path: str) -> None:
    there = Post(SECRET)

    assert there.answer(post(WEBHOOK, path)).status == 200
    assert keys(there.queued) == ["in/a.csv"]


@given(st.integers(0, len(PUBLISH) - 1), st.integers(1, 255))
def test_one_changed_byte_is_rejected_and_nothing_queued(place: int, change: int) -> None:
    changed = bytearray(PUBLISH)
    changed[place] ^= change
    there = Post(SIGNED)

    answer = there.answer(replace(signed(PUBLISH), body=bytes(changed)))

    assert answer.status == 403
    assert there.queued == []


def test_an_unsigned_request_is_rejected_where_a_key_is_shared() -> None:
    there = Post(SIGNED)

    answers = [there.answer(post(body, f"/{SEGMENT}/")) for body in (WEBHOOK, PUBLISH)]

    assert [answer.status for answer in answers] == [403, 403]
    assert there.queued == []


@pytest.mark.parametrize("now", [0.0, 4e9])
def test_a_signature_of_another_time_is_rejected(now: float) -> None:
    there = Post(SIGNED, now=now)

    answer = there.answer(signed(PUBLISH))

    assert (answer.status, there.queued) == (403, [])


def test_a_signature_of_another_scope_is_rejected() -> None:
    there = Post(SIGNED)

    assert there.answer(signed(PUBLISH, service="execute-api")).status == 403
    assert there.queued == []


def test_signatures_cover_the_decoded_bytes() -> None:
    there = Post(SIGNED)

    answers = [there.answer(signed(PUBLISH)), there.answer(encoded(signed(PUBLISH)))]

    assert [answer.status for answer in answers] == [200, 200]
    assert keys(there.queued) == ["in/a.csv", "in/a.csv"]


def test_the_proof_decides_whose_objects_are_announced() -> None:
    queued: list[str] = []
    sources = (Source("https://a.example.com", SIGNED), Source("https://b.example.com", SECRET))
    receiver = Receiver(sources, queued.append, Clock())

    answers = [
        receiver.answer(request)
        for request in (signed(PUBLISH), post(WEBHOOK, f"/{SEGMENT}/"), post(WEBHOOK))
    ]

    assert [answer.status for answer in answers] == [200, 200, 403]
    endpoints = [
        arrival.endpoint for body in queued for arrival in parse_notification(body).arrivals
    ]
    assert endpoints == ["https://a.example.com", "https://b.example.com"]


def test_a_front_door_that_contradicts_itself_is_our_fault() -> None:
    there = Post(ANYONE)

    answer = there.answer(replace(post(WEBHOOK), is_base64=True))

    assert (answer.status, there.queued) == (503, [])


def test_a_receiver_without_sources_does_not_start() -> None:
    with pytest.raises(Misconfigured, match="no sources"):
        Receiver((), lambda _: None, Clock())


@pytest.mark.parametrize("where", [f"/{SEGMENT}/", f"/other/{SEGMENT}"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_logs_do_not_contain_the_secret(
    where: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        Post(SECRET).answer(replace(post(b"", where), method=method))
        Post(SECRET, taking=0).answer(post(WEBHOOK, where))
        Post(SIGNED).answer(post(WEBHOOK, where))

    assert caplog.text
    assert SEGMENT not in caplog.text + repr(SECRET)


def test_rejections_repeat_nothing_of_hostile_headers_and_logs_escape_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scope = "\x00<&>/20261120/r/sns/aws4_request"
    header = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=x"

    answer = Post(SIGNED).answer(post(PUBLISH, Authorization=header))

    body = requests.refused("AccessDenied", "the proof is missing or wrong")
    assert answer == HttpResponse(403, requests.CONTENT_TYPE, body)
    assert r"\x00<&>" in caplog.text


@pytest.mark.parametrize("credential", ["\udcff" * 31_000, "\udcff" * 7_000, "a/" * 3_000])
def test_a_log_repeats_little_of_what_a_request_states(
    credential: str, caplog: pytest.LogCaptureFixture
) -> None:
    stated = f"AWS4-HMAC-SHA256 Credential={credential}/20260101/r/s/t, SignedHeaders=host"
    request = post(b"{}", Authorization=stated)

    answer = Post(SIGNED).answer(request)

    assert answer.status == 403
    assert len(caplog.text) < 1_000


@pytest.mark.parametrize(
    "request_",
    [
        post(b"{}", "/a" * 15_500 + f"/{SEGMENT}"),
        post(b"{}", f"/{SEGMENT}/" + "a" * 31_000),
        post(b"{}", Authorization="AWS4-HMAC-SHA256 " + "," * 8_000),
        post(b"{}", Authorization="AWS4-HMAC-SHA256 " + ";" * 31_000),
    ],
)
def test_every_source_reads_little_before_the_proof(
    request_: HttpRequest, caplog: pytest.LogCaptureFixture
) -> None:
    proof = SIGNED if "Authorization" in request_.headers else SECRET

    assert Post(proof).answer(request_).status == 403
    assert "more than" in caplog.text or "over" in caplog.text


def test_a_retried_publish_gets_the_same_message_id() -> None:
    there = Post(ANYONE)

    answers = [there.answer(post(body)) for body in (PUBLISH, PUBLISH, form(notification("b")))]

    first, second, other = (re.findall(r"<MessageId>(.*)</MessageId>", one.body) for one in answers)
    assert first == second != other


@given(REQUESTS, st.sampled_from([ANYONE, SECRET, SIGNED]))
def test_hostile_requests_get_an_answer(request_: HttpRequest, proof: Proof) -> None:
    there = Post(proof)

    answer = there.answer(request_)

    assert answer.status in {200, 403, 405, 413, 503}
    assert not there.queued or (answer.status, request_.method) == (200, "POST")
    assert answer.body.encode().decode() == answer.body


@given(BODIES | CUT, st.sampled_from([post, lambda body: encoded(post(body))]))
def test_whatever_is_posted_does_not_vanish(
    body: bytes, posted: Callable[[bytes], HttpRequest]
) -> None:
    there = Post(ANYONE)

    answer = there.answer(posted(body))

    assert answer.status == 200
    published = requests.publication(body)
    probe = not body.strip() or (published is not None and published.probe)
    assert len(there.queued) == (0 if probe else 1)
    for queued in there.queued:
        document = body if published is None else published.message.encode()
        assert documents.unwrapped(json.loads(queued)) == (document, GRID)
        assert parse_notification(queued) != ParsedNotification()


@pytest.mark.parametrize(
    "body", [b"Action=Publish&Message=%FF", b"Action=Publish", b"Action=Other&Message=a", b"\xff"]
)
def test_what_only_resembles_a_publish_is_kept_as_it_was_sent(body: bytes) -> None:
    there = Post(ANYONE)

    answer = there.answer(post(body))

    assert answer.status == 200
    assert [documents.unwrapped(json.loads(one)) for one in there.queued] == [(body, GRID)]


@pytest.mark.parametrize("body", [WEBHOOK, PUBLISH])
def test_a_body_cut_short_anywhere_is_kept_for_people(body: bytes) -> None:
    begun = body.find(b"%7B") + 3 if body is PUBLISH else 1

    for end in range(begun, len(body)):
        there = Post(ANYONE)

        there.answer(post(body[:end]))

        (queued,) = there.queued
        result = parse_notification(queued)
        assert len(result.unparseable) == 1
        assert result.arrivals == ()


def test_what_needs_no_body_is_answered_without_it() -> None:
    there = Receiver((Source(None, SECRET),), lambda _body: None)
    without = HttpRequest("POST", f"/{SEGMENT}", {}, b"")

    assert there.before_body(without) is None
    assert_refused(there.before_body(replace(without, path="/elsewhere")), 403)
    assert_refused(there.before_body(replace(without, method="PUT")), 405)
    assert there.before_body(replace(without, method="GET")) == there.answer(
        replace(without, method="GET")
    )


def assert_refused(response: HttpResponse | None, status: int) -> None:
    assert response is not None
    assert (response.status, response.proven) == (status, False)


@pytest.mark.parametrize("wrong", ["key", "time", "names", None])
def test_a_signature_is_checked_before_the_body_as_far_as_it_can_be(wrong: str | None) -> None:
    request = signed(form(notification("in/a.csv")))
    key = SignatureProof("AKIAANOTHER", KEY.secret_access_key) if wrong == "key" else KEY
    if wrong == "names":
        authorization = (request.header("authorization") or "").replace("host", "host" + ";a" * 100)
        headers = {**request.headers, "Authorization": authorization}
        request = replace(request, headers=headers)
    now = signing_time(request) + (3_600 if wrong == "time" else 0)
    clock = Clock(wall=lambda: now)
    there = Receiver((Source(None, key),), lambda _body: None, clock=clock)

    response = there.before_body(replace(request, body=b""))

    assert (response is None) == (wrong is None)
