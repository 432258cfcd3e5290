"""Select objects by address: one object, a prefix, a glob, or all of a connector.

    s3://bucket/a/b.csv      the object; where there is none, everything below a/b.csv/
    s3://bucket/a/           everything below a/, nested prefixes included
    s3://bucket/a/*.csv      a glob; `*` also crosses slashes
    file:///data/a.csv       with endpoint.type=localfile; a path alone means the same, also one
                             that is relative to the working directory

s3a://, as Hadoop calls it, means the same as s3://.

What exists under exactly that name wins: a key or a prefix may hold `*`, `?` or `[`.

Names that begin with `_` or `.` are left out below a prefix, and where a glob does not spell them
out. Hadoop, Hive and Spark give such names to _SUCCESS markers, checksums and unfinished files.
"""

import logging
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self, TypeAlias

from extentflow.config.connector import ConnectorConfig, hidden, lies_within
from extentflow.errors import AccessDenied, Misconfigured, ObjectGone
from extentflow.model import ObjectVersion
from extentflow.storage import FileNames, Link, ListedObject, ObjectStore, Page
from extentflow.wording import name_problem, without_credentials

log = logging.getLogger(__name__)

# Returns which versions of a page need not be selected.
Known: TypeAlias = Callable[[Sequence[ObjectVersion]], Container[ObjectVersion]]

GLOB_CHARACTERS = "*?["
FILE_SCHEME = "file://"
S3_SCHEMES = ("s3://", "s3a://")
_SCHEMES = (*S3_SCHEMES, FILE_SCHEME)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class NothingMatches(Misconfigured):
    """An address means no object that exists."""


@dataclass(frozen=True, slots=True)
class KeyScope:
    """What belongs to a connector: keys that begin with `prefix` in `bucket`, or `only` one key.

    Where nothing has the key `only`, what is below it.
    """

    connector: str
    bucket: str
    prefix: str = ""
    only: str = ""

    @classmethod
    def of(cls, config: ConnectorConfig) -> Self:
        """Return a connector's scope."""
        return cls(config.name, config.bucket, config.prefix, config.object_key or "")

    @property
    def root(self) -> str:
        """The key, or the beginning of keys, that stands for the whole scope."""
        return self.only or self.prefix

    @property
    def of_files(self) -> bool:
        """Whether the bucket is a folder of this machine."""
        return self.bucket.startswith("/")

    @property
    def source(self) -> str:
        """The address of the whole scope."""
        return self.uri(self.root)

    def holds(self, key: str) -> bool:
        """Whether a key lies in the scope."""
        return lies_within(key, self.prefix, self.only)

    def key(self, address: str) -> str:
        """Return the key (or key pattern) that `address` names in this scope.

        The scope's own root stands for all of it. Of files, an address may be a path, also one that
        is relative to the working directory, or leads through links. Raises Misconfigured for
        another bucket, another prefix, no address at all, or no UTF-8.
        """
        if address != address.encode("utf-8", "replace").decode():
            raise Misconfigured(f"{address!a} is not UTF-8, which keys are; correct the address")
        if self.of_files and address and (path := file_path(address)):
            address = self._below(path)
        for scheme in _SCHEMES:
            root = f"{scheme}{self.bucket}"
            if address == root or address.startswith(f"{root}/"):
                return self._inside(address, address[len(root) + 1 :])
        schemes = f"; addresses begin with {', '.join(_SCHEMES)}"
        place = f"{'folder' if self.of_files else 'bucket'} {self.bucket}"
        raise Misconfigured(
            f"{without_credentials(address)} is not in {place}, which is what connector"
            f" {self.connector} reads; {self._give} or use another connector"
            f"{'' if address.startswith(_SCHEMES) else schemes}"
        )

    def uri(self, key: str) -> str:
        """Return the address of a key, or of a prefix."""
        scheme = "file" if self.of_files else "s3"
        return f"{scheme}://{self.bucket}/{key}"

    @property
    def _give(self) -> str:
        return f"give {self.source}" if self.only else f"give an address below {self.source}"

    def _inside(self, address: str, key: str) -> str:
        if self.holds(key):
            return key
        if key == "" or self.root.startswith(f"{key.removesuffix('/')}/"):
            return self.root
        below = "" if self.only else "below "
        raise Misconfigured(
            f"{address} is not {below}{self.source}, which is what connector {self.connector}"
            f" reads; {self._give} or use another connector"
        )

    def _below(self, path: str) -> str:
        """Return the address of a path, by the bucket's own spelling where links lead into it."""
        given, root = Path(path), self.bucket.rstrip("/")
        real = os.path.realpath(root or "/").rstrip("/")
        # The last name may be a glob, or a link that is a key of its own.
        spellings = (f"{os.path.realpath(given.parent)}/{given.name}", os.path.realpath(given))
        for start, one in ((root, path), *((real, spelling) for spelling in spellings)):
            if f"{one}/".startswith(f"{start}/"):
                return f"{FILE_SCHEME}{self.bucket}/{one[len(start) + 1 :]}"
        return f"{FILE_SCHEME}{path}"


