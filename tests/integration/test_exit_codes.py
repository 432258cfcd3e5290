"""Exit codes of `run` when processes and servers end, for each row of the table in the docs."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import psutil
import pytest
from tests.integration.conftest import Deliver
from tests.integration.faultproxy import Delay, FaultProxy, Hold, Reset
from tests.support.columnar_topics import Topics
from tests.support.delivery import SLOW_LINES, Delivery
from tests.support.waiting import AWAITED_SECONDS, eventually

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
# Nothing listens there.
NOWHERE = "127.0.0.1:9"
# Below the time-outs of records (30 s) and of retries (120 s), on a machine that does other things.
NAMED_SECONDS = 25.0
SHORT = {"EXTENTFLOW_RETRY_TIMEOUT_SECONDS": "1"}


def rows() -> list[str]:
    """Return the first column of the table."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition(
        "| what ends | exit code |\n|---|---|\n"
    )
    lines = table.partition("\n\n")[0].splitlines()
    return [line.split("|")[1].strip() for line in lines]


def ended(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=AWAITED_SECONDS)
    return process.returncode


@contextmanager
def listing(delivery: Delivery, proxy: FaultProxy) -> Iterator["subprocess.Popen[str]"]:
    """Start a run whose listing of the prefix waits."""
    released = Event()
    proxy.clear()
    rule = proxy.inject(Hold(released), when=lambda request: "prefix=" in request.target)
    with delivery.start("inline") as process:
        rule.await_hits()
        yield process
        released.set()
    # As before: without a delay, a delivery would end before it can be looked at.
    proxy.inject(Delay(0.5), when=lambda request: request.method == "GET", times=None)


@contextmanager
def delivering(delivery: Delivery) -> Iterator["subprocess.Popen[str]"]:
    with delivery.start("inline") as process:
        eventually("an extent is under way", delivery.under_way, process=process)
        yield process


def stopped(delivery: Delivery, _: FaultProxy, __: Path) -> Iterator[tuple[int, int]]:
    with delivering(delivery) as process:  # by Ctrl-C: see test_clean_stop
        process.send_signal(signal.SIGTERM)
        yield 130, ended(process)


def terminated_early(delivery: Delivery, proxy: FaultProxy, _: Path) -> Iterator[tuple[int, int]]:
    with listing(delivery, proxy) as process:
        process.send_signal(signal.SIGTERM)
        yield -signal.SIGTERM, ended(process)


def killed(delivery: Delivery, proxy: FaultProxy, _: Path) -> Iterator[tuple[int, int]]:
    with listing(delivery, proxy) as process:
        process.send_signal(signal.SIGHUP)
        yield -signal.SIGHUP, ended(process)
    # Once: what is left after it may be delivered before it can be looked at.
    with delivering(delivery) as process:
        process.send_signal(signal.SIGKILL)
        yield -signal.SIGKILL, ended(process)


def without_workers(delivery: Delivery, _: FaultProxy, __: Path) -> Iterator[tuple[int, int]]:
    with delivering(delivery) as process:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        yield 0, ended(process)


def without_jvm(delivery: Delivery, _: FaultProxy, home: Path) -> Iterator[tuple[int, int]]:
    yield 1, ended(delivery.start("spark", environment=spark_that("kill -9 $$", home)))


def no_java(delivery: Delivery, _: FaultProxy, home: Path) -> Iterator[tuple[int, int]]:
    yield 2, ended(delivery.start("spark", environment=spark_that("exit 1", home)))


def spark_that(script: str, home: Path) -> Mapping[str, str]:
    """Return the environment in which this script is in place of Spark's start."""
    program = home / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"SPARK_HOME": str(home)}


def without_servers(delivery: Delivery, proxy: FaultProxy, _: Path) -> Iterator[tuple[int, int]]:
    servers = {"BOOTSTRAP_SERVERS": NOWHERE, "LEDGER_ENDPOINT": f"http://{NOWHERE}"}
    for name, place in servers.items():
        environment = {**SHORT, f"EXTENTFLOW_{name}": place}
        yield 1, ended(delivery.start("inline", environment=environment))
    proxy.clear()  # the first rule that applies counts
    proxy.inject(Reset(), times=None)
    yield 1, ended(delivery.start("inline", environment=SHORT))


def without_store(delivery: Delivery, proxy: FaultProxy, _: Path) -> Iterator[tuple[int, int]]:
    with delivery.start("inline", environment=SHORT) as process:
        eventually("an extent is under way", delivery.under_way, process=process)
        proxy.clear()
        proxy.inject(Reset(), times=None)
        yield 1, ended(process)
    proxy.clear()
    failed = ("run", delivery.address, "--connector", delivery.connector_name, "--failed")
    yield 0, ended(delivery.start("inline", *failed))


ENDINGS: Mapping[str, Callable[[Delivery, FaultProxy, Path], Iterator[tuple[int, int]]]] = dict(
    zip(
        rows(),
        (
            stopped,
            terminated_early,
            killed,
            without_workers,
            without_jvm,
            no_java,
            without_servers,
            without_store,
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("row", ENDINGS)
def test_a_run_ends_with_the_documented_code_and_the_same_command_continues(
    deliver: Deliver, s3_proxy: FaultProxy, tmp_path: Path, row: str
) -> None:
    delivery = deliver(lease_seconds=3.0)
    try:
        for code, found in ENDINGS[row](delivery, s3_proxy, tmp_path):
            assert found == code
    finally:
        s3_proxy.clear()
    delivery.finish("inline")

    assert sorted(delivery.values()) == sorted(SLOW_LINES)
    assert delivery.leftovers() == []


@pytest.mark.parametrize("created", [False, True], ids=["deleted", "created again"])
def test_a_topic_that_is_deleted_during_a_run_is_named_soon_and_the_object_is_delivered_again(
    deliver: Deliver,
    s3_proxy: FaultProxy,
    *,
    created: bool,
) -> None:
    delivery = deliver(lease_seconds=3.0)
    topics = Topics(delivery.settings.bootstrap_servers)
    with delivery.start("inline") as process:
        eventually("an extent is under way", delivery.under_way, process=process)
        topics.delete_topic(delivery.topic)
        if created:
            topics.create(delivery.topic, partitions=3)
            s3_proxy.clear()
        began = time.monotonic()
        _, said = process.communicate(timeout=AWAITED_SECONDS)
        seconds = time.monotonic() - began
    s3_proxy.clear()

    assert process.returncode == 1, said  # some of it is committed
    if created:
        assert f"topic {delivery.topic} was created again: its id was " in said
    else:
        assert f"topic {delivery.topic} does not exist" in said
        assert "it was deleted during the delivery" in said
        topics.create(delivery.topic, partitions=3)
    assert seconds < NAMED_SECONDS
    again = ("run", delivery.address, "--connector", delivery.connector_name, "--again")
    assert ended(delivery.start("inline", *again)) == 0
    found = delivery.values()
    if created:  # before it was noticed, the first run may have sent the rest to this topic
        assert set(found) == set(SLOW_LINES)
        assert len(found) < 2 * len(SLOW_LINES)
    else:
        assert sorted(found) == sorted(SLOW_LINES)
