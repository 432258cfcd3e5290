"""SqsQueue keeps the queue's contract on a real server."""

import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.contracts.queue import HandleContract, MissingQueueContract, QueueContract

from extentflow.queue.sqs_queue import SqsQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_sqs import SQSClient


@dataclass
class RealPlace:
    client: "SQSClient"
    unique: str
    patience_seconds: float = 1.0
    numbers: "Iterator[int]" = field(default_factory=count)

    def queue(self) -> SqsQueue:
        name = f"{self.unique}-{next(self.numbers)}"
        return SqsQueue(self.client.create_queue(QueueName=name)["QueueUrl"], self.client)

    def pass_seconds(self, seconds: float) -> None:
        time.sleep(seconds)  # a test cannot set the server's clock


class TestSqsQueue(QueueContract, HandleContract):
    @pytest.fixture
    def place(self, sqs: "SQSClient", unique: str) -> RealPlace:
        return RealPlace(sqs, unique)


class TestMissing(MissingQueueContract):
    @pytest.fixture
    def missing(self, sqs: "SQSClient", unique: str) -> SqsQueue:
        url = sqs.create_queue(QueueName=unique)["QueueUrl"]
        sqs.delete_queue(QueueUrl=url)
        return SqsQueue(url, sqs)
