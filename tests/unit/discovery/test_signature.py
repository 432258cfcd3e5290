"""Signatures of botocore are accepted; anything else is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.discovery.posting import FORM, KEY, form, notification, post, signed, signing_time

from extentflow.discovery.sources import MAX_SKEW_SECONDS, SignatureProof
from extentflow.errors import AccessDenied
from extentflow.http.requests import HttpRequest

ANYTHING = st.text(st.characters())
BODY = form(notification("in/red+flower.csv"))


def check(request: HttpRequest, *, key: SignatureProof = KEY, late: float = 0.0) -> None:
    key.check(request, request.payload(), now=signing_time(request) + late)


def refusal(request: HttpRequest, *, now: float | None = None) -> str:
    when = signing_time(request) if now is None else now
    with pytest.raises(AccessDenied) as refused:
        KEY.check(request, request.payload(), now=when)
    return str(refused.value)


def with_header(request: HttpRequest, name: str, value: str) -> HttpRequest:
    others = {key: held for key, held in request.headers.items() if key.lower() != name.lower()}
    return replace(request, headers={**others, name: value})


@pytest.mark.parametrize(
    "url",
    [
        "https://receiver.example.com/",
        "https://receiver.example.com",
        "http://127.0.0.1:8080/",
        "https://receiver.example.com/stage/secret/",
        "https://receiver.example.com/stage/secret",
        "https://receiver.example.com//a/./b/../c//",
        "https://receiver.example.com/a%20b/~x/%E2%98%83+",
        "https://receiver.example.com/?b=2&a=1&a=0&c",
        "https://receiver.example.com/?a-b=1&a=%20&A=x%2By",
    ],
)
def test_what_botocore_signs_is_accepted(url: str) -> None:
    check(signed(BODY, url))


@given(
    st.binary(),
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#[]@:")),
)
def test_any_body_and_path_that_botocore_signs_is_accepted(body: bytes, path: str) -> None:
    check(signed(body, f"https://receiver.example.com/{path}"))


@pytest.mark.parametrize("region", ["eu-central-1", "us-east-1", "grid"])
def test_any_region_is_accepted(region: str) -> None:
    check(signed(BODY, region=region))


def test_headers_are_signed_without_surplus_blanks() -> None:
    request = signed(BODY, headers=[("Content-Type", FORM), ("X-Amz-Meta", "  a   b ")])

    check(request)
    check(with_header(request, "X-Amz-Meta", "a b"))


def test_header_names_are_compared_without_case() -> None:
    request = signed(BODY)

    check(replace(request, headers={name.upper(): text for name, text in request.headers.items()}))


def test_headers_that_proxies_add_do_not_matter() -> None:
    check(with_header(signed(BODY), "X-Forwarded-For", "192.0.2.1"))


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_one_changed_byte_of_the_body_is_rejected(place: int, change: int) -> None:
    changed = bytearray(BODY)
    changed[place] ^= change

    assert "does not match" in refusal(replace(signed(BODY), body=bytes(changed)))


@pytest.mark.parametrize("body", [b"", BODY[:-1], BODY + b"&"])
def test_a_body_of_another_length_is_rejected(body: bytes) -> None:
    assert "does not match" in refusal(replace(signed(BODY), body=body))


def test_another_method_path_or_query_is_rejected() -> None:
    request = signed(BODY)

    for changed in (
        replace(request, method="PUT"),
        replace(request, path="/other"),
        replace(request, query="a=1"),
    ):
        assert "does not match" in refusal(changed)


def test_another_signed_header_is_rejected() -> None:
    request = signed(BODY)

    assert "does not match" in refusal(with_header(request, "Content-Type", "text/plain"))
    assert "does not match" in refusal(with_header(request, "Host", "other.example.com"))


def test_a_signed_header_that_is_gone_is_rejected() -> None:
    request = signed(BODY)
    others = {name: text for name, text in request.headers.items() if name != "Content-Type"}

    assert "'content-type' is not there" in refusal(replace(request, headers=others))


def test_another_secret_is_rejected() -> None:
    other = SignatureProof(KEY.access_key_id, "another secret")

    assert "does not match" in refusal(signed(BODY, key=other))


def test_another_access_key_is_rejected_by_its_id() -> None:
    other = SignatureProof("AKIAOTHER", KEY.secret_access_key)

    assert "'AKIAOTHER' is not the shared one" in refusal(signed(BODY, key=other))


def test_a_signature_for_another_service_is_rejected() -> None:
    assert "expected */sns/aws4_request" in refusal(signed(BODY, service="s3"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("eu-central-1", "eu-west-9", "does not match"),
        ("/sns/", "/sqs/", "expected */sns/aws4_request"),
        ("aws4_request", "aws5_request", "expected */sns/aws4_request"),
    ],
)
def test_a_scope_that_was_changed_is_rejected(old: str, new: str, says: str) -> None:
    request = signed(BODY)
    header = request.header("authorization") or ""

    assert says in refusal(with_header(request, "Authorization", header.replace(old, new, 1)))


@pytest.mark.parametrize("late", [-MAX_SKEW_SECONDS, -1, 0, 1, MAX_SKEW_SECONDS])
def test_clocks_may_differ_by_a_quarter_of_an_hour(late: float) -> None:
    check(signed(BODY), late=late)


@pytest.mark.parametrize("late", [-86_400, -MAX_SKEW_SECONDS - 1, MAX_SKEW_SECONDS + 1, 86_400])
def test_clocks_that_differ_more_are_rejected(late: float) -> None:
    request = signed(BODY)

    assert "compare the clocks" in refusal(request, now=signing_time(request) + late)


@pytest.mark.parametrize("date", ["", "soon", "20261399T101500Z", "20200101T000000Z"])
def test_another_date_than_the_signed_one_is_rejected(date: str) -> None:
    request = signed(BODY)

    assert "X-Amz-Date" in refusal(with_header(request, "X-Amz-Date", date), now=0.0)


@pytest.mark.parametrize(
    ("day", "says"),
    [("20260230", "is no time"), ("\u0662\u0660261120", "X-Amz-Date is missing")],
)
def test_a_date_that_never_was_is_rejected(day: str, says: str) -> None:
    request = signed(BODY)
    signing_day = (request.header("x-amz-date") or "")[:8]
    header = (request.header("authorization") or "").replace(signing_day, day)
    never = with_header(request, "X-Amz-Date", f"{day}T101500Z")

    assert says in refusal(with_header(never, "Authorization", header), now=0.0)


def test_a_later_time_on_the_same_day_is_rejected() -> None:
    request = signed(BODY)
    time = request.header("x-amz-date") or ""
    other = f"{time[:14]}{(int(time[14]) + 1) % 10}Z"

    assert "does not match" in refusal(with_header(request, "X-Amz-Date", other))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic dXNlcjpzZWNyZXQ=",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=b",
        "AWS4-HMAC-SHA256 Credential=a/b/c/d/e, SignedHeaders=x-amz-date, Signature=b",
        "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=b",
        "AWS4-HMAC-SHA256 ,,,===",
        "AWS4-HMAC-SHA512 Credential=a/b/c/d/e, SignedHeaders=host, Signature=b",
    ],
)
def test_what_is_no_signature_is_rejected(header: str) -> None:
    request = with_header(signed(BODY), "Authorization", header)

    assert "Authorization header" in refusal(request)


@pytest.mark.parametrize("signature", ["", "Signature=", "Signature=\udc80", "Signature=☃"])
def test_an_odd_signature_is_rejected(signature: str) -> None:
    request = signed(BODY)
    header = (request.header("authorization") or "").rpartition("Signature=")[0]

    assert "does not match" in refusal(with_header(request, "Authorization", header + signature))


@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING)
def test_hostile_headers_are_rejected(authorization: str, date: str, host: str, path: str) -> None:
    for header in (authorization, f"AWS4-HMAC-SHA256 {authorization}"):
        headers = {"Authorization": header, "X-Amz-Date": date, "Host": host}

        with pytest.raises(AccessDenied):
            KEY.check(HttpRequest("POST", path, headers, BODY), BODY, now=0.0)


def test_unsigned_payloads_are_rejected() -> None:
    headers = [("Content-Type", FORM), ("X-Amz-Content-SHA256", "UNSIGNED-PAYLOAD")]

    assert "does not match" in refusal(signed(BODY, headers=headers))


def test_an_unsigned_request_is_rejected() -> None:
    assert "not signed" in refusal(post(BODY), now=0.0)


def test_rejections_contain_neither_secret_nor_valid_signature() -> None:
    request = signed(BODY)
    right = (request.header("authorization") or "").rpartition("=")[2]

    said = refusal(replace(request, body=b"other"))

    assert KEY.secret_access_key not in said + repr(KEY)
    assert right not in said
