"""Connectors that are made from an address and options, for a first record without ceremony.

    orders.csv            this file of its folder
    data/  data/*.csv     a folder
    s3://shop/in/a.csv    this object, or what is below it
    s3://shop/in/         a bucket: keys below the address's last slash

A connector is named after its topic and its bucket or folder, whatever it reads of that: addresses
of one bucket share the name and its jobs, and an object that one of them delivered is known to the
others. Once it is stored, its name stays with what it reads then, and other addresses of the bucket
get a name of their own:

    of what the stored one reads      the stored one delivers
    of that and more                  --save lets the stored one read more; else another name
    of something else                 another name

Jobs of other names, and of folders above and below, count as those of the address all the same.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE
from extentflow.config.parsing import parse
from extentflow.errors import Misconfigured
from extentflow.jobs.addresses import (
    FILE_SCHEME,
    GLOB_CHARACTERS,
    S3_SCHEMES,
    KeyScope,
    file_path,
)
from extentflow.ledger import ConnectorVersion, last_stored
from extentflow.services.connectors import Connectors, overlapping, place_of, service_of
from extentflow.wiring import Runtime, check_connector
from extentflow.wording import plain, without_credentials

NAME_CHARACTERS = 90
DIGEST_CHARACTERS = 8
UNNAMED = "unnamed"
# Settings that the address and the topic make, which `--set` must not contradict.
MADE = (
    *("topic", "aws.s3.bucket.name", "s3.bucket.name", "aws.s3.prefix", "directory"),
    "object.key",
)
# Settings that say what of a bucket is read, and the name.
COVERAGE = ("name", "aws.s3.prefix", "object.key")


@dataclass(frozen=True, slots=True)
class AddressedConnector:
    """A connector that was made: its configuration, and the addresses in the form it takes.

    `named` says that a setting gave the name, `stored` that a person stored the connector,
    `revision` is the ledger's.
    """

    name: str
    config: Mapping[str, str]
    addresses: tuple[str, ...]
    named: bool = False
    revision: int = 0
    stored: bool = False

    @property
    def shown(self) -> str:
        """The settings, as a file of properties has them."""
        return ", ".join(f"{key}={text}" for key, text in self.config.items() if key != "name")

    @property
    def reads(self) -> str:
        """What it reads, in words."""
        config = parse(self.config)
        only = "only " if config.object_key else "everything below "
        return f"{only}{KeyScope.of(config).source}"


class _Place(NamedTuple):
    bucket: str  # or the folder
    key: str  # or what keys begin with or match
    single: bool = False  # the key is that of one object, as far as the address says


def make_connector(
    addresses: Sequence[str], topic: str, settings: Mapping[str, str]
) -> AddressedConnector:
    """Return the connector that delivers the addresses to a topic; `settings` are its other keys.

    Nothing is stored. Raises Misconfigured with every problem of settings and addresses.
    """
    if clashing := [key for key in MADE if key in settings]:
        raise Misconfigured(
            f"--set {', '.join(clashing)}: the address and --topic say that; leave it out"
        )
    source, full = _source(addresses)
    config = {**source, **settings, "topic": topic}
    checked = check_connector({"name": UNNAMED, **config})
    name = settings.get("name") or _name(checked)
    config["name"] = name
    return AddressedConnector(name, config, full, named="name" in settings)


def store_connector(
    runtime: Runtime, made: AddressedConnector, *, save: bool, notify: Callable[[str], object]
) -> AddressedConnector:
    """Store a connector's revision, which jobs pin; with `save` also for later commands.

    Without it the connector is not listed: functions and streaming queries ignore it, and the
    revision is the same for all addresses of its bucket. Raises Misconfigured where a connector of
    that name, with other settings, was stored by a person.
    """
    connectors = runtime.ledger.connectors
    made = for_cluster(runtime, made)
    listed = connectors.get(made.name)
    if listed is not None and not made.named and _needs_another_name(made, listed, save=save):
        made = _with_another_name(made)
        listed = connectors.get(made.name)
    if listed is None:
        _require_same_objects(runtime, made)
    for line in _overlaps(runtime, made, save=save):
        notify(line)
    if listed is not None and _reads_for(listed, made):
        return replace(made, config=listed.config, revision=listed.revision, stored=True)
    if listed is not None and not (save and _is_within(listed.config, made.config)):
        _refuse(made, listed)
    if save:
        stored = Connectors(runtime.ledger).put(made.config)
        return replace(made, revision=stored.revision, stored=True)
    hidden = connectors.put(made.name, without_coverage(made.config), listed=False)
    return replace(made, revision=hidden.revision)


def expect_connector(runtime: Runtime, made: AddressedConnector) -> tuple[ConnectorConfig, int]:
    """Return a connector for reading objects, and a revision of it that this process only has.

    Nothing is stored. Raises Misconfigured where a person stored a connector of that name, with
    settings other than those of columnar values that differ.
    """

    def others(config: Mapping[str, str]) -> dict[str, str]:
        own = without_coverage(config)
        return {key: text for key, text in own.items() if not key.startswith("columnar.")}

    listed = None if made.named else runtime.ledger.connectors.get(made.name)
    if listed is not None and others(listed.config) != others(made.config):
        raise Misconfigured(
            f"connector {made.name} is stored with other settings (`extentflow connectors show"
            f" {made.name}`); use -c {made.name}, which has these, or --set name=NAME"
        )
    config = parse(made.config)
    runtime.connectors.expect(config, 0)
    return config, 0


def for_cluster(runtime: Runtime, made: AddressedConnector) -> AddressedConnector:
    """Return the connector; under another name where jobs of its name deliver to another cluster.

    What one Kafka cluster got is not delivered to another one.
    """
    job = None if made.named else next(iter(runtime.ledger.jobs.list(made.name)), None)
    if job is None or job.cluster == (cluster := runtime.broker.cluster):
        return made
    return _named(made, f"{made.name[:NAME_CHARACTERS]}-{_digest(cluster)}")


def without_coverage(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a made connector, but not what of its bucket it reads."""
    return {key: text for key, text in config.items() if key not in COVERAGE or key == "name"}


