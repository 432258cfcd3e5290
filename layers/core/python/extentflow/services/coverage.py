"""Jobs of other connectors that deliver an object to the topics of a made order.

The jobs decide: each pins a revision, and that says which topics it writes, of which bucket or
folder. The latest revision of their connector may say something else.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from extentflow.config.connector import ConnectorConfig
from extentflow.errors import Misconfigured
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.jobs.planner import Planner
from extentflow.ledger import ConnectorVersion, Ledger
from extentflow.model import Job, JobState, ObjectVersion
from extentflow.services import run_notes
from extentflow.services.places import meet, seen_by


@dataclass(slots=True)
class Coverage:
    """What jobs of other connectors deliver to the topics of one connector. Used by one thread.

    Knows the connectors of now, because another command may make one at any time. `notify` gets a
    line for each connector whose jobs may deliver records to these topics, depending on values.
    """

    config: ConnectorConfig
    ledger: Ledger
    connectors: ConnectorCatalogue
    planner: Planner
    notify: Callable[[str], object] = lambda _line: None
    _stored: list[ConnectorVersion] = field(default_factory=list)
    _others: list[ConnectorConfig] = field(default_factory=list)
    _read: dict[tuple[str, int], list[ConnectorConfig]] = field(default_factory=dict)
    _unclear: set[str] = field(default_factory=set)

    def jobs(self, version: ObjectVersion) -> Iterator[Job]:
        """Yield jobs that deliver an object to the topics, the newest of each connector first.

        But those first which are DONE: what a later delivery of the same content left undone is of
        no concern to this connector. `is_same` decides on each.
        """
        seen = ((other.name, seen_by(other, version)) for other in self.others())
        names = dict.fromkeys((name, found) for name, found in seen if found is not None)
        for name, found in names:
            delivered = self.planner.as_delivered(name, found)
            newest_first = self.planner.generations(name, delivered)[::-1]
            if not newest_first:
                continue

            def is_later(job: Job, newest: Job = newest_first[0]) -> bool:
                same = job.version.modified == newest.version.modified
                return not (same and job.state is JobState.DONE)

            yield from filter(self.is_same, sorted(newest_first, key=is_later))

    def others(self) -> list[ConnectorConfig]:
        """Return revisions of other connectors that read objects of this one, or may have."""
        now = list(self.ledger.connectors.list(deleted=True))
        if now != self._stored:
            self._stored = now
            self._others = [
                other
                for latest in now
                for other in self._revisions(latest)
                if meet(self.config, other)
            ]
        return self._others

    def _revisions(self, latest: ConnectorVersion) -> Iterator[ConnectorConfig]:
        if latest.name == self.config.name:
            return
        stored = self.ledger.connectors
        for number in range(1, latest.revision + 1):
            key = latest.name, number
            if key not in self._read:  # revisions never change
                version = latest if number == latest.revision else stored.get(*key)
                found = self.connectors.readable([version] if version else [])
                self._read[key] = [config for _, config in found]
            yield from self._read[key]

    def is_same(self, job: Job) -> bool:
        """Return whether a job delivers all records of its object to all topics of this connector.

        Where topics depend on values it is not known, so that the answer is no, with a line.
        """
        try:
            other = self.connectors.revision(job.connector, job.revision)
            version = seen_by(self.config, job.version)
            if version is None:
                return False
            # Each fills its topic with its own name of the object.
            ours, theirs = (
                set(one.written_topics(one.topic_for(named)))
                for one, named in ((self.config, version), (other, job.version))
            )
        except Misconfigured:  # another release stored it, or a topic is no name
            return False
        # An earlier revision may have read a bucket of that name on another server.
        if not ours & theirs or not meet(self.config, other):
            return False
        if self.config.value_topics or other.value_topics:
            if job.connector not in self._unclear:
                self._unclear.add(job.connector)
                self.notify(run_notes.describe_value_topics(job))
            return False
        return ours <= theirs
