"""MetadataRequests to a cluster, asked again until they are answered or time is over.

Owns: the loop, and which errors end it early. Refuses to know: clients and what is asked.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from extentflow.errors import SinkUnavailable
from extentflow.sink.settings import Timeouts
from extentflow.sink.translate import error_of, hopeless, translate

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# Shorter silences need no word to whoever waits.
SILENCE_SECONDS = 2.0


class MetadataRequests:
    """What was heard while asking: a client's `error_cb` is `heard`."""

    def __init__(self, subject: str, timeouts: Timeouts) -> None:
        self.subject = subject
        self.timeouts = timeouts
        self._heard: list[KafkaError] = []

    def heard(self, error: KafkaError) -> None:
        """Remember what librdkafka reports beside its answers."""
        self._heard.append(error)

    def ask(
        self,
        question: Callable[[float], Answer],
        *,
        serve: Callable[[], object],
        seconds: float | None = None,
    ) -> Answer:
        """Return the answer of `question(seconds that one attempt may take)`.

        `serve` runs the client's callbacks; `seconds` are `request_seconds` unless told.

        Raises:
            SinkUnavailable: no answer in time.
            Misconfigured: credentials or permissions are missing.
        """
        seconds = self.timeouts.request_seconds if seconds is None else seconds
        last = KafkaError(KafkaError.UNKNOWN)
        began, told = self.timeouts.retry.clock.monotonic(), False
        for remaining in self.timeouts.attempts(seconds):
            try:
                return question(remaining)
            except KafkaException as exc:
                if error_of(exc).name() != "_TIMED_OUT" or last.code() == KafkaError.UNKNOWN:
                    last = error_of(exc)
                serve()
                self._give_up(last)
                silent = self.timeouts.retry.clock.monotonic() - began
                if not told and silent > SILENCE_SECONDS:
                    told = True
                    log.warning("%s does not answer; trying for %.0f s", self.subject, seconds)
        heard = self._heard[-1].str() if self._heard else "is the broker up?"
        raise SinkUnavailable(f"{translate(last, self.subject)} for {seconds:g} s; {heard}")

    def _give_up(self, last: KafkaError) -> None:
        for error in (*self._heard, last):
            if hopeless(error):
                raise translate(error, self.subject)
