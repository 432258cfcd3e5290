"""Connectors that the stack declares: read, validated, and checked against the stage."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from extentflow.config import types
from extentflow.config.connector import ConnectorConfig
from extentflow.config.files import load
from extentflow.config.registry import registries
from extentflow.config.trust import Trust
from extentflow.errors import Misconfigured
from extentflow.wiring import check_connector

from . import secrets
from .config import BucketNotification, Network, Stage

PATTERNS = ("*.yaml", "*.yml")
OTHERS = ("*.properties", "*.json")  # `connectors put` accepts these too
LAYER = PurePosixPath("/opt")  # mount point of layers in functions
LOCAL_FILE = "localfile"
PRODUCER = "producer."

_ROLE = re.compile(r"arn:[a-z-]+:iam::[0-9]{12}:role/[\w+=,.@/-]+")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True)
class DeclaredConnector:
    """One connector: its file, its keys as written, and its parsed configuration."""

    file: str
    config: Mapping[str, str]
    checked: ConnectorConfig

    @property
    def name(self) -> str:
        """The connector's name."""
        return self.checked.name

    @property
    def of_aws(self) -> bool:
        """Whether the bucket is on AWS, which announces its objects."""
        return self.checked.endpoint_type == "awss3" and not self.checked.endpoint

    @property
    def on_aws(self) -> bool:
        """Whether the bucket is on AWS and read with the functions' own role."""
        return self.of_aws and not (self.checked.role_arn or self.checked.access_key_id)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it writes to; `*` where the topic depends on the object."""
        topic = types.fill_topic(self.checked.topic, self.checked.fixed_placeholders())
        if not _PLACEHOLDER.search(topic):
            topic = self.checked.routed(topic)
        elif self.checked.reroutes:
            topic = "*"
        written = (*self.checked.written_topics(topic), self.checked.dead_letter_topic)
        return tuple(_PLACEHOLDER.sub("*", topic) for topic in written if topic)

    @property
    def kms_key(self) -> str | None:
        """The ARN, id or alias of the key in AWS KMS that encrypts columns, if one does."""
        has_keys = self.checked.columnar_encryption_key_list is not None
        return None if has_keys else self.checked.columnar_encryption_key

    @property
    def addresses(self) -> tuple[str, ...]:
        """The URLs of its store and its schema registries, where it names them."""
        owns = [own for _, own in registries(self.checked.converter_options)]
        found = (url for own in owns for url in (own.endpoint, *own.urls))
        return tuple(url for url in (self.checked.endpoint, *found) if url)

    def secrets(self, *, producer: bool) -> frozenset[str]:
        """The secrets it refers to: those of its store, and those of its producer."""
        return secrets.referred(
            {
                key: text
                for key, text in self.config.items()
                if producer or not key.startswith(PRODUCER)
            }
        )


def declared(folder: Path, stage: Stage, *, layer: Path) -> tuple[DeclaredConnector, ...]:
    """Return the connectors below `folder`, by name; functions see `layer` below /opt.

    Raises:
        Misconfigured: all problems of all files.
    """
    found: list[DeclaredConnector] = []
    problems: list[str] = []
    files = _files(folder, PATTERNS)
    if not files:
        what = "declares no connector (*.yaml)" if folder.is_dir() else "is not a folder"
        problems.append(f"{folder}: it {what}; a stage without one would deliver nothing")
    for path in files:
        try:
            config = load(path)
            found.append(DeclaredConnector(path.name, config, check_connector(config)))
        except Misconfigured as exc:
            problems += [_placed(path, problem) for problem in exc.problems]
    for path in _files(folder, OTHERS):
        problems.append(f"{path.name}: only {', '.join(PATTERNS)} are deployed; write it as YAML")
    trust = replace(stage.worker_settings().trust, in_functions=True)
    for one in found:
        problems += [f"{one.file}: {problem}" for problem in _unmet(one, stage, trust)]
        problems += [f"{one.file}: {problem}" for problem in _unread(one.checked, layer)]
    problems += _twice(found)
    if problems:
        raise Misconfigured(problems)
    return tuple(sorted(found, key=lambda one: one.name))


def _files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.glob(pattern))


def _placed(path: Path, problem: str) -> str:
    return problem if problem.startswith(str(path)) else f"{path.name}: {problem}"


def _twice(found: Sequence[DeclaredConnector]) -> list[str]:
    names = Counter(one.name for one in found)
    return [
        f"{one.file}: name={one.name}: another file has the same name; rename one"
        for one in found
        if names[one.name] > 1
    ]


def _unmet(one: DeclaredConnector, stage: Stage, trust: Trust) -> Iterator[str]:
    """Yield what the stage lacks for this connector, or forbids."""
    if one.checked.endpoint_type == LOCAL_FILE:
        yield (
            f"endpoint.type={LOCAL_FILE}: functions have no access to this directory; use a bucket"
        )
    else:
        yield from trust.problems(one.checked, one.config)
    buckets = {bucket.name for bucket in stage.buckets}
    if one.on_aws and one.checked.bucket not in buckets:
        yield (
            f"aws.s3.bucket.name={one.checked.bucket}: stage {stage.name} has no such bucket;"
            " add it to the stage's buckets, or correct the name"
        )
    yield from _unannounced(one, stage)
    role = one.checked.role_arn or ""
    if "${" in role:
        yield "aws.sts.role.arn: a reference; write the ARN, functions are allowed that role only"
    elif role and not _ROLE.fullmatch(role):
        yield (
            f"aws.sts.role.arn={role}: functions are allowed one role; write its ARN,"
            " arn:aws:iam::ACCOUNT:role/NAME"
        )
    if stage.network is not None and not stage.network.nat:
        yield from _unreached(one.checked, stage.network, stage.region)
        yield from _too_far(one, stage.region)


def _unannounced(one: DeclaredConnector, stage: Stage) -> Iterator[str]:
    """Yield why announcements of another region do not arrive."""
    region, listed = one.checked.region, {bucket.name: bucket for bucket in stage.buckets}
    bucket = listed.get(one.checked.bucket) if one.of_aws else None
    if bucket is None or region in {None, stage.region}:
        return
    if bucket.announced is not BucketNotification.ELSEWHERE:
        yield (
            f"aws.s3.region={region}: notifications of {bucket.name} do not leave that region."
            f" Deliver it with a stage in {region}. Or set announced=ELSEWHERE: listings find its"
            " objects, and at once where a rule there sends their events to the event bus"
            f" `default` of {stage.region}"
        )


def _unread(config: ConnectorConfig, layer: Path) -> Iterator[str]:
    """Yield why functions do not find the CA files of the connector."""
    files = {"aws.s3.ca.bundle": config.ca_bundle}
    for name, own in registries(config.converter_options):
        files[f"{name}.schema.registry.ssl.ca.location"] = own.ca_location
    for name, written in files.items():
        path = PurePosixPath(written or "/")
        if path.parent == LAYER and not (layer / path.name).is_file():
            yield f"{name}={path}: {layer / path.name} does not exist; add the file there"


def _unreached(config: ConnectorConfig, network: Network, region: str) -> Iterator[str]:
    """Yield why functions in a VPC without NAT reach neither objects nor schema registry."""
    for key, url in _registries(config):
        host = urlsplit(url).hostname
        # The name that an interface endpoint of Glue has in its VPC; the grants ask for that one.
        if host not in {f"glue.{region}.amazonaws.com", *network.reaches}:
            yield (
                f"{key}={url}: no path from the VPC; add {host} to"
                " network.reaches if a route exists, or set network.nat"
            )
    host = urlsplit(config.endpoint or "").hostname
    if host is not None and host not in network.reaches:
        yield (
            f"aws.s3.endpoint={config.endpoint}: no path from the VPC; add {host} to"
            " network.reaches if a route exists, or set network.nat"
        )
    if host is None and config.region not in {None, region}:
        yield (
            f"aws.s3.region={config.region}: the VPC's S3 endpoint covers {region} only; set"
            " network.nat"
        )


def _registries(config: ConnectorConfig) -> Iterator[tuple[str, str]]:
    """Yield the addresses of schema registries that a connector names, by key."""
    for name, own in registries(config.converter_options):
        yield from ((f"{name}.schema.registry.url", url) for url in own.urls)
        if own.endpoint:
            yield f"{name}.endpoint", own.endpoint


def _too_far(one: DeclaredConnector, region: str) -> Iterator[str]:
    """Yield the secrets that functions in a VPC without NAT cannot read."""
    for secret in sorted(one.secrets(producer=True)):
        if secrets.region_of(secret) not in {None, region}:
            yield (
                f"secret {secret}: the VPC's endpoint of secretsmanager covers "
                f"{region} only; store the"
                " secret there, or set network.nat"
            )
