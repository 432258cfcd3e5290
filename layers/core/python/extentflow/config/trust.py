"""What connectors may name on a worker: variables, files, secrets, folders and hosts.

The author of a connector need not own the worker that reads it. The owner's settings
`connectors.*.allowed` say what a connector may refer to. Some things need a pattern of their own:
`*` and `/` do not admit the worker's credentials, what its settings refer to, nor link-local
addresses. Nor do they admit folders of /etc, and in functions the machine's own addresses. No
pattern admits /proc and /sys.

A path is judged as written and as it is, when a connector is read and whenever a file is opened:
links may lead elsewhere by then.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from extentflow.config.hosts import EVERY, OF_FUNCTIONS, HostRule, naming
from extentflow.config.registry import registries
from extentflow.config.secrets import Reference
from extentflow.config.types import Kind

if TYPE_CHECKING:
    from extentflow.config.connector import ConnectorConfig

NOTHING = "none"
EVERYWHERE = ("/",)
_OF_WORKER = ("AWS_", "EXTENTFLOW_KAFKA_", "EXTENTFLOW_LEDGER_", "PGPASS")
_NEVER = ("/proc", "/sys", "/dev/fd")
# A file to which a reference leads is read as a whole.
_MOST_BYTES = 1 << 20
# Configuration of machines, and secrets that containers mount.
_GUARDED = ("/etc", "/run/secrets", "/var/run/secrets")
# Folders and files of credentials, by name; and variables that name others.
_CREDENTIALS = frozenset(
    (
        *(".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh"),
        *(".git-credentials", ".netrc", ".pgpass", "kubernetes.io"),
    )
)
_NAMED_BY = (
    "EXTENTFLOW_CONFIG",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
    "PGPASSFILE",
)
_NO_DIRECTORY = "the worker's connectors.directory.allowed names no folder around this one"
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
    buckets: tuple[str, ...] = EVERY
    completions: tuple[str, ...] = EVERY
    hosts: tuple[str, ...] = EVERY
    # References of the worker's settings.
    own: frozenset[Reference] = frozenset()
    # There the environment holds the role's credentials, and nothing for connectors.
    in_functions: bool = field(default_factory=lambda: OF_FUNCTIONS in os.environ)

    @property
    def host_rule(self) -> HostRule:
        """Which hosts connectors may name, for clients that connect to them."""
        return HostRule(self.hosts)

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
        yield from self._object_problems(config)
        hosts, files = [("aws.s3.endpoint", config.endpoint)], [("ca.bundle", config.ca_bundle)]
        for key, own in registries(config.converter_options):
            hosts += [(f"{key}.schema.registry.url", url) for url in own.urls]
            hosts.append((f"{key}.endpoint", own.endpoint))
            files.append((f"{key}.schema.registry.ssl.ca.location", own.ca_location))
        for name, address in hosts:
            if address and not self.host_rule.admits(urlsplit(address).hostname or ""):
                why = "the worker's connectors.host.allowed has no pattern for this host"
                yield _said(name, address, why)
        for name, path in files:
            if path and not _is_inside(path, self.files, self._own_files):
                yield _said(name, path, _NO_FOLDER)

    def _object_problems(self, config: "ConnectorConfig") -> Iterator[str]:
        done = config.after_completion
        if done != NOTHING and not _matches(done, self.completions):
            why = "the worker's connectors.completion.allowed does not have it"
            yield _said("after.completion", done, why)
        if config.endpoint_type != "localfile":
            named = {
                "aws.s3.bucket.name": config.bucket,
                "after.completion.move.bucket": config.completion_bucket,
            }
            for name, bucket in named.items():
                if bucket is not None and not _matches(bucket, self.buckets):
                    why = "the worker's connectors.bucket.allowed has no pattern for this bucket"
                    yield _said(name, bucket, why)
            return
        directory, key = config.directory or "/", config.object_key
        if self.in_functions and self.folders == EVERYWHERE:
            yield _said("directory", directory, "functions have no folders for connectors")
        elif not self.may_read(directory):
            yield _said("directory", directory, _NO_DIRECTORY)
        elif key and not self.may_read(f"{directory}/{key}"):
            yield _said("object.key", key, _NO_DIRECTORY)

    def may_read(self, directory: str) -> bool:
        """Whether objects may be read from this folder, or from this file, as it is now."""
        real = _real(directory)
        if any(Path(one).is_relative_to(real) for one in _NEVER):
            return False
        folders = self.folders
        for guarded in map(_real, _GUARDED):
            if real.is_relative_to(guarded):
                folders = tuple(one for one in folders if _real(one).is_relative_to(guarded))
        return _is_inside(directory, folders, self._own_files)

    @property
    def _own_files(self) -> set[Path]:
        return {_real(one.path) for one in self.own if one.provider == "file"}

    def _refused(self, found: Reference) -> str | None:
        if found.provider == "env":
            if self.in_functions:
                return "functions have no variables for connectors; use ${secretsmanager:name:key}"
            own = {one.key for one in self.own if one.provider == "env"}
            patterns = naming(self.variables) if found.key in own else self.variables
            if not _matches(found.key, patterns, guarded=_OF_WORKER):
                return "the worker's connectors.env.allowed has no pattern for this variable"
        if found.provider == "file":
            if found.key.startswith(_OF_WORKER):  # a file of variables, as systemd reads
                return f"{found.key} is a setting of workers, not of connectors"
            own_keys = {(_real(one.path), one.key) for one in self.own}
            kept = self._own_files if (_real(found.path), found.key) in own_keys else set()
            if not _is_inside(found.path, self.files, kept):
                return _NO_FOLDER
        if found.provider == "secretsmanager":
            secrets = [_secret(one.path) for one in self.own if one.provider == found.provider]
            is_own = not _secret(found.path).isdisjoint(set().union(*secrets))
            patterns = naming(self.secrets) if is_own else self.secrets
            if not _matches(found.path.rpartition(":secret:")[2], patterns):
                return "the worker's connectors.secret.allowed has no pattern for this secret"
        return None

    def read_text(self, path: str) -> str:
        """Return the text of a file to which a connector refers.

        Raises LookupError where the file that was opened is not one that it may read, no regular
        file, or larger than 1 MiB; and as `open` and decoding do.
        """
        # Not blocking: a named pipe may have no writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
            real = opened_path(descriptor, path)
            # The keys of a file are judged by its own name: a link may have come since.
            kept = set() if real == os.path.normpath(path) else self._own_files
            if not all(_is_inside(each, self.files, kept) for each in (path, real)):
                raise LookupError(f"connectors may not read this file here; {_NO_FOLDER}")
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
                raise LookupError("this is no regular file, or it is larger than 1 MiB")
            return file.read(_MOST_BYTES)


def _said(name: str, text: str, why: str) -> str:
    return f"{name}={text}: connectors may not name this here; {why}"


def _secret(path: str) -> set[str]:
    """Return what a secret may be called: an ARN ends with six more characters than its name."""
    name = path.rpartition(":secret:")[2]
    return {name, re.sub(r"-[A-Za-z0-9]{6}\Z", "", name)}


def _matches(text: str, patterns: tuple[str, ...], *, guarded: tuple[str, ...] = ()) -> bool:
    """Whether a pattern admits the text; one that begins with `guarded` needs such a pattern."""
    for prefix in guarded:
        if text.startswith(prefix):
            patterns = tuple(one for one in patterns if one.startswith(prefix))
    return any(fnmatchcase(text, one) for one in patterns)


def _real(path: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):  # a link that cannot be read, or a NUL; nor can what it names
        return Path(os.path.normpath(path))


def _is_inside(path: str, folders: tuple[str, ...], own: set[Path]) -> bool:
    """Whether a path is in one of the folders; a file of `own` needs its own or its parent."""
    real = _real(path)
    # As written, too: links in /proc lead to files that are open.
    seen = (real, Path(os.path.normpath(path)))
    if any(each.is_relative_to(one) for one in _NEVER for each in seen):
        return False
    secret = {part for each in seen for part in each.parts} & _CREDENTIALS
    kept = named_files() | own
    for folder in folders:
        around = _real(folder)
        parts = {*around.parts, *Path(os.path.normpath(folder)).parts}
        named = secret <= parts and (real not in kept or around in (real, real.parent))
        if real.is_relative_to(around) and named:
            return True
    return False


def holds_credentials(root: Path, key: str, path: str, named: AbstractSet[Path]) -> bool:
    """Whether a file below a folder that a connector names is one of credentials.

    `path` is the file's real path, `key` what leads there from `root`, maybe through links. Names
    count below `root`, which may itself be a folder of credentials. `named` are the `named_files`.
    """
    names = {*key.split("/"), *Path(path).relative_to(root).parts}
    return any(map(is_credentials, names)) or Path(path) in named


def named_files() -> set[Path]:
    """Return the files of credentials that variables of this process name."""
    return {_real(os.environ[name]) for name in _NAMED_BY if os.environ.get(name)}


def is_credentials(name: str) -> bool:
    """Whether a file or folder of this name holds credentials."""
    return name in _CREDENTIALS


def opened_path(descriptor: int, path: str) -> str:
    """Return the real path of an open file; `path` is what was opened."""
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
    real = os.path.realpath(path)
    if not os.path.samestat(os.fstat(descriptor), os.stat(real)):  # noqa: PTH116
        raise LookupError("the file was replaced while it was opened")
    return real
