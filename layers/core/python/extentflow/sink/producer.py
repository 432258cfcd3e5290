"""One librdkafka producer: made in one process, used by one thread, thrown away when it fails.

Owns: the handle, what its callbacks report, its end. Refuses to know: transactions, topics.

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
from extentflow.sink.translate import error_of, forgotten, translate

LOG = logging.getLogger("extentflow.kafka")
LOG.addHandler(logging.NullHandler())

PURGED = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})

_live: "weakref.WeakSet[ProducerHandle]" = weakref.WeakSet()


class ProducerHandle:
    """A producer and what became of it. `subject` opens every error message."""

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
        # Where records were purged by an abort, librdkafka counts by itself what a commit lacks.
        self._harmless = PURGED if "transactional.id" in settings else frozenset()
        self._process = os.getpid()
        self._ended: ExtentflowError | None = None
        self._producer: Producer | None = self._made(settings, make)
        _live.add(self)

    @contextmanager
    def calling(self) -> Iterator[Producer]:
        """Lend the producer for calls; whatever they raise ends the client, in our words.

        Raises:
            Fenced, SinkUnavailable, Misconfigured: now, or when the client ended.
        """
        producer = self._usable()
        try:
            yield producer
        except KafkaException as exc:
            cause = self._cause(error_of(exc), producer)
            self._end(translate(cause, self.subject))
            raise translate(cause, self.subject) from forgotten(exc)
        except ExtentflowError as exc:
            self._end(type(exc)(str(exc)))
            raise

    def check_deliveries(self) -> None:
        """Raise when a delivery failed."""
        if self.failed is not None:
            raise translate(self.failed, self.subject)

    def check_credentials(self) -> None:
        """Raise when brokers refused the credentials: waiting longer would not help."""
        if self.trouble is not None and self.trouble.name() == "_AUTHENTICATION":
            raise translate(self.trouble, self.subject)

    def hint(self) -> str:
        """Return what else is known about a broker that does not answer."""
        return f"; {self.trouble.str()}" if self.trouble is not None else ""

    def forgive(self) -> None:
        """Forget failed deliveries: their transaction was aborted."""
        self.failed = None

    def close(self) -> None:
        """Drop the producer with all that it holds; never raises, never waits for a broker."""
        self._end(SinkUnavailable(f"{self.subject}: this producer is closed; acquire anew"))

    def orphan(self) -> None:
        """Let go of a producer inherited by a fork, without running its destructor.

        Its threads did not come along; waiting for them would take for ever.
        """
        if self._producer is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))
        self._producer = None
        self._ended = SinkUnavailable(
            f"{self.subject}: this producer belongs to process {self._process}, "
            f"not to its fork {os.getpid()}; acquire a slot in this process"
        )

    def _made(
        self, settings: Mapping[str, Any], make: Callable[[dict[str, Any]], Producer]
    ) -> Producer:
        callbacks = {
            "on_delivery": self._delivered,
            "delivery.report.only.error": True,
            "error_cb": self._troubled,
            "logger": LOG,
        }
        try:
            return make({**settings, **callbacks})
        except KafkaException as exc:
            raise Misconfigured(f"{self.subject}: {error_of(exc).str()}") from exc

    def _usable(self) -> Producer:
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
        """Look behind the two errors that only say that there was another."""
        if error.name() == "_INCONSISTENT" and self.failed is not None:
            return self.failed
        if error.name() in ("_FATAL", "_STATE"):
            return _serve(producer) or self.failed or error
        return error

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if self.failed is None and error is not None and error.name() not in self._harmless:
            where = f"{message.topic()}[{message.partition()}]"
            self.failed = KafkaError(error.code(), f"delivery to {where} failed: {error.str()}")

    def _troubled(self, error: KafkaError) -> None:
        if self.trouble is None or self.trouble.name() != "_AUTHENTICATION":
            self.trouble = error


def _serve(producer: Producer) -> KafkaError | None:
    """Run callbacks; return the fatal error that librdkafka has been waiting to tell."""
    try:
        producer.poll(0)
    except KafkaException as exc:
        return error_of(forgotten(exc))
    return None


def _orphan_all() -> None:
    for client in list(_live):
        client.orphan()


os.register_at_fork(after_in_child=_orphan_all)
