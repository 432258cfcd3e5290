"""One librdkafka producer: created in one process, used by one thread, dropped when it fails.

open ──calling()──> open ──any failure──> ended: dropped at once; every further call raises
└──────────────close()────────────────> what ended it
"""

import ctypes
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from extentflow.errors import ExtentflowError, Misconfigured, SinkUnavailable
from extentflow.sink.translate import error_of, translate, without_frames

LOG = logging.getLogger("extentflow.kafka")
LOG.addHandler(logging.NullHandler())

PURGED = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})

_live: "weakref.WeakSet[ProducerHandle]" = weakref.WeakSet()


class ProducerHandle:
    """A producer and the errors it reported. Every error message starts with `subject`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        subject: str,
        *,
        make: Callable[[dict[str, Any]], Producer] = Producer,
    ) -> None:
        self.subject = subject
        self.trouble: KafkaError | None = None
        self.failed: KafkaError | None = None
        # An abort purges records; librdkafka itself fails a commit that lacks records.
        self._harmless = PURGED if "transactional.id" in settings else frozenset()
        self._process = os.getpid()
        self._ended: ExtentflowError | None = None
        self._producer: Producer | None = self._create(settings, make)
        _live.add(self)

    @contextmanager
    def calling(self) -> Iterator[Producer]:
        """Lend the producer; an error of the block ends the client and is translated.

        Raises:
            Fenced, SinkUnavailable, Misconfigured: now, or repeated after the client ended.
        """
        producer = self._require_open()
        try:
            yield producer
        except KafkaException as exc:
            cause = self._cause(error_of(exc), producer)
            self._end(translate(cause, self.subject))
            raise translate(cause, self.subject) from without_frames(exc)
        except ExtentflowError as exc:
            self._end(type(exc)(str(exc)))
            raise

    def check_deliveries(self) -> None:
        """Raise when a delivery failed."""
        if self.failed is not None:
            raise translate(self.failed, self.subject)

    def check_credentials(self) -> None:
        """Raise when brokers rejected the credentials: waiting longer would not help."""
        if self.trouble is not None and self.trouble.name() == "_AUTHENTICATION":
            raise translate(self.trouble, self.subject)

    def hint(self) -> str:
        """Return the last error that librdkafka reported about a broker, for a message."""
        return f"; {self.trouble.str()}" if self.trouble is not None else ""

    def clear_failure(self) -> None:
        """Forget failed deliveries: their transaction was aborted."""
        self.failed = None

    def close(self) -> None:
        """Drop the producer and its queued records; never raises, never waits for a broker."""
        self._end(
            SinkUnavailable(f"{self.subject}: this producer is closed; acquire the slot again")
        )

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

    def _create(
        self, settings: Mapping[str, Any], make: Callable[[dict[str, Any]], Producer]
    ) -> Producer:
        callbacks = {
            "on_delivery": self._report_delivery,
            "delivery.report.only.error": True,
            "error_cb": self._report_trouble,
            "logger": LOG,
        }
        try:
            return make({**settings, **callbacks})
        except KafkaException as exc:
            raise Misconfigured(f"{self.subject}: {error_of(exc).str()}") from exc

    def _require_open(self) -> Producer:
        if self._producer is None or self._ended is not None:
            ended = self._ended or SinkUnavailable(self.subject)
            raise type(ended)(str(ended))
        return self._producer

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
            return _serve(producer) or self.failed or error
        return error

    def _report_delivery(self, error: KafkaError | None, message: Message) -> None:
        if self.failed is None and error is not None and error.name() not in self._harmless:
            where = f"{message.topic()}[{message.partition()}]"
            self.failed = KafkaError(error.code(), f"delivery to {where} failed: {error.str()}")

    def _report_trouble(self, error: KafkaError) -> None:
        if self.trouble is None or self.trouble.name() != "_AUTHENTICATION":
            self.trouble = error


def _serve(producer: Producer) -> KafkaError | None:
    """Run callbacks; return the fatal error that librdkafka raises from `poll`."""
    try:
        producer.poll(0)
    except KafkaException as exc:
        return error_of(without_frames(exc))
    return None


def _orphan_all() -> None:
    for client in list(_live):
        client.orphan()


os.register_at_fork(after_in_child=_orphan_all)
