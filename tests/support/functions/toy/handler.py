"""A function that does what its messages say, for tests of whatever runs functions.

A message's body is JSON: `do` says what, as long as it was received fewer times than `until`:

    fail    reported as failed      raise   an exception       die   killed by itself
    hang    never returns           meet    returns when `together` of its kind are inside at once
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

CALLS: list[str] = []


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:  # noqa: ANN401 - Lambda's
    CALLS.append(context.aws_request_id)
    failed = [record["messageId"] for record in event["Records"] if not obey(record, context)]
    return {
        "batchItemFailures": [{"itemIdentifier": name} for name in failed],
        "calls": len(CALLS),
        "remaining_ms": context.get_remaining_time_in_millis(),
        "function": context.function_name,
        "arn": context.invoked_function_arn,
        "path": sys.path,
        "environment": dict(os.environ),
    }


def obey(record: dict[str, Any], context: Any) -> bool:  # noqa: ANN401 - Lambda's
    order = json.loads(record["body"])
    received = int(record["attributes"]["ApproximateReceiveCount"])
    action = order.get("do") if received < order.get("until", 1_000) else None
    if action == "raise":
        raise ValueError("as the message asks")
    if action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "hang":
        time.sleep(3_600)
    if action == "meet":
        meet(Path(order["at"]), order["together"], context)
    return action != "fail"


def meet(place: Path, together: int, context: Any) -> None:  # noqa: ANN401 - Lambda's
    """Return once `together` were inside; more than that is an error."""
    inside, met = place / "inside", place / "met"
    me = inside / context.aws_request_id
    me.touch()
    while not met.exists():
        if len(list(inside.iterdir())) >= together:
            met.touch()
        time.sleep(0.01)
    crowd = len(list(inside.iterdir()))
    me.unlink()
    if crowd > together:
        (place / "crowded").write_text(str(crowd))
