"""Files below a local directory as objects, for `endpoint.type=localfile`.

    bucket    an absolute directory, as a path or a file:// URI
    key       a normalised relative path below it
    pin       inode, modification time and size, compared before and after every read

`modified` of a version is the ctime, in nanoseconds: `extentflow.jobs.contents` compares digests
where it differs. A file that is rewritten in place, to the same size and within one tick of the
kernel's clock (a few milliseconds), keeps both: this change cannot be detected.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

from extentflow.config.trust import holds_credentials, is_credentials, named_files, opened_path
from extentflow.errors import AccessDenied, BucketGone, Misconfigured, ObjectGone, StoreUnavailable
from extentflow.model import ObjectVersion, bucket_uri
from extentflow.retry import RetryPolicy
from extentflow.storage import Link, ListedObject, ObjectProperties, Page, StoreOptions, ranges
from extentflow.storage.ranges import TransferCounters
from extentflow.wording import is_undecoded, name_problem

_RETRY = RetryPolicy(total_seconds=10.0)
OF_CREDENTIALS = "holds credentials; name its own folder in `directory` where it is meant"
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)


class LocalStore:
    """The ObjectStore port over directories.

    Symbolic links out of a bucket are not read, and listed with their problem, as those to no file.

    Raises Misconfigured for an option that applies to S3 only.
    """

    def __init__(
        self,
        options: StoreOptions,
        *,
        retry: RetryPolicy = _RETRY,
        pread: Callable[[int, int, int], bytes] = os.pread,
        page_keys: int = 1000,
    ) -> None:
        self._trust = options.trust
        if options != StoreOptions():
            raise Misconfigured(
                "endpoint.type=localfile accepts no endpoint, region, credentials or CA bundle; "
                "remove these keys"
            )
        self._retry = retry.within(options.retry_seconds)
        self._pread = pread
        self._page_keys = page_keys
        self.counters = TransferCounters()

    @property
    def fetched_bytes(self) -> int:
        """Bytes read so far."""
        return self.counters.fetched_bytes

    def head(self, bucket: str, key: str, version_id: str | None = None) -> ObjectVersion:
        where = _uri(bucket, key)
        if version_id is not None:
            raise ObjectGone(
                f"{where}: local files have no version ids; version {version_id} does not exist"
            )

        def head() -> ObjectVersion:
            self.counters.count(requests=1)
            with _translate_errors(where), self._opened(bucket, key, where) as (_, found):
                return ObjectVersion(
                    bucket, key, None, _pin(found), found.st_size, found.st_ctime_ns
                )

        return self._retry.call(head)

    def read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """Raises ValueError for a range that is not of the file, or of more than 64 MiB."""
        ranges.check_request(version, start, end)
        return self._retry.call(lambda: self._read(version, start, end))

    def list(self, bucket: str, prefix: str = "") -> Iterator[ListedObject]:
        # Symbolic links to directories inside the bucket are skipped: their files have other keys.
        with _translate_errors(bucket_uri(bucket)):
            root = self._root(bucket)
        yield from _walk(bucket, root, "", prefix, guarded=self._guarded())

    def pages(self, bucket: str, prefix: str = "", *, token: str | None = None) -> Iterator[Page]:
        # The token is the last key of its page; the file of that key need not exist any more.
        with _translate_errors(bucket_uri(bucket)):
            root = self._root(bucket)
        after = b"" if token is None else unquote_to_bytes(token)
        found = _walk(bucket, root, "", prefix, after, guarded=self._guarded())
        page, ahead = self._page(found), self._page(found)
        while ahead.versions:
            yield replace(page, token=quote(os.fsencode(page.versions[-1].key)))
            page, ahead = ahead, self._page(found)
        yield page

    def properties(self, version: ObjectVersion) -> ObjectProperties:
        """Return the time of the last change; files have neither content type nor metadata."""
        where = version.uri

        def properties() -> ObjectProperties:
            self.counters.count(requests=1)
            with (
                _translate_errors(where),
                self._opened(version.bucket, version.key, where) as (_, found),
            ):
                _check_pin(version, found, where)
                return ObjectProperties(datetime.fromtimestamp(found.st_mtime_ns / 1e9, UTC))

        return self._retry.call(properties)

    def tags(self, version: ObjectVersion) -> Mapping[str, str]:
        """Return nothing: files have no tags."""
        _ = version
        return {}

    def _guarded(self) -> AbstractSet[Path] | None:
        return None if self._trust is None else named_files()

    def _root(self, bucket: str) -> Path:
        """Return the bucket's real directory, which its owner may have replaced by a link."""
        root = _root(bucket)
        if self._trust is not None and not self._trust.may_read(str(root)):
            raise AccessDenied(
                f"{bucket_uri(bucket)}: it is {root} now, which connectors may not read here; the"
                " worker's connectors.directory.allowed names no folder around it"
            )
        return root

    @contextlib.contextmanager
    def _opened(self, bucket: str, key: str, where: str) -> Iterator[tuple[int, os.stat_result]]:
        """Open the key's file for reading; never blocks, even on a FIFO or a device."""
        root = self._root(bucket)
        # A normalised path, so that each file has exactly one key.
        if any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
            raise AccessDenied(
                f"{where}: a key must be a path below its folder, without '.', '..' or empty parts"
            )
        path = os.path.realpath(root / key, strict=True)
        _check_inside(root, path, where)
        if self._trust is not None and holds_credentials(root, key, path, named_files()):
            raise AccessDenied(f"{where} {OF_CREDENTIALS}")
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            _check_inside(root, opened_path(file, path), where)
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise ObjectGone(f"{where} is not a regular file")
            yield file, found
        finally:
            os.close(file)

    def _page(self, found: Iterator[ListedObject]) -> Page:
        listed = list(islice(found, self._page_keys))
        versions = (
            ObjectVersion(one.bucket, one.key, None, one.etag, one.size, one.modified)
            for one in listed
        )
        links = {one.key: one.link for one in listed if one.link is not None}
        return Page(tuple(versions), links=links)

    def _read(self, version: ObjectVersion, start: int, end: int) -> bytes:
        where = ranges.range_uri(version, start, end)
        self.counters.count(requests=1)
        with (
            _translate_errors(where),
            self._opened(version.bucket, version.key, where) as (file, found),
        ):
            _check_pin(version, found, where)
            body = more = self._pread(file, end - start, start)
            # pread() may return fewer bytes than requested.
            while more and len(body) < end - start:
                more = self._pread(file, end - start - len(body), start + len(body))
                body += more
            after = os.fstat(file)
            _check_pin(version, after, where)
            if after.st_ctime_ns != found.st_ctime_ns:
                # Its time may have been set back; a mode or a link may have changed as well.
                raise StoreUnavailable(f"{where} was changed while it was read")
        self.counters.count(body_bytes=len(body))
        ranges.check_length(version, start, end, body=body, source="the file system")
        return body


