"""One event source mapping: messages of a queue invoke a function.

receive (hidden for the queue's visibility timeout) ──> invoke ──ok──────────> delete
├─partial failure─> delete the rest
└─otherwise───────> they return
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from extentflow_local.aws.event_source.delivery import Delivery, Observe
from extentflow_local.aws.event_source.deployment import Function, SourceMapping
from extentflow_local.aws.event_source.execution import Outcome
from extentflow_local.aws.event_source.lineage import MOST_VISITS, entered
from extentflow_local.aws.event_source.sqs_events import event_of, failed_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

log = logging.getLogger(__name__)

# A poll ends with the first message. A stop waits for it, so that no received message is dropped.
_WAIT_SECONDS = 1
_AGAIN_SECONDS = 1.0


class Poller:
    """One thread per concurrent batch of the mapping; each polls when it is idle."""

    def __init__(
        self,
        mapping: SourceMapping,
        *,
        client: "SQSClient",
        queue_url: str,
        invoke: Callable[[bytes, str], Outcome],
        function: Function,
        concurrency: int,
        observe: Observe,
    ) -> None:
        self._mapping = mapping
        self._client = client
        self._queue_url = queue_url
        self._invoke = invoke
        self._function = function
        self._observe = observe
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._poll, name=f"poll-{mapping.function}-{number}")
            for number in range(concurrency)
        ]

    def start(self) -> None:
        """Start to poll."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop receiving."""
        self._stopping.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until received messages are processed, for at most the given time."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _poll(self) -> None:
        while not self._stopping.is_set():
            try:
                messages = self._receive()
                if messages:
                    self._deliver(messages)
            except (BotoCoreError, ClientError) as exc:
                # Received messages that were not deleted return to the queue.
                log.warning("%s: %s", self._queue_url, exc)
                self._stopping.wait(_AGAIN_SECONDS)

    def _receive(self) -> "list[MessageTypeDef]":
        answer = self._client.receive_message(
            QueueUrl=self._queue_url,
            MaxNumberOfMessages=self._mapping.batch_size,
            WaitTimeSeconds=_WAIT_SECONDS,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return answer.get("Messages", [])

    def _deliver(self, messages: "list[MessageTypeDef]") -> None:
        headers = [message.get("Attributes", {}).get("AWSTraceHeader", "") for message in messages]
        trace, visits = entered(headers, self._function.arn)
        if visits > MOST_VISITS and not self._function.may_recurse:
            # Lambda drops the invocation; the messages return until they are dead-lettered.
            log.error("%s: recursive loop detected after %d visits", self._function.name, visits)
            return
        outcome = self._invoke(event_of(messages, queue_arn=self._mapping.queue_arn), trace)
        received = [message["MessageId"] for message in messages]
        failed = self._failed(outcome, received)
        self._delete([message for message in messages if message["MessageId"] not in failed])
        self._observe(
            Delivery(
                function=self._mapping.function,
                outcome=outcome,
                received=tuple(received),
                failed=tuple(name for name in received if name in failed),
            )
        )

    def _failed(self, outcome: Outcome, received: list[str]) -> set[str]:
        if not outcome.ok:
            return set(received)
        return failed_of(outcome.payload, received) if self._mapping.reports_failures else set()

    def _delete(self, messages: "list[MessageTypeDef]") -> None:
        if not messages:
            return
        answer = self._client.delete_message_batch(
            QueueUrl=self._queue_url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
            ],
        )
        for entry in answer.get("Failed", []):
            log.warning("%s: not deleted, it returns to the queue: %s", self._queue_url, entry)
