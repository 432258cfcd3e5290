"""Fixtures of the storage room: a loopback S3 server, a store before it, a clock that tests own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.unit.storage.loopback import Loopback

from extentflow.retry import Clock, RetryPolicy
from extentflow.storage import StoreOptions
from extentflow.storage.s3 import RequestLimits, S3Store

OpenStore = Callable[..., S3Store]


@dataclass
class HandTurnedClock:
    """Time that passes only in pauses."""

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def retry(self) -> RetryPolicy:
        clock = Clock(monotonic=self.read, sleep=self.sleep)
        return RetryPolicy(20.0, clock=clock, jitter=lambda: 1.0)


@pytest.fixture
def hand_turned() -> HandTurnedClock:
    return HandTurnedClock()


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback().running() as running:
        yield running


@pytest.fixture
def open_store(server: Loopback, hand_turned: HandTurnedClock) -> Iterator[OpenStore]:
    """Open stores before the loopback server; closed with the test."""
    opened: list[S3Store] = []

    def open_one(*, limits: RequestLimits | None = None, **options: object) -> S3Store:
        settings: dict[str, object] = {
            "endpoint": server.url,
            "region": "eu-test-1",
            "access_key_id": "AKIDOWN",
            "secret_access_key": "secret",
            **options,
        }
        store = S3Store(
            StoreOptions(**settings),  # type: ignore[arg-type]
            retry=hand_turned.retry(),
            limits=limits or RequestLimits(connect_seconds=2.0, read_seconds=5.0),
        )
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> S3Store:
    return open_store()
