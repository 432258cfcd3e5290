"""The error tree, sorted by what the caller should do.

Each adapter translates the errors of botocore, librdkafka or Arrow in one place, with
`raise ... from exc`.

    ExtentflowError
    ├── Retryable       the same call may succeed later; nothing about the input is wrong
    │     StoreUnavailable
    │     SinkUnavailable (BatchTooLarge, RecordsRejected, ProducerSpent, TopicLost)
    │     LedgerUnavailable  QueueUnavailable
    │     BusUnavailable  RunsUnavailable  RunFailed  CredentialsUnavailable  Fenced
    │     RegistryUnavailable  ProcessExhausted  Defect
    ├── Permanent       retrying changes nothing; a person has to act
    │     ObjectGone (BucketGone)  ObjectArchived  ObjectChanged  AccessDenied  CorruptObject
    │     NotOffered
    │     UnsupportedFormat  UnsupportedType  IncompatibleSchema  ProgressUnknown  Conflict
    │     UnreadableItem  TooManyBadRecords  TopicReplaced  PositionGone
    ├── CorruptRecord   one record is bad; `errors.tolerance` decides
    └── Misconfigured   settings or environment; every problem at once
          TooManyExtents  TopicAbsent  TransactionsRefused
"""

import errno
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

log = logging.getLogger(__name__)

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EAGAIN})


class ExtentflowError(Exception):
    """Root of every error that extentflow raises on purpose."""


class Retryable(ExtentflowError):  # noqa: N818 - the tree reads as outcomes
    """The same call may succeed later."""


class StoreUnavailable(Retryable):
    """The object store did not answer, answered 5xx, throttled, or cut the body short."""


class SinkUnavailable(Retryable):
    """The broker is unavailable, or the outcome of a commit is unknown."""


class BatchTooLarge(SinkUnavailable):
    """A topic's `max.message.bytes` is below a batch that was sent: it was lowered meanwhile."""


class TopicLost(SinkUnavailable):
    """Brokers do not list a topic that records go to: it was deleted, or they lack their metadata.

    Whether it exists is asked for before the next try.
    """

    @classmethod
    def of(cls, topic: str) -> Self:
        """Return the error for a topic of this name."""
        return cls(f"topic {topic} does not exist; create it")


class RecordsRejected(SinkUnavailable):
    """Brokers judge records of a batch as invalid; which ones is found by sending fewer at once.

    `topic` is the one that rejects them, where that is known. `why` is the reason of the record,
    once it is found.
    """

    def __init__(self, message: str, *, topic: str = "", why: str = "") -> None:
        super().__init__(message)
        self.topic = topic
        self.why = why or message


class ProducerSpent(SinkUnavailable):
    """A sound producer begins no further transaction; the next one continues. No outage."""


class LedgerUnavailable(Retryable):
    """The ledger is unavailable or throttled, or the outcome of a write is unknown."""


class QueueUnavailable(Retryable):
    """The queue is unavailable or throttled; messages being sent may have arrived."""


class BusUnavailable(Retryable):
    """The event bus is unavailable or throttled; events being put may have arrived."""


class RunsUnavailable(Retryable):
    """The service that starts Spark runs is unavailable or throttled; the run may have begun."""


class RunFailed(Retryable):
    """A remote Spark run ended before it delivered everything."""


class CredentialsUnavailable(Retryable):
    """Secrets, or the credentials that sign a token, cannot be read now."""


class RegistryUnavailable(Retryable):
    """The schema registry did not answer, answered 5xx, or throttled."""


class Fenced(Retryable):
    """Another worker owns the slot now; Kafka aborts what this worker has not committed."""


class ProcessExhausted(Retryable):
    """This process lacks memory, open files, threads or disk space."""


class Defect(Retryable):
    """An exception outside this tree, logged with its traceback; another input may work."""


class Permanent(ExtentflowError):  # noqa: N818
    """Retrying changes nothing; a person has to act."""


class ObjectGone(Permanent):
    """The pinned object version does not exist."""


class BucketGone(ObjectGone):
    """The bucket does not exist; this does not prove that a notified object was deleted."""


class ObjectArchived(Permanent):
    """The object is in an archive, and has to be restored before it can be read."""


