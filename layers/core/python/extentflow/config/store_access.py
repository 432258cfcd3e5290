"""The keys of connectors that state how S3 is reached, for commands that write to it.

Tests: unit/wiring/test_targets.py, unit/wiring/test_options.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from extentflow.config.connector import ConnectorConfig
from extentflow.config.table import Key, ParsedKeys, Table, declared
from extentflow.errors import Misconfigured

PREFIXES = ("aws.s3.", "aws.access.", "aws.secret.", "aws.sts.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """How a store in S3 is reached; the fields are those of `ConnectorConfig`."""

    region: str | None = None
    endpoint: str | None = None
    path_style: bool | None = None
    ca_bundle: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    role_arn: str | None = None
    role_external_id: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> StoreAccess:
        """Return what keys of connectors state. Raises Misconfigured with every problem."""
        if other := [name for name in settings if not name.startswith(PREFIXES)]:
            raise Misconfigured(
                f"--set {', '.join(other)}: of a target, only keys that begin with"
                f" {', '.join(PREFIXES)}"
            )
        table = _table()
        reading = table.read(settings)
        found = table.make(cls, reading)
        if problems := [*reading.problems, *access_problems(found, reading)]:
            raise Misconfigured(problems)
        return found


def _table() -> Table:
    own = StoreAccess.__dataclass_fields__
    keys = [one for one in declared(ConnectorConfig) if isinstance(one, Key) and one.field in own]
    names = {one.name for one in keys}
    # Without conditions on other keys, such as the type of the store.
    return Table(
        tuple(
            replace(one, section="", only=tuple(each for each in one.only if each.key in names))
            for one in keys
        )
    )


def access_problems(access: ConnectorConfig | StoreAccess, reading: ParsedKeys) -> Iterator[str]:
    """Yield what is wrong between the keys that state how S3 is reached."""
    sound = reading.sound
    plain = (access.endpoint or "").lower().startswith("http:")
    if sound("aws.s3.endpoint", "aws.s3.ca.bundle") and access.ca_bundle is not None and plain:
        yield (
            f"aws.s3.ca.bundle={access.ca_bundle!r}: aws.s3.endpoint is not https; remove one or"
            " change the other"
        )
    no_id, no_secret = access.access_key_id is None, access.secret_access_key is None
    if sound("aws.access.key.id", "aws.secret.access.key") and no_id != no_secret:
        missing = "aws.access.key.id" if no_id else "aws.secret.access.key"
        yield f"{missing}: missing; an access key is its id and its secret: write both or neither"
