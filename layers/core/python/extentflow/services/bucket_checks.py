"""Whether a bucket takes what a planned stage adds to it: its creation, or notifications.

Tests: unit/services/test_account_checks.py
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from extentflow.services.aws_calls import AwsCalls
from extentflow.services.health import Finding
from extentflow.services.planned import PlannedBucket

OBJECT_CREATED = "s3:ObjectCreated:"
# The rules of a bucket by the kind of their target, and the name of the target's ARN.
TARGETS: Mapping[str, str] = {
    "QueueConfigurations": "QueueArn",
    "TopicConfigurations": "TopicArn",
    "LambdaFunctionConfigurations": "LambdaFunctionArn",
}


@dataclass(frozen=True)
class BucketChecks:
    """Checks buckets of a stage in `region`; `own` are the ids of what the stage has created."""

    region: str
    calls: AwsCalls
    own: frozenset[str]

    def examine(self, bucket: PlannedBucket) -> Iterator[Finding]:
        """Yield a finding about a bucket."""
        check = f"bucket {bucket.name}"
        if bucket.name in self.own:
            yield Finding(check, "ok", "of this stack")
            return
        if bucket.elsewhere:
            yield self._announced_elsewhere(check, bucket.name)
            return
        found = self._head(bucket.name)
        if found == "free":
            if bucket.exists:
                remedy = "create it, correct the name, or leave out exists=True"
                yield Finding(check, "problem", "it does not exist", remedy)
            else:
                yield Finding(check, "ok", "the name is free")
            return
        if found == "closed":
            remedy = (
                "allow s3:ListBucket on it"
                if bucket.exists
                else "choose another name; for a bucket of your company, write exists=True, and for"
                " one of another account also announced=ELSEWHERE and account"
            )
            fact = "it exists, and these credentials may not read it"
            yield Finding(check, "problem", fact, remedy)
            return
        if found == "elsewhere" or found.get("BucketRegion", self.region) != self.region:
            region = "another region" if found == "elsewhere" else found["BucketRegion"]
            fact = f"it is in {region}, the stage in {self.region}"
            yield Finding(check, "problem", fact, "deploy a stage in the bucket's region")
            return
        if not bucket.exists:
            yield Finding(check, "problem", "it exists already", "set exists=True for it")
            return
        yield self._notified(check, bucket)

    def _head(self, name: str) -> Any:  # noqa: ANN401 - JSON, or a word for an error's code
        codes = {"404": "free", "NoSuchBucket": "free", "403": "closed", "301": "elsewhere"}
        return self.calls.coded("s3", "head_bucket", codes, Bucket=name)

    def _announced_elsewhere(self, check: str, name: str) -> Finding:
        """Report a bucket of which the stack changes nothing; it may be of another account."""
        found = self._head(name)
        if found == "free":
            return Finding(check, "problem", "it does not exist", "create it, or correct the name")
        if found == "closed":
            fact = "it exists, and these credentials may not read it"
            remedy = "let its owner allow the roles of functions and Spark to list and read it"
            return Finding(check, "warning", fact, remedy)
        region = None if found == "elsewhere" else found.get("BucketRegion", self.region)
        if region != self.region:
            fact = f"it is in {region or 'another region'}, the stage in {self.region}"
            remedy = "let a rule of EventBridge there forward its events: S3 sends to its own only"
            return Finding(check, "warning", fact, remedy)
        return Finding(check, "ok", "it exists, in this region; others write its notifications")

    def _notified(self, check: str, bucket: PlannedBucket) -> Finding:
        if not bucket.prefixes:
            return Finding(check, "ok", "it exists, in this region")
        answer = self.calls.call("s3", "get_bucket_notification_configuration", Bucket=bucket.name)
        mine = {one.rpartition("/")[2] for one in self.own}
        others = [
            one.get("Id", kind)
            for kind, target in TARGETS.items()
            for one in answer.get(kind, ())
            if _overlaps(one, bucket.prefixes) and one[target].rpartition(":")[2] not in mine
        ]
        if not others:
            return Finding(check, "ok", "it exists, in this region; no rule of others overlaps")
        below = ", ".join(prefix or "any prefix" for prefix in bucket.prefixes)
        fact = f"it notifies others of new objects below {below}: {', '.join(others)}"
        remedy = "S3 refuses rules that overlap; use BucketNotification.EVENTBRIDGE"
        return Finding(check, "problem", fact, remedy)


def _overlaps(rule: Mapping[str, Any], prefixes: Iterable[str]) -> bool:
    """Whether S3 refuses rules for new objects below these prefixes beside this one.

    Rules overlap if an event is of both, and prefixes and suffixes may be of one key. The stage's
    rules have no suffix, which goes with every other.
    """
    if not any(event.startswith(OBJECT_CREATED) for event in rule["Events"]):
        return False
    filters = rule.get("Filter", {}).get("Key", {}).get("FilterRules", ())
    theirs = next((one["Value"] for one in filters if one["Name"].lower() == "prefix"), "")
    other = unquote_plus(theirs)
    return any(own.startswith(other) or other.startswith(own) for own in prefixes)
