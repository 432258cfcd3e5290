"""Rows of objects compared with those of a topic, by their contents."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from extentflow.columnar import BatchFacts, is_columnar
from extentflow.columnar.values import decode
from extentflow.config.columnar import ARROW, REST
from extentflow.config.columnar import NONE as ROWS
from extentflow.config.connector import ConnectorConfig
from extentflow.consumer.value_reader import ValueReader
from extentflow.delivery.converted import ConvertedChunk
from extentflow.delivery.dead_letters import describe
from extentflow.errors import (
    CorruptRecord,
    Misconfigured,
    Permanent,
    contain_defects,
    located,
)
from extentflow.jobs.addresses import KeyScope, select_all
from extentflow.jobs.planner import Planner
from extentflow.model import ObjectVersion
from extentflow.services.orders import Order
from extentflow.services.run_control import Counting, uncounted
from extentflow.services.topics import Digests, Topics, batches, comparable, rows_of
from extentflow.wiring.extents import PinnedExtent, Previews
from extentflow.wiring.objects import ObjectAccess
from extentflow.wiring.options import job_request

# Columns by their group; None: all of them.
_Groups: TypeAlias = dict[str, tuple[str, ...] | None]


@dataclass(slots=True)
class _TopicRows:
    """The rows that a topic holds: values of rows, and those of columnar values of some objects.

    `columns` has the groups of these objects; `others` counts rows of other objects.
    """

    rows: Digests = field(default_factory=Digests)
    columnar: Digests = field(default_factory=Digests)
    columns: dict[str, _Groups] = field(default_factory=dict)
    others: int = 0


@dataclass(frozen=True, slots=True)
class Verification:
    """Rows of objects compared with those of a topic, by their contents.

    `missing` rows of the objects are not in the topic, `unexpected` ones of the topic are not in
    the objects, or there more often. `others` rows of the topic belong to other objects, and
    `unnamed` ones to objects that no header names.
    """

    topic: str
    objects: int
    expected: int
    found: int
    missing: int
    unexpected: int
    others: int
    unnamed: int = 0

    @property
    def equal(self) -> bool:
        """Whether each row is there, once."""
        return not (self.missing or self.unexpected)


@dataclass(frozen=True, slots=True)
class Verifications:
    """Compares the rows of objects with those of topics; `planner` cuts objects as a run does."""

    topics: Topics
    objects: ObjectAccess
    planner: Planner
    previews: Previews

    def verify(self, topic: str, order: Order, *, counting: Counting = uncounted) -> Verification:
        """Compare the rows of objects, as the connector delivers them, with those of a topic.

        An object that headers of columnar values name is compared by columns, whatever the encoding
        of the connector; of column groups, the columns of the topic's group. Others are compared as
        values of rows; these do not name their object, so that all of the topic count. `counting`
        opens the display of a number of Kafka records or objects. Rows take 32 bytes of memory.
        Raises Misconfigured where the addresses name no object, and as decoding does.
        """
        config, ends = order.config, self.topics.broker.end_offsets(topic)
        store = self.objects.store(config, order.revision)
        versions = {
            version.address: version
            for version in select_all(store, KeyScope.of(config), order.addresses)
        }
        if not versions:
            raise Misconfigured(f"there is no object below {order.addresses[0]}; check the address")
        with counting("reading", "Kafka record") as show:
            held = self._held(topic, ends, versions, show)
        expected, as_rows = Digests(), False
        with counting("comparing", "object") as show:
            for done, (uri, version) in enumerate(versions.items()):
                show(done)
                groups = held.columns.get(uri)
                if groups is None and config.columnar and not len(held.rows):
                    groups = {"": None}
                as_rows |= groups is None
                for values in self._delivered(order, version, topic, groups):
                    expected.add(values)
        found, unnamed = held.columnar, len(held.rows)
        if as_rows:
            found, unnamed = found.and_of(held.rows), 0
        missing, unexpected = _difference(expected, found)
        return Verification(
            topic=topic,
            objects=len(versions),
            expected=len(expected),
            found=len(found),
            missing=missing,
            unexpected=unexpected,
            others=held.others,
            unnamed=unnamed,
        )

    def _held(
        self,
        topic: str,
        ends: Mapping[int, int],
        uris: Collection[str],
        show: Callable[[int], object],
    ) -> _TopicRows:
        """Read the rows of a topic, those of columnar values only of the objects `uris`."""
        held, reader, done = _TopicRows(), ValueReader(keys=self.topics.keys), 0
        for records in self.topics.read_all(topic, ends):
            show(done)
            done += len(records)
            rows = [one.value for one in records if not is_columnar(one.headers)]
            held.rows.add(pa.array(rows, pa.large_binary()))
            of_objects = []
            for record in records:
                if is_columnar(record.headers):
                    count, uri = rows_of(topic, record)
                    if uri in uris:
                        of_objects.append(record)
                    else:
                        held.others += count
            for batch in batches(reader, topic, of_objects):
                if batch.facts is not None:
                    group = batch.facts.group
                    columns = tuple(batch.rows.schema.names) if group else None
                    held.columns.setdefault(batch.facts.object, {})[group] = columns
                    with located(batch.place):
                        held.columnar.add(comparable(batch.rows))
        return held

    def _delivered(
        self, order: Order, version: ObjectVersion, topic: str, groups: _Groups | None
    ) -> Iterator[pa.Array]:
        """Yield the values of an object's rows; of columnar ones, those of `groups`, as JSON."""
        config, revision = order.config, order.revision
        if groups is None:
            config = replace(
                config, columnar_encoding=ROWS, columnar_groups=(), columnar_encryption_columns=()
            )
        else:
            groups = {name: _stated(config, topic, name) or groups[name] for name in groups}
            topic, config = _in_one_value(config, topic, next(iter(groups)))
        content = self.objects.recognised(config, revision, version)
        request = job_request(config, revision, version, "none", 1, content=content)
        if request.unfit:
            raise Permanent(request.unfit)
        job, extents = self.planner.dry_run(request)
        for extent in extents:
            with contain_defects(version.uri):
                at = PinnedExtent(config, revision, extent, job.content)
                opened = self.previews.open(at, partitions=lambda _topic: 1)
                for chunk in opened.convert(extent, 0):
                    if chunk.bad and config.errors_tolerance != "all":
                        unit = opened.format.location_unit
                        raise CorruptRecord(describe(extent, chunk.bad[0], unit))
                    yield from _values(chunk, topic, groups)


