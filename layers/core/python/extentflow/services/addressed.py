"""Connectors that are made from an address and options, for a first record without ceremony.

    orders.csv            this file of its folder
    data/  data/*.csv     a folder
    s3://shop/in/a.csv    this object, or what is below it
    s3://shop/in/         a bucket: keys below the address's last slash

A connector is named after its topic and its bucket or folder, whatever it reads of that: addresses
of one bucket share the name and its jobs. `orders` stores it, and finds another name where another
connector has this one.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from extentflow.config.connector import ConnectorConfig
from extentflow.config.connector_keys import LOCAL_FILE
from extentflow.config.parsing import parse
from extentflow.errors import Misconfigured
from extentflow.jobs.addresses import (
    FILE_SCHEME,
    GLOB_CHARACTERS,
    S3_SCHEMES,
    file_path,
)
from extentflow.services.places import place_of, service_of
from extentflow.wiring import check_connector
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
    """A connector that was made: parsed, as the ledger stores it, and its addresses in full.

    `place` is what its objects begin with, see `place_of`. `bare` has the settings without those
    that say what of the bucket is read; where these do not go together, `unfit` says why. `named`:
    a setting gave the name.
    """

    config: ConnectorConfig
    settings: Mapping[str, str]
    addresses: tuple[str, ...]
    place: str
    bare: ConnectorConfig | None = None
    unfit: tuple[str, ...] = ()
    named: bool = False

    @property
    def name(self) -> str:
        """The connector's name."""
        return self.config.name

    def under(self, name: str) -> Self:
        """Return the connector under another name."""
        bare = self.bare and replace(self.bare, name=name)
        renamed, settings = replace(self.config, name=name), {**self.settings, "name": name}
        return replace(self, config=renamed, bare=bare, settings=settings)

    def of_bucket(self) -> tuple[ConnectorConfig, dict[str, str]]:
        """Return the connector without what of its bucket it reads, parsed and as stored.

        Raises Misconfigured where it is unfit.
        """
        settings = without_coverage(self.settings)
        if self.bare is None:
            raise Misconfigured(
                [f"{one}; --save keeps what the address covers" for one in self.unfit]
            )
        return self.bare, settings

    def distinguished_by(self, text: str) -> Self:
        """Return the connector under a name that a digest of a text is added to."""
        return self.under(f"{self.name[:NAME_CHARACTERS]}-{_digest(text)}")


class _Location(NamedTuple):
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
    made = {**source, **settings, "topic": topic}
    config = check_connector({"name": UNNAMED, **made})
    name = settings.get("name") or _name(config)
    parsed = AddressedConnector(config, made, full, place_of(config), named="name" in settings)
    try:
        bare = parse(without_coverage({"name": UNNAMED, **made}))
    except Misconfigured as exc:  # of no concern where the connector is saved
        return replace(parsed, unfit=exc.problems).under(name)
    return replace(parsed, bare=bare).under(name)


def without_coverage(config: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a made connector, but not what of its bucket it reads."""
    return {key: text for key, text in config.items() if key not in COVERAGE or key == "name"}


def place_begins(address: str) -> str:
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


def _in_bucket(address: str) -> _Location:
    bucket, _, key = address.partition("://")[2].partition("/")
    return _Location(bucket, key, bool(key) and not key.endswith("/") and _literal(key) == key)


def _in_folder(address: str) -> _Location:
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
    return _Location(os.path.realpath(folder or "/"), key, bool(mode and key))


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
