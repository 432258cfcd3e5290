"""Every adapter checks a connector, and each problem is reported once."""

import pytest

from extentflow.errors import Misconfigured
from extentflow.wiring import check_connector

BASE = {"name": "orders", "topic": "orders", "aws.s3.bucket.name": "bucket"}


def problems(**producer: str) -> tuple[str, ...]:
    """Return what is wrong with these producer settings; dots are written as two underscores."""
    named = {f"producer.{key.replace('__', '.')}": text for key, text in producer.items()}
    with pytest.raises(Misconfigured) as caught:
        check_connector({**BASE, **named})
    return caught.value.problems


def test_a_good_connector_is_returned() -> None:
    config = check_connector(
        {**BASE, "producer.linger.ms": "5", "producer.compression.type": "lz4"}
    )

    assert config.producer == {"linger.ms": "5", "compression.type": "lz4"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("linger__ms", "soon"),
        ("compression__type", "brotli"),
        ("partitioner", "mine"),
        ("security__protocol", "TLS"),
    ],
)
def test_a_value_that_the_client_would_reject_is_named(key: str, value: str) -> None:
    (problem,) = problems(**{key: value})

    assert problem.startswith(f"producer.{key.replace('__', '.')}: ")


@pytest.mark.parametrize(
    "producer",
    [{"max__in__flight": "10"}, {"retries": "0"}, {"message__max__bytes": "99"}],
    ids=str,
)
def test_values_that_an_idempotent_producer_cannot_keep_are_named(
    producer: dict[str, str],
) -> None:
    (problem,) = problems(**producer)

    assert problem.startswith("producer.*: ")
    assert problem == problem.strip()


def test_a_rejected_key_is_named_once_with_its_reason() -> None:
    (problem,) = problems(acks="1")

    assert problem.startswith("producer.acks: ")


def test_a_key_whose_name_begins_like_another_is_not_taken_for_it() -> None:
    found = problems(linger__ms="soon", linger__mss="5")

    assert sorted(problem.split(":")[0] for problem in found) == [
        "producer.linger.ms",
        "producer.linger.mss",
    ]


def test_problems_of_the_client_do_not_hide_behind_others() -> None:
    with pytest.raises(Misconfigured) as caught:
        check_connector({"name": "orders", "producer.linger.ms": "soon"})

    named = {problem.split(":")[0] for problem in caught.value.problems}
    assert named == {"topic", "aws.s3.bucket.name", "producer.linger.ms"}


def test_what_only_workers_have_is_not_looked_for_here() -> None:
    config = check_connector(
        {
            **BASE,
            "producer.sasl.username": "user",
            "producer.sasl.password": "${env:A_VARIABLE_OF_WORKERS}",
            "producer.ssl.key.pem": "${file:/only/on/workers.properties:key}",
        }
    )

    assert config.producer["sasl.password"] == "${env:A_VARIABLE_OF_WORKERS}"
