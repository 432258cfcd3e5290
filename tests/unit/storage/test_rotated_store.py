"""A refused secret that was rotated is no reason to fail anything; any other one is."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest
from tests.support.golden import Golden

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.connector import ConnectorConfig
from extentflow.config.parsing import parse
from extentflow.errors import AccessDenied, StoreUnavailable
from extentflow.jobs.connector_catalogue import ConnectorCatalogue
from extentflow.model import ObjectVersion
from extentflow.storage import ObjectStore, StoreOptions
from extentflow.storage.rotated_store import RotatedStore
from extentflow.testing.ledger import MemoryLedger
from extentflow.testing.stores import Fault, FaultyStore, MemoryStore
from extentflow.wiring.objects import ObjectAccess
from extentflow.wiring.options import SecretResolver

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

DENIED = [Fault("denied", operation) for operation in ("head", "read", "list")]
CALLS: dict[str, Callable[[ObjectStore, ObjectVersion], object]] = {
    "head": lambda store, version: store.head(version.bucket, version.key),
    "read": lambda store, version: store.read(version, 0, 1),
    "list": lambda store, version: list(store.list(version.bucket)),
    "pages": lambda store, version: list(store.pages(version.bucket)),
}


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("rotated", [True, False], ids=["rotated", "as before"])
def test_a_rejection_is_retried_only_with_changed_secrets(
    memory: MemoryStore,
    name: str,
    rotated: bool,  # noqa: FBT001
) -> None:
    version = memory.put("bucket", "key", b"abc")
    store = RotatedStore(FaultyStore(memory, *DENIED), lambda: rotated)

    with pytest.raises(StoreUnavailable if rotated else AccessDenied, match="access denied"):
        CALLS[name](store, version)


@pytest.mark.parametrize("name", CALLS)
def test_an_accepted_request_reads_no_secret(memory: MemoryStore, name: str) -> None:
    version = memory.put("bucket", "key", b"abc")

    def never() -> bool:
        raise AssertionError("no access was refused")

    store = RotatedStore(memory, never)

    assert CALLS[name](store, version) == CALLS[name](memory, version)
    assert store.fetched_bytes == memory.fetched_bytes


def test_the_next_try_after_a_rotation_reads_with_the_new_secret(
    memory: MemoryStore,
    golden: Golden,
) -> None:
    version = memory.put("bucket", "key", b"abc")

    def opened(_kind: str, chosen: StoreOptions) -> ObjectStore:
        return FaultyStore(memory, *(DENIED if chosen.secret_access_key == "first" else ()))

    kept = Kept("first")
    secrets = SecretsManager(open_client=lambda _region: cast("SecretsManagerClient", kept))
    objects = ObjectAccess(
        ConnectorCatalogue(MemoryLedger()),
        SecretResolver(secrets),
        retry_seconds=1.0,
        open_store=opened,
    )
    config = connector()
    begun = objects.store(config, 1)
    with pytest.raises(AccessDenied):
        begun.read(version, 0, 3)

    kept.secret = "second"

    with golden.raises(StoreUnavailable):
        begun.read(version, 0, 3)
    assert objects.store(config, 1).read(version, 0, 3) == b"abc"


class Kept:
    """One secret, whichever is asked for."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def get_secret_value(self, **_asked: str) -> dict[str, str]:
        return {"SecretString": self.secret}


def connector() -> ConnectorConfig:
    return parse(
        {
            "name": "s",
            "topic": "records",
            "aws.s3.bucket.name": "bucket",
            "aws.access.key.id": "id",
            "aws.secret.access.key": "${secretsmanager:orders}",
        }
    )
