"""Encrypts columns of Parquet values, by Parquet's modular encryption.

master key ──wraps──> key of this process, for ten minutes ──wraps──> a data key per value

The footer stays readable and is signed: readers without keys read the other columns.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Self

import pyarrow as pa
from pyarrow.parquet.encryption import EncryptionConfiguration, KmsConnectionConfig

from extentflow.errors import AccessDenied, Misconfigured, UnsupportedType
from extentflow.formats.parquet.column_keys import KeyService, KeyUnavailableError, crypto_factory

COLUMNS = "columnar.encryption.columns"
KEY_BITS = 128
CACHED = timedelta(minutes=10)
# They separate names in Arrow's settings, which also strip blanks.
_UNNAMED = re.compile(r"[,;:]|^\s|\s$")
_MASTER = re.compile(rb'"masterKeyID":"([^"\\]{1,2048})"')
# The signing key's description is behind the columns.
_FOOTER_END_BYTES = 8 << 10


@dataclass(frozen=True, slots=True)
class ColumnEncryption:
    """Top-level `columns` are encrypted; the master key with the id `key` wraps their keys."""

    columns: tuple[str, ...]
    key: str
    service: KeyService = field(repr=False)

    def within(self, names: Sequence[str]) -> Self:
        """Return the encryption of those of the columns that are among `names`."""
        return replace(self, columns=tuple(name for name in names if name in self.columns))

    def properties(self, paths: Sequence[str]) -> Any:  # noqa: ANN401 - pyarrow has no public name for it
        """Return Arrow's properties to write one file, with data keys of its own.

        `paths` are leaves, as Parquet names them. Raises as the key service, and Misconfigured
        where it lacks the master key.
        """
        # Colons separate in Arrow's settings, and ARNs have them.
        key = self.key.replace(":", "%3A")
        configuration = EncryptionConfiguration(
            footer_key=key,
            column_keys={key: list(paths)},
            plaintext_footer=True,
            double_wrapping=True,
            internal_key_material=True,
            data_key_length_bits=KEY_BITS,
            cache_lifetime=CACHED,
        )
        factory = crypto_factory(self.service)
        try:
            return factory.file_encryption_properties(KmsConnectionConfig(), configuration)
        except KeyUnavailableError as exc:
            raise Misconfigured(f"columnar.encryption.key: {exc}") from exc


def encrypted_paths(encryption: ColumnEncryption, leaves: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the leaves to encrypt, of the leaves of each column.

    Raises UnsupportedType where Arrow's settings cannot name one, or it is not the only one that
    has its name.
    """
    wanted = [path for name in encryption.columns for path in leaves[name]]
    if unnamed := [path for path in wanted if _UNNAMED.search(path)]:
        raise UnsupportedType(
            f"{COLUMNS}: {', '.join(unnamed)}: cannot be encrypted: names with , ; : or blanks"
            " at their ends; rename them"
        )
    every = [path for paths in leaves.values() for path in paths]
    # A column `a.b` and the member `b` of a struct `a`.
    if twice := sorted({path for path in wanted if every.count(path) > 1}):
        raise UnsupportedType(
            f"{COLUMNS}: {', '.join(twice)}: several columns and members have this path in"
            " Parquet; rename one"
        )
    return wanted


def locked(columns: Sequence[str], value: bytes | pa.Buffer, why: str = "") -> AccessDenied:
    """Return the error of a reader that cannot decrypt columns of a value; none: not stated."""
    found = _MASTER.search(memoryview(value)[-_FOOTER_END_BYTES:])
    key = found[1].decode("utf-8", "replace").replace("%3A", ":") if found else "unknown"
    named = f": {', '.join(columns)}" if columns else ""
    return AccessDenied(
        f"encrypted columns{named} (master key {key}){f': {why}' if why else ''}; give their keys"
        " (--keys, or the reader's keys), or name only other columns (--column, or the reader's"
        " columns)"
    )
