"""Predicates: by topic, by tombstone, and by a condition on columns.

Tests: unit/transforms/test_records.py, unit/formats/parquet/test_parquet_filter.py
"""

from dataclasses import dataclass

import pyarrow as pa

from extentflow.config.specs import PredicateSpec
from extentflow.config.table import key
from extentflow.transforms import Predicate, Rows
from extentflow.transforms.comparisons import Mask
from extentflow.transforms.conditions import CONDITIONS, Condition
from extentflow.transforms.records import REGEX
from extentflow.transforms.topic_patterns import TopicPattern

# -- by topic, by tombstone ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNameMatchesOptions:
    """The keys of TopicNameMatches."""

    pattern: TopicPattern = key(REGEX, "Matches the whole topic name.", required=True)


def _topic_matches(options: TopicNameMatchesOptions, topic: str) -> bool:
    return options.pattern.matches(topic)


def _open_topic(options: TopicNameMatchesOptions) -> Predicate:
    return lambda rows: _topic_matches(options, rows.topic)


TOPIC_NAME_MATCHES = PredicateSpec(
    open=_open_topic, options=TopicNameMatchesOptions, of_topic=_topic_matches
)


def _is_tombstone(rows: Rows) -> pa.BooleanArray | bool:
    # A value of several columns is an object, never a null.
    return rows.values.column(0).is_null() if rows.values.num_columns == 1 else False


RECORD_IS_TOMBSTONE = PredicateSpec(open=lambda _: _is_tombstone)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionOptions:
    """The keys of Condition."""

    condition: Condition = key(
        CONDITIONS, "As in `amount > 10 AND country IN ('DE', 'FR')`.", required=True
    )


class _OnCondition:
    def __init__(self, options: ConditionOptions) -> None:
        self._condition = options.condition
        self._bound: tuple[pa.Schema, Mask] | None = None

    def __call__(self, rows: Rows) -> pa.BooleanArray:
        schema = rows.values.schema
        if self._bound is None or not self._bound[0].equals(schema):
            self._bound = (schema, self._condition.bind(schema))
        return self._bound[1](rows.values)


CONDITION = PredicateSpec(
    open=_OnCondition,
    options=ConditionOptions,
    outcomes=lambda options, ranges: options.condition.outcomes(ranges),
)
