"""A streaming query that writes topics to a lake target, exactly once.

    topics ──Structured Streaming, read_committed──> micro-batch ──foreachBatch──> Target
                                                                      │
    offsets that the target holds ── all of the batch: skip ──────────┤
                                  ── a part: the rest is written ─────┤
                                  ── less than its start: refused ────┘

The target's commit has the rows and the offsets up to which it holds them. A start reads these
offsets and continues there; Spark's checkpoint holds no progress that the target does not have, and
may be deleted. A batch with new columns fails, the target gets them, and the same batch is written
again, within the same call.

Tests: integration/test_lake.py
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery

from extentflow.columnar import GROUP, BatchFacts
from extentflow.columnar.values import decode
from extentflow.config.column_lists import json_type
from extentflow.decoders.json_arrays import delivered_type
from extentflow.engines import spark as engine
from extentflow.engines.spark import QueryFailed, failure_cause, java_cause
from extentflow.errors import Conflict, ExtentflowError, Misconfigured, located
from extentflow.export.lake.lake_columns import in_parquet, in_spark, merged
from extentflow.export.lake.lake_options import ValueOptions
from extentflow.export.lake.lake_rows import KAFKA_COLUMNS, RowReader, grown_columns
from extentflow.export.lake.lake_target import (
    EARLIEST,
    Batch,
    Offsets,
    TableState,
    Target,
    WriteResult,
    advanced,
    offsets_text,
    read_offsets,
)
from extentflow.export.lake.registered_schemas import named_schema
from extentflow.formats.parquet.column_keys import KeyService
from extentflow.kafka.reading import ConsumedRecord
from extentflow.kafka.record_headers import by_name

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 0.2
# Offsets before a partition's end in which its newest value is, behind which are markers.
NEWEST: Final = 8
# A batch of rows whose columns grow once more each time; a table has few generations of columns.
MOST_GROWTHS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTerms:
    """The settings of a query; `every_seconds` None: what the topics hold at its start.

    `checkpoint` is a URI. `kafka` are options of Spark's Kafka source, beside those set here.
    `values` states how values are decoded. `most_offsets` bounds a micro-batch. `continue_at` is
    where a person states that topics continue whose history in the target does not decide it.
    """

    topics: tuple[str, ...]
    checkpoint: str
    every_seconds: float | None
    kafka: Mapping[str, str] = field(default_factory=dict)
    values: ValueOptions = field(default_factory=ValueOptions)
    most_offsets: int | None = None
    continue_at: Offsets | None = None
    arrow_records: int = 16


class ReadableTopics(Protocol):
    """What the driver asks of topics; see `kafka.broker.KafkaBroker`."""

    def first_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the first offset of each partition."""
        ...

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        """Return the end of each partition."""
        ...

    def topic_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the id of each topic, empty where brokers have none."""
        ...

    def read_from(
        self, topic: str, begin: Mapping[int, int], *, end: Mapping[int, int], group: str
    ) -> Iterator[list[ConsumedRecord]]:
        """Yield the committed records of the partitions of `begin`, up to `end`."""
        ...


@dataclass(frozen=True, slots=True)
class LakeCluster:
    """The cluster that a query reads; the driver reads the newest values as `group`."""

    bootstrap_servers: str
    group: str
    topics: ReadableTopics


@dataclass(frozen=True, slots=True)
class LakeBatch:
    """One micro-batch: what was committed to the target. `rows` 0: it had the batch already."""

    batch: int
    rows: int
    seconds: float
    offsets: str


class LakeService:
    """Runs one query until it ends or is stopped."""

    def __init__(
        self, spark: SparkSession, target: Target, terms: LakeTerms, cluster: LakeCluster
    ) -> None:
        self._spark = spark
        self.target = target
        self.terms = terms
        self._cluster = cluster
        self._stopping = threading.Event()
        self._failure: ExtentflowError | None = None
        self._delivered = False
        self._state = TableState()

    def stop(self) -> None:
        """Let `run` return within seconds; from any thread, or a signal handler."""
        self._stopping.set()

    def run(self, report: Callable[[LakeBatch], None]) -> None:
        """Write the topics until `stop`, or what they hold.

        Raises the first error of a micro-batch; Conflict where another query writes the topics.
        """
        self._require_known_offsets(self.terms.continue_at or {})
        ids = self._cluster.topics.topic_ids(self.terms.topics)
        with target_errors(self.target.where):
            self._state = self.target.open(self.terms.topics, self.terms.continue_at, ids)
            if self._state.columns is None:
                self._create()
        if self._state.columns is not None and self.terms.values.columns is not None:
            self._require_all_chosen(self._state.columns, self.terms.values.columns)
        # Arrow batches of this many records go to Python; a columnar value has about a MiB.
        self._spark.conf.set(
            "spark.sql.execution.arrow.maxRecordsPerBatch", str(self.terms.arrow_records)
        )
        self._follow(self._start(report))

    def _require_known_offsets(self, stated: Offsets) -> None:
        """Raise Misconfigured for stated offsets that the topics do not have."""
        for topic, parts in stated.items():
            if topic not in self.terms.topics:
                raise Misconfigured(
                    f"--continue-at: {topic} is none of the topics {', '.join(self.terms.topics)}"
                )
            ends = self._cluster.topics.end_offsets(topic) if parts else {}
            for partition, offset in parts.items():
                if not 0 <= offset <= ends.get(partition, -1):
                    raise Misconfigured(
                        f"--continue-at: topic {topic}[{partition}] has no offset {offset}; its"
                        f" end is {ends.get(partition, 'not there')}"
                    )

    def _create(self) -> None:
        """Create the table with the columns of the newest values and of --schema, if any."""
        values, spark = self.terms.values, self.target.spark
        columns = newest_columns(self._cluster, self.terms.topics, values, spark=spark)
        if values.schema is not None:
            documents = declared_columns(values, spark=spark)
            columns = merged(columns or documents, documents, "--schema")
        if columns is None:
            return
        if lacking := [name for name in values.columns or () if name not in columns.names]:
            raise Misconfigured(
                f"--column {', '.join(lacking)}: no newest value of the topics"
                f" {', '.join(self.terms.topics)} has such a column; correct its name"
            )
        self._state = self.target.grow(columns, self._state)

    def _require_all_chosen(self, held: pa.Schema, columns: Sequence[str]) -> None:
        """Raise Misconfigured where further rows would have nulls for what their values have."""
        if left := [name for name in held.names if name not in columns]:
            raise Misconfigured(
                f"--column: {self.target.where} also has the columns {', '.join(left)}, in which"
                " further rows would have nulls; name these, too, or write to another target"
            )

    def _start(self, report: Callable[[LakeBatch], None]) -> StreamingQuery:
        terms = self.terms
        partitions = {one: self._cluster.topics.end_offsets(one) for one in terms.topics}
        earliest = {one: dict.fromkeys(ends, EARLIEST) for one, ends in partitions.items()}
        held = {one: self._state.offsets.get(one, {}) for one in terms.topics}
        self._require_same_topics(held, partitions)
        options = {
            "kafka.bootstrap.servers": self._cluster.bootstrap_servers,
            **terms.kafka,
            "kafka.isolation.level": "read_committed",
            "subscribe": ",".join(terms.topics),
            "includeHeaders": "true",
            "startingOffsets": offsets_text(advanced(earliest, held)),
            # Records that retention removed before they were read are an error.
            "failOnDataLoss": "true",
        }
        if terms.most_offsets is not None:
            options["maxOffsetsPerTrigger"] = str(terms.most_offsets)

        def deliver(records: DataFrame, batch: int) -> None:
            self._deliver(records, batch, report)

        try:
            source = self._spark.readStream.format("kafka").options(**options).load()
            writer = source.select(*KAFKA_COLUMNS).writeStream.foreachBatch(deliver)
            writer = writer.option("checkpointLocation", terms.checkpoint)
            if terms.every_seconds is None:
                return writer.trigger(availableNow=True).start()
            interval = f"{round(terms.every_seconds * 1000)} milliseconds"
            return writer.trigger(processingTime=interval).start()
        except (PySparkException, Py4JError) as exc:
            raise (engine.jvm_end() or QueryFailed(failure_cause(str(exc)))) from exc

    def _require_same_topics(self, held: Offsets, ends: Offsets) -> None:
        """Raise Conflict where the target holds more of a topic than there is."""
        for topic, parts in held.items():
            for partition, offset in parts.items():
                end = ends[topic].get(partition, 0)
                if offset > end:
                    raise Conflict(
                        f"{self.target.where} holds topic {topic}[{partition}] up to offset"
                        f" {offset}, and the topic ends at {end}: it was created again, or is one"
                        " of another cluster; write it to another target"
                    )

    def _follow(self, query: StreamingQuery) -> None:
        """Wait for the end of a query, or stop it."""
        try:
            while query.isActive and not self._stopping.wait(WATCH_SECONDS):
                pass
            if self._stopping.is_set():
                with suppress(StreamingQueryException):  # it is over: how does not matter
                    query.stop()
                return
            failure = query.exception()
        except (Py4JError, OSError) as exc:
            if self._stopping.is_set():
                log.debug("the JVM got the signal, too, and ended before the query did: %s", exc)
                return
            raise (engine.jvm_end() or QueryFailed(failure_cause(str(exc)))) from exc
        if self._failure is not None:
            raise self._failure from failure
        if failure is not None:
            raise QueryFailed(failure_cause(str(failure))) from failure

    # -- one micro-batch, in the thread that Spark calls -------------------------------------------

    def _deliver(
        self, records: DataFrame, number: int, report: Callable[[LakeBatch], None]
    ) -> None:
        began = time.monotonic()
        try:
            batch = logged_batch(self._spark, self.terms.checkpoint, number)
            # A checkpoint that continues belongs to what the target holds, or to another target.
            begins = number == 0 or self._delivered
            left = batch.remaining(self._state.offsets, self.target.where, begins=begins)
            rows = 0
            if left is not None:
                written = self._written(_only(records, left, batch), left)
                self._state, rows = written.state, written.rows
            self._delivered = True
        except ExtentflowError as exc:
            self._failure = exc
            # Not its text: a query that is stopped meanwhile searches it by an expression that
            # overflows the stack on long reports (StreamExecution.scala, PROXY_ERROR).
            raise QueryFailed(f"batch {number} failed") from None
        seconds = time.monotonic() - began
        report(LakeBatch(number, rows, seconds, offsets_text(self._state.offsets)))

    def _written(self, records: DataFrame, batch: Batch) -> WriteResult:
        """Write a batch; where it has columns that the table lacks, add them and write it again."""
        for _ in range(MOST_GROWTHS):
            values, spark = self.terms.values, self.target.spark
            reader = RowReader(self._state.columns, values, spark=spark)
            try:
                return self.target.write(
                    records, batch, self._state, reader, self._require_same_ids
                )
            except (PySparkException, Py4JError) as exc:
                text = str(exc)
                columns = grown_columns(text, reader.nonce)
                if columns is None:
                    error = engine.typed_error(text, reader.nonce) or engine.jvm_end()
                    raise (error or QueryFailed(failure_cause(text))) from exc
                log.info("%s gets columns: %s", self.target.where, columns)
                self._state = self.target.grow(columns, self._state)
        raise QueryFailed(
            f"{self.target.where}: a batch has more than {MOST_GROWTHS} generations of columns;"
            " write fewer offsets per batch (--max-offsets-per-trigger)"
        )

    def _require_same_ids(self) -> None:
        """Raise Conflict where a topic was created again; Kafka's client reads on in it."""
        ids = self._cluster.topics.topic_ids(self.terms.topics)
        self._state.require_same(ids, self.target.where)