def _stated(config: ConnectorConfig, topic: str, group: str) -> tuple[str, ...] | None:
    """Return the columns that the connector's `columnar.groups` state for a group; None: none."""
    if not (group and config.columnar_groups):
        return None
    for one in config.columnar_groups:
        if one.name == group:
            named = (name for each in config.columnar_groups for name in each.columns)
            return (REST, *named) if one.columns == (REST,) else one.columns
    raise Misconfigured(
        f"topic {topic} holds the column group {group}, which columnar.groups of connector"
        f" {config.name} does not have; leave columnar.groups out, or correct them"
    )


def _in_one_value(config: ConnectorConfig, topic: str, group: str) -> tuple[str, ConnectorConfig]:
    """Return the topic without its group, and a connector of it with all columns in one value."""
    base = topic.removesuffix(f".{group}") if group else topic
    return base, replace(
        config,
        topic=base if config.topic == topic else config.topic,
        columnar_encoding=ARROW,  # as cheap as it can be
        columnar_compression="none",
        columnar_groups=(),
        columnar_encryption_columns=(),
        columnar_batch_bytes=1 << 30,
    )


def _values(chunk: ConvertedChunk, topic: str, groups: _Groups | None) -> Iterator[pa.Array]:
    """Yield values of rows; of columnar ones, the columns of groups as JSON (None: they are rows).

    Where rows go to several topics, only those of this one.
    """
    for records, _ in chunk.by_topic():
        if chunk.topics is not None and records.topic != topic:
            continue
        if groups is None:
            yield records.values
            continue
        for value, headers in zip(records.values.to_pylist(), records.headers or (), strict=True):
            facts = BatchFacts.of(headers)
            if facts is not None:
                rows = decode(value, facts)
                for columns in groups.values():
                    yield comparable(_selected(rows, columns))


def _selected(rows: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Return those columns that the rows have; after REST, all but these; None: all."""
    if columns is None:
        return rows
    if columns[0] == REST:
        return rows.select([name for name in rows.schema.names if name not in columns])
    return rows.select([name for name in columns if name in rows.schema.names])


def _difference(expected: Digests, found: Digests) -> tuple[int, int]:
    """Return how many rows are expected and not found, and the other way round."""
    (wanted, wanted_counts), (there, there_counts) = expected.counted(), found.counted()
    every, places = np.unique(np.concatenate([wanted, there]), return_inverse=True)
    balance = np.zeros(len(every), np.int64)
    np.add.at(balance, places[: len(wanted)], wanted_counts)
    np.add.at(balance, places[len(wanted) :], -there_counts)
    return int(balance[balance > 0].sum()), int(-balance[balance < 0].sum())
