"""Compare the AWS calls that functions made with what their roles allow, as IAM does.

Rules of AWS that no local server enforces:

    HeadObject, GetObject             s3:GetObject; with a version id s3:GetObjectVersion instead
    ... answered 404                  s3:ListBucket as well: without it S3 says 403, and the object
                                      would seem forbidden, not gone
    HeadBucket, ListObjectsV2         s3:ListBucket
    ListObjectVersions                s3:ListBucketVersions
    SQS in batches                    the action of one
    TransactWriteItems                the action of each of its entries
    Query of an index                 dynamodb:Query on the index, not on the table
    schemas of AWS Glue               the action on the registry, and on the schema
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extentflow_local.aws.event_source.names import Names
from extentflow_local.stack.servers import ACCESS_KEY, ACCOUNT, REGION

NOT_FOUND = 404

# Grants that no call of a function's process can show to be needed, and why.
UNSEEN: Mapping[str, str] = {
    "logs": "Lambda itself writes what a function prints",
    "ec2": "Lambda itself places functions in the VPC",
    "kms": "S3 and Secrets Manager ask it in the function's name",
    "kafka-cluster": "brokers judge by it; no AWS API is called",
}
# What Lambda's poller does in the function's name, on the queue that feeds it.
POLLING = frozenset({"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"})


@dataclass(frozen=True, slots=True)
class Need:
    """An action on a resource, that a role has to allow."""

    action: str
    resource: str


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call; `own` where the function's role signed it, not a connector's."""

    api: str
    operation: str
    params: Mapping[str, Any]
    status: int
    own: bool

    @property
    def needs(self) -> list[Need]:
        """What IAM asks for.

        Raises:
            LookupError: this module does not state what the call needs.
        """
        of = _NEEDS.get((self.api, self.operation))
        if of is None:
            raise LookupError(f"{self.api} {self.operation}: say in {__name__} what it needs")
        return list(of(self))


@dataclass(frozen=True, slots=True)
class Allowed:
    """One statement of a role, names resolved."""

    id: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]

    def covers(self, need: Need) -> bool:
        return any(_like(need.action, each) for each in self.actions) and any(
            _like(need.resource, each) for each in self.resources
        )


def recorded(folder: Path, function: str) -> list[Call]:
    """Return the calls of a function's processes; none where it made none."""
    file = folder / f"{function}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [_call(json.loads(line)) for line in lines]


def allowed(template: Mapping[str, Any], names: Names, function: str) -> list[Allowed]:
    """Return what the role of a function allows, that its own calls can show to be needed.

    Raises:
        NotImplementedError: a statement that has to be judged otherwise.
    """
    return list(_judged(_statements(template, function), names, _fed(template, function)))


def verdict(function: str, calls: Iterable[Call], statements: Sequence[Allowed]) -> list[str]:
    """Return what the role lacks, and which actions or resources of its grants no call needed."""
    needs = {need: call.operation for call in calls if call.own for need in call.needs}
    lacking = sorted(
        f"{function} lacks {need.action} on {need.resource}, asked for by {operation}"
        for need, operation in needs.items()
        if not any(each.covers(need) for each in statements)
    )
    return lacking + [
        f"{function} never needed {what} of its grant {each.id}"
        for each in statements
        for what in _unused(each, needs)
    ]


def _unused(statement: Allowed, needs: Iterable[Need]) -> Iterator[str]:
    covered = [need for need in needs if statement.covers(need)]
    for action in statement.actions:
        if not any(_like(need.action, action) for need in covered):
            yield action
    for resource in statement.resources:
        if not any(_like(need.resource, resource) for need in covered):
            yield resource


def _call(line: Mapping[str, Any]) -> Call:
    return Call(
        api=line["api"],
        operation=line["operation"],
        params=line["params"],
        status=line["status"],
        own=line["key"] == ACCESS_KEY,
    )


def _like(name: str, pattern: str) -> bool:
    """Whether IAM's wildcards match."""
    parts = {"*": ".*", "?": "."}
    regex = "".join(parts.get(letter) or re.escape(letter) for letter in pattern)
    return re.fullmatch(regex, name, re.DOTALL) is not None


# -- statements ------------------------------------------------------------------------------------


