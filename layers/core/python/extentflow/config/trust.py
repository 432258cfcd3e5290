"""What connectors may name on a worker: variables, files, secrets, folders and hosts.

The author of a connector need not own the worker that reads it. The owner's settings
`connectors.*.allowed` say what a connector may refer to. Some things need a pattern of their own:
`*` and `/` do not admit the worker's AWS credentials, link-local addresses and /etc; and no pattern
admits /proc and /sys.
"""

import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from extentflow.config.registry import registries
from extentflow.config.secrets import Reference
from extentflow.config.types import Kind

if TYPE_CHECKING:
    from extentflow.config.connector import ConnectorConfig

NOTHING = "none"
EVERY = ("*",)
EVERYWHERE = ("/",)
# In functions the environment holds the role's credentials, and nothing for connectors.
OF_FUNCTIONS = "AWS_LAMBDA_FUNCTION_NAME"
OF_AWS = "AWS_"
_NEVER = ("/proc", "/sys", "/dev/fd")
_GUARDED = "/etc"
_CREDENTIALS = ".aws"
_NO_FOLDER = "the worker's connectors.file.allowed names no folder of this file"


def _patterns(text: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in text.split(","))
    if found == (NOTHING,):
        return ()
    if not all(found):
        raise ValueError(f"write patterns such as TEAM_*, separated by commas, or {NOTHING}")
    return found


def _folders(text: str) -> tuple[str, ...]:
    found = _patterns(text)
    if not all(one.startswith("/") for one in found):
        raise ValueError(f"write absolute paths of folders, separated by commas, or {NOTHING}")
    return found


def _written(found: tuple[str, ...]) -> str:
    return ",".join(found) or NOTHING


PATTERNS: Kind[tuple[str, ...]] = Kind(_patterns, _written)
FOLDERS: Kind[tuple[str, ...]] = Kind(_folders, _written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What connectors may name on this worker; the defaults are those of the settings."""

    variables: tuple[str, ...] = EVERY
    files: tuple[str, ...] = EVERYWHERE
    secrets: tuple[str, ...] = EVERY
    folders: tuple[str, ...] = EVERYWHERE
    hosts: tuple[str, ...] = EVERY

    def problems(self, config: "ConnectorConfig", written: Mapping[str, str]) -> Iterator[str]:
        """Yield what a connector names and may not: key, value and remedy.

        `written` is the connector as the ledger stores it, `config` the same as parsed: what a key
        means does not depend on whose name for it was written.
        """
        for name, text in written.items():
            found = None
            with suppress(ValueError):  # only resembles a reference, and is looked up nowhere
                found = Reference.parse(text)
            if found is not None and (why := self._refused(found)):
                yield _said(name, text, why)
        if config.endpoint_type == "localfile" and not self._may_read(config.directory or "/"):
            why = "the worker's connectors.directory.allowed names no folder around this one"
            yield _said("directory", config.directory or "/", why)
        hosts, files = [("aws.s3.endpoint", config.endpoint)], [("ca.bundle", config.ca_bundle)]
        for key, own in registries(config.converter_options):
            hosts += [(f"{key}.schema.registry.url", url) for url in own.urls]
            hosts.append((f"{key}.endpoint", own.endpoint))
            files.append((f"{key}.schema.registry.ssl.ca.location", own.ca_location))
        for name, address in hosts:
            if address and not self._admits(urlsplit(address).hostname or ""):
                why = "the worker's connectors.host.allowed has no pattern for this host"
                yield _said(name, address, why)
        for name, path in files:
            if path and not _is_inside(path, self.files):
                yield _said(name, path, _NO_FOLDER)

    def _may_read(self, directory: str) -> bool:
        real = _real(directory)
        if any(Path(one).is_relative_to(real) for one in _NEVER):
            return False
        named = tuple(one for one in self.folders if _real(one).is_relative_to(_GUARDED))
        return _is_inside(directory, named if real.is_relative_to(_GUARDED) else self.folders)

    def _refused(self, found: Reference) -> str | None:
        if found.provider == "env":
            if OF_FUNCTIONS in os.environ:
                return "functions have no variables for connectors; use ${secretsmanager:name:key}"
            if not _matches(found.key, self.variables, guarded=OF_AWS):
                return "the worker's connectors.env.allowed has no pattern for this variable"
        if found.provider == "file" and not _is_inside(found.path, self.files):
            return _NO_FOLDER
        if found.provider == "secretsmanager":
            name = found.path.rpartition(":secret:")[2]
            if not _matches(name, self.secrets):
                return "the worker's connectors.secret.allowed has no pattern for this secret"
        return None

    def _admits(self, host: str) -> bool:
        if _is_link_local(host):
            return any(one != "*" and fnmatchcase(host, one) for one in self.hosts)
        return _matches(host, self.hosts)


def _said(name: str, text: str, why: str) -> str:
    return f"{name}={text}: connectors may not name this here; {why}"


def _matches(text: str, patterns: tuple[str, ...], *, guarded: str = "") -> bool:
    """Whether a pattern admits the text; one that begins with `guarded` needs such a pattern."""
    if guarded and text.startswith(guarded):
        patterns = tuple(one for one in patterns if one.startswith(guarded))
    return any(fnmatchcase(text, one) for one in patterns)


def _real(path: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):  # a link that cannot be read, or a NUL; nor can what it names
        return Path(os.path.normpath(path))


def _is_inside(path: str, folders: tuple[str, ...]) -> bool:
    real = _real(path)
    # As written, too: links in /proc lead to files that are open.
    seen = (real, Path(os.path.normpath(path)))
    if any(each.is_relative_to(one) for one in _NEVER for each in seen):
        return False
    for folder in map(_real, folders):
        named = _CREDENTIALS in folder.parts or _CREDENTIALS not in real.parts
        if real.is_relative_to(folder) and named:
            return True
    return False


def _is_link_local(host: str) -> bool:
    """Whether the host is an address of this machine's link, as those of cloud metadata are."""
    with suppress(OSError, UnicodeError):  # inet_aton also reads 0xa9fea9fe and 2852039166
        return ipaddress.ip_address(socket.inet_aton(host)).is_link_local
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        metadata = ipaddress.ip_address("fd00:ec2::254")
        return (mapped or address).is_link_local or address == metadata
    return False
