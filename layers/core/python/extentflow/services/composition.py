"""Builds services from the clients of a process: the only place of services that knows `Runtime`.

A service gets a client that each of its calls uses. It gets a callable where some calls do without:
opening the ledger may create it, and opening the broker needs its address. Services are imported
when they are opened, because each command needs few of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from extentflow.config.connector import ConnectorConfig
from extentflow.config.ledgers import LedgerAddress
from extentflow.config.worker import NO_BROKERS, WorkerSettings
from extentflow.errors import BucketGone, ObjectGone
from extentflow.services.run_control import RunControl
from extentflow.wiring import Runtime, open_engine
from extentflow.wiring.extents import Previews

if TYPE_CHECKING:
    from extentflow.engines import Engine
    from extentflow.formats.parquet.column_keys import KeyService
    from extentflow.services.connectors import Connectors
    from extentflow.services.dead_letter_queues import DeadLetterQueue
    from extentflow.services.dismissals import Dismissals
    from extentflow.services.exports import Exports
    from extentflow.services.health import Health, Initialisation, LedgerChecks
    from extentflow.services.jobs import Jobs
    from extentflow.services.orders import Orders
    from extentflow.services.peeks import Peeks
    from extentflow.services.runs import Runs
    from extentflow.services.selections import Selections
    from extentflow.services.submissions import Submissions
    from extentflow.services.topics import Topics
    from extentflow.services.verifications import Verifications
    from extentflow.wiring.objects import ObjectAccess

log = logging.getLogger(__name__)

UNOBSERVED = RunControl()


def open_orders(runtime: Runtime) -> Orders:
    """Return the orders of a ledger; the cluster's id is requested where jobs have one."""
    from extentflow.services.orders import Orders

    look = partial(_look, runtime.objects)
    return Orders(runtime.ledger, runtime.connectors, lambda: runtime.broker.cluster, look)


def open_connectors(runtime: Runtime) -> Connectors:
    """Return the connectors of a ledger; `put` looks at their buckets for a few seconds."""
    from extentflow.services.connectors import Connectors

    return Connectors(runtime.ledger, partial(_look, runtime.brief_objects))


def _look(objects: ObjectAccess, config: ConnectorConfig) -> None:
    """Raise where the bucket or the folder of a connector cannot be read."""
    store = objects.store(config, 0)
    if config.object_key is None:
        next(iter(store.list(config.bucket, config.prefix)), None)
        return
    try:
        store.head(config.bucket, config.object_key)
    except BucketGone:
        raise
    except ObjectGone:  # the run reports it, or finds what is below it
        return


def open_topics(runtime: Runtime, keys: KeyService | None = None) -> Topics:
    """Return the topics of a cluster; `keys` decrypt columns."""
    from extentflow.services.topics import Topics

    return Topics(runtime.broker, _reader_group(runtime, "reader"), keys)


def open_exports(runtime: Runtime, notify: Callable[[str], object] = log.info) -> Exports:
    """Return what exports topics of a cluster."""
    from extentflow.services.exports import Exports

    return Exports(
        lambda: runtime.broker,
        _reader_group(runtime, "export"),
        runtime.clock,
        runtime.settings.retry_timeout_seconds,
        notify,
    )


def open_verifications(runtime: Runtime, topics: Topics) -> Verifications:
    """Return what compares objects with topics."""
    from extentflow.services.verifications import Verifications

    return Verifications(topics, runtime.objects, runtime.planner(), _previews(runtime))


@contextmanager
def open_peeks() -> Iterator[Peeks]:
    """Yield what reads first records, with a ledger that is gone afterwards."""
    from extentflow.services.peeks import Peeks

    with TemporaryDirectory(prefix="extentflow-peek-") as folder:
        url = LedgerAddress.of_file(Path(folder).resolve() / "ledger.db")
        runtime = Runtime(WorkerSettings(bootstrap_servers=NO_BROKERS, ledger_url=url))
        runtime.ledger.admin.create()
        yield Peeks(open_orders(runtime), runtime.objects, runtime.planner(), _previews(runtime))


def open_jobs(runtime: Runtime) -> Jobs:
    """Return the jobs of a ledger."""
    from extentflow.services.jobs import Jobs

    return Jobs(runtime.ledger, runtime.connectors, runtime.planner(), runtime.settings)


def open_dismissals(runtime: Runtime) -> Dismissals:
    """Return what closes jobs whose objects were removed."""
    from extentflow.services.dismissals import Dismissals

    return Dismissals(runtime.ledger, runtime.connectors, runtime.objects)


