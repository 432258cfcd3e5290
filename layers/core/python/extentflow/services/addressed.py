"""Connectors that are made from an address and options, for a first record without ceremony.

    orders.csv            files: the folder is the connector's, the name its only object
    data/  data/*.csv     a folder, or what of it matches
    s3://shop/in/         a bucket: keys below the address's last slash

A connector is named after its topic and its bucket or folder, whatever the prefix: addresses of one
bucket share it, and an object that one of them delivered is known to the others.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from extentflow.config.connector import LOCAL_FILE, ConnectorConfig
from extentflow.config.parsing import parse
from extentflow.errors import Misconfigured, plain, without_credentials
from extentflow.jobs.addresses import GLOB_CHARACTERS
from extentflow.services.connectors import Connectors, overlapping, service_of
from extentflow.wiring import Runtime, check_connector

S3_SCHEMES = ("s3://", "s3a://")
FILE_SCHEME = "file://"
NAME_CHARACTERS = 90
DIGEST_CHARACTERS = 8
UNNAMED = "unnamed"
# Settings that the address and the topic make, which `--set` must not contradict.
MADE = ("topic", "aws.s3.bucket.name", "s3.bucket.name", "aws.s3.prefix", "directory")


@dataclass(frozen=True, slots=True)
class AddressedConnector:
    """A connector that was made: its configuration, and the addresses in the form it takes.

    `stored` says that a person stored the same connector, `revision` is the ledger's.
    """

    name: str
    config: Mapping[str, str]
    addresses: tuple[str, ...]
    revision: int = 0
    stored: bool = False

    @property
    def shown(self) -> str:
        """The settings, as a file of properties has them."""
        return ", ".join(f"{key}={text}" for key, text in self.config.items() if key != "name")


class _Place(NamedTuple):
    bucket: str  # or the folder
    key: str  # or what keys begin with or match


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
    return AddressedConnector(name, config, full)


def store_connector(
    runtime: Runtime, made: AddressedConnector, *, save: bool, notify: Callable[[str], object]
) -> AddressedConnector:
    """Store a connector's revision, which jobs pin; with `save` also for later commands.

    Without it the connector is not listed: functions and streaming queries ignore it. Raises
    Misconfigured where a connector of that name, with other settings, was stored by a person.
    """
    connectors = runtime.ledger.connectors
    listed = connectors.get(made.name)
    if listed is None:
        _require_same_objects(runtime, made)
    for line in _overlaps(runtime, made, whole=save):
        notify(line)
    if save:
        stored = Connectors(runtime.ledger).put(made.config)
        return replace(made, revision=stored.revision, stored=True)
    if listed is not None and listed.config != made.config:
        raise Misconfigured(
            f"connector {made.name} is stored with other settings (`extentflow connectors show "
            f"{made.name}`); `extentflow run ADDRESS -c {made.name}` delivers with those, --save "
            "stores these as its next revision, --set name=NAME makes another connector"
        )
    if listed is not None:
        return replace(made, revision=listed.revision, stored=True)
    hidden = connectors.put(made.name, made.config, listed=False)
    return replace(made, revision=hidden.revision)


def _require_same_objects(runtime: Runtime, made: AddressedConnector) -> None:
    """Raise Misconfigured where jobs of a deleted connector of that name are of other objects.

    What it delivered, from elsewhere or to another topic, would count as delivered.
    """
    versions = runtime.ledger.connectors.list(deleted=True)
    before = next((one for one in versions if one.name == made.name), None)
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


def _overlaps(runtime: Runtime, made: AddressedConnector, *, whole: bool) -> Iterator[str]:
    """Yield a line for each connector through which the same records reach the same topic.

    `whole`: through all that the connector reads, instead of its addresses.
    """
    ledger, config = runtime.ledger, parse(made.config)
    places = () if whole else tuple(map(_begins, made.addresses))
    for other in overlapping(config, ledger.connectors.list(deleted=True), places):
        twice = "into the same topic: objects that both read are delivered twice"
        if ledger.connectors.get(other.name) is not None:
            source = Connectors(ledger).get(other.name).source
            yield (
                f"connector {other.name} reads {source} {twice}; `extentflow run ADDRESS -c"
                f" {other.name}` delivers with that one"
            )
        # One that is not listed delivers nothing by itself; what it delivered counts.
        elif next(iter(ledger.jobs.list(other.name)), None) is not None:
            theirs = parse(other.config).bucket
            way_out = (
                f"--set name={other.name} continues that one"
                if theirs == config.bucket
                else "give addresses that leave them out"
            )
            yield f"connector {other.name}, of an earlier command, read {theirs} {twice}; {way_out}"


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
    (bucket, *_), given = ([place.bucket for place in places], [place.key for place in places])
    if bucket.startswith("/"):
        settings = {"endpoint.type": LOCAL_FILE, "directory": bucket}
        return settings, tuple(f"{FILE_SCHEME}{bucket}/{key}" for key in given)
    settings = {"aws.s3.bucket.name": bucket}
    literal = [_literal(key) for key in given]
    # Characters, because a prefix ends at its last slash in any case.
    if prefix := os.path.commonprefix(literal).rpartition("/")[0]:  # noqa: RUF071
        settings["aws.s3.prefix"] = f"{prefix}/"
    return settings, tuple(f"s3://{bucket}/{key}" for key in given)


def _in_bucket(address: str) -> _Place:
    bucket, _, key = address.partition("://")[2].partition("/")
    return _Place(bucket, key)


def _in_folder(address: str) -> _Place:
    text = address
    if address.startswith(FILE_SCHEME):
        text = re.sub(r"^localhost(?=/)", "", address.removeprefix(FILE_SCHEME))
        if not text.startswith("/"):
            raise Misconfigured(
                f"{without_credentials(address)}: write file:///absolute/path, or a path alone"
            )
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        raise Misconfigured(
            f"{without_credentials(address)}: write s3://BUCKET/KEY, a file or a folder"
        )
    path = os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - keeps a `*`
    glob = any(one in text for one in GLOB_CHARACTERS)
    mode = _mode(path, may_be_absent=glob)
    if stat.S_ISDIR(mode):
        folder, key = path, ""
    elif mode or not glob:
        folder, _, key = path.rpartition("/")
    else:
        folder = _literal(path).rpartition("/")[0]
        key = path[len(folder) + 1 :]
    # One folder has one connector, whatever link leads to it.
    return _Place(os.path.realpath(folder or "/"), key)


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
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{legal}-{digest[:DIGEST_CHARACTERS]}"
