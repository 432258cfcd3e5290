"""Equal bytes that are uploaded again under their key, where `after.completion` changes objects.

bucket with versions      each upload is a version: of its own job DONE once, then deleted or moved;
                          with `tag`, those that no listing saw in time stay as they are
bucket without versions   the last upload is gone only if a job delivered it, or one of its second

Tests: unit/faults/test_comparison.py
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from extentflow.model import Job, JobState

if TYPE_CHECKING:
    from tests.faults.lanes import Lane, Version

ACTION, MOVED, TAG = "after.completion", "after.completion.move.prefix", "after.completion.tag"
TAGGED = {ACTION: "tag", TAG: "delivered=yes"}
# Past all suspensions and delays of requests: a deletion that compared before has ended.
ABSENT_SECONDS = 10.0


@dataclass
class Repeats:
    """The uploads of one lane. `unproven`: keys whose last upload may have met a deletion.

    A server compares no times when it deletes, so that in a bucket without versions an upload of
    equal bytes between the comparison and the deletion goes (docs/operations.md).
    """

    lane: "Lane"
    versioned: bool
    began: dict[str, float] = field(default_factory=dict)
    unproven: set[str] = field(default_factory=set)
    absent: dict[str, float] = field(default_factory=dict)

    @property
    def action(self) -> str:
        """What happens to delivered objects."""
        return self.lane.kind.config[ACTION]

    def again(self, random: Random) -> "Version | None":
        """Upload an object's bytes again; None where this would prove nothing."""
        found = self.lane.current()
        if not found:
            return None
        version = random.choice(found)
        key, job = version.upload.version.key, self._last_job(version)
        is_open = job is not None and job.state.open
        if not self.versioned and not is_open and not self._is_long_absent(key):
            return None
        at = time.time()
        made = self.lane.put(version.written, over=version)
        self.began[key] = at
        self.absent.pop(key, None)
        job = self._last_job(version)
        if is_open and (job is None or not job.state.open):
            self.unproven.add(key)
        else:
            self.unproven.discard(key)
        return made

    def unsettled(self) -> list[str]:
        """Return what is not final yet: open jobs, and objects that nothing was done to."""
        found = [
            f"{job.version.uri} job {job.id} is {job.state}: {job.reason}"
            for job in self.lane.jobs()
            if job.state is not JobState.DONE
        ]
        if self.action == "tag":
            return found + [
                f"{one.upload.version.uri} is not tagged"
                for one in self.lane.current()
                if not self._is_tagged(one)
            ]
        return found + [f"{uri} is still there" for uri in self._left()]

    def lost(self) -> list[str]:
        """Return the uploads that are gone and were not delivered, once all is settled."""
        found = []
        for version in self.lane.uploads():
            if self.versioned:
                if not self._is_covered(version):
                    found.append(f"{version.upload.version.uri} has no job that is DONE")
            elif not version.gone and not self._is_in_time(version):
                found.append(f"{version.upload.version.uri}: its last upload was not delivered")
            if self.action == "move" and self._moved(version) != version.written.body:
                found.append(f"{version.upload.version.uri} was moved with other bytes, or not")
        return found

    def jobs(self, version: "Version") -> list[Job]:
        """Return the jobs of all uploads of a key."""
        key = version.upload.version.key
        return [job for job in self.lane.jobs() if job.version.key == key]

    def _last_job(self, version: "Version") -> Job | None:
        if self.versioned:
            return self.lane.job(version)
        return max(self.jobs(version), key=lambda job: job.generation, default=None)

    def _is_long_absent(self, key: str) -> bool:
        if self._head(key):
            self.absent.pop(key, None)
            return False
        first = self.absent.setdefault(key, time.monotonic())
        return time.monotonic() - first > ABSENT_SECONDS

    def _is_in_time(self, version: "Version") -> bool:
        key = version.upload.version.key
        if key in self.unproven or key not in self.began:
            return True
        read = [one.version.modified for one in _done(self.jobs(version))]
        return max(read, default=0) >= int(self.began[key])

    def _is_covered(self, version: "Version") -> bool:
        job = self.lane.job(version)
        if job is not None:
            return job.state is JobState.DONE
        # No listing saw it, and it stays: nothing removes what lies below.
        return self.action == "tag" and version.gone

    def _is_tagged(self, version: "Version") -> bool:
        pin = version.upload.version
        tags = self.lane.servers.s3.get_object_tagging(
            Bucket=pin.bucket, Key=pin.key, VersionId=pin.version_id or "null"
        )
        return {"Key": "delivered", "Value": "yes"} in tags["TagSet"]

    def _head(self, key: str) -> bool:
        try:
            self.lane.servers.s3.head_object(Bucket=self.lane.delivery.bucket, Key=key)
        except ClientError as exc:
            if exc.response["Error"]["Code"] == "404":
                return False
            raise
        return True

    def _left(self) -> list[str]:
        """Return what is still below the prefix, older versions included."""
        s3, place = self.lane.servers.s3, self.lane.delivery
        if not self.versioned:
            listed = s3.list_objects_v2(Bucket=place.bucket, Prefix=place.prefix)
            return [one["Key"] for one in listed.get("Contents", [])]
        versions = s3.list_object_versions(Bucket=place.bucket, Prefix=place.prefix)
        return [f"{one['Key']}?{one['VersionId']}" for one in versions.get("Versions", [])]

    def _moved(self, version: "Version") -> bytes:
        place = self.lane.delivery
        label = version.upload.version.key.removeprefix(place.prefix)
        key = f"{self.lane.kind.config[MOVED]}{label}"
        try:
            found = self.lane.servers.s3.get_object(Bucket=place.bucket, Key=key)
        except ClientError as exc:
            if exc.response["Error"]["Code"] == "NoSuchKey":
                return b""
            raise
        return found["Body"].read()


def _done(jobs: Iterable[Job]) -> list[Job]:
    return [job for job in jobs if job.state is JobState.DONE]
