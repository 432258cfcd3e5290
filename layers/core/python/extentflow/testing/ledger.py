"""MemoryLedger: the Ledger port in memory, for tests and deterministic explorers.

It is the stores of every ledger over items in memory. Tests can intervene at two points. `on_call`
runs before an operation takes effect, to switch to another worker or to raise LedgerUnavailable.
`on_answer` runs after the effect; an error there is a lost response. Both run without the lock
held, so that a greenlet may switch inside them. `advance` takes effect in two steps, as on the
table: `advance`, then `renew`.
"""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from extentflow.errors import LedgerUnavailable
from extentflow.ledger import (
    ConnectorStore,
    ExtentStore,
    JobStore,
    LedgerDescription,
    SlotStore,
)
from extentflow.ledger.extent_store import StoredSlots
from extentflow.ledger.item_stores import stores_over
from extentflow.ledger.items import ConditionFailed, Items, Key, Returning, Stored, Write, bind
from extentflow.ledger.notes import NoteStore

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class MemoryItems:
    """Items by partition and sort key. Every method takes effect at once."""

    clock: Callable[[], float]
    partitions: dict[str, dict[str, Stored]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def get(self, key: Key) -> Stored | None:
        with self.lock:
            item = self.partitions.get(key.pk, {}).get(key.sk)
            return dict(item) if item else None

    def get_many(self, keys: Sequence[Key], attributes: Sequence[str] = ()) -> Iterator[Stored]:
        for item in filter(None, map(self.get, keys)):
            yield {name: item[name] for name in attributes} if attributes else item

    def query(self, pk: str, prefix: str = "") -> Iterator[Stored]:
        with self.lock:
            found = self.partitions.get(pk, {})
            return iter([dict(found[sk]) for sk in sorted(found) if sk.startswith(prefix)])

    def listed(
        self, listing: str, *, state: str | None = None, oldest_first: bool = False
    ) -> Iterator[Stored]:
        jobs = [job for job in self._jobs() if job["listing"] == listing]
        found = [job for job in jobs if state in (None, job["state"])]
        return iter(sorted(found, key=itemgetter("created"), reverse=not oldest_first))

    def listings(self) -> list[str]:
        return sorted({job["listing"] for job in self._jobs()})

    def update(self, subject: str, write: Write, *, returning: Returning = "NONE") -> Stored:
        with self.lock:
            before = self.get(write.key) or {}
            self.transact(subject, [write])
            return (self.get(write.key) or {}) if returning == "ALL_NEW" else before

    def transact(self, subject: str, writes: Sequence[Write]) -> None:
        _ = subject
        with self.lock:
            items = [self.get(write.key) for write in writes]
            failed = {
                place: item
                for place, (write, item) in enumerate(zip(writes, items, strict=True))
                if write.condition is not None and not write.condition.holds(item or {})
            }
            if failed:
                raise ConditionFailed(failed)
            for write, item in zip(writes, items, strict=True):
                if write.changes:
                    self.partitions.setdefault(write.key.pk, {})[write.key.sk] = write.applied(item)

    def now(self) -> float:
        return self.clock()

    def _jobs(self) -> list[Stored]:
        with self.lock:
            return [dict(items["JOB"]) for items in self.partitions.values() if "JOB" in items]


class _Admin:
    def exists(self) -> bool:
        return True

    def create(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> LedgerDescription:
        return LedgerDescription("ACTIVE", (), recovery=None, expiry=True)


class MemoryLedger:
    """A `Ledger` over `items`, with atomic operations and injected failures.

    `items` are new ones in memory, unless a test gives those of a database.
    """

    def __init__(
        self,
        identity: str = "",
        *,
        clock: Callable[[], float] = time.time,
        items: Items | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self.on_call: Callable[[str], None] = lambda _: None
        self.on_answer: Callable[[str], None] = lambda _: None
        self._refused, self._lost = Counter[str](), Counter[str]()
        self.id = identity or secrets.token_hex(6)
        self.items: Items = MemoryItems(clock) if items is None else items
        self.admin = _Admin()
        stores = stores_over(self.items, self._hooked_slots)
        self.notes: NoteStore = self._hooked(NoteStore, stores.notes)
        self.connectors: ConnectorStore = self._hooked(
            ConnectorStore,
            stores.connectors,
            put="put_connector",
            get="connector",
            list="connectors",
            names="connector_names",
            delete="delete_connector",
            state="connector_state",
            set_state="set_connector_state",
        )
        self.jobs: JobStore = self._hooked(JobStore, stores.jobs, get="job", list="jobs")
        self.slots, extents = stores.slots, stores.extents
        # The first write of `advance` only: the second one is `renew`.
        vars(extents)["record"] = partial(self.call, "advance", extents.record)
        hooked = self._hooked(ExtentStore, extents, get="extent", list="extents")
        hooked.advance = extents.advance
        self.extents: ExtentStore = hooked

    def _hooked_slots(self, items: Items) -> SlotStore:
        found: SlotStore = self._hooked(SlotStore, StoredSlots(items), get="slot", list="slots")
        return found

    def _hooked(self, port: type, store: object, **names: str) -> Any:  # noqa: ANN401 - as `store`
        """Return the port's operations with hooks; `names` has those not named as methods."""
        methods = [each for each in vars(port) if not each.startswith("_")]
        return SimpleNamespace(
            **{m: partial(self.call, names.get(m, m), getattr(store, m)) for m in methods}
        )

    def call(self, name: str, operation: Callable[..., Answer], *args: Any, **named: Any) -> Answer:  # noqa: ANN401 - of any operation
        """Run one operation between the hooks and the injected faults."""
        # Hooks run without the lock: a greenlet that switches inside would deadlock the next one.
        self.on_call(name)
        self._spend(self._refused, name, "no response")
        answer: Any = operation(*args, **named)
        if isinstance(answer, Iterator):
            answer = iter([*answer])  # read now, not when the caller iterates
        self._spend(self._lost, name, "the response was lost")
        self.on_answer(name)
        return cast("Answer", answer)

    def _spend(self, faults: Counter[str], name: str, what: str) -> None:
        with self._lock:
            left = faults[name]
            faults[name] = max(left - 1, 0)
        if left:
            raise LedgerUnavailable(f"ledger {self.id}: {name}: {what} (injected)")

    def lose_answer(self, name: str, times: int = 1) -> None:
        """Let the next calls of operation `name` take effect and raise LedgerUnavailable."""
        self._lost[name] += times

    def refuse(self, name: str, times: int = 1) -> None:
        """Let the next calls of operation `name` raise LedgerUnavailable without any effect."""
        self._refused[name] += times

    def bind(self, app_id: str) -> str:
        return self.call("bind", bind, self.items, app_id)

    def now(self) -> float:
        return self.call("now", self.items.now)
