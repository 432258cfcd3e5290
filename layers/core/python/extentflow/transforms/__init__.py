"""Change records between decode and convert: the ports Transform and Predicate, and their chains.

The package changes columns of values and keys, drops records and adds facts about the object.
Batches come from `formats`; payloads belong to `converters`, bad records to `delivery`.

    Rows ──step──> Rows ──step──> Rows      a step: a transform, and the predicate it depends on
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from extentflow.arrays.batch_rows import take_rows
from extentflow.config.specs import PREDICATES, TRANSFORMS, Ranges, TransformSpec
from extentflow.config.steps import Step
from extentflow.errors import CorruptRecord, UnsupportedType
from extentflow.kafka.record_headers import HeaderLists
from extentflow.model import Extent

__all__ = ["Chain", "Excluding", "Predicate", "Rows", "Transform", "open_chain"]

Ordinals: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Consecutive records of an extent: the columns of their values and keys, and their places.

    `keys` None: no columns are chosen for the key. `topics` has the topic of each record; None, or
    a null in it: `topic`. `headers` None: no step of the chain uses them. `locations[i]` is the
    byte offset or row of the object where record i begins, `ordinals[i]` its row in the batch that
    was decoded.
    """

    values: pa.RecordBatch
    keys: pa.RecordBatch | None
    locations: Ordinals
    ordinals: Ordinals
    extent: Extent
    topic: str
    topics: pa.StringArray | None = None
    headers: HeaderLists | None = None

    def take(self, rows: Ordinals) -> "Rows":
        """Return the rows with these ordinals, in that order."""
        if len(rows) == self.values.num_rows and np.array_equal(rows, np.arange(len(rows))):
            return self
        return replace(
            self,
            values=take_rows(self.values, rows),
            keys=None if self.keys is None else take_rows(self.keys, rows),
            locations=self.locations[rows],
            ordinals=self.ordinals[rows],
            topics=None if self.topics is None else self.topics.take(pa.array(rows)),
            headers=None if self.headers is None else self.headers.take(pa.array(rows)),
        )

    def each_topic(self) -> pa.StringArray:
        """Return the topic of each record."""
        if self.topics is None:
            return pa.repeat(pa.scalar(self.topic, pa.string()), self.values.num_rows)
        return self.topics.fill_null(self.topic)


class Transform(Protocol):
    """Changes records; opened once per extent, called for one batch after the other."""

    def __call__(self, rows: Rows) -> Rows:
        """Return the records that continue, in their order. Called first with no rows.

        Raises:
            UnsupportedType: names the column, its type and what to do.
            CorruptRecord: its `rows` name every row that cannot be transformed, and why.
        """


class Predicate(Protocol):
    """Decides for which records a transform is applied."""

    def __call__(self, rows: Rows) -> pa.BooleanArray | bool:
        """Return one value per row, a null counts as False; or one bool for all. Raises as above.

        The same predicate returns either an array or a bool, whatever the rows are.
        """


Chain: TypeAlias = Callable[[Rows], Rows]


def open_chain(steps: Sequence[Step]) -> Chain:
    """Return the function that applies `steps` one after the other, for the rows of one extent.

    Its errors name the step. Raises KeyError or Misconfigured as `Registry.get`.
    """
    opened = [(f"transforms.{step.transform}: ", _open_step(step)) for step in steps]

    def apply(rows: Rows) -> Rows:
        for label, step in opened:
            with _named(label, rows):
                rows = step(rows)
        return rows

    return apply


@dataclass(frozen=True, slots=True)
class RangeExclusion:
    """Whether the first steps of a chain drop every record whose columns lie within ranges.

    Only filters at the start count: they see the columns as they are in the object. Called by
    formats, which need not read such rows.
    """

    steps: tuple[Step, ...]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> "RangeExclusion | None":
        """Return it for a chain; None: it excludes nothing by columns."""
        leading = tuple(takewhile(_filters_by_columns, steps))
        return cls(leading) if leading else None

    def __call__(self, ranges: Ranges) -> bool:
        """Return True only if no row within the ranges can pass."""
        return any(self._drops_all(step, ranges) for step in self.steps)

    def _drops_all(self, step: Step, ranges: Ranges) -> bool:
        used = step.predicate
        outcomes = None if used is None else PREDICATES.get(used.name).outcomes
        if used is None or outcomes is None:
            return False
        # A null counts as False.
        found = {bool(outcome) for outcome in outcomes(used.options, ranges)}
        return found <= {not step.negate}


def _filters_by_columns(step: Step) -> bool:
    spec, used = step.spec, step.predicate
    is_filter = spec is not None and spec.needs_predicate
    return is_filter and used is not None and PREDICATES.get(used.name).outcomes is not None


@contextmanager
def _named(label: str, rows: Rows) -> Iterator[None]:
    """Name the step in errors, and bad rows by their ordinals in the decoded batch."""
    try:
        yield
    except UnsupportedType as exc:
        raise UnsupportedType(f"{label}{exc}") from exc
    except CorruptRecord as exc:
        bad = {int(rows.ordinals[row]): f"{label}{why}" for row, why in exc.rows.items()}
        raise CorruptRecord(f"{label}{exc}", bad) from exc


