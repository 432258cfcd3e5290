"""Ctrl-C and SIGTERM: in seconds everything is settled, and the next run starts at once.

`lease.seconds` is 60 here: a run that had to wait for a lease would be seen.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from tests.integration.conftest import Deliver
from tests.integration.faultproxy import FaultProxy
from tests.support.delivery import SLOW_LINES
from tests.support.waiting import AWAITED_SECONDS, eventually, running_seconds

from extentflow_local.stack.stack import Stack

# The promise is 5 s, of a machine that does nothing else; a run that hangs takes far longer.
# Far longer than a run takes on a busy machine; a stop that waited for leases would last as long.
STOP_SECONDS = 60.0
LEASE_SECONDS = 600.0

Signal = Callable[[subprocess.Popen[str]], None]


def terminate(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def interrupt_group(process: subprocess.Popen[str]) -> None:
    """What a terminal does on Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def terminate_group(process: subprocess.Popen[str]) -> None:
    """What systemd does to a service."""
    os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("engine", "send"),
    [
        ("inline", terminate),
        pytest.param("inline", interrupt_group, marks=pytest.mark.soak),
        pytest.param("spark", terminate, marks=[pytest.mark.spark, pytest.mark.soak]),
        # The JVM and Python's workers get the signal too.
        pytest.param("spark", interrupt_group, marks=pytest.mark.spark),
        pytest.param("spark", terminate_group, marks=[pytest.mark.spark, pytest.mark.soak]),
    ],
)
@pytest.mark.long
def test_a_signal_stops_a_run_and_the_next_one_continues_at_once(
    deliver: Deliver, s3_proxy: FaultProxy, engine: str, send: Signal
) -> None:
    delivery = deliver(lease_seconds=LEASE_SECONDS)
    with delivery.start(engine) as process:
        eventually("an extent is under way", delivery.under_way, process=process)
        asked = running_seconds()
        send(process)
        _, errors = process.communicate(timeout=AWAITED_SECONDS)
        took = running_seconds() - asked
    leftovers, owned = delivery.leftovers(), delivery.owned()
    s3_proxy.clear()
    began = running_seconds()
    delivery.finish("inline")
    resumed = running_seconds() - began

    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert took <= STOP_SECONDS
    assert leftovers == owned == []
    assert resumed < LEASE_SECONDS
    assert sorted(delivery.values()) == sorted(SLOW_LINES)


def java(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The JVMs that a process has started; the launcher's may end while this looks."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "java" in child.name():
                found.append(child)
    return found


@pytest.mark.variant
@pytest.mark.spark
@pytest.mark.parametrize("send", [pytest.param(interrupt, marks=pytest.mark.soak), interrupt_group])
def test_ctrl_c_while_spark_starts_leaves_no_jvm_behind(
    deliver: Deliver, s3_proxy: FaultProxy, send: Signal
) -> None:
    delivery = deliver(lease_seconds=LEASE_SECONDS)
    with delivery.start("spark") as process:
        started = eventually("a JVM is there", lambda: java(process), process=process)
        send(process)
        _, errors = process.communicate(timeout=AWAITED_SECONDS)
        _, left = psutil.wait_procs(started, timeout=STOP_SECONDS)
    s3_proxy.clear()
    delivery.finish("inline")

    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert left == []
    assert sorted(delivery.values()) == sorted(SLOW_LINES)


@pytest.mark.outage
def test_a_signal_stops_a_run_whose_broker_is_unavailable(
    deliver: Deliver, stack: Stack, s3_proxy: FaultProxy
) -> None:
    delivery = deliver(lease_seconds=3.0)
    with delivery.start("inline") as process:
        eventually("an extent is under way", delivery.under_way, process=process)
        stack.pause("kafka")
        try:
            asked = running_seconds()
            terminate(process)
            _, errors = process.communicate(timeout=AWAITED_SECONDS)
            took = running_seconds() - asked
        finally:
            stack.resume("kafka")
    s3_proxy.clear()
    delivery.finish("inline")

    assert process.returncode == 130, errors
    assert took <= STOP_SECONDS
    assert sorted(delivery.values()) == sorted(SLOW_LINES)
