"""Permissions of every delivering role: publish job events, read secrets, assume roles."""

from collections.abc import Iterator, Sequence

from aws_cdk import Stack
from constructs import Construct

from extentflow.config.registry import GLUE, RegistryOptions, registries

from . import broker, secrets
from .context import StackContext
from .declared import DeclaredConnector
from .grants import Grant


def publish_events(context: StackContext) -> Iterator[Grant]:
    """Yield permission to publish job events; any role that can end a job needs it."""
    yield Grant(
        "TellEventBus",
        "job events go to the event bus",
        ("events:PutEvents",),
        (context.event_bus_arn,),
    )
    yield from broker.publish_job_events(context.stage.cluster)


def read_secrets(scope: Construct, context: StackContext, *, producer: bool) -> Iterator[Grant]:
    """Yield permission to read referenced secrets, including those of producers."""
    found = [one.secrets(producer=producer) for one in context.connectors]
    names = secrets.referred(context.stage.settings).union(*found)
    yield from secrets.read(scope, names, context.stage.secret_key_arns)


def authenticate(context: StackContext) -> Iterator[Grant]:
    """Yield permission to authenticate to the brokers, and to assume roles for other accounts."""
    yield from broker.credentials(context.stage.cluster)
    connectors = context.connectors
    roles = sorted({one.checked.role_arn for one in connectors if one.checked.role_arn})
    if roles:
        yield Grant(
            "AssumeRoles",
            "connectors read buckets of other accounts with these roles",
            ("sts:AssumeRole",),
            tuple(roles),
        )


def settle_schemas(scope: Construct, connectors: Sequence[DeclaredConnector]) -> Iterator[Grant]:
    """Yield permission to find schemas in AWS Glue, and to register them where connectors do."""
    looked_up: set[str] = set()
    written: set[str] = set()
    for one in connectors:
        for name, own in registries(one.checked.converter_options):
            if own.registry_type == GLUE:
                found = set(_schemas(scope, one, name, own))
                looked_up |= found
                written |= found if own.auto_register else set()
    wildcard = "schemas are called by topics, or the connector's record names"
    if looked_up:
        yield Grant(
            "FindSchemas",
            "connectors write by schemas in AWS Glue",
            ("glue:GetSchema", "glue:GetSchemaByDefinition", "glue:GetSchemaVersion"),
            tuple(sorted(looked_up)),
            wildcard=wildcard,
        )
    if written:
        yield Grant(
            "RegisterSchemas",
            "connectors register the schemas of their columns in AWS Glue",
            ("glue:CreateSchema", "glue:RegisterSchemaVersion"),
            tuple(sorted(written)),
            wildcard=wildcard,
        )


def encrypt_columns(scope: Construct, connectors: Sequence[DeclaredConnector]) -> Iterator[Grant]:
    """Yield permission to wrap keys of encrypted columns with the connectors' keys in AWS KMS.

    A policy cannot name an alias: a condition restricts the keys to those that have it.
    """
    names = {one.kms_key for one in connectors if one.kms_key is not None}
    aliases = {name for name in names if "alias/" in name}
    actions, why = ("kms:Encrypt", "kms:Decrypt"), "connectors encrypt columns with these keys"
    # The functions call it themselves.
    connects = frozenset({"kms"})
    if names - aliases:
        keys = sorted(_key_arn(scope, name) for name in names - aliases)
        yield Grant("EncryptColumns", why, actions, tuple(keys), connects=connects)
    if aliases:
        places = sorted({_key_arn(scope, name.partition("alias/")[0]) for name in aliases})
        named = sorted({f"alias/{name.partition('alias/')[2]}" for name in aliases})
        yield Grant(
            "EncryptColumnsByAlias",
            why,
            actions,
            tuple(places),
            wildcard="an alias may name another key later; a condition restricts keys to the alias",
            conditions={"ForAnyValue:StringEquals": {"kms:ResourceAliases": named}},
            connects=connects,
        )


def _key_arn(scope: Construct, name: str) -> str:
    """Return the ARN of a key by its ARN or id; of all keys by what precedes an alias."""
    if name.startswith("arn:"):
        return f"{name}key/*" if name.endswith(":") else name
    return Stack.of(scope).format_arn(service="kms", resource="key", resource_name=name or "*")


def _schemas(
    scope: Construct, one: DeclaredConnector, converter: str, own: RegistryOptions
) -> Iterator[str]:
    """Yield the ARNs of a converter's registry and schemas."""
    topics = [topic for topic in one.topics if topic != one.checked.dead_letter_topic]
    names = {own.subject(topic, is_key=converter.startswith("key.")) for topic in topics}
    stack = Stack.of(scope)
    for resource in (own.registry_name, *(f"{own.registry_name}/{name}" for name in names)):
        yield stack.format_arn(
            service="glue",
            region=own.region,
            resource="schema" if "/" in resource else "registry",
            resource_name=resource,
        )
