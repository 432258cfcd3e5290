"""DynamoLedger keeps the ledger's contract on a real DynamoDB API."""

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError
from tests.contracts.ledger_extents import AdvanceContract, ClaimContract, FinishContract
from tests.contracts.ledger_faults import LostAnswerContract, RaceContract
from tests.contracts.ledger_jobs import (
    CloseContract,
    ConnectorContract,
    EndContract,
    IdentityContract,
    PlanContract,
    RegistrationContract,
    ReplayContract,
)
from tests.contracts.ledger_slots import LeaseContract, SettleContract

from extentflow.ledger.dynamodb import DynamoLedger
from extentflow.ledger.dynamodb_calls import Address, Patience, connect

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from extentflow_local.stack import Stack

WRITES = ("PutItem", "UpdateItem", "TransactWriteItems")
IMPATIENT = Patience(seconds=0.0)


@dataclass
class LossyClient:
    """Connects clients that throw away the answer to a write that went through."""

    pending: int = 0
    lost: int = 0

    def connect(self, address: Address, patience: Patience) -> "DynamoDBClient":
        client = connect(address, patience)
        for operation in WRITES:
            client.meta.events.register(f"response-received.dynamodb.{operation}", self._drop)
        return client

    def _drop(self, *, parsed_response: dict[str, Any] | None, **_: object) -> None:
        succeeded = parsed_response is not None and "Error" not in parsed_response
        if self.pending and succeeded:
            self.pending -= 1
            self.lost += 1
            raise ReadTimeoutError(endpoint_url="injected")


class DynamoWorld:
    def __init__(self, endpoint: str, table: str, patience: Patience | None = None) -> None:
        self.endpoint, self.table = endpoint, table
        self.client = LossyClient()
        self.ledger = DynamoLedger(
            table, endpoint=endpoint, patience=patience, connect=self.client.connect
        )
        self._elsewhere = DynamoLedger(table, endpoint=endpoint)

    def elsewhere(self) -> DynamoLedger:
        return self._elsewhere

    def another_table(self) -> DynamoLedger:
        ledger = DynamoLedger(f"other-{uuid.uuid4().hex[:12]}", endpoint=self.endpoint)
        ledger.create_table()
        return ledger

    def lose_answer(self, name: str) -> None:
        assert name
        self.client.pending += 1


@pytest.fixture(scope="module")
def table(stack: "Stack") -> str:
    name = f"ledger-{uuid.uuid4().hex[:12]}"
    DynamoLedger(name, endpoint=stack.endpoint("dynamodb")).create_table()
    return name


@pytest.fixture(scope="module")
def world(stack: "Stack", table: str) -> DynamoWorld:
    return DynamoWorld(stack.endpoint("dynamodb"), table)


@pytest.fixture(scope="module")
def impatient_world(stack: "Stack", table: str) -> DynamoWorld:
    return DynamoWorld(stack.endpoint("dynamodb"), table, IMPATIENT)


class TestIdentity(IdentityContract):
    pass


class TestConnectors(ConnectorContract):
    pass


class TestRegistration(RegistrationContract):
    pass


class TestPlan(PlanContract):
    pass


class TestEnd(EndContract):
    pass


class TestClose(CloseContract):
    pass


class TestReplay(ReplayContract):
    pass


class TestClaim(ClaimContract):
    pass


class TestAdvance(AdvanceContract):
    pass


class TestFinish(FinishContract):
    pass


class TestLease(LeaseContract):
    pass


class TestSettle(SettleContract):
    pass


class TestRaces(RaceContract):
    pass


class TestLostAnswersThatAreTriedAgain(LostAnswerContract):
    """The ledger itself tries again, under the same token where there is one."""


class TestLostAnswersThatTheCallerHearsOf(LostAnswerContract):
    """No time is left: the caller gets LedgerUnavailable and calls again, under a new token."""

    @pytest.fixture
    def world(self, impatient_world: DynamoWorld) -> DynamoWorld:
        return impatient_world