def _pin(found: os.stat_result) -> str:
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


def _check_pin(version: ObjectVersion, found: os.stat_result, where: str) -> None:
    ranges.check_etag(version, _pin(found), where=where, endpoint="the file system")


def _uri(bucket: str, key: str) -> str:
    return f"{bucket_uri(bucket)}/{key}"


def _root(bucket: str) -> Path:
    """Return the bucket's real directory."""
    path = bucket
    if bucket.startswith("file://"):
        parts = urlsplit(bucket)
        path = unquote(parts.path) if parts.netloc in ("", "localhost") else ""
    if not Path(path).is_absolute() or "\0" in path:
        raise Misconfigured(
            f"{bucket!r} is not an absolute directory; with endpoint.type=localfile write one, "
            "as a path or as file:///path"
        )
    try:
        root = Path(os.path.realpath(path, strict=True))
        if not root.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    except OSError as exc:
        if exc.errno not in _NOT_FOUND:
            raise
        raise BucketGone(
            f"{bucket_uri(bucket)}: {exc.filename}: {exc.strerror}; mount or create it, "
            "or correct the connector"
        ) from exc
    return root


def _check_inside(root: Path, path: str, where: str) -> None:
    if not Path(path).is_relative_to(root):
        raise AccessDenied(f"{where} is a symbolic link out of its folder; move the file inside")


