"""Items: what a ledger's rules need of a database, and conditional writes of its items.

An item has a partition key, a sort key and attributes. A database that reads items consistently and
writes some of them atomically under conditions holds a ledger: the stores in `jobs`, `extents` and
`notes` are written once, over `Items`. `ledger.dynamodb` and `testing.ledger` implement it.

Keys, and what the items hold:

    META             LEDGER              the ledger's identity
    CONNECTORS       <name>              latest revision, state, deleted or not
    CONNECTOR#<name> CONFIG#<8 digits>   one revision, never changed
    JOB#<id>         JOB                 the job
    JOB#<id>         COUNT#<0..15>       its counters, in 16 shards by ordinal
    JOB#<id>         EXTENT#<8 digits>   one extent, written by its first claim
    SLOTS#<cluster>  <8 digits>          one slot, written by its first lease
    NOTES            <name>              facts that may be lost without harm; some expire

tests/unit/ledger/test_stored_items.py holds an image of each.

Tests: contracts/ledger.py, unit/ledger/test_dynamodb_items.py
"""

import operator
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from extentflow.errors import LedgerUnavailable, UnreadableItem

Answer = TypeVar("Answer")
Value: TypeAlias = "str | int | float | bool | Decimal | Mapping[str, Value]"
Attributes: TypeAlias = "dict[str, Value]"
Stored: TypeAlias = dict[str, Any]
Fields: TypeAlias = Mapping[str, Callable[[Any], Any]]  # attribute -> what makes its value
Returning: TypeAlias = Literal["NONE", "ALL_OLD", "ALL_NEW"]

EXPIRY_ATTRIBUTE = "expires"
ROUNDS = 100
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<=": operator.le,
    "in": lambda value, among: value in among,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What an item must satisfy; an item that is not there has no attributes.

    `operands` are conditions for `and` and `or`, otherwise the attribute's name and, for the
    comparisons, a value (of `in`: a sequence of values). A comparison with a missing attribute is
    false.
    """

    operator: Literal["and", "or", "exists", "missing", "=", "<=", "in"]
    operands: tuple[Any, ...]

    def __and__(self, other: "Condition") -> "Condition":
        return Condition("and", (self, other))

    def __or__(self, other: "Condition") -> "Condition":
        return Condition("or", (self, other))

    def holds(self, item: Stored) -> bool:
        """Return whether an item satisfies the condition."""
        if self.operator in ("and", "or"):
            parts = (part.holds(item) for part in self.operands)
            return all(parts) if self.operator == "and" else any(parts)
        name, *values = self.operands
        if self.operator == "missing" or name not in item:
            return self.operator == "missing" and name not in item
        return self.operator == "exists" or bool(_COMPARISONS[self.operator](item[name], *values))


class Attr(NamedTuple):
    """An attribute in a condition."""

    name: str

    def exists(self) -> Condition:
        """Return the condition that the item has the attribute."""
        return Condition("exists", (self.name,))

    def not_exists(self) -> Condition:
        """Return the condition that the item lacks it; of `pk`: that there is no item."""
        return Condition("missing", (self.name,))

    def eq(self, value: Value) -> Condition:
        """Return the condition that it is `value`."""
        return Condition("=", (self.name, value))

    def lte(self, value: Value) -> Condition:
        """Return the condition that it is at most `value`."""
        return Condition("<=", (self.name, value))

    def is_in(self, values: Sequence[Value]) -> Condition:
        """Return the condition that it is one of `values`."""
        return Condition("in", (self.name, values))


class Key(NamedTuple):
    """Partition key and sort key of one item."""

    pk: str
    sk: str


LEDGER_KEY = Key("META", "LEDGER")


@dataclass(frozen=True, slots=True)
class Write:
    """An update of one item under a condition; with nothing to change it only checks."""

    key: Key
    condition: Condition | None = None
    sets: Mapping[str, Value] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    adds: Mapping[str, int] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Whether it does more than check."""
        return bool(self.sets or self.removes or self.adds)

    def applied(self, item: Stored | None) -> Stored:
        """Return the item as the write leaves it."""
        after = {**(item or self.key._asdict()), **self.sets}
        for name in self.removes:
            after.pop(name, None)
        for name, change in self.adds.items():
            after[name] = after.get(name, 0) + change
        return after


