"""Pinning versions, and what bad options and credentials get."""

import datetime as dt
import ipaddress
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.support.golden import Golden
from tests.unit.storage.conftest import OpenStore
from tests.unit.storage.loopback import Loopback, Reply, Request, error

from extentflow.errors import AccessDenied, BucketGone, Misconfigured, ObjectGone, Permanent
from extentflow.model import ObjectVersion
from extentflow.storage import StoreOptions
from extentflow.storage.s3 import RequestLimits, S3Store
from extentflow.storage.s3.store import connect


@pytest.fixture(autouse=True)
def held(server: Loopback) -> None:
    server.hold("/bucket/key", b"0123456789", "aaa")


def test_head_pins_etag_and_size(store: S3Store) -> None:
    assert store.head("bucket", "key") == ObjectVersion("bucket", "key", None, "aaa", 10)


def test_head_pins_the_version_id_of_a_versioned_bucket(store: S3Store, server: Loopback) -> None:
    server.script.append(Reply(200, b"01", {"ETag": '"bbb"', "x-amz-version-id": "v2"}))

    assert store.head("bucket", "key") == ObjectVersion("bucket", "key", "v2", "bbb", 2)


def test_head_asks_for_the_given_version(store: S3Store, server: Loopback) -> None:
    store.head("bucket", "key", "v1")

    assert server.seen[0].query["versionId"] == "v1"


def test_the_null_version_is_pinned_by_its_etag_alone(store: S3Store, server: Loopback) -> None:
    server.script.append(Reply(200, b"01", {"ETag": '"bbb"', "x-amz-version-id": "null"}))

    assert store.head("bucket", "key").version_id is None


def test_a_multipart_etag_is_opaque(store: S3Store, server: Loopback) -> None:
    server.hold("/bucket/parts", b"01", "0123abcd-17")

    version = store.head("bucket", "parts")

    assert version.etag == "0123abcd-17"
    assert store.read(version, 0, 2) == b"01"


def test_trap_t19_a_zero_byte_object_is_pinned(store: S3Store, server: Loopback) -> None:
    server.hold("/bucket/empty", b"", "eee")

    assert store.head("bucket", "empty").size == 0


@pytest.mark.parametrize(
    "key", ["a,b", "a b", "a+b", "ü€😀", "100%", "%20", "a&b=c?d#e", "q'\"<>", "x/y//z"]
)
def test_trap_t20_odd_keys_arrive_exactly(store: S3Store, server: Loopback, key: str) -> None:
    server.hold(f"/bucket/{key}", key.encode(), "odd")

    version = store.head("bucket", key)

    assert version.key == key
    assert store.read(version, 0, version.size) == key.encode()


def test_a_missing_key_is_named(store: S3Store, server: Loopback, golden: Golden) -> None:
    with golden.raises(ObjectGone, match=f"s3://bucket/absent.*{server.url}"):
        store.head("bucket", "absent")


def test_a_missing_bucket_is_named_although_head_cannot_say_so(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    with golden.raises(BucketGone, match=f"s3://nowhere.*{server.url}"):
        store.head("nowhere", "key")


def test_a_missing_version_is_named(store: S3Store, server: Loopback, golden: Golden) -> None:
    server.script.append(error(404, ""))

    with golden.raises(ObjectGone, match=r"s3://bucket/key\?versionId=v9"):
        store.head("bucket", "key", "v9")


@pytest.mark.parametrize("status", [404, 405])
def test_a_delete_marker_is_object_gone(store: S3Store, server: Loopback, status: int) -> None:
    server.script.append(error(status, "", x_amz_delete_marker="true"))

    with pytest.raises(ObjectGone, match=r"s3://bucket/key.* was deleted"):
        store.head("bucket", "key", "v9" if status == 405 else None)


def test_a_bucket_we_may_not_ask_about_does_not_hide_the_missing_key(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    server.script.extend([error(404, ""), error(403, "AccessDenied")])

    with golden.raises(ObjectGone, match="s3://bucket/absent"):
        store.head("bucket", "absent")


def test_a_server_without_etags_cannot_be_pinned(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    server.script.append(Reply(200, b"01"))

    with golden.raises(Permanent):
        store.head("bucket", "key")


def test_an_impossible_bucket_name_is_misconfigured(store: S3Store) -> None:
    with pytest.raises(Misconfigured, match="Invalid bucket name"):
        store.head("not a bucket", "key")


def test_all_bad_options_are_reported_at_once() -> None:
    options = StoreOptions(
        endpoint="127.0.0.1:9000", access_key_id="AK", role_external_id="x", verify="/absent.pem"
    )

    with pytest.raises(Misconfigured) as raised:
        S3Store(options)

    assert [problem.split(" ")[0] for problem in raised.value.problems] == [
        "aws.s3.endpoint",
        "aws.access.key.id",
        "aws.sts.role.external.id",
        "aws.s3.ca.bundle",
    ]


@pytest.mark.parametrize(
    ("options", "style"),
    [
        (StoreOptions(), "auto"),
        (StoreOptions(endpoint="http://127.0.0.1:1"), "path"),
        (StoreOptions(endpoint="http://127.0.0.1:1", path_style=False), "virtual"),
        (StoreOptions(path_style=True), "path"),
    ],
)
def test_path_style_follows_the_endpoint_unless_set(options: StoreOptions, style: str) -> None:
    client = connect(options, RequestLimits())

    assert client.meta.config.s3["addressing_style"] == style  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "Unable to locate credentials"),
        ({"AWS_ACCESS_KEY_ID": "AKIDOWN"}, "missing: AWS_SECRET_ACCESS_KEY"),
        ({"AWS_PROFILE": "unknown"}, "profile (unknown) could not be found"),
    ],
    ids=["none", "half", "profile"],
)
def test_missing_credentials_are_denied_with_every_way_to_give_them(
    open_store: OpenStore,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: dict[str, str],
    why: str,
) -> None:
    no_chain(monkeypatch, tmp_path)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    store = open_store(access_key_id=None, secret_access_key=None)

    with pytest.raises(AccessDenied) as caught:
        store.head("bucket", "key")

    fact, _, remedy = str(caught.value).partition("; ")
    assert fact.startswith("s3://bucket/key: no usable credentials (")
    assert why in fact
    for way in (
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "AWS_PROFILE",
        "a role",
        "aws.access.key.id and aws.secret.access.key",
        "${env:NAME}",
    ):
        assert way in remedy


