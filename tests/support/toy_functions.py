"""Toy functions, the template that deploys them, and a listener that tests wait on."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.waiting import AWAITED_SECONDS

from extentflow_local.aws.event_source.delivery import Delivery
from extentflow_local.aws.event_source.deployment import Deployment
from extentflow_local.aws.event_source.names import TemplateContext
from extentflow_local.aws.event_source.template import read_template

FUNCTIONS = Path(__file__).with_name("functions")
TEMPLATE = FUNCTIONS / "template.json"
CORE = Path(__file__).parents[2] / "layers" / "core" / "python"


def toys(
    sqs: str, prefix: str = "", environment: Mapping[str, str | None] | None = None
) -> Deployment:
    """Return the toys' deployment."""
    around = TemplateContext(
        sqs=sqs,
        prefix=prefix,
        values={"Brokers": "127.0.0.1:9092"},
        environment={"EXTENTFLOW_KAFKA_SECURITY_PROTOCOL": None, **(environment or {})},
    )
    return read_template(TEMPLATE, around)


def order(do: str | None = None, **more: Any) -> str:  # noqa: ANN401 - what the toy understands
    """Return a message with a command for the toy."""
    return json.dumps({"do": do, **more})


@dataclass
class Seen:
    """Remembers invocations."""

    deliveries: list[Delivery] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, delivery: Delivery) -> None:
        with self._changed:
            self.deliveries.append(delivery)
            self._changed.notify_all()

    def until(self, enough: Callable[[list[Delivery]], bool]) -> list[Delivery]:
        """Wait until what was seen is enough, and return it."""
        with self._changed:
            assert self._changed.wait_for(lambda: enough(self.deliveries), AWAITED_SECONDS)
            return list(self.deliveries)

    def first(self, count: int) -> list[Delivery]:
        """Wait for so many invocations and return them."""
        return self.until(lambda seen: len(seen) >= count)[:count]

    def over(self, messages: int) -> list[Delivery]:
        """Wait until so many messages were deleted, and return the invocations until then."""
        return self.until(
            lambda seen: sum(len(one.received) - len(one.failed) for one in seen) >= messages
        )
