"""KafkaBroker without a cluster: what it must not do unless a broker answered."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from extentflow.errors import Misconfigured, SinkUnavailable
from extentflow.kafka import ProducerSettings
from extentflow.kafka.broker import KafkaBroker
from extentflow.kafka.settings import Timeouts, unreadable_files


@pytest.mark.parametrize("exactly_once", [True, False])
def test_there_is_no_fence_until_a_broker_fenced_the_predecessor(*, exactly_once: bool) -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    broker = KafkaBroker(nowhere, timeouts=Timeouts(fence_seconds=0.2))

    with pytest.raises(SinkUnavailable, match=r"slot app\.ledger\.slot-1: no answer"):
        broker.fence("app.ledger.slot-1", ProducerSettings(exactly_once=exactly_once))


class Rotated:
    """Looks settings up; `now` holds those that came into force after they were remembered."""

    def __init__(self, remembered: dict[str, str], now: dict[str, str]) -> None:
        self._found = {False: remembered, True: now}
        self.asked: list[bool] = []

    def __call__(self, written: Mapping[str, str], *, refresh: bool = False) -> dict[str, str]:
        self.asked.append(refresh)
        return {**written, **self._found[refresh]} if written else {}


# Refused by librdkafka itself, as a broker would refuse a password.
REFUSED = {"ssl.ca.pem": "no certificate", "security.protocol": "SSL"}
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
BRIEF = Timeouts(fence_seconds=0.2, request_seconds=0.2)


@pytest.mark.parametrize("key", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_every_client_names_the_file_that_it_cannot_read(key: str, tmp_path: Path) -> None:
    path = str(tmp_path / "absent.pem")
    broker = KafkaBroker({**NOWHERE, key: path}, timeouts=BRIEF)
    calls: list[Callable[[], object]] = [
        broker.proof,
        lambda: broker.topics(["t"]),
        lambda: broker.fence("app.ledger.slot-1", ProducerSettings()),
    ]

    for call in calls:
        with pytest.raises(Misconfigured) as raised:
            call()
        assert str(raised.value).startswith(f"kafka.{key}={path}: No such file or directory; ")


def test_files_that_can_be_read_and_directories_of_authorities_are_accepted(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("key")
    good = {"ssl.key.location": str(key), "ssl.ca.location": str(tmp_path)}

    assert unreadable_files({**good, "https.ca.location": "probe"}) == []
    (problem,) = unreadable_files({"ssl.key.location": str(tmp_path)})
    assert problem.startswith(f"kafka.ssl.key.location={tmp_path}: Is a directory; ")


def test_a_request_rejected_with_a_cached_secret_is_retried_with_a_new_one() -> None:
    look_up = Rotated(REFUSED, {})
    broker = KafkaBroker(NOWHERE, timeouts=BRIEF, look_up=look_up)

    with pytest.raises(SinkUnavailable, match="no answer"):
        broker.fence("app.ledger.slot-1", ProducerSettings())
    with pytest.raises(SinkUnavailable):
        _ = broker.cluster

    assert True in look_up.asked


def test_a_rejection_with_the_current_secret_is_final() -> None:
    look_up = Rotated(REFUSED, REFUSED)
    broker = KafkaBroker(NOWHERE, timeouts=BRIEF, look_up=look_up)

    with pytest.raises(Misconfigured):
        _ = broker.cluster

    assert look_up.asked.count(True) == 2


def test_a_connectors_secrets_are_looked_up_for_its_producer() -> None:
    seen: list[dict[str, str]] = []

    def look_up(written: Mapping[str, str], *, refresh: bool = False) -> dict[str, str]:  # noqa: ARG001
        seen.append(dict(written))
        return {key: text.replace("${ref}", "lz4") for key, text in written.items()}

    broker = KafkaBroker(NOWHERE, timeouts=BRIEF, look_up=look_up)

    with pytest.raises(SinkUnavailable, match="no answer"):  # librdkafka took the settings
        broker.fence("app.slot-1", ProducerSettings({"compression.type": "${ref}"}))

    assert {"compression.type": "${ref}"} in seen