class ConditionFailed(Exception):  # noqa: N818 - an outcome, and never seen outside of this room
    """A condition did not hold; nothing was written.

    `images` has the place of each write whose own condition failed, with its item then, if any.
    """

    def __init__(self, images: dict[int, Stored | None]) -> None:
        self.images = images
        super().__init__(f"conditions of writes {sorted(images)} did not hold")


class Items(Protocol):
    """Reads and writes items of one ledger; `str` names it in messages.

    Safe for use from several threads. Repeating a write after a lost response does no harm. Either
    the database recognises it, or its condition fails: the caller then finds its own nonce, owner
    or epoch in the image. Every method may raise LedgerUnavailable, and Misconfigured.
    """

    def get(self, key: Key) -> Stored | None:
        """Return an item, strongly consistent."""

    def get_many(self, keys: Sequence[Key], attributes: Sequence[str] = ()) -> Iterator[Stored]:
        """Yield the items that exist, in any order; `keys` are distinct. May lag behind writes.

        With `attributes` only these, which every one of the items has.
        """

    def query(self, pk: str, prefix: str = "") -> Iterator[Stored]:
        """Yield a partition's items whose sort key begins with `prefix`, in its order.

        Strongly consistent.
        """

    def listed(
        self, listing: str, *, state: str | None = None, oldest_first: bool = False
    ) -> Iterator[Stored]:
        """Yield the jobs with that attribute `listing` (and state), by `created`. May lag."""

    def listings(self) -> list[str]:
        """Return the values of `listing` that jobs have, sorted. May lag behind writes."""

    def update(self, subject: str, write: Write, *, returning: Returning = "NONE") -> Stored:
        """Apply one write; return the item as `returning` says. Raises ConditionFailed.

        `subject` names the operation in messages.
        """

    def transact(self, subject: str, writes: Sequence[Write]) -> None:
        """Apply all writes, of different items, or none. ConditionFailed: conditions failed."""

    def now(self) -> float:
        """Return a lower bound of the server's clock, in seconds; may send a request."""


def store(items: Items, subject: str, write: Write) -> Stored:
    """Apply a write that happens once; return the item, written now or before."""
    try:
        return items.update(subject, write, returning="ALL_NEW")
    except ConditionFailed as refused:
        return refused.images[0] or {}


def refusal(items: Items, subject: str, write: Write) -> ConditionFailed | None:
    """Apply one write; return why it was refused, if it was."""
    try:
        items.update(subject, write)
    except ConditionFailed as refused:
        return refused
    return None


def image(items: Items, refused: ConditionFailed, place: int, key: Key) -> Stored | None:
    """Return the item at the failed condition; the current item if another condition failed."""
    return refused.images[place] if place in refused.images else items.get(key)


def race(items: Items, subject: str, attempt: Callable[[], Answer]) -> Answer:
    """Repeat a read and a conditional write until no other writer comes between them."""
    for _ in range(ROUNDS):
        with suppress(ConditionFailed):
            return attempt()
    raise LedgerUnavailable(
        f"{items}: {subject}: refused {ROUNDS} times by concurrent writes; try again"
    )


def bind(items: Items, app_id: str) -> str:
    """Bind the ledger to an `app.id`; the first one stays."""
    item = items.get(LEDGER_KEY) or {}
    if "app_id" not in item:
        write = Write(LEDGER_KEY, Attr("app_id").not_exists(), {"app_id": app_id})
        item = store(items, "binding the ledger to app.id", write)
    with decoding(item):
        return str(item["app_id"])


def lay_out(value: object, fields: Iterable[str]) -> Attributes:
    """Return the attributes of a value."""
    return {name: getattr(value, name) for name in fields}


def read_fields(item: Stored, fields: Fields) -> dict[str, Any]:
    """Return the fields of a stored item in their types; raises KeyError if one is missing."""
    return {name: kind(item[name]) for name, kind in fields.items()}


@contextmanager
def decoding(item: Stored) -> Iterator[None]:
    """Raise UnreadableItem if what is read from `item` is missing or of another type."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        key = "/".join(str(item.get(name)) for name in Key._fields)
        what = f"{type(exc).__name__}: {exc}"
        raise UnreadableItem(
            f"ledger item {key} has another layout than this version reads ({what}); use the"
            " version that wrote it, or restore the ledger from a backup (docs/operations.md)"
        ) from exc


def new_token() -> str:
    """Return a random token."""
    # From the operating system's source: a fork never repeats its parent's tokens.
    return str(uuid.uuid4())