def file_path(address: str) -> str | None:
    """Return the absolute path that an address of files names; None: it is of something else.

    A slash at its end stays, so does a glob. Raises Misconfigured for a URL that holds no path.
    """
    text = address
    if address.startswith(FILE_SCHEME):
        text = re.sub(r"^localhost(?=/)", "", address.removeprefix(FILE_SCHEME))
        if not text.startswith("/"):
            raise Misconfigured(
                f"{without_credentials(address)}: write file:///absolute/path, or a path alone"
            )
    elif _SCHEME.match(text):
        return None
    if problem := name_problem(text):
        raise Misconfigured(problem)
    path = os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - keeps a `*`
    return f"{path}/" if text.endswith("/") and path != "/" else path


def select(
    store: ObjectStore,
    scope: KeyScope,
    pattern: str,
    leave_out: Callable[[str], None] = lambda _key: None,
    *,
    known: Known | None = None,
    same: Callable[[str, str], None] = lambda _key, _problem: None,
) -> Iterator[ObjectVersion]:
    """Yield the pinned versions of all objects that `pattern` (see `KeyScope.key`) means.

    One HEAD per selected object, none for keys that do not match, nor for versions that `known`
    leaves out. `leave_out` receives the keys that are hidden. `same` receives those that are links
    to a file that is selected under another key, or that have a problem, and this problem. Raises
    as `ObjectStore`, and NothingMatches; only a whole prefix may be empty.
    """
    below = partial(_below, store, scope, leave_out=leave_out, known=known, same=same)
    for keys in _meanings(scope, pattern, below):
        found = False
        for key in keys:
            if key is None:
                found = True
                continue
            try:
                version = store.head(scope.bucket, key)
            except ObjectGone:  # deleted since it was listed
                continue
            found = True
            yield version
        if found or (pattern == scope.root and not scope.only):
            return
    look = "list the folder" if scope.of_files else "list the bucket with your S3 client"
    raise NothingMatches(
        f"no {'file' if scope.of_files else 'object'} matches {scope.uri(pattern)}; check the"
        f" address, or {look}"
    )


def select_all(
    store: ObjectStore,
    scope: KeyScope,
    addresses: Iterable[str],
    leave_out: Callable[[str], None] = lambda _key: None,
    unmatched: dict[str, NothingMatches] | None = None,
    *,
    known: Known | None = None,
    same: Callable[[str, str], None] = lambda _key, _problem: None,
) -> Iterator[ObjectVersion]:
    """Yield the objects that addresses match, each once; without any the scope. See `select`.

    `unmatched` collects the addresses that match nothing, instead of raising for the first one.
    """
    patterns = {scope.key(address): address for address in addresses} or {scope.root: ""}
    seen: set[ObjectVersion] = set()
    for pattern, address in patterns.items():
        try:
            found = select(store, scope, pattern, leave_out, known=known, same=same)
            for version in found:
                if version not in seen:
                    seen.add(version)
                    yield version
        except NothingMatches as exc:
            if unmatched is None:
                raise
            unmatched[address] = exc


def match_missing(
    scope: KeyScope, addresses: Sequence[str], selected: Iterable[str]
) -> Callable[[str], bool]:
    """Return what tests if the addresses mean a key whose object may be gone; none: the scope.

    `selected` are the keys that they select: what exists under exactly that name wins here, too.
    """
    existing = sorted(selected)
    patterns = [scope.key(address) for address in addresses] or [scope.root]
    tests = [_match_missing(scope, pattern, existing) for pattern in dict.fromkeys(patterns)]
    return lambda key: any(test(key) for test in tests)


