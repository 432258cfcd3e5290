"""Runs that stay active until a test ends them."""

import threading
from dataclasses import dataclass, field

from extentflow_local.aws.emr.application import Order
from extentflow_local.stack.errors import ServiceFailed


@dataclass
class IdleWork:
    """A run that is active until `end` is called or it is stopped; `stops` records those calls."""

    stops: list[float] = field(default_factory=list)
    _code: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def end(self, code: int = 0) -> None:
        """End it with an exit code."""
        self._code = code
        self._over.set()

    def wait(self, seconds: float) -> int | None:
        """See `Work.wait`."""
        return self._code if self._over.wait(seconds) else None

    def stop(self, grace_seconds: float) -> None:
        """See `Work.stop`."""
        self.stops.append(grace_seconds)
        self.end(143)


@dataclass
class IdleRuns:
    """Starts `IdleWork` and records orders; with `broken` it fails with that message."""

    broken: str = ""
    orders: list[Order] = field(default_factory=list)
    work: dict[str, IdleWork] = field(default_factory=dict)

    def __call__(self, order: Order) -> IdleWork:
        """See `Begin`."""
        self.orders.append(order)
        if self.broken:
            raise ServiceFailed(self.broken)
        return self.work.setdefault(order.run, IdleWork())
