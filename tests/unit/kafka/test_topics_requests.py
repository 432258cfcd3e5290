"""MetadataRequests are asked again until they are answered, cannot be, or are late."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.golden import Golden
from tests.unit.kafka.scripted import error, timeouts

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.kafka.topic_admin import MetadataRequests


class Question:
    """Raises its answers one after the other, then succeeds."""

    def __init__(self, *answers: KafkaException) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, _: float) -> str:
        self.asked += 1
        if self.answers:
            raise self.answers.pop(0)
        return "answer"


def served() -> None:
    pass


def questions(serve: Callable[[], None] = served) -> MetadataRequests:
    return MetadataRequests("Kafka at broker:9092", "broker,other", timeouts(), serve)


def test_a_question_is_asked_until_it_is_answered() -> None:
    question = Question(error("_TRANSPORT"), error("NOT_COORDINATOR"))

    answer = questions().send(question)

    assert (answer, question.asked) == ("answer", 3)


def test_a_late_response_reports_the_first_reason_not_the_timeout() -> None:
    question = Question(error("COORDINATOR_LOAD_IN_PROGRESS"), *[error("_TIMED_OUT")] * 1000)

    with pytest.raises(SinkUnavailable, match="COORDINATOR_LOAD_IN_PROGRESS"):
        questions().send(question)


def test_errors_beside_the_response_are_reported() -> None:
    asking = questions()
    asking.report(error("_RESOLVE").args[0])

    with pytest.raises(SinkUnavailable, match=r"broker:9092.*_RESOLVE"):
        asking.send(Question(*[error("_TIMED_OUT")] * 1000))


def test_a_missing_permission_ends_the_asking() -> None:
    question = Question(*[error("CLUSTER_AUTHORIZATION_FAILED")] * 10)

    with pytest.raises(Misconfigured, match="allow IdempotentWrite"):
        questions().send(question)

    assert question.asked == 1


def test_rejected_credentials_end_the_request() -> None:
    def serve() -> None:
        for broker in ("broker", "other"):
            asking.report(KafkaError(KafkaError._AUTHENTICATION, f"sasl_ssl://{broker}:9092/1: no"))

    asking = questions(serve)
    question = Question(*[error("_TIMED_OUT")] * 10)

    with pytest.raises(Misconfigured, match="check user name"):
        asking.send(question)

    assert question.asked == 1


def test_a_broker_that_rejects_the_credentials_alone_is_an_outage() -> None:
    refused = KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://other:9092/2: no such user")
    asking = questions(lambda: asking.report(refused))

    with pytest.raises(SinkUnavailable, match="other:9092/2: no such user"):
        asking.send(Question(*[error("_TIMED_OUT")] * 1000))


def test_a_long_silence_is_logged_once(caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
    with pytest.raises(SinkUnavailable):
        questions().send(Question(*[error("_TIMED_OUT")] * 1000))

    logged = [record.getMessage() for record in caplog.records]
    golden(*logged)
