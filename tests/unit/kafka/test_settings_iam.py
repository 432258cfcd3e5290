"""Brokers with IAM authentication get tokens, signed at start and before they expire."""

import logging
import time

import pytest
from confluent_kafka import Producer
from tests.support.golden import Golden

from extentflow.errors import CredentialsUnavailable, Misconfigured
from extentflow.kafka.settings import problems, with_tokens

MSK = "b-1.dev.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"
IAM = {
    "bootstrap.servers": MSK,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
}


class Signing:
    """Signs tokens that no broker checks; records the regions."""

    def __init__(self) -> None:
        self.regions: list[str | None] = []
        self.trouble: Exception | None = None

    def __call__(self, region: str | None) -> tuple[str, float]:
        self.regions.append(region)
        if self.trouble is not None:
            raise self.trouble
        return f"token-{len(self.regions)}", time.time() + 900


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_librdkafka_gets_a_token_for_the_brokers_region(key: str) -> None:
    sign = Signing()
    asked = {"bootstrap.servers": MSK, "security.protocol": "sasl_ssl", key: "AWS_MSK_IAM"}

    client = with_tokens(asked, sign)

    assert client["sasl.mechanisms"] == "OAUTHBEARER"
    assert "sasl.mechanism" not in client
    assert sign.regions == ["eu-central-1"]
    assert client["oauth_cb"]("")[0] == "token-2"
    assert sign.regions == ["eu-central-1"] * 2


def test_a_client_has_its_token_when_it_is_handed_out() -> None:
    sign = Signing()

    Producer({**with_tokens(IAM, sign), "log_level": 0})

    assert len(sign.regions) == 2


def test_other_mechanisms_are_left_to_librdkafka() -> None:
    scram = {"bootstrap.servers": MSK, "sasl.mechanism": "SCRAM-SHA-512"}

    assert with_tokens(scram, None) == scram


def test_the_later_of_two_spellings_counts() -> None:
    assert "oauth_cb" not in with_tokens({**IAM, "sasl.mechanisms": "PLAIN"}, Signing())
    later = {"sasl.mechanism": "PLAIN", **IAM, "sasl.mechanisms": "AWS_MSK_IAM"}
    assert "oauth_cb" in with_tokens(later, Signing())


def test_tokens_do_not_travel_in_the_open(golden: Golden) -> None:
    with golden.raises(Misconfigured, match=r"security\.protocol=SASL_SSL"):
        with_tokens({**IAM, "security.protocol": "SASL_PLAINTEXT"}, Signing())
    with golden.raises(Misconfigured, match=r"security\.protocol=SASL_SSL"):
        with_tokens({"bootstrap.servers": MSK, "sasl.mechanism": "AWS_MSK_IAM"}, Signing())


def test_a_missing_token_is_reported_before_a_client_is_created() -> None:
    sign = Signing()
    sign.trouble = Misconfigured("no AWS credentials")

    with pytest.raises(Misconfigured, match="no AWS credentials"):
        with_tokens(IAM, sign)


def test_a_token_that_cannot_be_renewed_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sign = Signing()
    client = with_tokens(IAM, sign)
    sign.trouble = CredentialsUnavailable("the role's credentials do not come")

    with caplog.at_level(logging.WARNING), pytest.raises(CredentialsUnavailable):
        client["oauth_cb"]("")

    assert "was not renewed: the role's credentials do not come" in caplog.text


def test_nothing_to_sign_with_is_a_mistake() -> None:
    with pytest.raises(Misconfigured, match="has no signer"):
        with_tokens(IAM, None)


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        (MSK, "eu-central-1"),
        (f"gateway.example:9098,{MSK}", "eu-central-1"),
        ("boot-x1.c3.kafka-serverless.us-west-2.amazonaws.com:9098", "us-west-2"),
        ("b-1.x.y.c2.kafka.us-gov-west-1.amazonaws.com:9098", "us-gov-west-1"),
        ("b-1.x.y.c4.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("gateway.example:9098", None),
        ("", None),
    ],
)
def test_msk_names_contain_the_region(servers: str, region: str | None) -> None:
    sign = Signing()

    with_tokens({**IAM, "bootstrap.servers": servers}, sign)

    assert sign.regions == [region]


def test_the_worker_asks_for_it_and_a_connector_does_not() -> None:
    iam = {"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_SSL"}

    assert problems(iam, {}) == []
    (found,) = problems({}, {"sasl.mechanism": "AWS_MSK_IAM"})
    assert "kafka.sasl.mechanism" in found
