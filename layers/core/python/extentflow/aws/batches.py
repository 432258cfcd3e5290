"""Batches that a service takes in part: what it did not accept goes again.

Owns: how large a batch may be, how often it goes. Refuses to know: what an entry says.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TypeVar

from extentflow.clock import Clock

BATCH_ENTRIES = 10
BATCH_BYTES = 256 << 10  # what every region and server takes, for one entry and for a batch
FIRST_PAUSE_SECONDS = 0.1

Entry = TypeVar("Entry")


def batches(entries: Sequence[Entry], size: Callable[[Entry], int]) -> Iterator[list[Entry]]:
    """Yield batches that SQS and EventBridge take; `size` returns an entry's bytes."""
    batch: list[Entry] = []
    taken = 0
    for entry in entries:
        length = size(entry)
        if batch and (len(batch) == BATCH_ENTRIES or taken + length > BATCH_BYTES):
            yield batch
            batch, taken = [], 0
        batch.append(entry)
        taken += length
    if batch:
        yield batch


class Persistence:
    """Sends a batch up to `tries` times, with jittered pauses that double."""

    def __init__(self, tries: int, clock: Clock | None, random: Random | None) -> None:
        self._tries = tries
        self._clock = clock or Clock()
        self._random = random or Random()  # noqa: S311 - jitter, no secrets

    def send(self, batch: list[Entry], send: Callable[[list[Entry]], list[Entry]]) -> list[Entry]:
        """Return what was never accepted; `send` returns what was not, this time."""
        for tried in range(self._tries):
            if tried:
                bound = FIRST_PAUSE_SECONDS * 2.0**tried
                self._clock.sleep(self._random.random() * bound)
            batch = send(batch)
            if not batch:
                break
        return batch