def _needs_another_name(made: AddressedConnector, listed: ConnectorVersion, *, save: bool) -> bool:
    """Whether a stored connector of the bucket reads other things than the address says."""
    if _is_within(made.config, listed.config):
        return False
    return not (save and _is_within(listed.config, made.config))


def _with_another_name(made: AddressedConnector) -> AddressedConnector:
    """Return the connector named after all that it reads."""
    digest = _digest(place_of(parse(made.config)))
    return _named(made, f"{made.name[:NAME_CHARACTERS]}-{digest}")


def _named(made: AddressedConnector, name: str) -> AddressedConnector:
    return replace(made, name=name, config={**made.config, "name": name})


def _is_within(inner: Mapping[str, str], outer: Mapping[str, str]) -> bool:
    """Whether one connector reads nothing that another one does not."""
    try:
        return place_of(parse(inner)).startswith(place_of(parse(outer)))
    except Misconfigured:  # stored by another version, and not comparable
        return True


def _reads_for(listed: ConnectorVersion, made: AddressedConnector) -> bool:
    """Whether a stored connector reads what was made, with the same settings."""

    def others(config: Mapping[str, str]) -> dict[str, str]:
        return {key: text for key, text in config.items() if key not in COVERAGE}

    same = others(listed.config) == others(made.config)
    return same and _is_within(made.config, listed.config)


def _refuse(made: AddressedConnector, listed: ConnectorVersion) -> None:
    """Raise Misconfigured for a stored connector of that name with other settings."""
    next_revision = (
        ", --save stores these as its next revision"
        if _is_within(listed.config, made.config)
        else ""
    )
    raise Misconfigured(
        f"connector {made.name} is stored with other settings (`extentflow connectors show "
        f"{made.name}`); `extentflow run ADDRESS -c {made.name}` delivers with those"
        f"{next_revision}, --set name=NAME makes another connector"
    )


def _require_same_objects(runtime: Runtime, made: AddressedConnector) -> None:
    """Raise Misconfigured where jobs of a deleted connector of that name are of other objects.

    What it delivered, from elsewhere or to another topic, would count as delivered.
    """
    before = last_stored(runtime.ledger.connectors, made.name)
    if before is None:
        return
    try:
        old = parse(before.config)
    except Misconfigured:  # stored by another version; its jobs cannot be compared
        old = None
    new = parse(made.config)
    same = old is not None and (
        (old.topic, old.bucket, service_of(old)) == (new.topic, new.bucket, service_of(new))
    )
    if not same:
        raise Misconfigured(
            f"connector {made.name} was deleted, and may have delivered other objects, or to"
            f" another topic (`extentflow status -c {made.name}`); --set name=NAME makes a"
            " connector of its own"
        )


def _overlaps(runtime: Runtime, made: AddressedConnector, *, save: bool) -> Iterator[str]:
    """Yield a line for each connector through which the same records reach the same topic twice.

    This command delivers no object that another connector delivered; a stored one does.
    """
    ledger, config = runtime.ledger, parse(made.config)
    places = () if save else tuple(map(_begins, made.addresses))
    for other in overlapping(config, ledger.connectors.list(deleted=True), places):
        if ledger.connectors.get(other.name) is not None:
            source = Connectors(ledger).get(other.name).source
            yield (
                f"connector {other.name} reads {source} into the same topic, and delivers what this"
                f" command delivers a second time; `extentflow run ADDRESS -c {other.name}`"
                " delivers with that one"
            )
        # One that is not listed delivers nothing by itself.
        elif save and next(iter(ledger.jobs.list(other.name)), None) is not None:
            yield (
                f"connector {other.name}, of an earlier command, delivered from"
                f" {parse(other.config).bucket} into the same topic: `run -c {made.name}` and"
                " `stream` deliver those objects a second time"
            )


