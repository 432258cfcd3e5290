"""Move messages of a dead letter queue back to their queue.

A message is sent first and deleted afterwards, so an interruption duplicates at most one batch,
which the ledger absorbs. Unwanted messages become visible again at the end, and so do messages with
the same body as a moved one. Functions that run meanwhile may dead-letter the same work again;
moving that too would never end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from extentflow.queue import Message, Queue

HIDE_SECONDS = 120.0
WAIT_SECONDS = 1.0
EMPTY_POLLS = 2


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """Messages that were moved (or would be), and the number that stays."""

    moved: tuple[Message, ...] = ()
    left: int = 0


def redrive(
    dead: Queue,
    queue: Queue,
    *,
    wanted: Callable[[Message], bool] = lambda _message: True,
    dry_run: bool = False,
) -> RedriveResult:
    """Move the wanted messages of `dead` to `queue`; `dry_run` only lists them.

    Ends when the queue is empty, or returns known messages: messages that arrive meanwhile are
    moved too, but none with the body of a moved one. Raises as `Queue`.
    """
    moved: dict[str, Message] = {}
    left: dict[str, Message] = {}
    try:
        for message in _every(dead, left):
            if message.body in moved or not wanted(message):
                continue
            if not dry_run:
                queue.send([message.body], group=message.group)
                dead.delete(message)
                del left[message.id]
            moved[message.body] = message
    finally:
        for message in left.values():
            dead.delay(message, 0)
    return RedriveResult(tuple(moved.values()), len(left))


def _every(dead: Queue, seen: dict[str, Message]) -> Iterator[Message]:
    """Yield each message once, and record in `seen` those that are hidden because of it."""
    known: set[str] = set()
    empty = 0
    while empty < EMPTY_POLLS:
        batch = dead.receive(wait_seconds=WAIT_SECONDS, hide_seconds=HIDE_SECONDS)
        fresh = [message for message in batch if message.id not in known]
        empty = 0 if fresh else empty + 1
        known.update(message.id for message in fresh)
        seen.update((message.id, message) for message in batch)
        yield from fresh