def _match_missing(scope: KeyScope, pattern: str, existing: Sequence[str]) -> Callable[[str], bool]:
    def first(prefix: str) -> str:
        """Return the first key from `prefix` on."""
        place = bisect_left(existing, prefix)
        return existing[place] if place < len(existing) else ""

    if pattern == scope.root:
        return scope.holds
    directory = pattern.endswith("/")
    if not directory and first(pattern) == pattern:
        return lambda key: key == pattern
    below = pattern if directory else f"{pattern}/"
    if first(below).startswith(below):
        return lambda key: key == pattern or key.startswith(below)
    glob = pattern.removeprefix(scope.prefix) + ("*" if directory else "")
    return lambda key: (
        key == pattern or key.startswith(below) or fnmatchcase(key[len(scope.prefix) :], glob)
    )


def _meanings(
    scope: KeyScope, pattern: str, below: Callable[[str, str], Iterable[str | None]]
) -> Iterator[Iterable[str | None]]:
    """Yield the keys of each thing that `pattern` may mean, the likeliest first; see `_below`."""
    if pattern == scope.root and not scope.only:
        yield below(pattern, "")
        return
    directory = pattern.endswith("/")
    if not directory:
        yield [pattern]
    yield below(pattern if directory else f"{pattern}/", "")
    rest = "" if pattern == scope.only else pattern.removeprefix(scope.prefix)
    if starts := [rest.index(character) for character in GLOB_CHARACTERS if character in rest]:
        glob = f"{rest}*" if directory else rest
        yield below(scope.prefix + rest[: min(starts)], glob)


@dataclass(slots=True)
class _Meaning:
    """What a prefix or a glob means: which of the listed objects, and of a file which name."""

    scope: KeyScope
    prefix: str
    glob: str
    leave_out: Callable[[str], None]
    same: Callable[[str, str], None]
    names: FileNames = field(init=False)

    def __post_init__(self) -> None:
        self.names = FileNames(lambda key: self._matches(key) and not hidden(key, self.prefix))

    def has(self, listed: ListedObject | ObjectVersion, link: Link | None) -> bool:
        """Return whether a listed object is meant."""
        if not listed.key.startswith(self.prefix):
            start, found = self.scope.uri(self.prefix), self.scope.uri(listed.key)
            raise Misconfigured(
                f"{start}: the server lists {found}, whose key does not"
                " begin so; it ignores a leading slash: remove it from aws.s3.prefix or the address"
            )
        if not self._matches(listed.key):
            return False
        if hidden(listed.key, self.prefix):
            self.leave_out(listed.key)
            return False
        if self.names.is_another(listed.key, link):
            self.same(listed.key, link.problem if link else "")
            return False
        # An empty one that ends with a slash is a console's folder.
        return bool(listed.size) or not listed.key.endswith("/")

    def _matches(self, key: str) -> bool:
        below = key[len(self.scope.prefix) :]
        return key.startswith(self.prefix) and (not self.glob or fnmatchcase(below, self.glob))


def _below(
    store: ObjectStore,
    scope: KeyScope,
    prefix: str,
    glob: str,
    *,
    leave_out: Callable[[str], None],
    known: Known | None,
    same: Callable[[str, str], None],
) -> Iterator[str | None]:
    """Yield the keys of objects below a prefix that match a glob; None for each that is `known`."""
    meaning = _Meaning(scope, prefix, glob, leave_out, same)
    pages = None if known is None else _pinned_pages(store, scope.bucket, prefix)
    if known is None or pages is None:
        for listed in store.list(scope.bucket, prefix):
            if meaning.has(listed, listed.link):
                yield listed.key
        return
    for page in pages:
        meant = [one for one in page.versions if meaning.has(one, page.links.get(one.key))]
        left_out = known(meant)
        yield from (None if version in left_out else version.key for version in meant)


def _pinned_pages(store: ObjectStore, bucket: str, prefix: str) -> Iterator[Page] | None:
    """Return the pages below a prefix; None where listing versions is not permitted."""
    try:
        pages = store.pages(bucket, prefix)
        first = next(pages)
    except AccessDenied as exc:
        log.debug("every object is requested by itself: %s", exc)
        return None
    return chain([first], pages)