def _begins(address: str) -> str:
    """Return what the objects of an address begin with, without the scheme."""
    text = address.partition("://")[2]
    literal = _literal(text)
    return literal if literal != text or text.endswith("/") else f"{text}/"


def parse_settings(words: Iterable[str]) -> dict[str, str]:
    """Return the settings that `--set KEY=VALUE` options give; Misconfigured with all problems."""
    found: dict[str, str] = {}
    problems: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            problems.append(f"--set {plain(word)}: write KEY=VALUE, such as input.format=csv")
        elif key.strip() in found:
            problems.append(f"--set {plain(key.strip())}: given twice; keep one")
        else:
            found[key.strip()] = text
    if problems:
        raise Misconfigured(problems)
    return found


def _source(addresses: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the settings that say where the addresses lie, and the addresses in full."""
    if not addresses:
        raise Misconfigured(
            "which objects? give an address: s3://BUCKET/PREFIX/, a file or a folder"
        )
    places = [
        _in_bucket(one) if one.startswith(S3_SCHEMES) else _in_folder(one) for one in addresses
    ]
    if len({place.bucket for place in places}) > 1:
        raise Misconfigured(
            "the addresses lie in several buckets or folders; run the command for one after the"
            " other"
        )
    places = list(dict.fromkeys(places))
    bucket, local = places[0].bucket, places[0].bucket.startswith("/")
    only = {"object.key": places[0].key} if len(places) == 1 and places[0].single else {}
    if local:
        settings = {"endpoint.type": LOCAL_FILE, "directory": bucket, **only}
        return settings, tuple(f"{FILE_SCHEME}{bucket}/{place.key}" for place in places)
    settings = {"aws.s3.bucket.name": bucket}
    literal = [_literal(place.key) for place in places]
    # Characters, because a prefix ends at its last slash in any case.
    if prefix := os.path.commonprefix(literal).rpartition("/")[0]:  # noqa: RUF071
        settings["aws.s3.prefix"] = f"{prefix}/"
    return {**settings, **only}, tuple(f"s3://{bucket}/{place.key}" for place in places)


def _in_bucket(address: str) -> _Place:
    bucket, _, key = address.partition("://")[2].partition("/")
    return _Place(bucket, key, bool(key) and not key.endswith("/") and _literal(key) == key)


def _in_folder(address: str) -> _Place:
    path = file_path(address)
    if path is None:
        raise Misconfigured(
            f"{without_credentials(address)}: write s3://BUCKET/KEY, a file or a folder"
        )
    path = path.rstrip("/") or "/"
    glob = any(one in address for one in GLOB_CHARACTERS)
    mode = _mode(path, may_be_absent=glob)
    if stat.S_ISDIR(mode):
        folder, key = path, ""
    elif mode or not glob:
        folder, _, key = path.rpartition("/")
    else:
        folder = _literal(path).rpartition("/")[0]
        key = path[len(folder) + 1 :]
    # One folder has one connector, whatever link leads to it.
    return _Place(os.path.realpath(folder or "/"), key, bool(mode and key))


def _mode(path: str, *, may_be_absent: bool) -> int:
    """Return a file's mode, 0 without a file where it may be absent, else raise Misconfigured."""
    try:
        return os.stat(path).st_mode  # noqa: PTH116 - a text that may be a glob
    except (OSError, ValueError) as exc:
        if may_be_absent:
            return 0
        why = "no such file or folder"
        if isinstance(exc, OSError) and not isinstance(exc, FileNotFoundError):
            why = exc.strerror or why
        raise Misconfigured(
            f"{plain(path)}: {why}; correct the path, or write s3://BUCKET/KEY"
        ) from exc


def _literal(pattern: str) -> str:
    """Return what precedes the first character of a glob."""
    return re.split(f"[{re.escape(GLOB_CHARACTERS)}]", pattern, maxsplit=1)[0]


def _name(config: ConnectorConfig) -> str:
    topic, bucket, service = config.topic, config.bucket, service_of(config)
    readable = f"{topic}-from-{Path(bucket).name or 'root'}"
    legal = re.sub(r"[^A-Za-z0-9._-]+", "-", readable).lstrip("._-")[:NAME_CHARACTERS]
    ambiguous = "from" in topic or "from" in bucket
    if not service and legal == readable and not ambiguous:
        return legal
    # Folders of one name differ, as do buckets of several services. Of one name for two topics, the
    # second would get nothing, because its objects were delivered.
    identity = f"{topic}\n{bucket}\n{service}"
    return f"{legal}-{_digest(identity)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]
