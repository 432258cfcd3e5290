"""Places that connectors read: services, buckets, folders and prefixes, and which of them overlap.

Tests: unit/services/test_orders.py, unit/services/test_connectors.py
"""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import urlsplit

from extentflow.aws import configured_endpoint
from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE
from extentflow.ledger import ConnectorVersion
from extentflow.model import ObjectVersion

DEFAULT_PORTS = {"http": 80, "https": 443}
# Buckets of AWS have one owner in all regions of a partition; others than the usual one stay apart.
AWS_HOST = re.compile(r"s3([.-](?!us-gov|us-iso|cn-)[a-z0-9-]+)*\.amazonaws\.com")

# A connector as the ledger stores it, and as it is parsed; see `ConnectorCatalogue.readable`.
StoredPair: TypeAlias = tuple[ConnectorVersion, ConnectorConfig]


def described_source(settings: Mapping[str, str]) -> str:
    """Return the address that a connector of these settings reads.

    Of the text, because a revision that another release stored may no longer parse.
    """
    only = settings.get("object.key")
    bucket = settings.get("aws.s3.bucket.name") or settings.get("s3.bucket.name")
    if bucket is None:
        return f"file://{settings.get('directory', '')}{f'/{only}' if only else ''}"
    prefix = only or settings.get("aws.s3.prefix") or settings.get("directory") or ""
    return f"s3://{bucket}/{prefix}"


def described_command(settings: Mapping[str, str]) -> str:
    """Return the command that makes a connector of these settings, or one that delivers the same.

    What it gave by --set is left out.
    """
    words = ("extentflow", "run", described_source(settings), "--topic", settings.get("topic", ""))
    return f"`{shlex.join(words)}`"


def service_of(config: ConnectorConfig) -> str:
    """Return which service holds a connector's bucket, whatever its spelling; "" is AWS."""
    if config.endpoint_type == LOCAL_FILE:
        return LOCAL_FILE
    endpoint = config.endpoint or configured_endpoint("s3")
    if not endpoint:
        return ""
    parts = urlsplit(endpoint)
    host = (parts.hostname or "").rstrip(".")
    if AWS_HOST.fullmatch(host):
        return ""
    shown = f"[{host}]" if ":" in host else host
    port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    return f"{parts.scheme}://{shown}:{port}{parts.path.rstrip('/')}"


def overlapping(
    config: ConnectorConfig, stored: Iterable[StoredPair], places: Collection[str] = ()
) -> Iterator[StoredPair]:
    """Yield other connectors that read some of the same objects into the same topic.

    `places` are what the objects' addresses begin with, without a scheme; without any, all that
    `config` reads.
    """
    places = places or (place_of(config),)
    for version, other in _into_same_topic(config, stored):
        theirs = place_of(other)
        if any(theirs.startswith(one) or one.startswith(theirs) for one in places):
            yield version, other


def meet(one: ConnectorConfig, other: ConnectorConfig) -> bool:
    """Return whether two connectors have a bucket in common, or one's folder is in the other's."""
    if service_of(one) != service_of(other):
        return False
    ours, theirs = _root(one), _root(other)
    return theirs.startswith(ours) or ours.startswith(theirs)


def seen_by(other: ConnectorConfig, version: ObjectVersion) -> ObjectVersion | None:
    """Return an object as another connector names it; None where that reads other places only."""
    if other.endpoint_type != LOCAL_FILE:
        return version if version.bucket == other.bucket else None
    root, path = _root(other), os.path.realpath(version.bucket).rstrip("/") + f"/{version.key}"
    key = path.removeprefix(root)
    return replace(version, bucket=other.bucket, key=key) if key != path else None


def same_objects(one: ConnectorConfig, other: ConnectorConfig) -> bool:
    """Return whether two connectors read one bucket, or folder, into one topic."""
    mine, theirs = ((c.topic, c.bucket, service_of(c)) for c in (one, other))
    return mine == theirs


def _into_same_topic(config: ConnectorConfig, stored: Iterable[StoredPair]) -> Iterator[StoredPair]:
    """Yield other connectors of the same service that write to one of the same topics."""
    ours, service = _topics(config), service_of(config)
    for version, other in stored:
        if version.name != config.name and ours & _topics(other) and service_of(other) == service:
            yield version, other


def _topics(config: ConnectorConfig) -> set[str]:
    """Return the topics of a connector, with the placeholders that objects fill in."""
    return set(config.written_topics(config.routed(config.topic)))


def place_of(config: ConnectorConfig) -> str:
    """Return what the addresses of a connector's objects begin with, without the scheme.

    A slash follows the name of a single object, so that the place begins no other name.
    """
    return f"{_root(config)}{f'{config.object_key}/' if config.object_key else config.prefix}"


def _root(config: ConnectorConfig) -> str:
    """Return the bucket, or the folder without links, and a slash."""
    local = config.endpoint_type == LOCAL_FILE
    bucket = os.path.realpath(config.bucket) if local else config.bucket
    return f"{bucket.rstrip('/')}/"
