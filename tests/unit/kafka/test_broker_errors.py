"""Every error code of librdkafka has one meaning, and the page shows it."""

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from extentflow.errors import (
    BatchTooLarge,
    Fenced,
    Misconfigured,
    RecordsRejected,
    SinkUnavailable,
)
from extentflow.kafka.broker_errors import CODES, ELSEWHERE, Scope, scope_of
from extentflow.kafka.producer import translate

PAGE = Path(__file__).parents[3] / "docs" / "broker-errors.md"
# As librdkafka declares them; codes of the client are negative, and UNKNOWN is a broker's.
KNOWN = {
    name: code
    for name in dir(KafkaError)
    if isinstance(code := getattr(KafkaError, name), int) and name.lstrip("_").isupper()
}
MEANING = {
    Scope.RECORD: RecordsRejected,
    Scope.TOPIC: Misconfigured,
    Scope.CLUSTER: Misconfigured,
    Scope.OWNER: Fenced,
    Scope.OUTAGE: SinkUnavailable,
}


def test_every_code_of_brokers_is_classified_once() -> None:
    of_brokers = {name for name, code in KNOWN.items() if code > 0 or name == "UNKNOWN"}

    twice = [name for name, count in Counter([*CODES, *ELSEWHERE]).items() if count > 1]

    assert of_brokers - CODES.keys() - ELSEWHERE == set()
    assert (CODES.keys() | ELSEWHERE) - KNOWN.keys() == set()
    assert twice == []


@pytest.mark.parametrize("name", sorted(CODES))
def test_a_code_becomes_the_error_of_its_scope(name: str) -> None:
    found = translate(KafkaError(KNOWN[name]), "slot test")

    code = scope_of(name)
    assert type(found) is (BatchTooLarge if name == "MSG_SIZE_TOO_LARGE" else MEANING[code.scope])
    assert name in str(found)
    assert code.remedy in str(found)


def test_a_remedy_is_stated_where_a_person_must_act() -> None:
    without = {
        name
        for name, code in CODES.items()
        if (code.remedy == "") != (code.scope in (Scope.OWNER, Scope.OUTAGE))
    }

    assert without == set()


def test_errors_of_the_client_itself_and_of_other_requests_are_outages() -> None:
    assert scope_of("_TRANSPORT").scope is scope_of("GROUP_ID_NOT_FOUND").scope is Scope.OUTAGE


def test_a_rejection_names_the_topic_and_the_reason_of_a_record() -> None:
    text = "ProduceRequest for a.b [3] with 6 message(s) failed: Broker: Invalid timestamp"

    found = translate(KafkaError(KafkaError.INVALID_TIMESTAMP, text), "slot test")

    assert isinstance(found, RecordsRejected)
    assert found.topic == "a.b"
    assert found.why.startswith("the brokers reject it for topic a.b (INVALID_TIMESTAMP); raise")


def rows() -> list[str]:
    """The rows of the page's table."""
    listed = [
        f"| `{name}` | {code.scope} | {code.remedy} |"
        for name, code in CODES.items()
        if code.remedy
    ]
    for scope in (Scope.OWNER, Scope.OUTAGE):
        names = ", ".join(f"`{name}`" for name, code in CODES.items() if code.scope is scope)
        listed.append(f"| {names} | {scope} | nothing |")
    return listed


def test_the_page_shows_the_table() -> None:
    shown = PAGE.read_text(encoding="utf-8").splitlines()

    assert [row for row in rows() if row not in shown] == []