def _statements(template: Mapping[str, Any], function: str) -> list[dict[str, Any]]:
    (properties,) = _functions(template, function).values()
    role = template["Resources"][properties["Role"]["Fn::GetAtt"][0]]["Properties"]
    if "ManagedPolicyArns" in role or "PermissionsBoundary" in role:
        raise NotImplementedError(f"the role of {function} has more than its own policies")
    return [
        statement
        for policy in role["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def _functions(template: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    found = {}
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] == "AWS::Lambda::Function":
            properties = resource["Properties"]
            variables = properties.get("Environment", {}).get("Variables", {})
            if variables.get("POWERTOOLS_SERVICE_NAME") == name:
                found[logical_id] = properties
    return found


def _fed(template: Mapping[str, Any], function: str) -> list[Any]:
    """Return the queues whose messages Lambda hands the function."""
    (logical_id,) = _functions(template, function)
    return [
        resource["Properties"]["EventSourceArn"]
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::Lambda::EventSourceMapping"
        and resource["Properties"]["FunctionName"] == {"Ref": logical_id}
    ]


def _judged(
    statements: Iterable[Mapping[str, Any]], names: Names, fed: Sequence[Any]
) -> Iterator[Allowed]:
    for statement in statements:
        actions, resources = _list(statement["Action"]), _list(statement["Resource"])
        if {action.partition(":")[0] for action in actions} <= UNSEEN.keys():
            continue
        known = {"Action", "Effect", "Resource", "Sid"}
        if statement["Effect"] != "Allow" or statement.keys() - known:
            raise NotImplementedError(f"{statement}: no rule here judges that")
        if set(actions) == POLLING and resources == fed:
            continue
        resolved = tuple(names.value(resource) for resource in resources)
        yield Allowed(statement["Sid"], tuple(actions), resolved)


def _list(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return value if isinstance(value, list) else [value]


# -- calls -----------------------------------------------------------------------------------------


def _object(call: Call) -> Iterator[Need]:
    bucket, key = call.params["Bucket"], call.params["Key"]
    action = "s3:GetObjectVersion" if call.params.get("VersionId") else "s3:GetObject"
    yield Need(action, f"arn:aws:s3:::{bucket}/{key}")
    if call.status == NOT_FOUND:
        yield Need("s3:ListBucket", f"arn:aws:s3:::{bucket}")


def _bucket(action: str) -> Callable[[Call], Iterator[Need]]:
    def needs(call: Call) -> Iterator[Need]:
        yield Need(action, f"arn:aws:s3:::{call.params['Bucket']}")

    return needs


def _queue(action: str) -> Callable[[Call], Iterator[Need]]:
    def needs(call: Call) -> Iterator[Need]:
        name = call.params["QueueUrl"].rpartition("/")[2]
        yield Need(f"sqs:{action}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")

    return needs


def _item(action: str) -> Callable[[Call], Iterator[Need]]:
    def needs(call: Call) -> Iterator[Need]:
        below = f"/index/{call.params['IndexName']}" if "IndexName" in call.params else ""
        yield Need(f"dynamodb:{action}", _table(call.params["TableName"]) + below)

    return needs


def _several_items(call: Call) -> Iterator[Need]:
    for table in call.params["RequestItems"]:
        yield Need("dynamodb:BatchGetItem", _table(table))


def _transaction(call: Call) -> Iterator[Need]:
    actions = {"ConditionCheck": "ConditionCheckItem"}
    for entry in call.params["TransactItems"]:
        for kind, write in entry.items():
            action = actions.get(kind, f"{kind}Item")
            yield Need(f"dynamodb:{action}", _table(write["TableName"]))


def _table(name: str) -> str:
    return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"


def _secret(call: Call) -> Iterator[Need]:
    name = call.params["SecretId"]
    # AWS chooses the last six characters.
    named = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}-AbCdEf"
    yield Need("secretsmanager:GetSecretValue", name if name.startswith("arn:") else named)


def _events(call: Call) -> Iterator[Need]:
    for entry in call.params["Entries"]:
        bus = entry["EventBusName"]
        name = (
            bus if bus.startswith("arn:") else f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{bus}"
        )
        yield Need("events:PutEvents", name)


def _role(call: Call) -> Iterator[Need]:
    yield Need("sts:AssumeRole", call.params["RoleArn"])


def _schema(action: str) -> Callable[[Call], Iterator[Need]]:
    def needs(call: Call) -> Iterator[Need]:
        # A schema that is created has its name beside its registry.
        place = call.params.get("SchemaId") or {
            "SchemaName": call.params["SchemaName"],
            **call.params["RegistryId"],
        }
        registry, schema = place["RegistryName"], place["SchemaName"]
        for resource in (f"registry/{registry}", f"schema/{registry}/{schema}"):
            yield Need(f"glue:{action}", f"arn:aws:glue:{REGION}:{ACCOUNT}:{resource}")

    return needs


_NEEDS: Mapping[tuple[str, str], Callable[[Call], Iterator[Need]]] = {
    ("s3", "HeadObject"): _object,
    ("s3", "GetObject"): _object,
    ("s3", "HeadBucket"): _bucket("s3:ListBucket"),
    ("s3", "ListObjectsV2"): _bucket("s3:ListBucket"),
    ("s3", "ListObjectVersions"): _bucket("s3:ListBucketVersions"),
    ("s3", "GetBucketVersioning"): _bucket("s3:GetBucketVersioning"),
    ("sqs", "SendMessage"): _queue("SendMessage"),
    ("sqs", "SendMessageBatch"): _queue("SendMessage"),
    ("sqs", "ReceiveMessage"): _queue("ReceiveMessage"),
    ("sqs", "DeleteMessage"): _queue("DeleteMessage"),
    ("sqs", "DeleteMessageBatch"): _queue("DeleteMessage"),
    ("sqs", "ChangeMessageVisibility"): _queue("ChangeMessageVisibility"),
    ("sqs", "ChangeMessageVisibilityBatch"): _queue("ChangeMessageVisibility"),
    ("sqs", "GetQueueAttributes"): _queue("GetQueueAttributes"),
    ("dynamodb", "GetItem"): _item("GetItem"),
    ("dynamodb", "Query"): _item("Query"),
    ("dynamodb", "Scan"): _item("Scan"),
    ("dynamodb", "PutItem"): _item("PutItem"),
    ("dynamodb", "UpdateItem"): _item("UpdateItem"),
    ("dynamodb", "DeleteItem"): _item("DeleteItem"),
    ("dynamodb", "BatchGetItem"): _several_items,
    ("dynamodb", "TransactWriteItems"): _transaction,
    ("secrets-manager", "GetSecretValue"): _secret,
    ("eventbridge", "PutEvents"): _events,
    ("sts", "AssumeRole"): _role,
    ("glue", "GetSchema"): _schema("GetSchema"),
    ("glue", "GetSchemaByDefinition"): _schema("GetSchemaByDefinition"),
    ("glue", "GetSchemaVersion"): _schema("GetSchemaVersion"),
    ("glue", "CreateSchema"): _schema("CreateSchema"),
    ("glue", "RegisterSchemaVersion"): _schema("RegisterSchemaVersion"),
}