@contextmanager
def target_errors(where: str) -> Iterator[None]:
    """Raise QueryFailed in a line for what Java reports of a target, before a query starts."""
    try:
        yield
    except (PySparkException, Py4JError) as exc:
        error = engine.jvm_end() or QueryFailed(f"{where}: {java_cause(str(exc))}")
        raise error from exc


def _only(records: DataFrame, left: Batch, batch: Batch) -> DataFrame:
    """Return the records of a batch that are in what is left of it."""
    clipped = [
        (sql.col("topic") == topic)
        & (sql.col("partition") == partition)
        & (sql.col("offset") < start)
        for topic, starts in left.start.items()
        for partition, start in starts.items()
        if start > batch.start.get(topic, {}).get(partition, 0)
    ]
    for held in clipped:
        records = records.where(~held)
    return records


def declared_columns(values: ValueOptions, *, spark: bool) -> pa.Schema:
    """Return how a table holds the columns of JSON values. Raises UnsupportedType."""
    declared, wanted = values.schema or (), values.columns
    found = pa.schema(
        [
            (name, delivered_type(json_type(kind)))
            for name, kind in declared
            if wanted is None or name in wanted
        ]
    )
    return in_spark(found) if spark else in_parquet(found)


def newest_columns(
    cluster: LakeCluster, topics: Iterable[str], values: ValueOptions, *, spark: bool
) -> pa.Schema | None:
    """Return the columns of the newest values of each topic, merged; None: they state none.

    Columnar values and those of a registry state columns.

    Raises UnsupportedType, IncompatibleSchema, CorruptRecord, SinkUnavailable, Misconfigured, and
    AccessDenied for encrypted columns without their keys, and as `RegisteredSchemas.find`.
    """
    columns: pa.Schema | None = None
    keys = values.open_keys()
    groups: dict[str, str] = {}
    for topic in topics:
        for record in _newest_records(cluster, topic):
            where = f"topic {topic}[{record.partition}] offset {record.offset}"
            with located(where):
                known, schema = _columns_of(record, values, keys)
            if known is None:
                continue
            if group := (by_name(record.headers).get(GROUP) or b"").decode():
                groups.setdefault(group, topic)
            if len(groups) > 1:
                raise Misconfigured(
                    f"topics {', '.join(groups.values())}: they have columns of the same rows (the"
                    f" groups {', '.join(groups)}), which are not joined here; write each to a"
                    " target of its own"
                )
            where = f"{where}, {schema}" if schema else where
            with located(where):
                found = in_spark(known) if spark else in_parquet(known)
            columns = found if columns is None else merged(columns, found, where)
    return columns


