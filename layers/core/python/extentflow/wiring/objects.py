"""Checked connectors, with one store client and one decoder per revision and process."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath

from extentflow.config.connector import NOTHING_FOUND, SPLIT_COMPRESSIONS, ConnectorConfig
from extentflow.config.parsing import parse
from extentflow.errors import Misconfigured, Permanent, UnsupportedFormat
from extentflow.formats import Format, open_format
from extentflow.formats.magic import HEAD_BYTES, SAMPLE_BYTES
from extentflow.formats.recognition import (
    TAIL_BYTES,
    is_cut,
    needs_tail,
    recognised_compression,
    recognised_format,
)
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.planner import JobRequest
from extentflow.kafka.settings import problems
from extentflow.model import Content, Job, ObjectVersion
from extentflow.storage import ObjectStore, RangeSource, StoreOptions, open_store
from extentflow.storage.ranges import RangeReader
from extentflow.storage.rotated_store import RotatedStore
from extentflow.wiring import options

CACHED_JOBS = 1_024
PRODUCER = "producer."
# Secrets of files, and how names of settings end that name a file: only workers have them.
ONLY_WORKERS_HAVE = frozenset(
    {"ssl.key.password", "ssl.keystore.password", "sasl.kerberos.keytab"}
    | {".file", ".location", ".pem"}
)


class ObjectAccess:
    """Keeps the stores and formats of connectors; reopens a store whose secrets were rotated."""

    def __init__(
        self,
        connectors: ConnectorCatalogue,
        secrets: options.SecretResolver,
        *,
        retry_seconds: float,
        open_store: Callable[[str, StoreOptions], ObjectStore] = open_store,
    ) -> None:
        self._connectors = connectors
        self._options = partial(options.store_options, look_up=secrets, retry_seconds=retry_seconds)
        self._secrets = secrets
        self._open_store = open_store
        self._stores: dict[tuple[str, int, StoreOptions], ObjectStore] = {}
        self._formats: dict[tuple[str, int, str, str, str, object, int | None, bool], Format] = {}
        self._recognised: dict[tuple[str, int, ObjectVersion], Content] = {}

    def store(self, config: ConnectorConfig, revision: int) -> ObjectStore:
        """Return the connector's object store; one client per revision and set of secrets."""
        current = self._options(config)
        # Rotated secrets make another key, and so another client.
        key = (config.name, revision, current)
        if key not in self._stores:
            store = self._open_store(config.endpoint_type, current)
            if config.secret_access_key:
                again = partial(self._options, config, refresh=True)
                store = RotatedStore(store, lambda: again() != current)
            self._stores[key] = store
        return self._stores[key]

    def format(
        self,
        config: ConnectorConfig,
        revision: int,
        version: ObjectVersion,
        content: Content = NOTHING_FOUND,
        *,
        window_bytes: int | None = None,
        excludes: bool = True,
    ) -> Format:
        """Return the format that decodes this object, with its caches of schemas and footers.

        `content` is what its job pins. `window_bytes` None: the usual size of reads. `excludes`:
        rows that all transforms drop need not be decoded.
        """
        name = config.format_for(version.key, content.format)
        compression = config.compression_for(version.key, content)
        own = options.own_options(config, name, self._secrets)
        # Rotated secrets make another key, and so another format.
        key = (config.name, revision, name, compression, content.facts, own, window_bytes, excludes)
        if key not in self._formats:
            if len(self._formats) >= CACHED_JOBS:
                self._formats.clear()
            chosen = options.format_options(config, name, compression, content.facts)
            if window_bytes is not None:
                chosen = replace(chosen, window_bytes=window_bytes)
            if not excludes:
                chosen = replace(chosen, excludes=None)
            self._formats[key] = open_format(name, chosen, own)
        return self._formats[key]

    def source(self, job: Job) -> tuple[Format, RangeSource]:
        """Return the format and the pinned reader of a job's object, under the job's revision."""
        config = self._connectors.revision(job.connector, job.revision)
        store = self.store(config, job.revision)
        opened = self.format(config, job.revision, job.version, job.content)
        return opened, RangeReader(store, job.version)

    def recognised(self, config: ConnectorConfig, revision: int, version: ObjectVersion) -> Content:
        """Return the format and the compression that content shows, where it decides.

        Reads the object's first 264 bytes, 64 KiB for the format; and its last ones only if they
        can count, as those of zstd do: a seek table ends there. Raises as reading does.
        """
        needed = config.needs_content(version.key) or config.needs_compression(version.key)
        stated = config.stated_compression(version.key)
        if not (needed or stated in SPLIT_COMPRESSIONS) or not version.size:
            return NOTHING_FOUND
        key = (config.name, revision, version)
        if key not in self._recognised:
            if len(self._recognised) >= CACHED_JOBS:
                self._recognised.clear()
            found = self._read_content(config, revision, version) if needed else NOTHING_FOUND
            self._recognised[key] = self._split(config, revision, version, found)
        return self._recognised[key]

    def _split(
        self, config: ConnectorConfig, revision: int, version: ObjectVersion, found: Content
    ) -> Content:
        """Return what was found, with the compression that is cut, if the object can be."""
        try:
            codec = config.compression_for(version.key, found)
            name = config.format_for(version.key, found.format)
        except UnsupportedFormat:  # the plan ends the job, with this reason
            return found
        if codec not in SPLIT_COMPRESSIONS or not config.may_split(version, name):
            return found
        source = RangeReader(self.store(config, revision), version)
        return (
            replace(found, compression=SPLIT_COMPRESSIONS[codec])
            if is_cut(codec, source)
            else found
        )

    def _read_content(
        self, config: ConnectorConfig, revision: int, version: ObjectVersion
    ) -> Content:
        source = RangeReader(self.store(config, revision), version)
        needs_format, found = config.needs_content(version.key), ""
        head = source.read(0, min(version.size, SAMPLE_BYTES if needs_format else HEAD_BYTES))
        tail = head[-TAIL_BYTES:]
        if version.size > len(head) and needs_tail(head):
            tail = source.read(version.size - TAIL_BYTES, version.size)
        if config.needs_compression(version.key):
            found = recognised_compression(head, tail)
        if not needs_format:
            return Content(compression=found)
        compression = found or config.stated_compression(version.key)
        return Content(recognised_format(head, tail, compression, config.charset), found)

    def fetched_bytes(self) -> int:
        """Return how many bytes this process has read from all its stores so far."""
        return sum(getattr(store, "fetched_bytes", 0) for store in self._stores.values())


