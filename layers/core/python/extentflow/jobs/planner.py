"""Register jobs for pinned object versions and cut them into extents.

A plan's parameters are stored with the job and never recomputed, so that every engine, today or
after a crash, cuts the same version the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from extentflow.config.connector import MIN_EXTENT_BYTES
from extentflow.errors import (
    Conflict,
    CorruptRecord,
    Misconfigured,
    ObjectChanged,
    Permanent,
    TooManyExtents,
    UnsupportedFormat,
    reason,
)
from extentflow.formats import Format, InspectingFormat
from extentflow.jobs import contents
from extentflow.jobs.contents import is_file
from extentflow.ledger import Ledger, rules
from extentflow.model import Extent, ExtentState, Job, JobState, ObjectVersion, Plan, job_id
from extentflow.retry import Clock
from extentflow.storage import RangeSource
from extentflow.wording import again_command

TEXT_EXTENT_BYTES = 64 << 20
MAX_TEXT_EXTENTS = 10_000
MAX_EXTENTS = 1_000_000
MAX_GENERATIONS = 10_000
UNKNOWN_FORMAT = "unknown"
# Why a job is CANCELLED whose next generation is registered in a moment.
AGAIN_BEGAN = "`run --again` delivers the object from its start"
# How the reason ends why a job is SUPERSEDED by one of another connector.
OTHERS_DELIVER = "delivers the object to this topic"
OTHER_CONTENT = "the file was written again, with the same size and modification time"
PAGE_EXTENTS = 100  # sent together, one cursor update per page

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The parameters of a new job: connector revision, object version, destination and content.

    `extent_bytes` None is `auto`; `cores` bounds the fewest extents from below. `unfit` says why no
    job can deliver the object; UNKNOWN_FORMAT is among the reasons. `others` returns the jobs of
    other connectors, as of now, that deliver the object to the same topics.
    `alike` says whether another revision of the connector has the same settings. `removed`: the
    connector removes delivered objects, so that an upload of equal bytes is another delivery.
    `changed`: the file has other content than the jobs of its version read, see `contents`.
    """

    connector: str
    revision: int
    version: ObjectVersion
    format: str
    cluster: str
    ordered: bool = False
    extent_bytes: int | None = None
    cores: int = 1
    unfit: str = ""
    compression: str = ""
    most_bad: int = -1
    removed: bool = False
    changed: bool = False
    others: Callable[[], Iterable[Job]] = tuple
    alike: Callable[[int], bool] = lambda _revision: False

    def same_settings(self, job: Job) -> bool:
        """Return whether a job has the settings of this request."""
        return job.revision == self.revision or self.alike(job.revision)

    def is_later_than(self, job: Job) -> bool:
        """Return whether the object was uploaded again, with equal bytes, since a job delivered it.

        Where objects stay, such an upload changes nothing, and is not delivered again.
        """
        if self.changed:
            return is_other_upload(job, self.version)
        return self.removed and job.state is JobState.DONE and is_other_upload(job, self.version)


