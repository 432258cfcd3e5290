"""Ctrl-C and SIGTERM: within 5 s everything is settled, and the next run starts at once.

`lease.seconds` is 60 here: a run that had to wait for a lease would be seen.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.integration.faultproxy import Delay, FaultProxy
from tests.support.delivery import Delivery, eventually, joined, numbered_lines

from extentflow_local.stack import Stack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

STOP_SECONDS = 5.0
LEASE_SECONDS = 60.0
LINES = numbered_lines("line-", 60_000)

Signal = Callable[[subprocess.Popen[str]], None]


def terminate(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


def interrupt_group(process: subprocess.Popen[str]) -> None:
    """What a terminal does on Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


def terminate_group(process: subprocess.Popen[str]) -> None:
    """What systemd does to a service."""
    os.killpg(process.pid, signal.SIGTERM)


Deliver = Callable[..., Delivery]


@pytest.fixture
def deliver(
    stack: Stack, s3: "S3Client", bucket: str, unique: str, s3_proxy: FaultProxy
) -> Deliver:
    """Prepare a slow delivery of LINES under changed settings."""

    def prepare(**changes: float) -> Delivery:
        delivery = Delivery(stack, s3, bucket, unique, changes)
        delivery.put("lines.txt", joined(LINES))
        delivery.connector({"aws.s3.endpoint": s3_proxy.endpoint, "extent.bytes": "128KiB"})
        s3_proxy.inject(Delay(0.5), when=lambda request: request.method == "GET", times=None)
        return delivery

    return prepare


@pytest.mark.parametrize(
    ("engine", "send"),
    [
        ("inline", terminate),
        ("inline", interrupt_group),
        pytest.param("spark", terminate, marks=pytest.mark.spark),
        pytest.param("spark", interrupt_group, marks=pytest.mark.spark),
        pytest.param("spark", terminate_group, marks=pytest.mark.spark),
    ],
)
def test_a_signal_stops_a_run_and_the_next_one_continues_at_once(
    deliver: Deliver, s3_proxy: FaultProxy, engine: str, send: Signal
) -> None:
    delivery = deliver(lease_seconds=LEASE_SECONDS)
    with delivery.start(engine) as process:
        eventually("an extent is under way", delivery.under_way, process=process)
        asked = time.monotonic()
        send(process)
        _, errors = process.communicate(timeout=60)
        took = time.monotonic() - asked
    leftovers, owned = delivery.leftovers(), delivery.owned()
    s3_proxy.clear()
    began = time.monotonic()
    delivery.finish("inline")
    resumed = time.monotonic() - began

    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert took <= STOP_SECONDS
    assert leftovers == owned == []
    assert resumed < LEASE_SECONDS
    assert sorted(delivery.values()) == sorted(LINES)


def test_a_signal_stops_a_run_whose_broker_is_away(
    deliver: Deliver, stack: Stack, s3_proxy: FaultProxy
) -> None:
    delivery = deliver(lease_seconds=3.0)
    with delivery.start("inline") as process:
        eventually("an extent is under way", delivery.under_way, process=process)
        stack.pause("kafka")
        try:
            asked = time.monotonic()
            terminate(process)
            _, errors = process.communicate(timeout=60)
            took = time.monotonic() - asked
        finally:
            stack.resume("kafka")
    s3_proxy.clear()
    delivery.finish("inline")

    assert process.returncode == 130, errors
    assert took <= STOP_SECONDS
    assert sorted(delivery.values()) == sorted(LINES)