class TopicReplaced(Permanent):
    """A topic was deleted and created again while a job delivered to it: records are gone."""


class ObjectChanged(Permanent):
    """The object's bytes are no longer those of the pinned version."""


class AccessDenied(Permanent):
    """Credentials are missing, wrong, or lack a permission."""


class CorruptObject(Permanent):
    """The bytes contradict their format: bad footer, truncation, checksum."""


class NotOffered(Permanent):
    """This deployment does not include what was requested."""


class UnsupportedFormat(Permanent):
    """The bytes show another format or compression than the connector names."""


class UnsupportedType(Permanent):
    """A column's type has no exact representation in the chosen converter."""


class IncompatibleSchema(Permanent):
    """The schema registry refuses the schema of the values, or holds one that they do not fit."""


class ProgressUnknown(Permanent):
    """Kafka lost what a slot committed; only an operator may accept duplicates."""


class Conflict(Permanent):
    """A request contradicts what the ledger holds, for example another range for an extent."""


class UnreadableItem(Permanent):
    """An item of the ledger has another layout than this version writes and reads."""


class TooManyBadRecords(Permanent):
    """A job has more bad records than `errors.max.records` tolerates."""


class PositionGone(Permanent):
    """A partition has no record at the offset where reading continues.

    Records from `position` on were deleted, or the topic was created again. `first` is the first
    offset that `partition` of `topic` has now.
    """

    # Defaults: `located` and pickle make a copy of the message alone.
    def __init__(
        self, message: str, topic: str = "", partition: int = -1, position: int = -1, first: int = 0
    ) -> None:
        super().__init__(message)
        self.topic, self.partition = topic, partition
        self.position, self.first = position, first


class CorruptRecord(ExtentflowError):  # noqa: N818
    """Records are bad; `errors.tolerance` decides what that means.

    `rows` maps row ordinals within the batch to one reason each; only converters fill it.
    """

    def __init__(self, message: str, rows: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rows: Mapping[int, str] = rows or {}


class Misconfigured(ExtentflowError):  # noqa: N818
    """Settings or environment cannot work; `problems` holds one line each, all of them."""

    def __init__(self, problems: Sequence[str] | str) -> None:
        # Unpickling passes the joined message, not the sequence.
        self.problems: tuple[str, ...] = tuple(
            problems.splitlines() if isinstance(problems, str) else problems
        )
        super().__init__("\n".join(self.problems))


class TransactionsRefused(Misconfigured):
    """The cluster, or a topic, takes no transactions, which exactly once needs."""


class TopicAbsent(Misconfigured):
    """A topic does not exist."""


class TooManyExtents(Misconfigured):
    """`extent.bytes` would cut this object into more extents than a job may have."""


@contextmanager
def located(where: str) -> Iterator[None]:
    """Add where a record is to errors about its value."""
    try:
        yield
    except (CorruptRecord, Permanent) as exc:
        raise type(exc)(f"{where}: {exc}") from exc


@contextmanager
def contain_defects(what: str) -> Iterator[None]:
    """Raise `Defect` for an exception outside the error tree, and log its traceback.

    For loops that must survive a defect that one object or message reveals: this is their only
    broad `except`. `what` names the object in messages. Raises `ProcessExhausted` instead where
    the exception says that the process lacks resources, not that code or input is wrong.
    """
    try:
        yield
    except ExtentflowError:
        raise
    except Exception as exc:
        log.exception("%s: unexpected error", what)
        text = f"{type(exc).__name__}: {exc}"
        # CPython's text; no class or code tells this RuntimeError from others.
        exhausted = isinstance(exc, MemoryError) or "can't start new thread" in str(exc)
        if isinstance(exc, OSError):
            exhausted = exc.errno in _EXHAUSTED
        if exhausted:
            raise ProcessExhausted(f"{what}: the process lacks resources: {text}") from exc
        raise Defect(f"{what}: unexpected {text}") from exc


OBJECT_GONE = "object gone: "


def reason(error: ExtentflowError) -> str:
    """Return the line that the ledger stores as reason; searches rely on "object gone"."""
    text = " ".join(str(error).split())
    gone = isinstance(error, ObjectGone) and not isinstance(error, BucketGone)
    return f"{OBJECT_GONE}{text}" if gone else text