def _link_problem(root: Path, path: str) -> str:
    """Return why a symbolic link is no name of a file or directory below `root`, else ""."""
    remedy = "replace the link by its file, or remove it"
    if not Path(os.path.realpath(path)).is_relative_to(root):
        return f"it leads out of its folder; {remedy}"
    try:
        Path(path).stat()
    except OSError as exc:
        if exc.errno not in _NOT_FOUND:
            raise
        return f"it leads to no file; {remedy}"
    return ""


def _walk(
    bucket: str,
    root: Path,
    parent: str,
    prefix: str,
    after: bytes = b"",
    *,
    guarded: AbstractSet[Path] | None,
) -> Iterator[ListedObject]:
    """Yield the files below the directory with key `parent` whose keys sort after `after`.

    With the `named_files` in `guarded`, files and folders of credentials are listed with their
    problem, as links are.
    """
    with _translate_errors(_uri(bucket, parent)), os.scandir(root / parent) as entries:
        ordered = sorted(entries, key=_sort_key)
    for entry in ordered:
        if problem := name_problem(entry.name):
            raise Misconfigured(f"{_uri(bucket, parent)}{problem}")
        key, name = parent + entry.name, os.fsencode(parent) + _sort_key(entry)
        # Neither is it a key after `after`, nor does it contain one.
        if name <= after and not (name.endswith(b"/") and after.startswith(name)):
            continue
        if guarded is not None and is_credentials(entry.name):
            if key.startswith(prefix):
                yield _of_credentials(bucket, key)
        elif entry.is_dir(follow_symlinks=False):
            if prefix.startswith(f"{key}/") or key.startswith(prefix):
                yield from _walk(bucket, root, f"{key}/", prefix, after, guarded=guarded)
        elif key.startswith(prefix) and (
            found := _listed(bucket, root, entry, key, guarded=guarded)
        ):
            yield found


def _listed(
    bucket: str, root: Path, entry: os.DirEntry[str], key: str, *, guarded: AbstractSet[Path] | None
) -> ListedObject | None:
    """Return what a listing has of an entry that is no directory; None: nothing."""
    target = ""
    with _translate_errors(_uri(bucket, key)):
        problem = "its name is not UTF-8, as keys are; rename it" if is_undecoded(key) else ""
        if entry.is_symlink() and not problem:
            problem = _link_problem(root, entry.path)
            target = os.path.relpath(os.path.realpath(entry.path), root)
        if problem:
            there = os.path.lexists(entry.path)
            return (
                ListedObject(bucket, key, "", 0, link=Link("", problem=problem)) if there else None
            )
        path = f"{root}/{target or key}"
        if guarded is not None and holds_credentials(root, key, path, guarded):
            return _of_credentials(bucket, key)
        try:
            found = entry.stat()
        except FileNotFoundError:  # deleted since the directory was read
            return None
    if not stat.S_ISREG(found.st_mode):
        return None
    link = None
    if target or found.st_nlink > 1:
        link = Link(f"{found.st_dev:x}-{found.st_ino:x}", target)
    return ListedObject(bucket, key, _pin(found), found.st_size, found.st_ctime_ns, link)


def _of_credentials(bucket: str, key: str) -> ListedObject:
    return ListedObject(bucket, key, "", 0, link=Link("", problem=f"it {OF_CREDENTIALS}"))


def _sort_key(entry: os.DirEntry[str]) -> bytes:
    # Keys of a directory continue with a slash, so "a.csv" sorts before "a/b.csv", as in S3.
    return os.fsencode(entry.name) + (b"/" if entry.is_dir(follow_symlinks=False) else b"")


@contextlib.contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    try:
        yield
    except PermissionError as exc:
        why = f"no permission to read {exc.filename}; change its mode"
        raise AccessDenied(f"{where}: {why}") from exc
    except OSError as exc:
        if exc.errno in _NOT_FOUND:
            raise ObjectGone(f"{where}: {exc.filename}: {exc.strerror}") from exc
        raise StoreUnavailable(f"{where}: {exc}") from exc
