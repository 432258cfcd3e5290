"""The ledger's table is the one that the library makes elsewhere, and outlives the stack."""

from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.infra.conftest import Templates
from tests.support.synthesis import environment, function, of_type

from extentflow.ledger import LedgerOptions
from extentflow.ledger.dynamodb import DynamoLedger

TABLE = "AWS::DynamoDB::Table"


@pytest.fixture
def made_by_the_library(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        DynamoLedger(LedgerOptions("ledger", region="eu-central-1")).admin.create()
        client = boto3.client("dynamodb")
        return {
            **client.describe_table(TableName="ledger")["Table"],
            **client.describe_time_to_live(TableName="ledger"),
            **client.describe_continuous_backups(TableName="ledger"),
        }


def test_the_table_is_the_librarys(
    templates: Templates, made_by_the_library: dict[str, Any]
) -> None:
    (table,) = of_type(templates("plain"), TABLE).values()

    theirs = made_by_the_library
    assert table["KeySchema"] == theirs["KeySchema"]
    assert _by_name(table["AttributeDefinitions"]) == _by_name(theirs["AttributeDefinitions"])
    assert [_shape(index) for index in table["GlobalSecondaryIndexes"]] == [
        _shape(index) for index in theirs["GlobalSecondaryIndexes"]
    ]
    assert table["BillingMode"] == theirs["BillingModeSummary"]["BillingMode"]
    ttl = theirs["TimeToLiveDescription"]
    assert ttl["TimeToLiveStatus"] == "ENABLED"
    assert table["TimeToLiveSpecification"] == {
        "AttributeName": ttl["AttributeName"],
        "Enabled": True,
    }


def test_the_table_can_be_brought_back_and_is_kept(templates: Templates) -> None:
    templates("plain").has_resource(
        TABLE,
        {
            "DeletionPolicy": "RetainExceptOnCreate",
            "UpdateReplacePolicy": "Retain",
            "Properties": {
                "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
            },
        },
    )


def test_an_existing_ledger_is_used_as_it_is(templates: Templates) -> None:
    template = templates("existing")

    template.resource_count_is(TABLE, 0)
    assert environment(function(template, "worker"))["EXTENTFLOW_LEDGER_TABLE"] == "restored-ledger"


def _by_name(definitions: list[dict[str, str]]) -> list[tuple[str, str]]:
    return sorted((one["AttributeName"], one["AttributeType"]) for one in definitions)


def _shape(index: dict[str, Any]) -> tuple[str, Any, Any]:
    return index["IndexName"], index["KeySchema"], index["Projection"]
