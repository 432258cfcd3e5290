"""Which objects are announced: those below the prefixes of connectors, as patterns and filters.

connectors ──> prefixes of a bucket ──> patterns of EventBridge, one for many buckets
                                   └──> filters of S3, one for each prefix
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from .config import Bucket, BucketNotification, Unmatched
from .declared import DeclaredConnector

# A rule's pattern may have 2,048 characters, of which buckets and prefixes get these.
DETAIL_CHARACTERS, GROUP_CHARACTERS = 1_850, 1_750
# S3 takes these characters as they are in a filter. It wants others encoded, a space as `+`.
AS_THEY_ARE = "/!*'()"


@dataclass(frozen=True, slots=True)
class Announced:
    """A bucket, and the prefixes of which new objects are announced: none if no object is."""

    bucket: Bucket
    prefixes: tuple[str, ...]

    @property
    def by_events(self) -> bool:
        """Whether EventBridge announces objects."""
        return bool(self.prefixes) and self.bucket.announced is not BucketNotification.DIRECT

    @property
    def directly(self) -> bool:
        """Whether S3 itself sends to the queue."""
        return bool(self.prefixes) and self.bucket.announced is not BucketNotification.EVENTBRIDGE


def announced(
    buckets: Iterable[Bucket], connectors: Sequence[DeclaredConnector], unmatched: Unmatched
) -> tuple[Announced, ...]:
    """Return what is announced of each bucket: all of it, where unmatched objects are reported."""
    everything = unmatched is Unmatched.DEAD_LETTER
    return tuple(
        Announced(one, ("",) if everything else prefixes(one.name, connectors)) for one in buckets
    )


def prefixes(bucket: str, connectors: Iterable[DeclaredConnector]) -> tuple[str, ...]:
    """Return the prefixes that connectors read, without those within another one.

    S3 rejects filters of which one is within another, and a second rule would announce twice.
    """
    found: list[str] = []
    for prefix in sorted(
        one.checked.listed_prefix
        for one in connectors
        if one.of_aws and one.checked.bucket == bucket
    ):
        if not found or not prefix.startswith(found[-1]):
            found.append(prefix)
    return tuple(found)


def filter_value(prefix: str) -> str:
    """Return a prefix as S3's filters of notifications want it."""
    return quote_plus(prefix, safe=AS_THEY_ARE)


def patterns(found: Iterable[Announced]) -> Iterator[dict[str, Any]]:
    """Yield patterns for the `detail` of events, which together match each object once."""
    names: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        names.setdefault(one.prefixes, []).append(one.bucket.name)
    entries: list[dict[str, Any]] = []
    for each in (part for keys, those in names.items() for part in _entries(those, keys)):
        if entries and _characters([*entries, each]) > DETAIL_CHARACTERS:
            yield _either(entries)
            entries = []
        entries.append(each)
    if entries:
        yield _either(entries)


def _entries(names: Sequence[str], keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield entries that together match each pair of name and key once, and each fit a pattern."""
    if keys == ("",):
        yield from ({"bucket": {"name": some}} for some in _filled(names))
        return
    for part in _filled([{"prefix": key} for key in keys], beside=names[:1]):
        for some in _filled(names, beside=part):
            yield {"bucket": {"name": some}, "object": {"key": part}}


def _filled(values: Iterable[Any], *, beside: Sequence[Any] = ()) -> Iterator[list[Any]]:
    """Yield the values in groups, each of which fits into a pattern beside what is there."""
    group: list[Any] = []
    for value in values:
        if group and _characters([*beside, *group, value]) > GROUP_CHARACTERS:
            yield group
            group = []
        group.append(value)
    if group:
        yield group


def _either(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return entries[0] if len(entries) == 1 else {"$or": list(entries)}


def _characters(values: Sequence[Any]) -> int:
    return len(json.dumps(values, separators=(",", ":")))
