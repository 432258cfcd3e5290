"""`extentflow replay --dlq`: what was given up goes to the functions again.

Owns: the choice of messages, the report. Refuses to know: how a message is moved.
"""

import json
import re
import time

from extentflow.cli import output
from extentflow.errors import Misconfigured
from extentflow.jobs.run import known_job
from extentflow.queue import Message
from extentflow.queue.redrive import Redriven, redrive
from extentflow.wiring import Runtime
from extentflow.wiring.functions import queue

UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
PAIRS = (("extents_dlq_url", "extents_queue_url"), ("arrivals_dlq_url", "arrivals_queue_url"))


def redrive_all(
    runtime: Runtime, job: str | None, since: str | None, *, dry_run: bool, as_json: bool
) -> None:
    """Move messages of both dead letter queues; a job's only from that of extents."""
    wanted_job = known_job(runtime.ledger, job).id if job else None
    oldest = time.time() - _seconds(since) if since else 0.0

    def wanted(message: Message) -> bool:
        return message.sent >= oldest and wanted_job in (None, _job(message))

    found = {
        dead: redrive(
            queue(runtime.settings, dead),
            queue(runtime.settings, back),
            wanted=wanted,
            dry_run=dry_run,
        )
        for dead, back in (PAIRS[:1] if wanted_job else PAIRS)
    }
    _show(found, dry_run=dry_run, as_json=as_json)


def _show(found: dict[str, Redriven], *, dry_run: bool, as_json: bool) -> None:
    moved = [message for one in found.values() for message in one.moved]
    left = sum(one.left for one in found.values()) - (len(moved) if dry_run else 0)
    if as_json:
        output.print_json(
            {
                "dry_run": dry_run,
                "moved": [{"job": _job(one), "reason": one.reason} for one in moved],
                "left": left,
            }
        )
        return
    if moved:
        rows = [(_job(one) or "", output.moment(one.sent), one.reason) for one in moved]
        output.print_table(("job", "given up", "reason"), rows)
    what = "would be sent again" if dry_run else "sent again"
    output.out.print(f"{len(moved)} messages {what}, {left} stay", highlight=False)


def _job(message: Message) -> str | None:
    """Return the job of an extent's message; arrivals have none."""
    try:
        found = json.loads(message.body)
    except ValueError:
        return None
    job = found.get("job") if isinstance(found, dict) else None
    return job if isinstance(job, str) else None


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None:
        raise Misconfigured(f"--since {text}: write a number and s, m, h or d, for example 2h")
    return int(match[1]) * UNITS[match[2]]