@dataclass(frozen=True, slots=True)
class JobRequests:
    """Makes the requests of jobs for object versions; `cluster` returns the Kafka cluster's id."""

    objects: ObjectAccess
    cluster: Callable[[], str]

    def make(
        self, config: ConnectorConfig, revision: int, version: ObjectVersion, cores: int
    ) -> JobRequest:
        """Return the request of a job that delivers an object version to the cluster."""
        content = self.recognised(config, revision, version)
        cluster = self.cluster()
        return options.job_request(config, revision, version, cluster, cores, content=content)

    def recognised(self, config: ConnectorConfig, revision: int, version: ObjectVersion) -> Content:
        """Return `ObjectAccess.recognised`; nothing for an object that cannot be read."""
        with suppress(Permanent):  # the plan ends its job, with this reason
            return self.objects.recognised(config, revision, version)
        return NOTHING_FOUND


def check_connector(config: Mapping[str, str]) -> ConnectorConfig:
    """Return the connector of a flat map, checked by the Kafka client: all problems at once."""
    ours = (name.removeprefix(PRODUCER) for name in config if name.startswith(PRODUCER))
    here = (one for one in ours if not {one, PurePath(one).suffix} & ONLY_WORKERS_HAVE)
    given = {name: config[PRODUCER + name] for name in here}
    found = problems({}, {n: "x" if "${" in v else v for n, v in given.items()})
    try:
        parsed = parse(config)
    except Misconfigured as exc:
        others = [line for line in found if not _covered(line, exc.problems)]
        raise Misconfigured([*exc.problems, *others]) from None
    if found:
        raise Misconfigured(found)
    return parsed


def _covered(line: str, others: tuple[str, ...]) -> bool:
    """Return whether `others` name the same key, or a key of the prefix that `line` sums up."""
    key = line.partition(":")[0].partition(" ")[0]
    names = PRODUCER if key == f"{PRODUCER}*" else (f"{key}:", f"{key}=")
    return any(problem.startswith(names) for problem in others)
