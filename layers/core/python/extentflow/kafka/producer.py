"""One librdkafka producer: created in one process, used by one thread, dropped when it fails.

open ──calling()──> open ──any failure──> ended: dropped at once; every further call raises
└──────────────close()────────────────> what ended it
"""

import ctypes
import logging
import os
import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from extentflow.errors import (
    BatchTooLarge,
    ExtentflowError,
    Fenced,
    Misconfigured,
    RecordsRejected,
    SinkUnavailable,
    TransactionsRefused,
)
from extentflow.kafka.broker_errors import REFUSED, REFUSED_REMEDY, Scope, scope_of

LOG = logging.getLogger("extentflow.kafka")
LOG.addHandler(logging.NullHandler())
# How long the reports of failed records are awaited after the error that states only a state.
REPORT_SECONDS = 1.0

_live: "weakref.WeakSet[ProducerHandle]" = weakref.WeakSet()


class ProducerHandle:
    """A producer and the errors it reported. Every error message starts with `subject`.

    `trouble` is the last error of a broker, `failed` the first failed delivery.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        subject: str,
        *,
        make: Callable[[dict[str, Any]], Producer] = Producer,
    ) -> None:
        self.subject = subject
        self.trouble: KafkaError | None = None
        self.rejections = Rejections(str(settings.get("bootstrap.servers", "")))
        self.failed: KafkaError | None = None
        # An abort purges records; librdkafka itself fails a commit that lacks records.
        purged = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
        self._transactional = "transactional.id" in settings
        self._harmless = purged if self._transactional else ()
        self._process = os.getpid()
        self._ended: ExtentflowError | None = None
        callbacks = {
            "on_delivery": self._report_delivery,
            # No callback per delivered record: a commit or flush waits for all of them.
            "delivery.report.only.error": True,
            "error_cb": self._report_trouble,
            "logger": LOG,
        }
        try:
            self._producer: Producer | None = make({**settings, **callbacks})
        except KafkaException as exc:
            raise Misconfigured(f"{self.subject}: {error_of(exc).str()}") from exc
        _live.add(self)

    @contextmanager
    def calling(self) -> Iterator[Producer]:
        """Lend the producer; an error of the block ends the client and is translated.

        Raises Fenced, SinkUnavailable or Misconfigured: now, and again after the client ended.
        """
        producer = self._producer
        if producer is None or self._ended is not None:
            ended = self._ended or SinkUnavailable(self.subject)
            # A new exception: the stored one would collect a traceback with every raise.
            raise type(ended)(str(ended))
        try:
            yield producer
        except KafkaException as exc:
            cause = self._cause(error_of(exc), producer)
            self._end(self.translated(cause))
            raise self.translated(cause) from without_frames(exc)
        except ExtentflowError as exc:
            self._end(type(exc)(str(exc)))
            raise

    def check_deliveries(self) -> None:
        """Raise when a delivery failed."""
        if self.failed is not None:
            raise self.translated(self.failed)

    def translated(self, error: KafkaError) -> ExtentflowError:
        """Return the extentflow error for `error`, as `translate`, or TransactionsRefused."""
        if self._transactional and error.name() in REFUSED:
            return TransactionsRefused(
                f"{self.subject}: the brokers refuse transactions: {error.str()} ({error.name()});"
                f" {REFUSED_REMEDY}"
            )
        return translate(error, self.subject)

    def hint(self) -> str:
        """Return the last error that librdkafka reported about a broker, for a message."""
        return f"; {self.trouble.str()}" if self.trouble is not None else ""

    def close(self) -> None:
        """Drop the producer and its queued records; never raises, never waits for a broker."""
        ended = f"{self.subject}: this producer is closed; acquire the slot again"
        self._end(SinkUnavailable(ended))

    def orphan(self) -> None:
        """Abandon a producer inherited by a fork, without running its destructor.

        A fork has no threads of its parent; the destructor would wait for them for ever.
        """
        if self._producer is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))
        self._producer = None
        self._ended = SinkUnavailable(
            f"{self.subject}: this producer belongs to process {self._process}, "
            f"not to its fork {os.getpid()}; acquire a slot in this process"
        )

    def _end(self, error: ExtentflowError) -> None:
        if self._ended is None:
            self._ended = error
        if (producer := self._producer) is not None:
            self._producer = None
            producer.purge()
            _serve(producer)

    def _cause(self, error: KafkaError, producer: Producer) -> KafkaError:
        """Return the cause of errors that only state that there was another error."""
        if error.name() == "_INCONSISTENT" and self.failed is not None:
            return self.failed
        if error.name() in ("_FATAL", "_STATE"):
            # Reports of failed records may follow the state that these records cause.
            wait = REPORT_SECONDS if self.failed is None else 0.0
            return _serve(producer, wait) or self.failed or error
        return error

    def _report_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None or error.name() in self._harmless:
            return
        # The record that a broker rejects says more than those that share its batch.
        if self.failed is None or self.failed.name() == "_INVALID_DIFFERENT_RECORD":
            where = f"{message.topic()}[{message.partition()}]"
            self.failed = KafkaError(error.code(), f"delivery to {where} failed: {error.str()}")

    def _report_trouble(self, error: KafkaError) -> None:
        self.rejections.report(error)
        if self.trouble is None or not is_rejection(self.trouble):
            self.trouble = error


def _serve(producer: Producer, seconds: float = 0.0) -> KafkaError | None:
    """Run callbacks, awaited for so long; return the fatal error that librdkafka raises."""
    try:
        producer.poll(seconds)
    except KafkaException as exc:
        return error_of(without_frames(exc))
    return None


def _orphan_all() -> None:
    for client in list(_live):
        client.orphan()


os.register_at_fork(after_in_child=_orphan_all)


# Repaired by batches of the current limit.
TOO_LARGE = "MSG_SIZE_TOO_LARGE"

# Texts of librdkafka and of `_report_delivery`.
_REJECTING = re.compile(r"(?:ProduceRequest for|delivery to) (\S+?) ?\[-?\d+\]")

# Alerts of TLS by which a broker rejects the client's certificate, or misses one (RFC 8446, section
# 6.2). librdkafka reports them as failed connections; only the text, which is OpenSSL's, differs.
_CERTIFICATE_ALERT = re.compile(r"SSL alert number (42|43|44|45|46|48|49|116)\b")
_PROTOCOL = re.compile(r"^\w+://")
_PORT = re.compile(r":\d+$")
_CERTIFICATE_REMEDY = (
    "the brokers reject the client's certificate: check ssl.certificate.*, ssl.key.*, its expiry,"
    " and that the brokers trust its issuer"
)


def is_rejection(error: KafkaError) -> bool:
    """Whether brokers rejected what the client authenticates with."""
    return error.name() == "_AUTHENTICATION" or _CERTIFICATE_ALERT.search(error.str()) is not None


class Rejections:
    """Which of the bootstrap `servers` reject what the client authenticates with.

    A broker that rejects it, while another one accepts it, is misconfigured itself, or has not read
    a change yet: the same call may succeed later.
    """

    def __init__(self, servers: str) -> None:
        names = (_PROTOCOL.sub("", name.strip()).lower() for name in servers.split(","))
        # librdkafka's default port.
        addresses = [name if _PORT.search(name) else f"{name}:9092" for name in names if name]
        self._last: dict[str, KafkaError | None] = dict.fromkeys(addresses)

    def report(self, error: KafkaError) -> None:
        """Store an error of `error_cb` as the last one of the broker that it names."""
        text = error.str().lower()
        for address in self._last:
            if re.search(rf"(?<![\w.-]){re.escape(address)}(?!\d)", text):
                self._last[address] = error

    def proven(self) -> KafkaError | None:
        """Return a rejection if each of the servers reported one last, otherwise None."""
        errors = [error for error in self._last.values() if error and is_rejection(error)]
        return errors[0] if errors and len(errors) == len(self._last) else None


def remedy_of(error: KafkaError) -> str | None:
    """Return what an operator must do; None for an error that is repaired without one."""
    if _CERTIFICATE_ALERT.search(error.str()):
        return _CERTIFICATE_REMEDY
    code = scope_of(error.name())
    needs_operator = code.scope in (Scope.TOPIC, Scope.CLUSTER) and error.name() != TOO_LARGE
    return code.remedy if needs_operator else None


def error_of(exc: KafkaException) -> KafkaError:
    """Return the KafkaError that an exception carries."""
    error = exc.args[0] if exc.args else None
    return error if isinstance(error, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(exc))


def rejection(name: str, topic: str, partition: int, *, count: int) -> KafkaError:
    """Return the error of librdkafka for a batch of so many records that brokers reject."""
    error = KafkaError(getattr(KafkaError, name))
    return KafkaError(
        error.code(),
        f"ProduceRequest for {topic} [{partition}] with {count} message(s) failed: {error.str()}",
    )


def translate(
    error: KafkaError, subject: str, remedies: Mapping[str, str] = MappingProxyType({})
) -> ExtentflowError:
    """Return the extentflow error for `error`; the message starts with `subject`.

    `remedies` are by code, and take the place of those of a writer.

    RecordsRejected  brokers judge records, and nothing else, as invalid
    BatchTooLarge    the limits of topics must be read again
    Misconfigured    an operator must act
    Fenced           ownership was lost
    SinkUnavailable  all others: drop the producer and acquire the slot again
    """
    text = f"{subject}: {error.str()} ({error.name()})"
    code = scope_of(error.name())
    if code.scope is Scope.OWNER:
        return Fenced(text)
    if code.scope is Scope.RECORD:
        topic = found[1] if (found := _REJECTING.search(text)) else ""
        why = f"the brokers reject it for topic {topic} ({error.name()}); {code.remedy}"
        return RecordsRejected(f"{text}; {code.remedy}", topic=topic, why=why)
    if error.name() == TOO_LARGE:
        return BatchTooLarge(f"{text}; {code.remedy}")
    if remedy := remedy_of(error):
        return Misconfigured(f"{text}; {remedies.get(error.name(), remedy)}")
    return SinkUnavailable(text)


def without_frames(exc: KafkaException) -> KafkaException:
    """Return `exc` without its traceback and context.

    confluent-kafka 2.16 leaks a reference to each exception that `poll` and `flush` raise; the
    frames would keep the producer, its threads and a batch of records alive for ever.
    """
    exc.__context__ = None
    return exc.with_traceback(None)


def resumable(error: KafkaError) -> bool:
    """Whether the same call may be repeated (and no other call made instead)."""
    return error.retriable() and not error.fatal() and not error.txn_requires_abort()
