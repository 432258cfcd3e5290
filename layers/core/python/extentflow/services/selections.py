"""The objects that an order means: what a run delivers, and what was delivered before.

Tests: unit/services/test_runs.py
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.jobs.addresses import (
    KeyScope,
    Known,
    NothingMatches,
    match_missing,
    select_all,
)
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.contents import is_file
from extentflow.jobs.planner import JobRequest, Planner, check_cluster
from extentflow.ledger import Ledger
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.services import run_notes
from extentflow.services.coverage import Coverage
from extentflow.services.failures import (
    ENDED,
    SEARCHED_JOBS,
    FailedObject,
    FailedObjects,
    Others,
    described,
    is_current,
)
from extentflow.services.orders import MadeOrder, Order
from extentflow.services.run_control import RunControl
from extentflow.wiring.objects import JobRequests, ObjectAccess

# Open jobs count only where a replay reopened them and did not finish.
OPEN = (JobState.PLANNING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class Selection:
    """What an order means: objects to deliver, `earlier` jobs, `delivered` ones."""

    versions: Sequence[ObjectVersion]
    earlier: Sequence[Job] = ()
    delivered: Sequence[Job] = ()


@dataclass(frozen=True, slots=True)
class Selections:
    """Selects the objects of orders, and makes the requests of their jobs."""

    control: RunControl
    ledger: Ledger
    connectors: ConnectorCatalogue
    objects: ObjectAccess
    planner: Planner
    requests: JobRequests

    def versions(
        self,
        order: Order,
        unmatched: dict[str, NothingMatches] | None = None,
        known: Known | None = None,
    ) -> Iterator[ObjectVersion]:
        """Yield the pinned objects that the addresses match, each once; see `select_all`."""
        scope = KeyScope.of(order.config)
        hidden: set[str] = set()
        links: dict[str, str] = {}
        table: str | None = None
        store, addresses = self.objects.store(order.config, order.revision), order.addresses
        for version in select_all(
            store, scope, addresses, hidden.add, unmatched, known=known, same=links.__setitem__
        ):
            if table is None and run_notes.is_of_table(version.key):
                table = version.key
            yield version
        for problem in sorted(set(links.values())):
            alike = [key for key, one in links.items() if one == problem]
            self.control.notify(run_notes.describe_links(scope, alike, problem))
        if hidden:
            self.control.notify(run_notes.describe_hidden(scope, hidden))
            table = table or next(filter(run_notes.is_of_table, sorted(hidden)), None)
        if table is not None:
            self.control.notify(run_notes.describe_table(scope, table))

    def find(self, order: Order, *, again: bool) -> Selection:
        """Find the objects that a run delivers; of those delivered before only the jobs."""
        planner, config = self.planner, order.config
        delivered: dict[ObjectVersion, Job] = {}

        def known(page: Sequence[ObjectVersion]) -> Container[ObjectVersion]:
            done = planner.delivered(config.name, page, removed=config.removes_objects)
            delivered.update(done)
            return done

        unmatched: dict[str, NothingMatches] = {}
        versions: list[ObjectVersion] = []
        with self.control.counting("listing") as count:
            for version in self.versions(order, unmatched, None if again else known):
                versions.append(version)
                count(len(versions))
        for job in delivered.values():
            self.require_same_cluster(job)
        # An address of its own may mean an object that another address left out.
        versions = [version for version in versions if version not in delivered]
        earlier = self._earlier(order, [*versions, *delivered])
        self._require_meaning(order.config, unmatched, earlier)
        self.note_changed(order.config, versions)
        self.note_names(order, versions)
        return Selection(versions, earlier, list(delivered.values()))

    def find_failed(self, order: Order) -> Selection:
        """Find the objects whose jobs FAILED or are CANCELLED, and describe what follows."""
        objects = self.failed(order)
        for line in described(objects, order.revision):
            self.control.notify(line)
        return Selection([one.version for one in objects])

    def failed(self, order: Order) -> tuple[FailedObject, ...]:
        """Return the objects that failed; Misconfigured where they did under other connectors."""
        notify = self.control.notify
        alike = partial(self.is_alike, order.config, order.config.name)
        failed = FailedObjects(self.ledger, self.connectors, self.objects, self.planner)
        found = failed.find(order, notify, alike=alike, others=self.others(order))
        made = isinstance(order, MadeOrder)
        elsewhere = list(failed.elsewhere(order, self._coverage(order))) if made else []
        if elsewhere and not found:
            raise Misconfigured(elsewhere)
        for line in elsewhere:
            notify(line)
        return found

    def others(self, order: Order) -> Others:
        """Return what finds the jobs of other connectors that deliver an object to the same topics.

        Of a made order only: what other commands delivered counts as delivered.
        """
        if not isinstance(order, MadeOrder):
            return lambda _version: ()
        return self._coverage(order).jobs

    def _coverage(self, order: Order) -> Coverage:
        return Coverage(
            order.config, self.ledger, self.connectors, self.planner, self.control.notify
        )

    def is_alike(self, config: ConnectorConfig, name: str, revision: int) -> bool:
        """Return whether a revision has the same settings, what of its bucket it reads aside."""
        try:
            other = self.connectors.revision(name, revision)
        except Misconfigured:  # another release stored it, whose settings this one lacks
            return False
        here = replace(
            other,
            name=config.name,
            prefix=config.prefix,
            directory=config.directory,
            object_key=config.object_key,
        )
        return here == config

    def job_requests(
        self, order: Order, versions: Iterable[ObjectVersion], cores: int
    ) -> Iterator[JobRequest]:
        """Yield a job request for each object of a run."""
        config, others = order.config, self.others(order)
        alike = partial(self.is_alike, config, config.name)
        for version in versions:
            request = self.requests.make(config, order.revision, version, cores)
            yield replace(request, alike=alike, others=partial(others, version))

    def require_same_cluster(self, job: Job) -> None:
        """Raise Conflict where a job delivers to another cluster than these requests."""
        check_cluster(job, self.requests.cluster())

    def note_changed(self, config: ConnectorConfig, versions: Sequence[ObjectVersion]) -> None:
        """Report objects of which an earlier version was delivered, by the newest jobs."""
        now = {version.key: version for version in versions}
        if not now:
            return
        done = list(islice(self.ledger.jobs.list(config.name, JobState.DONE), SEARCHED_JOBS))
        # Of an object with a job of its current version, that job is reported.
        delivered = {job.version.key for job in done if job.version == now.get(job.version.key)}
        changed = {
            job.version.key: job
            for job in reversed(done)  # the newest one counts
            if (current := now.get(job.version.key))
            and job.version.key not in delivered
            and job.version.bucket == current.bucket
            and not self.planner.is_copy(job, current)
        }
        if changed:
            self.control.notify(run_notes.describe_changed(config, changed.values()))

    def note_names(self, order: Order, versions: Sequence[ObjectVersion]) -> None:
        """Report files that are to be delivered and that are, or were, under another name, too.

        A pin has the inode, so that it is the same file. A listing leaves out other names; these
        are such that a command gives.
        """
        by_pin: dict[str, list[str]] = {}
        for version in filter(is_file, versions):
            by_pin.setdefault(version.etag, []).append(version.uri)
        if not by_pin:
            return
        names = [order.config.name]
        if isinstance(order, MadeOrder):
            names += (other.name for other in self._coverage(order).others())
        delivered: dict[str, set[str]] = {}
        for name in dict.fromkeys(names):
            for job in islice(self.ledger.jobs.list(name, JobState.DONE), SEARCHED_JOBS):
                if is_file(job.version) and job.version.etag in by_pin:
                    delivered.setdefault(job.version.etag, set()).add(job.version.uri)
        others: dict[str, str] = {}
        for pin, uris in by_pin.items():
            before = sorted(delivered.get(pin, ()))
            new = [uri for uri in uris if uri not in before]
            first, *later = [*before, *new]
            others |= {uri: first for uri in new if uri in later}
        if others:
            self.control.notify(run_notes.describe_names(others))

    def _earlier(self, order: Order, versions: Sequence[ObjectVersion]) -> list[Job]:
        """Return the open jobs of objects that the addresses mean, but of other versions.

        Left by a run that ended early; the objects were replaced or deleted since.
        """
        config, jobs, current = order.config, self.ledger.jobs, set(versions)
        scope = KeyScope.of(config)
        means = match_missing(scope, order.addresses, (one.key for one in versions))
        # By id: between the two lists a job may change from one to the other.
        wanted: dict[str, None] = {}
        outside: dict[str, str] = {}
        for job in (job for state in OPEN for job in jobs.list(config.name, state)):
            if job.version in current or job.cluster != self.requests.cluster():
                continue
            if job.version.bucket != scope.bucket or not scope.holds(job.version.key):
                outside[job.id] = job.version.uri
            elif means(job.version.key):
                wanted[job.id] = None
        # Read again, because the index lags behind the items.
        known = (jobs.get(job_id) for job_id in wanted)
        store = self.objects.store(config, order.revision)
        found = [
            job
            for job in known
            # Current: it arrived since, or is not addressed.
            if job is not None and job.state.open and not is_current(store, job.version)
        ]
        # Each command that makes the connector reads something else.
        if outside and not isinstance(order, MadeOrder):
            self.control.notify(run_notes.describe_outside(config, outside))
        if found:
            self.control.notify(run_notes.describe_earlier(len(found)))
        return found

    def _require_meaning(
        self,
        config: ConnectorConfig,
        unmatched: Mapping[str, NothingMatches],
        earlier: Sequence[Job],
    ) -> None:
        """Raise for addresses that match no object, unless they mean one of `earlier` jobs."""
        scope = KeyScope.of(config)
        problems: list[str] = []
        for address, error in unmatched.items():
            means = match_missing(scope, [address] if address else [], ())
            if any(means(job.version.key) for job in earlier):
                continue
            problems += error.problems
            # Of an object that was removed, a job may be left that nothing can deliver.
            ended = (
                job
                for state in ENDED
                for job in self.ledger.jobs.list(config.name, state)
                if job.version.bucket == scope.bucket and means(job.version.key)
            )
            problems += (
                f"job {job.id} of {job.version.uri} is {job.state}; if the object was removed,"
                f" `extentflow dismiss {job.id}` closes it"
                for job in islice(ended, 1)
            )
        if problems:
            raise Misconfigured(problems)
