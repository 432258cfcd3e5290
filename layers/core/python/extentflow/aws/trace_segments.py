"""Subsegments of a function's trace in X-Ray, by whose annotations a trace is found.

    annotation.object = "s3://shop/in/orders.csv"       annotation.connector = "orders"

Lambda runs X-Ray's daemon beside a function and writes the segments of invocations. Nothing is sent
where the invocation is not sampled, as in stages without `tracing`.
Format: https://docs.aws.amazon.com/xray/latest/devguide/xray-api-segmentdocuments.html
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time

from extentflow.work_context import INVOCATION, fields

DAEMON_VARIABLE = "AWS_XRAY_DAEMON_ADDRESS"
HEADER = '{"format": "json", "version": 1}\n'
MOST_CHARACTERS = 1_000  # of a value

log = logging.getLogger(__name__)


def send_subsegment(
    name: str, *, started: float, failed: bool = False, **annotations: str | int
) -> None:
    """Send what was done since `started` (seconds since 1970) to the invocation's trace.

    Nothing waits for it, and nothing fails with it.
    """
    found, address = fields(os.environ.get(INVOCATION, "")), os.environ.get(DAEMON_VARIABLE, "")
    if not address or found.get("Sampled") != "1":
        return
    document = {
        "trace_id": found["Root"],
        "id": secrets.token_hex(8),
        "parent_id": found["Parent"],
        "type": "subsegment",
        "name": name,
        "start_time": started,
        "end_time": time.time(),
        "fault": failed,
        "annotations": {
            key: value[:MOST_CHARACTERS] if isinstance(value, str) else value
            for key, value in annotations.items()
        },
    }
    host, _, port = address.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
            daemon.sendto((HEADER + json.dumps(document)).encode(), (host, int(port)))
    except OSError as exc:
        log.warning("X-Ray's daemon at %s: the subsegment %s is lost: %s", address, name, exc)