def target_bytes(fmt: Format, size: int, *, extent_bytes: int | None, cores: int) -> int:
    """Return the extent size that `extent.bytes` resolves to for an object of `size` bytes.

    `auto` is max(64 MiB, size / 10,000) for text and 32 MiB for columnar formats, smaller where
    the object would otherwise have fewer extents than cores, never below 1 MiB.
    """
    if extent_bytes is not None:
        return extent_bytes
    usual = fmt.extent_bytes or max(TEXT_EXTENT_BYTES, -(-size // MAX_TEXT_EXTENTS))
    return min(usual, max(MIN_EXTENT_BYTES, -(-size // max(1, cores))))


def is_other_upload(job: Job, version: ObjectVersion) -> bool:
    """Return whether an object has the bytes of a job's version, and is known to be later.

    Buckets with versions have another version for each upload.
    """
    read = job.version
    return read == version and 0 < read.modified != version.modified > 0


def following_id(job: Job) -> str:
    """Return the id of the job that delivers the same version after this one."""
    return job_id(job.connector, job.version, job.generation + 1)


def is_followed(ledger: Ledger, job: Job) -> bool:
    """Return whether a later job delivers the same version of the object."""
    return ledger.jobs.get(following_id(job)) is not None


def check_cluster(job: Job, cluster: str) -> None:
    """Raise Conflict, with both clusters, for a job whose progress another Kafka cluster holds."""
    if job.cluster != cluster:
        raise Conflict(
            f"{job.version.uri}: job {job.id} delivers to Kafka cluster {job.cluster}, and "
            f"bootstrap.servers leads to {cluster}; point it at the job's cluster, or deliver to "
            "this one with a connector of another name"
        )


@dataclass(frozen=True, slots=True)
class Planner:
    """Registers jobs and cuts them. `open` returns a job's format and pinned source."""

    ledger: Ledger
    open: Callable[[Job], tuple[Format, RangeSource]]
    clock: Clock

    def register(
        self, request: JobRequest, *, again: float | None = None, failed: bool = False
    ) -> Job:
        """Return the job of this object version under this connector, new or existing.

        Of several generations the newest counts. A SUPERSEDED job (object A, then B, then A again)
        is resumed, because its version is the current one again. One that failed before anything of
        it was planned is followed by the next under another revision of the connector. A DONE one
        is followed where the request is for a later upload.

        `again` registers the next generation, a full second delivery, and cancels open ones before
        it. It is the time of the ledger when that delivery began: a generation since then under
        this revision belongs to it and is returned, so that an interrupted `--again` continues.

        `failed` also delivers an object whose job is FAILED, or CANCELLED by `stop`. Under the same
        settings that job continues; under others the next generation delivers all of the object.

        Raises:
            Conflict: the job exists and belongs to another Kafka cluster.
            TooManyExtents: a new job would have more than MAX_EXTENTS extents.
            UnsupportedFormat: no format reads the object as its connector is configured.
        """

        def make(generation: int) -> Job:
            job = self._new(request, generation, known=self._job_of)
            if (problem := self._too_many(job)) and self.ledger.jobs.get(job.id) is None:
                raise TooManyExtents(problem)
            return job

        return self._registered(request, make, again=again, failed=failed)

    def admit(
        self, request: JobRequest, *, again: float | None = None, failed: bool = False
    ) -> Job:
        """Register as `register`; an object that cannot be cut gets a FAILED job with the reason.

        So the other objects of a run proceed, and `status` and `replay` find this one. A job that
        is under way, or that another revision of the connector began, is returned as it stands.
        Of an object without a job, that of the first of `others` is returned which has begun one.
        """
        if again is None:
            request = self.resolved(request)
            if elsewhere := self._of_others(request):
                return elsewhere
        try:
            found = self.register(request, again=again, failed=failed)
            self._store_content(request, found)
            return found if again is not None else self._unless_others(request, found)
        except (UnsupportedFormat, TooManyExtents) as exc:
            why = reason(exc)
        plan = Plan(target_bytes=request.extent_bytes or TEXT_EXTENT_BYTES)
        found = self._registered(
            request,
            lambda number: self._draft(request, number, plan),
            again=again,
            failed=failed,
        )
        same = request.same_settings(found) and found.format == request.format
        if not same or found.state is not JobState.PLANNING:
            return found
        return self.ledger.jobs.end(found.id, JobState.FAILED, why)

    def dry_run(self, request: JobRequest) -> tuple[Job, list[Extent]]:
        """Return what `register` and `plan` would make, and raise as these; nothing is stored."""
        job = self._new(request, 0)
        if problem := self._too_many(job):
            raise TooManyExtents(problem)
        return job, list(self.extents(job))

    def newest(self, request: JobRequest) -> Job | None:
        """Return the existing job that `admit` would return; None where there is none."""
        request = self.resolved(request, store=False)
        own = self.newest_of(request.connector, request.version)
        if own and request.is_later_than(own):
            return None
        return own if _counts(own) else self._begun_by_others(request) or own

    def resolved(self, request: JobRequest, *, store: bool = True) -> JobRequest:
        """Return the request for a file by its content, which inode and times do not prove.

        A copy of a delivered file is requested as that one, and a file that was written again with
        its old time is `changed`. Without `store` the ledger stays as it is.
        """
        name, version, notes = request.connector, request.version, self.ledger.notes
        if not is_file(version):
            return request
        known = contents.recall(notes, name, version)
        if known is None or not contents.may_be_same(known, version):
            return self._unproven(request)
        if not known.is_of(version):
            digest = contents.digest_of(version, lambda: self._source(request))
            is_copy = version.etag != known.pin  # of which samples prove nothing
            if not (digest and known.digest) or (contents.is_sampled(digest) and is_copy):
                return self._unproven(request)
            if digest != known.digest:
                return replace(request, changed=True)
            if contents.is_sampled(digest):
                contents.warn_sampled(version, name)
            if store:
                contents.remember(notes, name, version, known)
        as_delivered = replace(version, etag=known.delivered)
        delivered = self.newest_of(name, as_delivered)
        # What is left of a job is read as it pins the file, which is no more.
        if delivered is None or delivered.state is not JobState.DONE:
            return request
        return replace(request, version=as_delivered)

    def _unproven(self, request: JobRequest) -> JobRequest:
        """Return the request for a file whose content is not known; warn if it was touched."""
        newest = self.newest_of(request.connector, request.version)
        if newest and contents.is_touched(newest, request.version):
            contents.warn_unknown(newest)
        return request

    def as_delivered(self, connector: str, version: ObjectVersion) -> ObjectVersion:
        """Return a file as a connector's jobs have it, where it is a copy of what they read."""
        known = contents.recall(self.ledger.notes, connector, version) if is_file(version) else None
        if known is None or known.delivered == version.etag:
            return version
        job = self.newest_of(connector, replace(version, etag=known.delivered))
        return job.version if job is not None and self.is_copy(job, version) else version

    def is_copy(self, job: Job, version: ObjectVersion) -> bool:
        """Return whether a file has the content of another one in its place, which a job read."""
        if not is_file(version) or job.version.etag == version.etag:
            return False
        request = JobRequest(job.connector, job.revision, version, job.format, job.cluster)
        return self.resolved(request).version == job.version

    def _store_content(self, request: JobRequest, job: Job) -> None:
        """Store the digest of a file when its job is new."""
        version = request.version
        new = job.state is JobState.PLANNING and not job.plan.count and job.version == version
        if not (new and is_file(version)):
            return
        known = contents.recall(self.ledger.notes, request.connector, version)
        if known is not None and known.is_of(version):
            contents.register(self.ledger.notes, request.connector, version, known)
            return
        digest = contents.digest_of(version, lambda: self._source(request))
        found = contents.StoredContent(version.etag, version.modified, digest, version.etag)
        contents.register(self.ledger.notes, request.connector, version, found)

    def _source(self, request: JobRequest) -> RangeSource:
        return self.open(self._draft(request, 0, Plan(target_bytes=0)))[1]

    def generations(self, connector: str, version: ObjectVersion) -> list[Job]:
        """Return the jobs of an object version under a connector, the first one first."""
        found: list[Job] = []
        while job := self.ledger.jobs.get(job_id(connector, version, len(found))):
            found.append(job)
        return found

    def newest_of(self, connector: str, version: ObjectVersion) -> Job | None:
        """Return the newest job of an object version under a connector."""
        first = self.ledger.jobs.get(job_id(connector, version, 0))
        return first and self._newest(first)

    def later(self, job: Job) -> Job | None:
        """Return the newest job that delivers the same version after this one, if any."""
        newest = self.newest_of(job.connector, job.version)
        return newest if newest and newest.generation > job.generation else None

    def delivered(
        self, connector: str, versions: Sequence[ObjectVersion], *, removed: bool = False
    ) -> dict[ObjectVersion, Job]:
        """Return the newest jobs of those versions whose newest job is DONE.

        With `removed` not of objects that were uploaded again since, see `JobRequest`. Few requests
        for many versions. What was registered or ended just now may be missing.
        """
        newest: dict[ObjectVersion, Job] = {}
        asked, generation = list(versions), 0
        while asked:
            ids = {job_id(connector, version, generation): version for version in asked}
            found = {ids[job.id]: job for job in self.ledger.jobs.get_many(ids)}
            newest |= found
            asked = [version for version, job in found.items() if not job.state.open]
            generation += 1
        done = {v: job for v, job in newest.items() if job.state is JobState.DONE}
        if removed:
            done = {v: job for v, job in done.items() if not is_other_upload(job, v)}
        notes = self.ledger.notes
        return {
            v: job
            for v, job in done.items()
            # A file that was touched since is looked at; see `resolved`.
            if not contents.is_touched(job, v) or contents.is_seen(notes, connector, v)
        }

    def is_followed(self, job: Job) -> bool:
        """Return whether a later job delivers the same version of the object."""
        return is_followed(self.ledger, job)

    def is_complete(self, job: Job) -> bool:
        """Return whether a CANCELLED job has delivered everything, as its last extents ended."""
        planned = job.state is JobState.CANCELLED and job.plan.cursor >= job.version.size
        return planned and self.ledger.jobs.progress(job.id).done == job.plan.count > 0

    def plan(
        self,
        job: Job,
        *,
        send: Callable[[Sequence[Extent]], None] | None = None,
        late: Callable[[], bool] = lambda: False,
    ) -> Job:
        """Finish a PLANNING job's plan; any other job is returned as it is.

        `send` is given the extents in pages, from the plan's cursor on; the cursor moves when it
        returned, so that a planner that dies sends at most one page twice. `late` is called after
        every page: True leaves the job PLANNING, and the next call continues there.

        A job that ends meanwhile is returned as it is, and nothing more is sent. A plan that fails
        for good ends the job FAILED with the reason; `replay` plans it again.

        Raises Misconfigured if another version of the format began to cut the object.
        """
        if job.state is not JobState.PLANNING:
            return job
        try:
            if problem := self._too_many(job):  # a refused job that is replayed
                return self.ledger.jobs.end(job.id, JobState.FAILED, problem)
            cut = self.open(job)[0].cut_version
            count, covered, size = 0, 0, job.version.size
            for page in in_pages(self.extents(job), PAGE_EXTENTS):
                count = page[-1].ordinal + 1
                covered += sum(extent.end - extent.start for extent in page)
                if send is None or count <= job.plan.count:
                    continue
                send([extent for extent in page if extent.ordinal >= job.plan.count])
                if len(page) < PAGE_EXTENTS:
                    break  # the last one: the plan is complete
                now = self.ledger.jobs.plan(
                    job.id, count=count, cursor=page[-1].end, complete=False, cut_version=cut
                )
                _check_cut(now, cut)
                # Ended meanwhile, or planned to the end by another planner: workers send the rest.
                if now.state is not JobState.PLANNING or late():
                    return now
            if covered != size:
                raise Conflict(
                    f"{job.version.uri}: format {job.format} cuts {covered} of {size} bytes into "
                    "extents; report this as a defect of the format"
                )
        except ObjectChanged as exc:
            return self.ledger.jobs.end(job.id, JobState.SUPERSEDED, reason(exc))
        except (Permanent, CorruptRecord) as exc:
            return self.ledger.jobs.end(job.id, JobState.FAILED, reason(exc))
        now = self.ledger.jobs.plan(
            job.id, count=count, cursor=size, complete=True, covered=covered, cut_version=cut
        )
        _check_cut(now, cut)
        return self.ledger.jobs.close(job.id)

    def extents(self, job: Job) -> Iterator[Extent]:
        """Yield all extents of a job, in order, from its stored parameters. Raises as `plan`."""
        fmt, source = self.open(job)
        _check_cut(job, fmt.cut_version)
        for ordinal, (start, end) in enumerate(fmt.plan(source, job.plan.target_bytes)):
            yield job.extent(ordinal, start, end)

    def pending(self, job: Job) -> Iterator[Extent]:
        """Yield the extents of a job that are not final yet, in constant memory."""
        items = self.ledger.extents.list(job.id)
        final = (item.ordinal for item in items if item.state.final)
        next_final = next(final, math.inf)
        for extent in self.extents(job):
            # Both are in the order of ordinals.
            while next_final < extent.ordinal:
                next_final = next(final, math.inf)
            if extent.ordinal != next_final:
                yield extent

    def replay(
        self, job: Job, *, ordinal: int | None = None, accept_duplicates: bool = False
    ) -> Job:
        """Make failed extents (or one) pending again and their job open; positions are kept.

        Raises:
            ProgressUnknown: an extent's progress is unknown and duplicates are not accepted; the
                job stays as it is.
            Misconfigured: extent `ordinal` is not FAILED.
        """
        items = self.ledger.extents.list(job.id)
        failed = [item for item in items if item.state is ExtentState.FAILED]
        wanted = [item for item in failed if ordinal in (None, item.ordinal)]
        if ordinal is not None and not wanted:
            raise Misconfigured(
                f"extent {ordinal} of job {job.id} is not FAILED; "
                f"`extentflow status {job.id}` shows the extents that are"
            )
        for item in wanted:
            rules.check_replay(item, accept_duplicates=accept_duplicates)
        job = self.ledger.jobs.resume(job.id, accept_duplicates=accept_duplicates)
        for item in wanted:
            self.ledger.extents.reopen(job.id, item.ordinal, accept_duplicates=accept_duplicates)
        return self.ledger.jobs.get(job.id) or job

    def _registered(
        self,
        request: JobRequest,
        make: Callable[[int], Job],
        *,
        again: float | None,
        failed: bool,
    ) -> Job:
        """Register the job that `make` returns for a generation, as `register`."""
        if again is not None:
            # Belongs to its delivery even where the estimate of the ledger's time went back.
            created = max(self.ledger.now(), 0.0 if again == math.inf else again)
            while True:
                generation, before = self._generation(request, again)
                job = replace(make(generation), created=created)
                if begun := self._begun(job, before):
                    return self._usable(request, begun)
        generation, before = 0, None
        while True:
            begun = self._begun(make(generation), before)
            if begun is None:  # another command changed the generation before: from the start
                generation, before = 0, None
                continue
            found = self._usable(request, self._newest(begun))
            if request.is_later_than(found):
                generation, before = found.generation + 1, self._ended(found)
                continue
            stopped = found.state is JobState.CANCELLED and found.reason != AGAIN_BEGAN
            if found.state is not JobState.FAILED and not (failed and stopped):
                return found
            if request.same_settings(found) or self.is_complete(found):
                return self.replay(found) if failed else found
            if found.plan.count and not failed:
                return found
            generation, before = found.generation + 1, found

    def _ended(self, job: Job) -> Job:
        """Return a job, ended where it is open, whose file has other content by now."""
        return self.ledger.jobs.end(job.id, JobState.SUPERSEDED, OTHER_CONTENT)

    def _begun(self, job: Job, before: Job | None) -> Job | None:
        """Register a generation behind the one before; None if that changed since it was read."""
        jobs = self.ledger.jobs
        return jobs.register(job) if before is None else jobs.follow(before, job)

    def _of_others(self, request: JobRequest) -> Job | None:
        """Return the job of another connector that delivers the object to this cluster."""
        found = self._begun_by_others(request)
        if found is None or _counts(self.newest_of(request.connector, request.version)):
            return None
        return self._usable(request, found)

    def _begun_by_others(self, request: JobRequest) -> Job | None:
        for found in request.others():
            counts = _counts(found) and found.cluster == request.cluster
            later = request.is_later_than(found) or self._is_rewritten(request, found)
            if counts and not later:
                return found
        return None

    def _is_rewritten(self, request: JobRequest, job: Job) -> bool:
        """Return whether a file has other content than another connector's job read."""
        version = request.version
        if not contents.is_touched(job, version):
            return False
        theirs = replace(job.version, modified=version.modified)
        known = contents.recall(self.ledger.notes, job.connector, theirs)
        if known is None or not known.digest:
            contents.warn_unknown(job)
            return False
        if known.is_of(version):
            return False
        return contents.digest_of(version, lambda: self._source(request)) != known.digest

    def _unless_others(self, request: JobRequest, job: Job) -> Job:
        """Return a registered job, or another connector's that was registered at the same time.

        Each of two commands registers before it looks, so that at least one of them finds the
        other's job and ends its own, of which nothing was delivered.
        """
        if job.plan.count or job.state is not JobState.PLANNING:
            return job
        other = self._begun_by_others(request)
        if other is None:
            return job
        why = f"job {other.id} of connector {other.connector} {OTHERS_DELIVER}"
        self.ledger.jobs.end(job.id, JobState.SUPERSEDED, why)
        return other

    def _usable(self, request: JobRequest, found: Job) -> Job:
        """Return a registered job, resumed where it is SUPERSEDED. Raises Conflict."""
        check_cluster(found, request.cluster)
        return self.replay(found) if found.state is JobState.SUPERSEDED else found

    def _new(
        self,
        request: JobRequest,
        generation: int,
        known: Callable[[JobRequest, int], Job | None] = lambda _request, _generation: None,
    ) -> Job:
        if request.unfit:
            raise UnsupportedFormat(request.unfit)
        job = self._draft(request, generation, Plan(target_bytes=0))
        fmt, source = self.open(job)
        if isinstance(fmt, InspectingFormat):
            # Objects are found again and again; what was registered keeps what it pins.
            if registered := known(request, generation):
                return registered
            job = replace(job, plan=replace(job.plan, facts=_inspected(fmt, source)))
            fmt, _ = self.open(job)
        target = target_bytes(
            fmt, request.version.size, extent_bytes=request.extent_bytes, cores=request.cores
        )
        return replace(
            job, plan=replace(job.plan, target_bytes=target, cut_version=fmt.cut_version)
        )

    def _draft(self, request: JobRequest, generation: int, plan: Plan) -> Job:
        return Job(
            id=job_id(request.connector, request.version, generation),
            connector=request.connector,
            revision=request.revision,
            version=request.version,
            format=request.format,
            cluster=request.cluster,
            plan=replace(plan, compression=request.compression),
            generation=generation,
            ordered=request.ordered,
            most_bad=request.most_bad,
        )

    def _too_many(self, job: Job) -> str | None:
        """Return what is wrong with a plan of more than MAX_EXTENTS extents, with the remedy.

        Computed from sizes, as counting takes too long. Rows bound the extents of row formats.
        """
        fmt, _ = self.open(job)
        size, target = job.version.size, max(1, job.plan.target_bytes)
        count = -(-size // target)
        if count <= MAX_EXTENTS or not fmt.splittable or fmt.extent_bytes is not None:
            return None
        return (
            f"{job.version.uri} has {size} bytes: extent.bytes={target} of connector "
            f"{job.connector} makes {count:,} extents, and a job has at most {MAX_EXTENTS:,}; set "
            f"extent.bytes to {-(-size // MAX_EXTENTS)} or more, or to auto"
        )

    def _newest(self, found: Job) -> Job:
        """Return the newest generation of an object's job; an open one has no later one."""
        while not found.state.open:
            later = self.ledger.jobs.get(following_id(found))
            if later is None:
                break
            found = later
        return found

    def _job_of(self, request: JobRequest, generation: int) -> Job | None:
        return self.ledger.jobs.get(job_id(request.connector, request.version, generation))

    def second_delivery(self, request: JobRequest, since: float) -> tuple[Job | None, list[Job]]:
        """Return the job that `register` continues with `again`, if any, and those before it.

        A job under the same revision is continued where `since` says that it belongs to this
        delivery, and while it is open unless it is the first one. Without one, the next generation
        delivers the object from its start. Nothing is stored.
        """
        earlier: list[Job] = []
        while len(earlier) < MAX_GENERATIONS:
            found = self._job_of(request, len(earlier))
            if found is None or (
                request.same_settings(found)
                and (found.created >= since or (earlier and found.state.open))
            ):
                return found, earlier
            earlier.append(found)
        uri = request.version.uri
        raise Conflict(f"{uri} already has {MAX_GENERATIONS} generations, the maximum")

    def _generation(self, request: JobRequest, since: float) -> tuple[int, Job | None]:
        """Return the generation of a delivery that began at `since`, and the job before it.

        Older open ones are cancelled before the next is registered: an object has at most one open
        generation.
        """
        _, earlier = self.second_delivery(request, since)
        before: Job | None = None
        for job in earlier:
            before = job
            if job.state.open:
                before = self.ledger.jobs.end(job.id, JobState.CANCELLED, AGAIN_BEGAN)
        return len(earlier), before


def _counts(job: Job | None) -> bool:
    """Whether an object is delivered by a job: not one that ended before it was planned."""
    if job is None:
        return False
    return bool(job.plan.count) or job.state not in {JobState.FAILED, JobState.SUPERSEDED}


def _inspected(fmt: InspectingFormat, source: RangeSource) -> str:
    try:
        return fmt.inspect(source)
    except ObjectChanged:
        return ""  # its extents end the job as SUPERSEDED
    except (Permanent, CorruptRecord) as exc:
        raise UnsupportedFormat(reason(exc)) from exc


def _check_cut(job: Job, cut_version: int) -> None:
    if job.plan.count and job.plan.cut_version != cut_version:
        raise Misconfigured(
            f"{job.version.uri}: job {job.id} was cut by version {job.plan.cut_version} of format "
            f"{job.format}, here is version {cut_version}; finish the job with the "
            "release that began it, or deliver the object with "
            f"{again_command(job.version.address, job.connector)}"
        )


def in_pages(items: Iterable[T], count: int) -> Iterator[list[T]]:
    """Yield the items in lists of `count`; the last one may be shorter, none is empty."""
    rest = iter(items)
    while page := list(islice(rest, count)):
        yield page