def _columns_of(
    record: ConsumedRecord, values: ValueOptions, keys: KeyService | None
) -> tuple[pa.Schema | None, str]:
    """Return the columns of a value (None: it states none), and the registered schema's label."""
    value, facts = record.value or b"", BatchFacts.of(record.headers)
    if facts is not None:
        return decode(value, facts, values.columns, lenient=True, keys=keys).schema, ""
    registry, number = values.open_registry(), named_schema(value)
    if registry is None or number is None:
        return None, ""
    found, wanted = registry.find(number), values.columns
    columns = [one for one in found.columns if wanted is None or one.name in wanted]
    return pa.schema(columns), found.label


def _newest_records(cluster: LakeCluster, topic: str) -> list[ConsumedRecord]:
    """Return the newest record of each partition, where it is among its last offsets."""
    ends, firsts = cluster.topics.end_offsets(topic), cluster.topics.first_offsets(topic)
    begin = {one: max(firsts.get(one, 0), end - NEWEST) for one, end in ends.items()}
    newest: dict[int, ConsumedRecord] = {}
    for records in cluster.topics.read_from(topic, begin, end=ends, group=cluster.group):
        newest.update({one.partition: one for one in records})
    return list(newest.values())


# -- Spark's checkpoint ----------------------------------------------------------------------------


def logged_batch(spark: SparkSession, checkpoint: str, number: int) -> Batch:
    """Return the ranges of a micro-batch out of Spark's log of offsets, which it writes first."""
    end = _logged_offsets(spark, f"{checkpoint}/offsets/{number}")
    before = f"{checkpoint}/offsets/{number - 1}" if number else f"{checkpoint}/sources/0/0"
    return Batch(_logged_offsets(spark, before), end)


def _logged_offsets(spark: SparkSession, path: str) -> Offsets:
    """Return the offsets in the last line of a file of a checkpoint."""
    jvm: Any = spark._jvm  # noqa: SLF001 - there is no public way to Hadoop's file systems
    conf: Any = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    file = jvm.org.apache.hadoop.fs.Path(path)
    stream = file.getFileSystem(conf).open(file)
    try:
        text: str = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return read_offsets(text[text.rindex("\n") + 1 :] if "\n" in text else text)