def _open_step(step: Step) -> Transform:
    used = step.transform
    found: Any = TRANSFORMS.get(used.name)
    if isinstance(found, TransformSpec):
        transform: Transform = found.open(used.options, used.on_key)
    else:
        transform = _Function(found, on_key=used.on_key)
    if step.predicate is None:
        return transform
    predicate: Predicate = PREDICATES.get(step.predicate.name).open(step.predicate.options)
    if isinstance(found, TransformSpec) and found.needs_predicate:
        return lambda rows: rows.take(np.flatnonzero(~_matches(predicate, rows, step.negate)))
    return _Conditional(transform, predicate, negate=step.negate)


def _matches(predicate: Predicate, rows: Rows, negate: bool) -> NDArray[np.bool_]:  # noqa: FBT001
    found = predicate(rows)
    if isinstance(found, bool):
        return np.full(rows.values.num_rows, found != negate)
    mask: NDArray[np.bool_] = found.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    matches: NDArray[np.bool_] = mask != negate
    return matches


@dataclass(frozen=True, slots=True)
class _Conditional:
    """Applies a transform to some of the rows, which then still have the columns of the others."""

    transform: Transform
    predicate: Predicate
    negate: bool

    def __call__(self, rows: Rows) -> Rows:
        found = self.predicate(rows)
        if isinstance(found, bool):
            return rows if found == self.negate else self.transform(rows)
        mask = _matches(lambda _: found, rows, self.negate)
        chosen, others = np.flatnonzero(mask), np.flatnonzero(~mask)
        try:
            changed = self.transform(rows.take(chosen))
        except CorruptRecord as exc:
            bad = {int(chosen[row]): why for row, why in exc.rows.items()}
            raise CorruptRecord(str(exc), bad) from exc
        rest = rows.take(others)
        _require_same_columns(rest, changed)
        order = np.argsort(np.concatenate([changed.ordinals, rest.ordinals]), kind="stable")
        return Rows(
            values=take_rows(_concat(changed.values, rest.values), order),
            keys=_concat_keys(changed.keys, rest.keys, order),
            locations=np.concatenate([changed.locations, rest.locations])[order],
            ordinals=np.concatenate([changed.ordinals, rest.ordinals])[order],
            extent=rows.extent,
            topic=rows.topic,
            topics=_concat_topics(changed, rest, order),
            headers=_concat_headers(changed, rest, order),
        )


def _require_same_columns(before: Rows, after: Rows) -> None:
    pairs = [(before.values, after.values), (before.keys, after.keys)]
    for old, new in pairs:
        if old is None and new is None:
            continue
        if old is None or new is None or not old.schema.equals(new.schema):
            raise UnsupportedType(
                "it changes names or types of columns, which the predicate allows for some records"
                " only; use a predicate that holds for all records of an object, or none"
            )


def _concat(*batches: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches(batches)


def _concat_keys(
    left: pa.RecordBatch | None, right: pa.RecordBatch | None, order: Ordinals
) -> pa.RecordBatch | None:
    if left is None or right is None:
        return None
    return take_rows(_concat(left, right), order)


def _concat_headers(left: Rows, right: Rows, order: Ordinals) -> HeaderLists | None:
    if left.headers is None or right.headers is None:
        return None
    return left.headers.followed_by(right.headers).take(pa.array(order))


def _concat_topics(left: Rows, right: Rows, order: Ordinals) -> pa.StringArray | None:
    if left.topics is None and right.topics is None:
        return None
    return pa.concat_arrays([left.each_topic(), right.each_topic()]).take(pa.array(order))


@dataclass(slots=True)
class _Function:
    """A user's function of a record batch: it returns one of as many rows, or which rows to keep.

    A function that returns a BooleanArray keeps the rows that are true. `_columns` are those of the
    first batch, which has no rows: converters were opened for them.
    """

    function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.BooleanArray]
    on_key: bool
    _columns: list[tuple[str, pa.DataType]] | None = field(default=None, init=False)

    def __call__(self, rows: Rows) -> Rows:
        batch = rows.keys if self.on_key else rows.values
        if batch is None:
            raise UnsupportedType(NO_KEY)
        found = self.function(batch)
        if len(found) != len(batch):
            raise UnsupportedType(
                f"the function returned {len(found)} rows for {len(batch)}; return as many, or a"
                " BooleanArray that says which rows to keep"
            )
        if isinstance(found, pa.Array):
            kept = found.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003
            return rows.take(np.flatnonzero(kept))
        self._require_same_columns(found.schema)
        return replace(rows, keys=found) if self.on_key else replace(rows, values=found)

    def _require_same_columns(self, schema: pa.Schema) -> None:
        columns = [(column.name, column.type) for column in schema]
        if self._columns is None:
            self._columns = columns
        if not columns or columns != self._columns:
            raise UnsupportedType(
                f"the function returned {_described(self._columns)} for one batch and"
                f" {_described(columns)} for another, of which the first one has no rows; return"
                " the same columns, at least one, whatever rows there are"
            )


def _described(columns: Sequence[tuple[str, pa.DataType]]) -> str:
    return ", ".join(f"'{name}' {data_type}" for name, data_type in columns) or "no columns"


NO_KEY = (
    "the key has no columns here; set message.key=column:..., or use ValueToKey in a transform"
    " before this one"
)
