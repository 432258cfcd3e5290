"""Options of the Spark data source; reports every mistake at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from extentflow.config import worker as worker_settings
from extentflow.config.files import read_if_present
from extentflow.config.table import Reading, Table, declared, key
from extentflow.config.types import BOOLEAN, TEXT, choice, matching, or_word, seconds, whole
from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured, nearest

FAIL_FAST, PERMISSIVE = "FAILFAST", "PERMISSIVE"
QUEUE, LISTING = "queue", "listing"
AUTO = "auto"
PATHS = ("path", "paths")

_PARALLELISM = (
    "Tasks that may run at once; give the cluster's cores. Bounds the fewest extents of an"
    " object that has no job yet."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What one read was asked for; `settings` are those of every worker."""

    connector: str = key(
        TEXT,
        'the connector\'s name, as .option("connector", "orders").',
        required=True,
        section="Reading",
    )
    mode: str = key(
        choice({FAIL_FAST, PERMISSIVE}),
        "FAILFAST: what cannot be delivered fails the action, after everything"
        " else was delivered. PERMISSIVE: it is a row with `state` and `reason`.",
        default=FAIL_FAST,
    )
    replay: bool = key(
        BOOLEAN,
        "Extents that FAILED before are tried again, from where they stopped.",
        default=True,
    )
    parallelism: int = key(
        whole(1), _PARALLELISM, default=os.cpu_count() or 1, shown="the driver's cores"
    )
    addresses: tuple[str, ...] = ()
    settings: WorkerSettings

    @property
    def permissive(self) -> bool:
        """Whether what cannot be delivered is a row instead of an error."""
        return self.mode == PERMISSIVE

    @classmethod
    def read(cls, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Self:
        """Return what options and environment say.

        Raises:
            Misconfigured: every problem at once.
        """
        reading, addresses, settings = _read(BATCH, options, environ)
        return BATCH.make(cls, reading, addresses=addresses, settings=settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a streaming query was asked for; `connector` None: all of them. Times in seconds."""

    connector: str | None = key(
        TEXT, "With work=listing: the one connector to process.", shown="all", section="Streaming"
    )
    work: str | None = key(
        or_word(AUTO, choice({QUEUE, LISTING})),
        "`queue`: messages of the extents queue, from any sender. `listing`:"
        " objects without a job, found by listing, and open jobs. `auto`: the queue"
        " where `extents.queue.url` is set.",
        shown=AUTO,
    )
    most_extents: int = key(
        whole(1),
        "The most extents that one trigger takes on.",
        default=1_024,
        name="max.extents.per.trigger",
    )
    most_seconds: float = key(
        seconds(1),
        "How long a trigger's tasks begin with further extents; those under way are finished.",
        default=60.0,
        name="max.seconds.per.trigger",
    )
    listing_seconds: float = key(
        seconds(0),
        "With work=listing: how long all is left alone after it was listed.",
        default=60.0,
        name="listing.interval.seconds",
    )
    parallelism: int = key(
        whole(1), _PARALLELISM, default=os.cpu_count() or 1, shown="the driver's cores"
    )
    run: str = key(
        matching(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", "write letters, digits, _ -"),
        "Begins the names of the query's workers; another one for every start.",
        required=True,
    )
    settings: WorkerSettings

    @property
    def listing(self) -> bool:
        """Whether work is found by listing instead of in the queue."""
        if self.work is None:
            return self.settings.extents_queue_url is None
        return self.work == LISTING

    @classmethod
    def read(
        cls,
        options: Mapping[str, str],
        environ: Mapping[str, str] = os.environ,
        *,
        labels: Mapping[str, str] | None = None,
    ) -> Self:
        """Return what options and environment say; `labels` are options as the user wrote them.

        Raises:
            Misconfigured: every problem at once.
        """
        labels = labels or {}
        reading, addresses, settings = _read(STREAM, options, environ, labels)
        made = STREAM.make(cls, reading, settings=settings)
        work, connector = labels.get("work", "work"), labels.get("connector", "option connector")
        problems = [
            f"{name} is not set, which {work}={QUEUE} needs; give the queue's URL,"
            f" or {work}={LISTING}"
            for name in ("extents.queue.url", "extents.dlq.url")
            if not made.listing and not getattr(settings, name.replace(".", "_"))
        ]
        if addresses:
            problems.append(
                "a stream has no path: `load()` without one; connectors say what they read"
            )
        if not made.listing and made.connector is not None:
            problems.append(
                f"{connector} goes with {work}={LISTING}: the queue holds every connector's"
                " extents, and none of them may be left lying"
            )
        if problems:
            raise Misconfigured(problems)
        return made


BATCH = Table(tuple(declared(ReadOptions)))
STREAM = Table(tuple(declared(StreamOptions)))


def _read(
    table: Table,
    options: Mapping[str, str],
    environ: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
) -> tuple[Reading, tuple[str, ...], WorkerSettings]:
    """Return our options, the addresses, and the settings of workers.

    Spark writes names in any case. What is none of ours is a worker setting.
    """
    given = {name.lower(): text for name, text in options.items()}
    names = table.names()
    ours = {name: text for name, text in given.items() if name in names}
    rest = {name: text for name, text in given.items() if name not in (*names, *PATHS)}
    usual = {name: f"option {name}" for name in names}
    reading = table.read(ours, labels={**usual, **(labels or {})})
    strangers = [name for name in rest if not _is_setting(name)]
    problems = [
        *reading.problems,
        *(f"option {name}: no such option; {_nearest(name, names)}" for name in strangers),
    ]
    addresses: tuple[str, ...] = ()
    settings = None
    try:
        addresses = _addresses(given)
    except ValueError:
        problems.append(f"option paths={given['paths']}: give addresses to `load`")
    try:
        known = {name: text for name, text in rest.items() if name not in strangers}
        settings = _settings(known, environ)
    except Misconfigured as exc:
        problems += exc.problems
    if problems or settings is None:
        raise Misconfigured(problems)
    return reading, addresses, settings


def _is_setting(name: str) -> bool:
    """Whether a worker setting has that name, or may have it: families say what they take."""
    table = worker_settings.TABLE
    return name in table.names() or any(name.startswith(one.prefix) for one in table.families)


def _nearest(name: str, ours: Sequence[str]) -> str:
    """Return the option or setting that is meant, our own first."""
    near = nearest(name, ours, "")
    return near or nearest(name, worker_settings.TABLE.names(), "docs/spark.md lists the options")


def _addresses(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `load` was given: one path, or a list of them as JSON. Raises ValueError."""
    one, several = (options.get(name) for name in PATHS)
    listed = json.loads(several) if several else ()
    return (*((one,) if one else ()), *listed)


def _settings(options: Mapping[str, str], environ: Mapping[str, str]) -> WorkerSettings:
    given = {worker_settings.variable(key): text for key, text in options.items()}
    return worker_settings.load({**environ, **given}, read_text=read_if_present)