def open_submissions(runtime: Runtime) -> Submissions:
    """Return what sends work to the deployed functions; no client is opened yet."""
    from extentflow.services.submissions import Submissions
    from extentflow.wiring import functions
    from extentflow.wiring.arrivals import ARRIVALS, StackQueues

    return Submissions(
        settings=runtime.settings,
        queues=StackQueues(runtime),
        arrivals=partial(functions.queue, runtime.settings, ARRIVALS),
        ledger=lambda: runtime.ledger,
        orders=partial(open_orders, runtime),
        selections=partial(open_selections, runtime),
        look=partial(_look_up, runtime),
    )


def _look_up(runtime: Runtime, bucket: str, key: str) -> bool | None:
    """Return whether the store of any connector has an object; None: no connector reads it."""
    from extentflow.jobs.connector_catalogue import ConnectorCatalogue

    ledger, objects = runtime.brief_ledger, runtime.brief_objects
    found: bool | None = None
    for version, config in ConnectorCatalogue(ledger).readable(ledger.connectors.list()):
        if not config.matches(bucket, key):
            continue
        try:
            objects.store(config, version.revision).head(bucket, key)
        except ObjectGone:
            found = False
        else:
            return True
    return found


def open_dead_letters(runtime: Runtime, connector: str) -> DeadLetterQueue:
    """Return the dead letters of a connector; no client is opened yet."""
    from extentflow.services.dead_letter_queues import DeadLetterQueue
    from extentflow.wiring.redeliveries import open_redelivery

    return DeadLetterQueue(
        connector,
        ledger=lambda: runtime.ledger,
        redelivery=partial(open_redelivery, runtime, connector),
        require_app=runtime.require_app,
    )


def open_selections(runtime: Runtime, control: RunControl = UNOBSERVED) -> Selections:
    """Return what selects the objects of orders."""
    from extentflow.services.selections import Selections

    return Selections(
        control,
        runtime.ledger,
        runtime.connectors,
        runtime.objects,
        runtime.planner(),
        runtime.requests,
    )


def open_runs(
    runtime: Runtime,
    control: RunControl = UNOBSERVED,
    open_engine: Callable[..., Engine] = open_engine,
) -> Runs:
    """Return what plans, runs and replays jobs; `open_engine` may be a double."""
    from extentflow.services.driving import Drivers
    from extentflow.services.replayable_jobs import ReplayableJobs
    from extentflow.services.run_checks import RunChecks
    from extentflow.services.run_topics import RunTopics
    from extentflow.services.runs import Runs
    from extentflow.services.trials import Trials
    from extentflow.wiring import functions

    trials = Trials(
        runtime.requests,
        runtime.planner(),
        _previews(runtime),
        runtime.topic,
        lambda: runtime.schemas,
        lambda: runtime.acceptance,
    )
    return Runs(
        control,
        runtime.ledger,
        open_selections(runtime, control),
        RunChecks(
            runtime.require_app,
            runtime.deliverability,
            trials,
            RunTopics(lambda: runtime.broker, control.notify),
            control.notify,
        ),
        Drivers(
            control,
            runtime.ledger,
            runtime.planner(),
            partial(open_engine, runtime),
            partial(functions.open_job_events, runtime),
            runtime.deliverability.undeliverable_reason,
        ),
        ReplayableJobs(
            runtime.ledger,
            runtime.connectors,
            runtime.objects,
            runtime.planner(),
            lambda: runtime.broker,
            control.notify,
            queued=runtime.settings.extents_queue_url is not None,
        ),
    )


def open_initialisation(runtime: Runtime) -> Initialisation:
    """Return what creates the ledger and the progress topic."""
    from extentflow.services.health import Initialisation
    from extentflow.wiring.arrivals import StackQueues

    return Initialisation(_ledger_checks(runtime), StackQueues(runtime), lambda: runtime.broker)


def open_health(runtime: Runtime) -> Health:
    """Return the checks of a stack; no client is opened yet."""
    from extentflow.services.health import ClusterChecks, ConnectorChecks, Health, TopicChecks
    from extentflow.wiring.arrivals import StackQueues

    return Health(
        _ledger_checks(runtime),
        ClusterChecks(runtime.settings, lambda: runtime.ledger, lambda: runtime.broker),
        StackQueues(runtime),
        lambda: ConnectorChecks(
            runtime.ledger,
            runtime.connectors,
            runtime.objects,
            runtime.connector_secrets,
            runtime.deliverability,
            TopicChecks(runtime.topic),
        ),
    )


def _ledger_checks(runtime: Runtime) -> LedgerChecks:
    from extentflow.services.health import LedgerChecks

    return LedgerChecks(runtime.ledger_address, lambda: runtime.ledger, runtime.require_app)


def _previews(runtime: Runtime) -> Previews:
    return Previews(runtime.objects, runtime.connector_secrets)


def _reader_group(runtime: Runtime, kind: str) -> Callable[[], str]:
    """Return what names the group of one reader, under `app.id`, on which ACLs are granted."""
    app, random = runtime.settings.app_id, runtime.random
    return lambda: f"{app}.{random.getrandbits(64):x}.{kind}"
