"""How the values of topics are decoded: what the driver states, and executors resolve."""

from dataclasses import dataclass
from functools import lru_cache

from extentflow.aws.secrets import SecretsManager
from extentflow.config.columns import Schema
from extentflow.formats.parquet_keys import KeyService
from extentflow.wiring.options import SecretResolver, reading_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """How values are decoded. Sent to executors, thus it refers to secrets and holds none.

    `schema` is that of JSON values (None: these are refused). `columns`: only these of the rows;
    None: all. `keys` is the reference to the master keys of encrypted columns, or `aws-kms`.
    """

    schema: Schema | None = None
    columns: tuple[str, ...] | None = None
    keys: str | None = None

    def open_keys(self) -> KeyService | None:
        """Return what decrypts columns, in this process. Raises as `reading_keys`."""
        return None if self.keys is None else reading_keys(self.keys, _secrets())


@lru_cache(maxsize=1)
def _secrets() -> SecretResolver:
    """Return this process's resolver: it caches secrets, and an executor runs many tasks."""
    return SecretResolver(SecretsManager())
