"""The ledger's table, with the same keys and indexes that the library creates."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

from extentflow.ledger.dynamodb import INDEX_KEY_SCHEMA, KEY_SCHEMA
from extentflow.ledger.dynamodb_calls import JOBS_INDEX
from extentflow.ledger.items import EXPIRY_ATTRIBUTE

from .grants import Grant

NUMBERS = frozenset({"created"})


class Ledger(Construct):
    """The table of jobs, extents, slots and connectors: created here, or the `existing` one.

    It records what was delivered, so it is never deleted with the stack.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        existing: str | None,
        key_arn: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.table = (
            self._made(key_arn)
            if existing is None
            else dynamodb.Table.from_table_name(self, "Table", existing)
        )

    def _made(self, key_arn: str | None) -> dynamodb.Table:
        partition, sort = (_attribute(element["AttributeName"]) for element in KEY_SCHEMA)
        listing, created = (_attribute(element["AttributeName"]) for element in INDEX_KEY_SCHEMA)
        table = dynamodb.Table(
            self,
            "Table",
            partition_key=partition,
            sort_key=sort,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute=EXPIRY_ATTRIBUTE,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if key_arn else None,
            encryption_key=kms.Key.from_key_arn(self, "Key", key_arn) if key_arn else None,
            # Without deletion protection, with which a failed first deployment could not be rolled
            # back and repeated. A deleted table leaves a backup, because of the recovery above.
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )
        table.add_global_secondary_index(
            index_name=JOBS_INDEX, partition_key=listing, sort_key=created
        )
        return table

    def work(self) -> Grant:
        """Return permission to read and change items."""
        return Grant(
            "WorkOnLedger",
            "jobs, extents, slots and connectors are read and changed, some in transactions",
            ("dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"),
            (self.table.table_arn,),
        )

    def claim(self) -> Grant:
        """Return permission to claim extents."""
        return Grant(
            "ClaimExtents",
            "a claim checks that the job is open",
            ("dynamodb:ConditionCheckItem",),
            (self.table.table_arn,),
        )

    def write_connectors(self) -> Grant:
        """Return permission to store and hide connectors."""
        return Grant(
            "WriteConnectors",
            "a connector's revisions are read and written",
            ("dynamodb:GetItem", "dynamodb:UpdateItem"),
            (self.table.table_arn,),
        )

    def find_jobs(self) -> tuple[Grant, ...]:
        """Return permission to query jobs by state, and to read them in batches."""
        return (
            Grant(
                "ListJobs",
                "jobs are queried by state through the index",
                ("dynamodb:Query",),
                (f"{self.table.table_arn}/index/{JOBS_INDEX}",),
            ),
            Grant(
                "LookJobsUp",
                "jobs of listed objects are read in batches",
                ("dynamodb:BatchGetItem",),
                (self.table.table_arn,),
            ),
        )


def _attribute(name: str) -> dynamodb.Attribute:
    kind = dynamodb.AttributeType.NUMBER if name in NUMBERS else dynamodb.AttributeType.STRING
    return dynamodb.Attribute(name=name, type=kind)
