"""`count --verify`: headers of a topic decide whether columns or values of rows are compared."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from tests.laws.parquet_cases import written as parquet
from tests.support.golden import Golden
from tests.support.local_engine import CallingThreadEngine, until_final
from tests.support.memory_delivery import TOPIC
from tests.support.memory_runtime import BUCKET, MemoryRuntime

from extentflow.engines import Engine
from extentflow.errors import CorruptRecord, Misconfigured
from extentflow.services.addressed import make_connector
from extentflow.services.composition import open_orders, open_runs, open_topics, open_verifications
from extentflow.services.run_control import EngineChoice
from extentflow.services.verifications import Verification, Verifications
from extentflow.wiring.extents import delivery_context

ROOT = f"s3://{BUCKET}/"
NEW = parquet(pa.table({"id": [*range(20)], "price": [n / 4 for n in range(20)], "c": ["x"] * 20}))
GROUPS = "prices: id, price; rest: *"
COLUMNAR = {"columnar.encoding": "parquet", "columnar.batch.bytes": "1024"}


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime()


def deliver(runtime: MemoryRuntime, key: str, body: bytes, **settings: str) -> str:
    """Deliver an object by a connector of its folder; return its address."""

    def opened(*_args: object, **_words: object) -> Engine:
        return CallingThreadEngine(until_final(delivery_context(runtime, runtime.slots("here"))))

    folder = key.partition("/")[0]
    usual = {"name": folder, "topic": TOPIC, "aws.s3.bucket.name": BUCKET}
    settings = {**usual, "aws.s3.prefix": f"{folder}/", **settings}
    runtime.memory.connectors.put(folder, settings)
    runtime.memory_store.put(BUCKET, key, body)
    order = runtime.order(connector=folder)
    report = open_runs(runtime, open_engine=opened).run(order, engine=EngineChoice("inline"))
    assert [job.state for job in report.jobs] == ["DONE"], report
    return ROOT + key


def verify(
    runtime: MemoryRuntime, *addresses: str, topic: str = TOPIC, **settings: str
) -> Verification:
    order = open_orders(runtime).compare(make_connector(addresses, topic, settings))
    return verifications(runtime).verify(topic, order)


def verifications(runtime: MemoryRuntime) -> Verifications:
    return open_verifications(runtime, open_topics(runtime))


def test_columnar_values_are_verified_without_their_encoding(runtime: MemoryRuntime) -> None:
    address = deliver(runtime, "new/a.parquet", NEW, **COLUMNAR)

    for settings in ({}, {"columnar.encoding": "parquet"}, {"columnar.encoding": "arrow"}):
        assert verify(runtime, address, **settings) == Verification(TOPIC, 1, 20, 20, 0, 0, 0)


def test_values_that_json_lacks_are_compared_and_shown_with_their_place(
    runtime: MemoryRuntime,
    golden: Golden,
) -> None:
    pairs = pa.array([[("k", 1), ("k", 2)], [("k", 2)]], pa.map_(pa.string(), pa.int64()))
    ratios = pa.array([float("nan"), None])
    address = deliver(
        runtime, "new/a.parquet", parquet(pa.table([pairs, ratios], ["m", "x"])), **COLUMNAR
    )

    assert verify(runtime, address) == Verification(TOPIC, 1, 2, 2, 0, 0, 0)
    assert open_topics(runtime).count(TOPIC, keys=["m"]).distinct == 2
    assert open_topics(runtime).count(TOPIC, keys=["x"]).distinct == 2
    with golden.raises(CorruptRecord, match=rf"{TOPIC}\[\d\].*offset 0"):
        list(open_topics(runtime).tail(TOPIC, rows=5))


def test_values_of_rows_are_verified_also_with_an_encoding(runtime: MemoryRuntime) -> None:
    address = deliver(runtime, "old/a.csv", b"a,b\n1,2\n3,4\n")

    for settings in ({}, {"columnar.encoding": "parquet"}):
        assert verify(runtime, address, **settings) == Verification(TOPIC, 1, 2, 2, 0, 0, 0)


@pytest.mark.parametrize("encoding", ["none", "parquet"])
def test_a_topic_with_both_is_verified_in_both_directions(
    runtime: MemoryRuntime, encoding: str
) -> None:
    old = deliver(runtime, "old/a.csv", b"a,b\n1,2\n3,4\n")
    new = deliver(runtime, "new/a.parquet", NEW, **COLUMNAR)
    settings = {"columnar.encoding": encoding}

    assert verify(runtime, old, **settings) == Verification(TOPIC, 1, 2, 2, 0, 0, others=20)
    assert verify(runtime, new, **settings) == Verification(TOPIC, 1, 20, 20, 0, 0, 0, unnamed=2)
    assert verify(runtime, old, new, **settings) == Verification(TOPIC, 2, 22, 22, 0, 0, 0)


def test_rows_that_are_missing_or_changed_are_found_by_their_columns(
    runtime: MemoryRuntime,
) -> None:
    address = deliver(runtime, "new/a.parquet", NEW, **COLUMNAR)
    runtime.memory_store.put(BUCKET, "new/b.parquet", parquet(pa.table({"id": [1, 2]})))

    found = verify(runtime, address, f"{ROOT}new/b.parquet")
    runtime.memory_store.put(BUCKET, "new/a.parquet", parquet(pa.table({"id": [*range(20)]})))
    changed = verify(runtime, address)

    assert (found.expected, found.found, found.missing, found.unexpected) == (22, 20, 2, 0)
    assert (changed.missing, changed.unexpected) == (20, 20)


@pytest.mark.parametrize("settings", [{}, {**COLUMNAR, "columnar.groups": GROUPS}])
@pytest.mark.parametrize("group", ["prices", "rest"])
def test_the_topic_of_a_column_group_is_verified_with_its_columns(
    runtime: MemoryRuntime, group: str, settings: dict[str, str]
) -> None:
    for name in ("prices", "rest"):
        runtime.cluster.create_topic(f"{TOPIC}.{name}")
    address = deliver(runtime, "new/a.parquet", NEW, **COLUMNAR, **{"columnar.groups": GROUPS})
    topic = f"{TOPIC}.{group}"
    stored = runtime.order(address, connector="new")

    assert verify(runtime, address, topic=topic, **settings) == Verification(
        topic, 1, 20, 20, 0, 0, 0
    )
    assert verifications(runtime).verify(topic, stored).equal


def test_groups_that_lack_that_of_the_topic_are_an_error(
    runtime: MemoryRuntime, golden: Golden
) -> None:
    runtime.cluster.create_topic(f"{TOPIC}.prices")
    groups = {"columnar.groups": "prices: *"}
    address = deliver(runtime, "new/a.parquet", NEW, **COLUMNAR, **groups)
    settings = {**COLUMNAR, "columnar.groups": "others: *"}

    with golden.raises(Misconfigured, match=r"column group.*columnar\.groups"):
        verify(runtime, address, topic=f"{TOPIC}.prices", **settings)


def test_a_stored_connector_with_other_settings_is_named(runtime: MemoryRuntime) -> None:
    made = make_connector([f"{ROOT}new/a.csv"], TOPIC, {"extent.bytes": "1000000"})
    runtime.memory.connectors.put(made.name, made.settings)

    with pytest.raises(Misconfigured, match=f"use -c {made.name}"):
        verify(runtime, f"{ROOT}new/a.csv")


def test_records_and_objects_are_counted_as_they_are_read(runtime: MemoryRuntime) -> None:
    address = deliver(runtime, "old/a.csv", b"a,b\n1,2\n3,4\n5,6\n")
    order = runtime.order(address, connector="old")
    shown: list[tuple[str, str, int]] = []

    @contextmanager
    def counting(what: str, of: str = "object") -> Iterator[Callable[[int], None]]:
        yield lambda done: shown.append((what, of, done))

    verifications(runtime).verify(TOPIC, order, counting=counting)

    reading = [("reading", "Kafka record", 0), ("reading", "Kafka record", 2)]
    assert shown == [*reading, ("comparing", "object", 0)]
