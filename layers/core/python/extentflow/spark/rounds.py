"""How far one run has come with listing each connector's objects, and what its looks met.

Owns: the note in the ledger by which a run's processes know of each other: Spark starts another one
for every query. Refuses to know: how objects are listed, when a run is over.

    listed on ─┬─ time is up: goes on from there
               ├─ to the end ──> a whole round, or a failed one where objects were refused
               └─ failed ──> goes on from there; so often: nobody waits for it any more
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from zlib import crc32

from extentflow.ledger import Ledger

# The first may have gone on with a listing that somebody began; the next lists from the first key.
WHOLE_ROUNDS = 2
FAILURES = 3
# All connectors' facts are one item of the table.
MOST_CHARACTERS = 200
KEEP_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Rounds:
    """One connector's.

    `goes` looks listed it; `whole` rounds came to the end and took on all objects, `failed` are
    failures since the last of those. `found` counts jobs made, `at` says where the listing goes on:
    they move as long as it gets on. `refused`: an object of the present round was not taken on.
    `unlisted` is why the last failure was one, `held_up` what kept the last look from open jobs.
    """

    goes: int = 0
    whole: int = 0
    failed: int = 0
    found: int = 0
    at: str = ""
    refused: bool = False
    unlisted: str = ""
    held_up: str = ""

    @property
    def complete(self) -> bool:
        """Whether every object that was there when the run began has been seen, and has a job."""
        return self.whole >= WHOLE_ROUNDS

    @property
    def settled(self) -> bool:
        """Whether it is complete, or not worth waiting for."""
        return self.complete or self.failed >= FAILURES

    @property
    def came(self) -> tuple[object, ...]:
        """How far it came; it cannot move for ever where nothing is added."""
        return self.whole, self.failed, self.found, self.at

    def begun(self) -> Rounds:
        """Return them as a look begins to list."""
        return replace(self, goes=self.goes + 1)

    def going_on(self, at: str, found: int, refused: Iterable[str]) -> Rounds:
        """Return them after time was up; `refused` says why objects were not taken on.

        A listing also leaves behind what it cannot take on. Where that is all it does, it failed.
        """
        whys = list(refused)
        now = self._further(at, found, whys)
        return now.failure(now.unlisted) if whys and not found else now

    def _further(self, at: str, found: int, whys: Sequence[str]) -> Rounds:
        return replace(
            self,
            at=f"{crc32(at.encode()):08x}" if at else "",  # tokens may be long
            found=self.found + found,
            refused=self.refused or bool(whys),
            unlisted=_brief(whys) or self.unlisted,
        )

    def ended(self, found: int, refused: Iterable[str]) -> Rounds:
        """Return them after the listing's end was reached."""
        now = self._further("", found, list(refused))
        if now.refused:
            return replace(now.failure(now.unlisted), refused=False)
        return replace(now, whole=now.whole + 1, failed=0, unlisted="")

    def failure(self, why: str) -> Rounds:
        """Return them after the listing failed as such."""
        return replace(self, failed=self.failed + 1, unlisted=_brief([why]))

    def holding_up(self, whys: Iterable[str]) -> Rounds:
        """Return them with what a look met at open jobs."""
        return replace(self, held_up=_brief(whys))


def recall(ledger: Ledger, run: str) -> dict[str, Rounds]:
    """Return what a run noted, by connector. Raises LedgerUnavailable."""
    facts = ledger.recall(_note(run)) or {}
    return {name: Rounds(**json.loads(text)) for name, text in facts.items()}


def remember(ledger: Ledger, run: str, rounds: Mapping[str, Rounds]) -> None:
    """Note them for the run's other processes. Raises LedgerUnavailable."""
    facts = {name: json.dumps(asdict(one)) for name, one in rounds.items()}
    ledger.remember(_note(run), facts, keep_seconds=KEEP_SECONDS)


def _brief(whys: Iterable[str]) -> str:
    """Return the first reason, cut where it is long; empty where there is none."""
    return next(iter(whys), "")[:MOST_CHARACTERS]


def _note(run: str) -> str:
    return f"rounds#{run}"
