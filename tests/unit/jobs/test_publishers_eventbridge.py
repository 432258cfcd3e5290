"""Job events on an EventBridge bus: entries, batches, retries and refusals."""

import json
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.stub import ANY, Stubber
from moto import mock_aws
from tests.support.memory_delivery import Ticker
from tests.unit.jobs.test_events import EVENT

from extentflow.aws import BATCH_BYTES, BATCH_ENTRIES
from extentflow.errors import BusUnavailable, Misconfigured
from extentflow.jobs import publishers as eventbridge
from extentflow.jobs.publishers import (
    TRIES,
    EventBridgeJobEvents,
)
from extentflow.model import JobState

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient

BUS = "jobs"
ACCEPTED = {"EventId": "1"}
THROTTLED = {"ErrorCode": "ThrottlingException", "ErrorMessage": "slower"}


def client(endpoint: str | None = None) -> "EventBridgeClient":
    return boto3.session.Session().client(
        "events",
        region_name="eu-west-1",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )


@dataclass
class Bus:
    """A bus with scripted responses; records the entries that were put."""

    client: "EventBridgeClient" = field(default_factory=client)
    ticker: Ticker = field(default_factory=Ticker)
    put: list[list[dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client.meta.events.register("provide-client-params.events.PutEvents", self._note)
        self.stubber = Stubber(self.client)
        self.stubber.activate()

    def _note(self, *, params: dict[str, Any], **_: object) -> None:
        self.put.append(params["Entries"])

    def answers(self, *entries: dict[str, str]) -> None:
        failed = sum("ErrorCode" in entry for entry in entries)
        answer = {"FailedEntryCount": failed, "Entries": list(entries)}
        self.stubber.add_response("put_events", answer, {"Entries": ANY})

    @property
    def publisher(self) -> EventBridgeJobEvents:
        return EventBridgeJobEvents(BUS, self.client, clock=self.ticker.clock, random=Random(1))

    @property
    def published(self) -> list[list[str]]:
        """The jobs of every call."""
        return [[json.loads(entry["Detail"])["job"] for entry in entries] for entries in self.put]


def events(count: int) -> list[Any]:
    return [replace(EVENT, job=f"{number:020x}") for number in range(count)]


def names(*numbers: int) -> list[str]:
    return [f"{number:020x}" for number in numbers]


# -- against moto ---------------------------------------------------------------------------------


def test_an_entry_has_source_type_time_and_the_event() -> None:
    sent: list[dict[str, Any]] = []
    done = replace(EVENT, state=JobState.DONE, reason="")

    with mock_aws():
        bus = client()
        bus.create_event_bus(Name=BUS)
        note = "request-created.events.PutEvents"
        bus.meta.events.register(note, lambda request, **_: sent.append(json.loads(request.body)))
        EventBridgeJobEvents(BUS, bus).publish([EVENT, *[done] * BATCH_ENTRIES])

    entries = [entry for call in sent for entry in call["Entries"]]
    detail = entries[0].pop("Detail")
    assert [len(call["Entries"]) for call in sent] == [BATCH_ENTRIES, 1]
    assert json.loads(detail) == EVENT.to_json()
    assert entries[0] == {
        "EventBusName": BUS,
        "Source": "extentflow",
        "DetailType": "extentflow Job FAILED",
        "Time": EVENT.ended,
    }
    assert {entry["DetailType"] for entry in entries[1:]} == {"extentflow Job DONE"}


def test_a_bus_that_does_not_exist_is_named_with_its_remedy() -> None:
    wanted = r"event bus jobs: .*; there is no such bus"
    with mock_aws(), pytest.raises(Misconfigured, match=wanted):
        EventBridgeJobEvents(BUS, client()).publish([EVENT])


# -- batches --------------------------------------------------------------------------------------


def test_ten_events_go_into_one_call() -> None:
    bus = Bus()
    bus.answers(*[ACCEPTED] * 10)
    bus.answers(ACCEPTED)

    bus.publisher.publish(events(11))

    assert bus.published == [names(*range(10)), names(10)]
    bus.stubber.assert_no_pending_responses()


def test_a_call_has_no_more_bytes_than_the_bus_takes() -> None:
    bus = Bus()
    large = [replace(event, reason="x" * 100_000) for event in events(3)]
    bus.answers(ACCEPTED, ACCEPTED)
    bus.answers(ACCEPTED)

    bus.publisher.publish(large)

    assert bus.published == [names(0, 1), names(2)]


@pytest.mark.parametrize("letter", ["x", "ü", "\U0001f40d"])
def test_a_reason_is_cut_to_the_size_limit_of_an_entry(letter: str) -> None:
    bus = Bus()
    bus.answers(ACCEPTED)
    reason = letter * 300_000

    bus.publisher.publish([replace(EVENT, reason=reason)])

    ((entry,),) = bus.put
    kept = json.loads(entry["Detail"])["reason"]
    assert len(entry["Detail"]) < BATCH_BYTES
    assert kept
    assert reason.startswith(kept)
    assert {**json.loads(entry["Detail"]), "reason": ""} == replace(EVENT, reason="").to_json()


def test_no_events_make_no_call() -> None:
    bus = Bus()

    bus.publisher.publish([])

    assert bus.put == []


# -- refusals -------------------------------------------------------------------------------------


def test_only_entries_that_failed_are_put_again() -> None:
    bus = Bus()
    bus.answers(ACCEPTED, THROTTLED, ACCEPTED)
    bus.answers(ACCEPTED)

    bus.publisher.publish(events(3))

    assert bus.published == [names(0, 1, 2), names(1)]
    assert bus.ticker.now > Ticker().now


def test_entries_that_fail_every_try_raise_bus_unavailable() -> None:
    bus = Bus()
    for _ in range(TRIES):
        bus.answers(THROTTLED)

    with pytest.raises(BusUnavailable, match="1 events not accepted"):
        bus.publisher.publish(events(1))

    assert bus.published == [names(0)] * TRIES


def test_an_entry_that_is_rejected_for_good_is_misconfigured() -> None:
    bus = Bus()
    bus.answers({"ErrorCode": "MalformedDetail", "ErrorMessage": "no JSON"})

    with pytest.raises(Misconfigured, match="MalformedDetail: no JSON"):
        bus.publisher.publish(events(1))


@pytest.mark.parametrize(
    ("code", "status"),
    [("ThrottlingException", 400), ("Anything", 503), ("InternalException", 500)],
)
def test_service_errors_raise_bus_unavailable(code: str, status: int) -> None:
    bus = Bus()
    bus.stubber.add_client_error("put_events", code, "not now", http_status_code=status)

    with pytest.raises(BusUnavailable, match=code):
        bus.publisher.publish(events(1))


def test_a_missing_permission_names_the_action() -> None:
    bus = Bus()
    bus.stubber.add_client_error("put_events", "AccessDeniedException", "no", http_status_code=400)

    with pytest.raises(Misconfigured, match="allow events:PutEvents"):
        bus.publisher.publish(events(1))


def test_an_unreachable_bus_raises_bus_unavailable() -> None:
    nowhere = client("http://127.0.0.1:9")

    with pytest.raises(BusUnavailable, match="event bus jobs: EndpointConnectionError"):
        EventBridgeJobEvents(BUS, nowhere).publish([EVENT])


@pytest.mark.parametrize(
    ("bus", "region"),
    [
        ("default", "us-west-2"),
        ("arn:aws:events:eu-central-1:123456789012:event-bus/jobs", "eu-central-1"),
    ],
)
def test_an_arn_names_the_bus_s_region(
    bus: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")

    assert eventbridge.connect(bus).meta.region_name == region
