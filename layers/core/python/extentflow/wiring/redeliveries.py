"""Opens what the replay of a connector's dead letters needs.

Tests: unit/services/test_dead_letter_queues.py
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from extentflow.config.connector import ConnectorConfig
from extentflow.config.table import Key, declared
from extentflow.delivery.dead_letters import DeadLetters
from extentflow.delivery.pipeline import Pipeline
from extentflow.delivery.received_letters import DeadLetter
from extentflow.delivery.redelivery import LetterDecoder, Redelivery
from extentflow.delivery.replay_targets import ReplayTargets
from extentflow.errors import Misconfigured, NotOffered
from extentflow.kafka import ProducerSettings
from extentflow.kafka.reading import ConsumedRecord
from extentflow.model import Extent, Job
from extentflow.storage.ranges import RangeReader
from extentflow.wiring import options
from extentflow.wiring.extents import pipeline
from extentflow.wiring.runtime import Runtime
from extentflow.wording import again_command

CACHED_JOBS = 64


def open_redelivery(runtime: Runtime, name: str) -> Redelivery:
    """Return the replay of a connector's dead letters, under its latest revision.

    Those of a connector that is not listed, such as `run --topic` makes, are replayed under the
    revision of their own job: its latest one is that of any later command. Raises Misconfigured for
    a connector without a dead letter queue.
    """
    listed = runtime.ledger.connectors.get(name) is not None
    config, revision = runtime.connectors.latest(name, deleted=True)
    if not listed:
        config, revision = _newest_with_queue(runtime, config, revision)
    topic = config.dead_letter_topic
    if topic is None:
        raise Misconfigured(
            f"connector {name} has no dead letter queue; set errors.tolerance=all and"
            " errors.deadletterqueue.topic.name to the topic with its dead letters"
        )
    if not config.dead_letter_headers:
        raise Misconfigured(
            f"connector {name}: errors.deadletterqueue.context.headers.enable=false: dead letters"
            " do not say which records they hold; set it to true before they are sent"
        )
    opener = _Opener(runtime, config, revision, of_jobs=not listed)
    identity = f"{runtime.settings.app_id}.{runtime.ledger.id}.deadletters"

    def read(partition: int, offset: int, end: int) -> Iterable[list[ConsumedRecord]]:
        return runtime.broker.read_from(
            topic, {partition: offset}, end={partition: end}, group=f"{identity}.reader"
        )

    return Redelivery(
        connector=name,
        topic=topic,
        identity=identity,
        broker=runtime.broker,
        notes=runtime.ledger.notes,
        read=read,
        open_letter=opener.open,
        targets=ReplayTargets(
            runtime.broker, runtime.ledger.notes, f"{identity}.{name}.{topic}", name
        ),
        clock=runtime.clock,
        transaction_seconds=runtime.settings.transaction_max_seconds,
        topic_id=runtime.broker.present_topics([topic]).get(topic, ""),
    )


def _newest_with_queue(
    runtime: Runtime, config: ConnectorConfig, revision: int
) -> tuple[ConnectorConfig, int]:
    """Return the newest revision that names a dead letter queue; the given one if none does."""
    for number in range(revision, 0, -1):
        try:
            found = runtime.connectors.revision(config.name, number)
        except Misconfigured:  # lost, or stored by another version
            continue
        if found.dead_letter_topic is not None:
            return found, number
    return config, revision


class _Opener:
    """Opens pipelines by the jobs of dead letters; `of_jobs`: under the revision of each job."""

    def __init__(
        self, runtime: Runtime, config: ConnectorConfig, revision: int, *, of_jobs: bool
    ) -> None:
        self._runtime, self._config, self._revision = runtime, config, revision
        self._of_jobs = of_jobs
        self._pipeline = lru_cache(CACHED_JOBS)(self._open)

    def open(self, letter: DeadLetter) -> LetterDecoder:
        """Return what a dead letter's record is decoded with. Raises NotOffered and as formats."""
        try:
            ordinal, start, end, location = letter.place
        except ValueError as exc:
            raise NotOffered("its context headers name no place of an object") from exc
        job = self._runtime.ledger.jobs.get(letter.job)
        if job is None:
            raise NotOffered(f"the ledger has no job {letter.job}")
        if not start <= end <= job.version.size:
            raise NotOffered(
                f"{job.version.uri}: its context headers name the extent {start}-{end}, and the"
                f" object has {job.version.size} bytes"
            )
        config, _ = self._revision_for(job)
        fmt = config.format_for(job.version.key, job.content.format)
        extent = Extent(job.id, ordinal, config.name, job.version, start, end, fmt)
        made = self._pipeline(job.id)
        unit = made.format.location_unit
        if unit != letter.unit:
            raise NotOffered(
                f"{extent.uri}: its location, {letter.unit} {location} of {job.format}, is none of"
                f" {fmt}, which counts by {unit}; restore input.format, or deliver the object again"
                f" with {again_command(job.version.address, job.connector)}"
            )
        unreadable = self._unreadable(job) if letter.is_row else ""
        client = self._client(job)
        queue = self._queue(job, unit, client.max_batch_bytes)
        return LetterDecoder(extent, location, made, queue, client, unreadable)

    def _revision_for(self, job: Job) -> tuple[ConnectorConfig, int]:
        """Return the revision under which a job's dead letters are replayed. Raises NotOffered."""
        if self._of_jobs:
            return self._pinned(job), job.revision
        return self._config, self._revision

    def _pinned(self, job: Job) -> ConnectorConfig:
        """Return the revision that a job pins. Raises NotOffered."""
        try:
            return self._runtime.connectors.revision(job.connector, job.revision)
        except Misconfigured as exc:
            raise NotOffered(f"{'; '.join(exc.problems)}; or {_otherwise(job)}") from exc

    def _unreadable(self, job: Job) -> str:
        """Return why rows of a job's object cannot be read again; empty where they can.

        A location may begin another record, or a part of one, where the object is decoded otherwise
        than the revision does that the job pins.
        """
        try:
            pinned = self._pinned(job)
        except NotOffered as exc:
            return str(exc)
        if not (changed := ", ".join(changed_keys(pinned, self._revision_for(job)[0], job))):
            return ""
        return (
            f"{job.version.uri}: connector {job.connector} decodes records otherwise than its"
            f" revision {job.revision}, which the job pins: {changed}; restore it, or"
            f" {_otherwise(job)}"
        )

    def _open(self, job_id: str) -> Pipeline:
        job = self._runtime.ledger.jobs.get(job_id)
        if job is None:
            raise NotOffered(f"the ledger has no job {job_id}")
        (config, revision), runtime = self._revision_for(job), self._runtime
        fmt = config.format_for(job.version.key, job.content.format)
        store = runtime.objects.store(config, revision)
        made = pipeline(
            config,
            Extent(job.id, 0, config.name, job.version, 0, job.version.size, fmt),
            RangeReader(store, job.version),
            # Rows that would be excluded must be found, so that they count as filtered.
            runtime.objects.format(config, revision, job.version, job.content, excludes=False),
            partitions=lambda topic: runtime.topic(topic).partitions,
            look_up=runtime.connector_secrets,
            store=store,
            limit_bytes=self._least_limit(config, job)[0],
            settle=runtime.schemas.settle,
        )
        made = replace(made, acceptance=runtime.acceptance)
        pinned = config.ordered and not config.keyed and job.partition >= 0
        return replace(made, partition=job.partition) if pinned else made

    def _queue(self, job: Job, unit: str, limit_bytes: int | None) -> DeadLetters:
        config, _ = self._revision_for(job)
        return DeadLetters(
            # Letters go back to the topic that is replayed, whichever their job names.
            topic=self._config.dead_letter_topic,
            source_topic=config.topic_for(job.version),
            location_unit="row" if unit == "row" else "offset",
            context=True,  # without it, the next replay could not decode them
            # The producer's limit is that of the targets, which may be smaller than the queue's.
            limit_bytes=limit_bytes,
        )

    def _client(self, job: Job) -> ProducerSettings:
        config, _ = self._revision_for(job)
        limit, topic = self._least_limit(config, job)
        return ProducerSettings(
            producer=options.producer(config),
            max_message_bytes=limit,
            max_batch_bytes=min(limit, self._limit(self._config.dead_letter_topic or "")),
            topic=topic,
        )

    def _least_limit(self, config: ConnectorConfig, job: Job) -> tuple[int, str]:
        topics = config.written_topics(config.topic_for(job.version))
        return min((self._limit(one), one) for one in topics)

    def _limit(self, topic: str) -> int:
        return self._runtime.topic(topic).max_message_bytes


