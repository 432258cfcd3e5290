"""The laws of reading ahead."""

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import Golden
from tests.support.waiting import running_seconds

from extentflow.errors import (
    AccessDenied,
    ExtentflowError,
    ObjectChanged,
    ObjectGone,
    StoreUnavailable,
)
from extentflow.model import ObjectVersion
from extentflow.storage import ListedObject, Page, ranges
from extentflow.storage.ranges import RangeReader, tail
from extentflow.testing.stores import (
    Fault,
    FaultKind,
    FaultyStore,
    MemorySource,
    MemoryStore,
    StoreRequest,
)

BODY = bytes(range(256)) * 4


class Gate:
    """A store whose reads wait until the test lets them through, one permit each."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.begun: list[tuple[int, int]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._changed = threading.Condition()
        self._permits = 0
        self.answer: Callable[[bytes], bytes] = bytes

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        return self._store.head(bucket, key, version_id)

    def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
        return self._store.list(bucket, prefix)

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        return self._store.pages(bucket, prefix, token=token)

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        with self._changed:
            self.begun.append((start, end))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._permits > 0, timeout=300)
            self._permits -= 1
            self._at_once -= 1
        return self.answer(self._store.read(version, start, end))

    def let(self, permits: int) -> None:
        with self._changed:
            self._permits += permits
            self._changed.notify_all()

    def wait_for_begun(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.begun) >= count, timeout=300)


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def version(memory: MemoryStore) -> ObjectVersion:
    return memory.put("bucket", "key", BODY)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


@given(
    size=st.integers(0, 200),
    cut=st.tuples(st.integers(0, 200), st.integers(0, 200)),
    window=st.integers(1, 64),
    ahead=st.integers(1, 5),
)
@settings(deadline=None)
def test_concatenated_windows_are_the_range(
    size: int, cut: tuple[int, int], window: int, ahead: int
) -> None:
    store = MemoryStore()
    pinned = store.put("bucket", "key", BODY[:size])
    start, end = sorted(min(at, size) for at in cut)
    reader = RangeReader(store, pinned, ahead=ahead)

    windows = list(reader.stream(start, end, window_bytes=window))

    assert b"".join(windows) == BODY[start:end]
    assert all(len(body) == window for body in windows[:-1])
    assert all(windows)
    assert store.fetched_bytes == end - start
    assert store.requests == -(-(end - start) // window)
    assert readers() == []


@given(
    window=st.integers(1, 40),
    position=st.integers(0, 199),
    kind=st.sampled_from(["unavailable", "changed", "gone", "denied", "short"]),
)
@settings(max_examples=50, deadline=None)
def test_a_fault_is_raised_at_its_window_after_everything_before_it(
    window: int, position: int, kind: FaultKind
) -> None:
    store = MemoryStore()
    pinned = store.put("bucket", "key", BODY[:200])
    faulty = FaultyStore(store, Fault(kind, touching=(position, position + 1)))
    got: list[bytes] = []

    with pytest.raises(ExtentflowError) as raised:
        got.extend(RangeReader(faulty, pinned).stream(0, 200, window_bytes=window))

    wanted = {"changed": ObjectChanged, "gone": ObjectGone, "denied": AccessDenied}
    assert type(raised.value) is wanted.get(kind, StoreUnavailable)
    assert b"".join(got) == BODY[: position // window * window]
    assert readers() == []


def test_never_more_than_three_windows_are_outstanding(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    gate = Gate(memory)
    stream = RangeReader(gate, version).stream(0, 1000, window_bytes=100)
    gate.let(1)

    first = next(stream)

    gate.wait_for_begun(4)
    gate.let(3)
    wait_until_idle()
    assert first == BODY[:100]
    assert gate.begun == [(0, 100), (100, 200), (200, 300), (300, 400)]
    gate.let(6)
    assert b"".join(stream) == BODY[100:1000]
    assert gate.most_at_once <= 3


def wait_until_idle() -> None:
    for thread in readers():
        thread.join(300)


def test_nothing_is_requested_before_the_first_window_is_wanted(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    RangeReader(memory, version).stream(0, 1000, window_bytes=100)

    assert memory.requests == 0


def test_windows_come_in_order_although_responses_do_not(version: ObjectVersion) -> None:
    class Reversed(MemoryStore):
        """Completes the first three reads in reverse order."""

        def __init__(self) -> None:
            super().__init__()
            self.later = {0: threading.Event(), 100: threading.Event()}

        def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
            if start in self.later:
                assert self.later[start].wait(300)
            body = super().read(version, start, end)
            for before, event in self.later.items():
                if before == start - 100:
                    event.set()
            return body

    store = Reversed()
    store.put("bucket", "key", BODY)

    windows = list(RangeReader(store, version).stream(0, 400, window_bytes=100))

    assert [asked.start for asked in store.asked][:3] == [200, 100, 0]
    assert b"".join(windows) == BODY[:400]


def test_closing_stops_requests_and_ends_all_threads(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    stream = RangeReader(memory, version).stream(0, 1000, window_bytes=100)
    next(stream)

    stream.close()  # type: ignore[attr-defined]

    assert readers() == []
    assert memory.requests <= 4
    assert list(stream) == []


def test_closing_waits_for_the_windows_in_flight(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    never = threading.Event()

    def slow(body: bytes) -> bytes:
        never.wait(0.05)
        return body

    gate = Gate(memory)
    gate.answer = slow
    gate.let(4)
    stream = RangeReader(gate, version, linger_seconds=20.0).stream(0, 1000, window_bytes=100)
    next(stream)
    gate.wait_for_begun(4)

    stream.close()  # type: ignore[attr-defined]

    assert readers() == []
    assert len(gate.begun) == 4


def test_a_stream_that_is_dropped_closes_itself(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    stream = RangeReader(memory, version).stream(0, 1000, window_bytes=100)
    next(stream)

    del stream
    gc.collect()

    assert readers() == []
    assert memory.requests <= 4


def test_closing_does_not_wait_for_a_request_that_hangs(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    gate = Gate(memory)
    gate.let(1)
    stream = RangeReader(gate, version, linger_seconds=0.05).stream(0, 1000, window_bytes=100)
    next(stream)
    gate.wait_for_begun(4)
    begun = running_seconds()

    stream.close()  # type: ignore[attr-defined]

    assert running_seconds() - begun < 5.0
    assert all(thread.daemon for thread in readers())
    gate.let(10)
    wait_until_idle()
    assert len(gate.begun) == 4


def test_the_windows_are_the_stores_own_bytes(version: ObjectVersion) -> None:
    class Keeping(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.bodies: list[bytes] = []

        def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
            self.bodies.append(super().read(version, start, end))
            return self.bodies[-1]

    store = Keeping()
    store.put("bucket", "key", BODY)

    windows = list(RangeReader(store, version, ahead=1).stream(0, 1000, window_bytes=100))

    assert all(mine is theirs for mine, theirs in zip(windows, store.bodies, strict=True))


class Watched(bytes):
    """Bytes that tell when they are let go."""

    alive = 0

    def __init__(self, body: bytes) -> None:
        del body
        type(self).alive += 1

    def __del__(self) -> None:
        type(self).alive -= 1


def test_a_window_that_the_consumer_dropped_is_freed(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    gate = Gate(memory)
    gate.answer = Watched
    stream = RangeReader(gate, version, ahead=1).stream(0, 1000, window_bytes=100)
    gate.let(2)
    next(stream)
    gate.wait_for_begun(2)
    wait_until_idle()
    gate.let(0)

    next(stream)

    gate.wait_for_begun(3)
    assert Watched.alive == 0
    gate.let(20)


def test_trap_t17_windows_over_64_mib_are_rejected(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    large = replace(version, size=1 << 40)

    with pytest.raises(ValueError, match="a window of 67108865 bytes"):
        RangeReader(memory, large).stream(0, 1 << 40, window_bytes=ranges.MAX_READ_BYTES + 1)
    with pytest.raises(ValueError, match="more than 67108864 bytes"):
        RangeReader(memory, large).read(0, ranges.MAX_READ_BYTES + 1)

    assert memory.requests == 0


@pytest.mark.parametrize("window", [0, -1])
def test_windows_must_be_positive(memory: MemoryStore, version: ObjectVersion, window: int) -> None:
    with pytest.raises(ValueError, match=f"a window of {window} bytes"):
        RangeReader(memory, version).stream(0, 10, window_bytes=window)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5), (0, len(BODY) + 1)])
def test_streams_outside_the_object_are_rejected_at_the_call(
    memory: MemoryStore, version: ObjectVersion, start: int, end: int, golden: Golden
) -> None:
    with golden.raises(ValueError, match="1024"):
        RangeReader(memory, version).stream(start, end)


def test_trap_t18_a_stream_begins_at_its_position(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    list(RangeReader(memory, version).stream(900, 1000, window_bytes=50))

    assert sorted((asked.start, asked.end) for asked in memory.asked) == [(900, 950), (950, 1000)]


def test_trap_t19_an_empty_range_makes_no_request(memory: MemoryStore) -> None:
    empty = memory.put("bucket", "empty", b"")

    assert list(RangeReader(memory, empty).stream(0, 0)) == []

    assert memory.requests == 0


def test_trap_t24_a_store_that_returns_too_little_is_not_believed(
    memory: MemoryStore, version: ObjectVersion, golden: Golden
) -> None:
    reader = RangeReader(FaultyStore(memory, Fault("short")), version)

    with golden.raises(StoreUnavailable, match=r"key\[0-10\)"):
        reader.read(0, 10)


def test_a_read_is_one_request_on_the_callers_thread(
    memory: MemoryStore, version: ObjectVersion
) -> None:
    reader = RangeReader(memory, version)

    assert reader.read(10, 20) == BODY[10:20]

    assert memory.asked == [StoreRequest("read", "bucket", "key", 10, 20)]
    assert memory.fetched_bytes == 10


def test_a_tail_begins_small_doubles_and_ends_with_the_object() -> None:
    source = MemorySource(BODY)

    body = b"".join(tail(source, 100, first_bytes=64, most_bytes=256))

    assert body == BODY[100:]
    assert source.reads == [(100, 164), (164, 292), (292, 548), (548, 804), (804, 1024)]


def test_a_tail_reads_no_further_than_it_is_followed() -> None:
    source = MemorySource(BODY)

    next(tail(source, 100, first_bytes=64))

    assert source.reads == [(100, 164)]


def test_another_etag_replaces_an_object_and_is_a_wrong_response_for_a_version() -> None:
    def check(version_id: str | None, etag: str) -> None:
        pinned = ObjectVersion("bucket", "key", version_id, "aaa", 10)
        ranges.check_etag(pinned, etag, where=pinned.uri, endpoint="http://store")

    check("v1", '"aaa"')
    with pytest.raises(ObjectChanged, match="its ETag is bbb, not aaa"):
        check(None, '"bbb"')
    with pytest.raises(StoreUnavailable, match="sent the ETag bbb for a version"):
        check("v1", '"bbb"')
