"""A stage as it was synthesised: what its deployment will need of an AWS account.

    stages ──synthesis──> template with a stage's plan ──read──> PlannedStage ──> account_checks

The template carries the plan, so that a check needs neither the CDK nor the stage's Python file.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from extentflow.errors import Misconfigured

KEY = "extentflow"  # in the metadata of a template
CDK_FILE, CDK_OUTPUT = "cdk.json", "cdk.out"
ROLE = "AWS::IAM::Role"
BOOTSTRAP = "BootstrapVersion"  # a template's parameter: where CDK stores that of an account


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSubnet:
    """A subnet as the stage describes it."""

    id: str
    availability_zone: str
    zone_id: str | None
    route_table_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNetwork:
    """The VPC of a stage; `interfaces` are the ids of the subnets of each new interface endpoint.

    `gateways` are the services of new gateway endpoints, `called` those that functions and Spark
    call. With `client_security_group_id`, which the brokers admit already, the stack adds no rules
    to theirs.
    """

    vpc_id: str
    cluster_security_group_id: str
    client_security_group_id: str
    subnets: tuple[PlannedSubnet, ...]
    gateways: tuple[str, ...]
    interfaces: Mapping[str, tuple[str, ...]]
    existing_endpoints: tuple[str, ...]
    called: tuple[str, ...]
    nat: bool
    vpc_cidrs: tuple[str, ...]
    function_subnets: tuple[str, ...]
    spark_subnets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCluster:
    """The brokers; `auth` is none, iam, scram or mtls, `servers` are hosts with ports."""

    auth: str
    servers: tuple[str, ...]
    arn: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBucket:
    """A bucket that exists, or that the stack creates.

    It sends to the queue itself what is below `prefixes`, of which most buckets have none.
    `elsewhere`: others write its notifications, and it may be of another account or region.
    """

    name: str
    exists: bool
    prefixes: tuple[str, ...]
    elsewhere: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSecret:
    """A secret that exists, by its name or ARN.

    Each of its readers may decrypt with `keys`, and `key_option` of the stage adds to them.
    `members` are those of the JSON object that is its value.
    """

    id: str
    keys: tuple[str, ...]
    key_option: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKey:
    """A key that exists; `services` use it themselves, such as `logs`, besides roles."""

    arn: str
    services: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSpark:
    """A Spark application of AWS; `processes` is the number of drivers and executors.

    No application works with less than `least_vcpu`.
    """

    release_label: str
    quota_vcpu: int
    least_vcpu: int
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStage:
    """What one stack needs of its account.

    `invocations` are those of all functions but the receiver, which reserves `received`; those of
    the smallest stage are `least_invocations`.
    `access_log`: an API delivers a log. `secrets`, `keys`, `topic`, `event_bus` and `table` exist
    already; so does `assets_bucket`, unless it is CDK's. `resources` are the types in the template,
    `bootstrap` the name of CDK's parameter,
    `unbuilt` the reasons for which CloudFormation will refuse the template. `boundary` is the
    permissions boundary that all roles have; `${AWS::AccountId}` and `${AWS::Partition}` stand for
    those of the account.
    """

    name: str
    region: str
    account: str | None
    cluster: PlannedCluster
    network: PlannedNetwork | None
    buckets: tuple[PlannedBucket, ...]
    spark: PlannedSpark | None
    invocations: int
    least_invocations: int
    received: int
    account_concurrency: int
    access_log: bool
    secrets: tuple[PlannedSecret, ...]
    keys: tuple[PlannedKey, ...]
    topic: str | None
    event_bus: str
    table: str | None
    assets_bucket: str | None = None
    resources: tuple[str, ...] = ()
    bootstrap: str | None = None
    boundary: str | None = None
    unbuilt: tuple[str, ...] = ()

    @property
    def stack(self) -> str:
        """The name of the CloudFormation stack."""
        return f"extentflow-{self.name}"

    def metadata(self) -> dict[str, str]:
        """Return what a template carries, as text: CDK removes empty values of documents."""
        found = asdict(self)
        for name in (
            "resources",
            "bootstrap",
            "boundary",
            "unbuilt",
        ):  # said elsewhere in the template
            del found[name]
        return {KEY: json.dumps(found)}


def read_planned(name: str, folder: Path) -> PlannedStage:
    """Return the stage that was synthesised last in the CDK project `folder`.

    Raises:
        Misconfigured: it was not synthesised there, or by another version.
    """
    path = folder / _output(folder) / f"extentflow-{name}.template.json"
    try:
        template = json.loads(path.read_text())
    except FileNotFoundError:
        raise Misconfigured(
            f"{path}: no such file, so stage {name} was not synthesised here; run `make synth"
            f" STAGE={name}` (in a folder of your own: `npx cdk synth`), which needs aws-cdk-lib"
        ) from None
    except (OSError, RecursionError, ValueError) as exc:
        raise Misconfigured(f"{path}: no JSON ({exc}); synthesise the stage again") from exc
    try:
        return _planned(template)
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        raise Misconfigured(
            f"{path}: another version of extentflow wrote it ({exc}); synthesise the stage again"
        ) from exc


def _output(folder: Path) -> str:
    """Return the folder of templates that CDK's settings name."""
    path = folder / CDK_FILE
    try:
        return str(json.loads(path.read_text()).get("output", CDK_OUTPUT))
    except FileNotFoundError:
        return CDK_OUTPUT
    except (ValueError, AttributeError) as exc:
        raise Misconfigured(f"{path}: no JSON object ({exc}); correct it") from exc