def no_chain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))


ASSUMED = b"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>
<SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken>
<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>
<AssumedRoleUser><AssumedRoleId>A:b</AssumedRoleId>
<Arn>arn:aws:sts::123456789012:assumed-role/r/extentflow</Arn></AssumedRoleUser>
</AssumeRoleResult></AssumeRoleResponse>"""
ROLE = "arn:aws:iam::123456789012:role/reader"


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loopback]:
    no_chain(monkeypatch, tmp_path)
    with Loopback().running() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", running.url)
        yield running


def test_a_role_is_assumed_once_and_signs_the_requests(
    open_store: OpenStore, server: Loopback, sts: Loopback
) -> None:
    sts.script.append(Reply(200, ASSUMED, {"Content-Type": "text/xml"}))
    store = open_store(role_arn=ROLE, role_external_id="ours")

    store.head("bucket", "key")
    store.head("bucket", "key")

    (asked,) = sts.seen
    assert asked.query["RoleArn"] == ROLE
    assert asked.query["ExternalId"] == "ours"
    assert "Credential=AKIDOWN/" in asked.headers["authorization"]
    assert all("Credential=ASIAROLE/" in seen.headers["authorization"] for seen in server.seen)


def test_a_role_that_is_rejected_is_denied_and_named(
    open_store: OpenStore, sts: Loopback, golden: Golden
) -> None:
    refused = b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
    sts.script.append(Reply(403, refused, {"Content-Type": "text/xml"}))
    store = open_store(role_arn=ROLE)

    with golden.raises(AccessDenied, match=r"aws\.sts\.role\.arn"):
        store.head("bucket", "key")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key behind it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    today = dt.datetime.now(dt.UTC)
    day = dt.timedelta(days=1)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - day)
        .not_valid_after(today + day)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "bundle.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def tls_server(bundle: Path) -> Iterator[Loopback]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle)
    with Loopback(context=context).running() as running:
        running.hold("/bucket/key", b"0123456789", "aaa")
        yield running


def test_a_private_certificate_is_trusted_through_its_bundle(
    open_store: OpenStore, tls_server: Loopback, bundle: Path
) -> None:
    store = open_store(endpoint=tls_server.url, verify=str(bundle))

    assert store.head("bucket", "key").size == 10


def test_an_untrusted_certificate_is_misconfigured_and_not_retried(
    open_store: OpenStore, tls_server: Loopback, golden: Golden
) -> None:
    store = open_store(endpoint=tls_server.url)

    with golden.raises(Misconfigured, match=r"aws\.s3\.ca\.bundle"):
        store.head("bucket", "key")

    assert store.counters.requests == 1


def test_a_wrong_region_is_misconfigured_with_the_right_one(
    store: S3Store, server: Loopback, golden: Golden
) -> None:
    def elsewhere(_: Request) -> Reply:
        return error(400, "AuthorizationHeaderMalformed", x_amz_bucket_region="eu-west-9")

    server.script.extend([elsewhere] * 5)

    with golden.raises(Misconfigured, match=r"aws\.s3\.region.*eu-west-9"):
        store.read(ObjectVersion("bucket", "key", None, "aaa", 10), 0, 5)
