"""Which objects a person means by an address: one object, a prefix, a glob, or a whole connector.

Owns: reading addresses, matching keys. Refuses to know: what is done with the objects.

    s3://bucket/a/b.csv      the object; where there is none, everything below a/b.csv/
    s3://bucket/a/           everything below a/, nested prefixes included
    s3://bucket/a/*.csv      a glob; `*` also crosses slashes. An object of exactly that name wins
    file:///data/a.csv       with endpoint.type=localfile
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from extentflow.errors import Misconfigured, ObjectGone
from extentflow.model import ObjectVersion
from extentflow.storage import ObjectStore

GLOB_CHARACTERS = "*?["


@dataclass(frozen=True, slots=True)
class Territory:
    """What belongs to a connector: keys below `prefix` in `bucket`."""

    connector: str
    bucket: str
    prefix: str = ""

    def key(self, address: str) -> str:
        """Return the key (or key pattern) that `address` names in this territory.

        Raises:
            Misconfigured: another bucket, another prefix, or no address at all.
        """
        for scheme in ("s3://", "file://"):
            root = f"{scheme}{self.bucket}"
            if address == root or address.startswith(f"{root}/"):
                return self._inside(address, address[len(root) + 1 :])
        raise Misconfigured(
            f"{address} is not in bucket {self.bucket}, which is what connector {self.connector} "
            f"reads; give an address below {self._root()} or use another connector"
        )

    def _inside(self, address: str, key: str) -> str:
        if key.startswith(self.prefix) or (self.prefix.startswith(key) and key[-1:] in ("", "/")):
            return key if key.startswith(self.prefix) else self.prefix
        raise Misconfigured(
            f"{address} is not below {self._root()}, which is what connector {self.connector} "
            "reads; give an address below it or use another connector"
        )

    def _root(self) -> str:
        scheme = "file" if self.bucket.startswith("/") else "s3"
        return f"{scheme}://{self.bucket}/{self.prefix}"


def select(store: ObjectStore, territory: Territory, pattern: str) -> Iterator[ObjectVersion]:
    """Yield the pinned versions of all objects that `pattern` (see `Territory.key`) means.

    One HEAD per selected object, none for keys that do not match.

    Raises:
        Misconfigured: nothing matches.
        ObjectGone, AccessDenied, StoreUnavailable: from the store.
    """
    exact = None if pattern == "" or pattern.endswith("/") else _head(store, territory, pattern)
    if exact is not None:
        yield exact
        return
    found = False
    for key in _matches(store, territory, pattern):
        version = _head(store, territory, key)
        if version is not None:  # deleted since it was listed
            found = True
            yield version
    if not found:
        raise Misconfigured(
            f"no object matches s3://{territory.bucket}/{pattern}; "
            "check the address, or list the bucket with your S3 client"
        )


def _head(store: ObjectStore, territory: Territory, key: str) -> ObjectVersion | None:
    try:
        return store.head(territory.bucket, key)
    except ObjectGone:
        return None


def _matches(store: ObjectStore, territory: Territory, pattern: str) -> Iterator[str]:
    glob = next((i for i, c in enumerate(pattern) if c in GLOB_CHARACTERS), None)
    prefix = pattern if glob is None else pattern[:glob]
    if glob is None and pattern and not pattern.endswith("/"):
        prefix = f"{pattern}/"
    for listed in store.list(territory.bucket, prefix):
        wanted = glob is None or fnmatchcase(listed.key, pattern)
        if wanted and listed.key.startswith(territory.prefix) and not listed.key.endswith("/"):
            yield listed.key
