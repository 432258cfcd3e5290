"""What must be proved before bytes may leave a store.

Owns: the comparison of an answer with the pin (status, ETag, Content-Range, length) and the bounds
of a request. Refuses to know: how the answer was obtained. Servers may ignore If-Match and Range
and proxies may cut bodies short; hence nothing here trusts that a condition was honoured.

    200 where a range was asked      -> Permanent         before the body is read
    ETag missing                     -> Permanent         nothing can be proved
    another ETag, another total size -> ObjectChanged
    another range, another length    -> StoreUnavailable  asked again by the caller
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus

from extentflow.errors import ObjectChanged, Permanent, StoreUnavailable
from extentflow.model import ObjectVersion

MAX_READ_BYTES = 64 << 20

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of a server's answer to a ranged GET; its body has not been read yet."""

    status: int
    etag: str | None
    content_range: str | None


def place(version: ObjectVersion, start: int, end: int) -> str:
    """Return `s3://bucket/key[start-end)`, as every message names a range."""
    return f"{version.uri}[{start}-{end})"


def unquoted(etag: str) -> str:
    """Return an ETag as it is pinned: opaque, without its quotes."""
    return etag.removeprefix('"').removesuffix('"')


def check_request(version: ObjectVersion, start: int, end: int) -> None:
    """Refuse a range that no caller of ours has a reason to ask for.

    Raises:
        ValueError: not `0 <= start < end <= size`, or more than 64 MiB at once: memory must not
            grow with the object (trap T17); `RangeReader.stream` reads any range in windows.
    """
    if not 0 <= start < end <= version.size:
        raise ValueError(f"{place(version, start, end)} is not a range of {version.size} bytes")
    if end - start > MAX_READ_BYTES:
        raise ValueError(
            f"{place(version, start, end)} is more than {MAX_READ_BYTES} bytes; stream it"
        )


def check_answer(
    version: ObjectVersion, start: int, end: int, *, answer: Answer, endpoint: str
) -> None:
    """Compare the head of an answer with the pin; called before the body is read.

    A 200 is accepted only where the range is the whole object: it then carries just these bytes.

    Raises:
        Permanent: the endpoint ignores Range, or sends no ETag.
        ObjectChanged: ETag or total size are not the pinned ones.
        StoreUnavailable: the answer holds another range.
    """
    where = place(version, start, end)
    whole = answer.status == HTTPStatus.OK
    if whole and (start, end) != (0, version.size):
        raise Permanent(
            f"{where}: {endpoint} ignored the Range header and answered 200 with the whole object; "
            "use an endpoint, or a proxy setting, that honours Range"
        )
    check_etag(version, answer.etag, where=where, endpoint=endpoint)
    if not whole:
        _check_content_range(version, start, end, answer=answer, endpoint=endpoint)


def check_etag(version: ObjectVersion, etag: str | None, *, where: str, endpoint: str) -> None:
    """Compare the answer's ETag, in quotes or not, with the pinned one.

    Raises:
        Permanent: there is none, so that nothing can be proved.
        ObjectChanged: it is another one.
    """
    if not etag:
        raise Permanent(
            f"{where}: {endpoint} sent no ETag, so that a replaced object could not be noticed; "
            "use an endpoint that sends ETags"
        )
    if unquoted(etag) != version.etag:
        raise changed(where, f"its ETag is {unquoted(etag)}, not {version.etag}")


def check_length(version: ObjectVersion, start: int, end: int, *, body: bytes, source: str) -> None:
    """Compare the body's length with the range's.

    Raises:
        StoreUnavailable: the body is shorter or longer.
    """
    where, wanted = place(version, start, end), end - start
    if len(body) != wanted:
        raise StoreUnavailable(f"{where}: {source} sent {len(body)} bytes instead of {wanted}")


def changed(where: str, proof: str) -> ObjectChanged:
    """Return the error for an object that was replaced since it was planned."""
    return ObjectChanged(
        f"{where} was replaced since it was planned ({proof}); "
        "the new version is a job of its own: run its address again"
    )


def _check_content_range(
    version: ObjectVersion, start: int, end: int, *, answer: Answer, endpoint: str
) -> None:
    where = place(version, start, end)
    parsed = _CONTENT_RANGE.fullmatch(answer.content_range or "")
    if parsed is None:
        raise StoreUnavailable(
            f"{where}: {endpoint} answered {answer.status} with Content-Range "
            f"{answer.content_range!r}; expected bytes {start}-{end - 1}/{version.size}"
        )
    first, last, total = parsed.groups()
    if total not in ("*", str(version.size)):
        raise changed(where, f"it has {total} bytes, not {version.size}")
    if (int(first), int(last)) != (start, end - 1):
        raise StoreUnavailable(f"{where}: {endpoint} sent bytes {first}-{last} instead")
