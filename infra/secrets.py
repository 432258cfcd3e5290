"""Secrets that settings and connectors refer to; those of the brokers are in `broker`."""

from collections.abc import Iterable, Iterator, Mapping

from aws_cdk import ArnFormat, Stack
from constructs import Construct

from extentflow.config.secrets import Reference

from . import encryption
from .grants import Grant

PROVIDER = "secretsmanager"


def referred(config: Mapping[str, str]) -> frozenset[str]:
    """Return names and ARNs of the secrets that a checked flat map refers to.

    Some keys accept any text; text that only resembles a reference is no reference there.
    """
    return frozenset(one.path for one in _references(config.values()))


def members(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return which members of secrets these texts refer to, by the name or ARN of the secret."""
    found: dict[str, set[str]] = {}
    for one in _references(texts):
        if one.key:
            found.setdefault(one.path, set()).add(one.key)
    return {path: tuple(sorted(keys)) for path, keys in found.items()}


def _references(texts: Iterable[str]) -> Iterator[Reference]:
    found = map(_reference, texts)
    return (one for one in found if one is not None and one.provider == PROVIDER)


def _reference(text: str) -> Reference | None:
    try:
        return Reference.parse(text)
    except ValueError:
        return None


def read(scope: Construct, names: Iterable[str], key_arns: Iterable[str]) -> Iterator[Grant]:
    """Yield permission to read these secrets, and to decrypt those with customer managed keys."""
    arns = sorted(arn_of(scope, name) for name in names)
    if not arns:
        return
    yield Grant(
        "ReadSecrets",
        "settings and connectors refer to these secrets",
        ("secretsmanager:GetSecretValue",),
        tuple(arns),
    )
    yield from decrypt(key_arns)


def decrypt(key_arns: Iterable[str]) -> Iterator[Grant]:
    """Yield permission to decrypt secrets with these keys, if there are any."""
    if keys := tuple(key_arns):
        why = "secrets are encrypted with these keys"
        yield from encryption.through(
            Grant("DecryptSecrets", why, ("kms:Decrypt",), keys), PROVIDER
        )


def arn_of(scope: Construct, name: str) -> str:
    """Return the ARN of a secret; for a name, AWS appends six random characters."""
    if name.startswith("arn:"):
        return name
    return Stack.of(scope).format_arn(
        service=PROVIDER,
        resource="secret",
        resource_name=f"{name}-??????",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )


def region_of(name: str) -> str | None:
    """Return the region of an ARN, or None for a name, which is in the stage's region."""
    return name.split(":")[3] if name.startswith("arn:") else None