def _planned(template: Mapping[str, Any]) -> PlannedStage:
    found = json.loads(template["Metadata"][KEY])
    network, spark = found["network"], found["spark"]
    parameters = template.get("Parameters", {})
    kinds = {resource["Type"] for resource in template["Resources"].values()}
    given = _tuples(found) | {
        "cluster": PlannedCluster(**_tuples(found["cluster"])),
        "buckets": tuple(PlannedBucket(**_tuples(one)) for one in found["buckets"]),
        "secrets": tuple(PlannedSecret(**_tuples(one)) for one in found["secrets"]),
        "keys": tuple(PlannedKey(**_tuples(one)) for one in found["keys"]),
        "network": _network(network) if network else None,
        "spark": PlannedSpark(**spark) if spark else None,
        "resources": tuple(sorted(kinds)),
        "bootstrap": parameters.get(BOOTSTRAP, {}).get("Default"),
        "boundary": _boundary(template["Resources"]),
        "unbuilt": tuple(_unbuilt(template.get("Rules", {}), parameters)),
    }
    return PlannedStage(**given)


def _unbuilt(
    rules: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield why rules refuse the template: what was not built before its synthesis."""
    for name, rule in rules.items():
        if parameters.get(name.removesuffix("IsBuilt"), {}).get("Default") == "missing":
            yield from (one["AssertDescription"] for one in rule["Assertions"])


def _boundary(resources: Mapping[str, Any]) -> str | None:
    """Return the permissions boundary of all roles; None if one has none, or another."""
    roles = [one for one in resources.values() if one["Type"] == ROLE]
    found = {_text(one.get("Properties", {}).get("PermissionsBoundary", "")) for one in roles}
    return found.pop() or None if len(found) == 1 else None


def _text(value: str | Mapping[str, Any]) -> str:
    """Return a value of a template as text, with references as `${NAME}`."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return f"${{{value['Ref']}}}"
    if "Fn::Sub" in value:
        return str(value["Fn::Sub"])
    separator, parts = value["Fn::Join"]
    return str(separator).join(map(_text, parts))


def _network(found: Mapping[str, Any]) -> PlannedNetwork:
    given = _tuples(found)
    given["subnets"] = tuple(PlannedSubnet(**one) for one in found["subnets"])
    given["interfaces"] = _tuples(found["interfaces"])
    return PlannedNetwork(**given)


def _tuples(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _frozen(value) for key, value in found.items()}


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
