"""What a scheduled function gets, and when."""

import json
import threading

from extentflow.retry import Clock
from extentflow_local.aws.event_source.delivery import Delivery
from extentflow_local.aws.event_source.deployment import Schedule, TimeSource
from extentflow_local.aws.event_source.execution import Outcome, Verdict
from extentflow_local.aws.event_source.schedule import Ticker, event_of

ARN = "arn:aws:events:us-east-1:000000000000:rule/Tick"


def schedule(source: TimeSource = "aws.events", payload: str | None = None) -> Schedule:
    return Schedule(function="tick", arn=ARN, every_seconds=0.01, source=source, payload=payload)


def test_a_rules_event_is_eventbridges() -> None:
    event = json.loads(event_of(schedule(), now=1_795_169_700.9))

    assert event.pop("id")
    assert event == {
        "version": "0",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "000000000000",
        "time": "2026-11-20T10:15:00Z",
        "region": "us-east-1",
        "resources": [ARN],
        "detail": {},
    }


def test_the_schedulers_detail_is_a_text_and_a_fixed_payload_is_kept() -> None:
    own = json.loads(event_of(schedule("aws.scheduler"), now=0))
    fixed = event_of(schedule("aws.scheduler", '{"fixed": 1}'), now=0)

    assert (own["source"], own["detail"]) == ("aws.scheduler", "{}")
    assert fixed == b'{"fixed": 1}'


def test_the_function_runs_again_and_again_until_it_is_stopped() -> None:
    thrice = threading.Event()
    seen: list[Delivery] = []

    def observe(delivery: Delivery) -> None:
        seen.append(delivery)
        if len(seen) == 3:
            thrice.set()

    def invoke(_event: bytes) -> Outcome:
        return Outcome(Verdict.RETURNED, f"request-{len(seen)}", 1, 0.0)

    ticker = Ticker(schedule(), invoke=invoke, observe=observe, clock=Clock())

    ticker.start()
    assert thrice.wait(300)
    ticker.stop()
    ticker.join(300)

    assert [one.outcome.request_id for one in seen[:3]] == ["request-0", "request-1", "request-2"]
    assert not [thread for thread in threading.enumerate() if thread.name == "tick-tick"]
