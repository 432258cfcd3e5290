"""Options of the Spark data source; reports every mistake at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from extentflow.config import worker as worker_settings
from extentflow.config.files import read_owned
from extentflow.config.table import ParsedKeys, Table, declared, key
from extentflow.config.types import BOOLEAN, TEXT, choice, matching, or_word, seconds, whole
from extentflow.config.worker import WorkerSettings
from extentflow.errors import Misconfigured
from extentflow.wording import nearest

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
    """The options of one read; `settings` are those of every worker."""

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

    @classmethod
    def read(cls, options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Self:
        """Read options and environment. Raises Misconfigured with every problem at once."""
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
        return self.work == LISTING or (not self.work and not self.settings.extents_queue_url)

    @classmethod
    def read(
        cls,
        options: Mapping[str, str],
        environ: Mapping[str, str] = os.environ,
        *,
        labels: Mapping[str, str] | None = None,
    ) -> Self:
        """As `ReadOptions.read`; `labels` are options as the user wrote them."""
        labels = labels or {}
        reading, addresses, settings = _read(STREAM, options, environ, labels)
        made = STREAM.make(cls, reading, settings=settings)
        work, connector = labels.get("work", "work"), labels.get("connector", "option connector")
        what = f"is not set, which {work}={QUEUE} needs; give the queue's URL, or {work}={LISTING}"
        problems = [
            f"{name} {what}"
            for name in ("extents.queue.url", "extents.dlq.url")
            if not made.listing and not getattr(settings, name.replace(".", "_"))
        ]
        if addresses:
            hint = "`load()` without one; connectors say what they read"
            problems.append(f"a stream has no path: {hint}")
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
) -> tuple[ParsedKeys, tuple[str, ...], WorkerSettings]:
    """Return our options, the addresses that `load` was given, and the settings of workers."""
    given = {name.lower(): text for name, text in options.items()}  # names come in any case
    one, several = (given.pop(name, "") for name in PATHS)
    names, worker = table.names(), worker_settings.TABLE
    written = (*names, *worker_settings.OPTIONS)
    labels = {name: f"option {name}" for name in written} | {**(labels or {})}
    ours = {name: given.pop(name) for name in [*given] if name in names}
    reading = table.read(ours, labels=labels)
    problems = list(reading.problems)
    variables, chosen = dict(environ), {}
    for name, text in given.items():
        if name in worker_settings.OPTIONS:
            chosen[name] = text
            continue
        # A family's own reader says which names below its prefix it takes.
        if name in worker.names() or any(name.startswith(each.prefix) for each in worker.families):
            variables[worker_settings.variable(name)] = text
            continue
        usual_docs = "docs/spark.md lists the options"
        near = nearest(name, names, "") or nearest(name, worker.names(), usual_docs)
        problems.append(f"option {name}: no such option; {near}")
    addresses, settings = [one] if one else [], None
    try:
        addresses += json.loads(several) if several else ()
    except ValueError:
        problems.append(f"option paths={several}: give addresses to `load`")
    try:
        settings = worker_settings.load(
            variables, read_text=read_owned, given=chosen, labels=labels
        )
    except Misconfigured as exc:
        problems += exc.problems
    if problems or settings is None:
        raise Misconfigured(problems)
    return reading, tuple(addresses), settings