def _otherwise(job: Job) -> str:
    return (
        "state its record in a file for --repairs, or deliver the object again with"
        f" {again_command(job.version.address, job.connector)}"
    )


def changed_keys(pinned: ConnectorConfig, latest: ConnectorConfig, job: Job) -> Iterator[str]:
    """Yield the keys in which two revisions differ of those that say what the records are."""
    key, content = job.version.key, job.content
    name = latest.format_for(key, content.format)
    if name != job.format:
        yield "input.format"
        return
    if pinned.compression_for(key, content) != latest.compression_for(key, content):
        yield "file.compression.type"
    if pinned.charset != latest.charset:
        yield "character.set"
    if pinned.record_max_bytes != latest.record_max_bytes:
        yield "record.max.bytes"
    before, now = pinned.options_of(name), latest.options_of(name)
    if before != now:
        keys = [one for one in declared(type(now), part=f"{name}.") if isinstance(one, Key)]
        # Another name of a secret reads the same rows, and another secret reads none.
        secrets = {one.field: getattr(now, one.field) for one in keys if one.kind.secret}
        found = [
            one.name
            for one in keys
            if one.field not in secrets and getattr(before, one.field) != getattr(now, one.field)
        ]
        if replace(before, **secrets) != now:
            yield from found or [f"{name}.*"]
