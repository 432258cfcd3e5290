"""The keys of encrypted Parquet files: those of the configuration, and of key services.

    footer key   the data key itself, of the footer and of all columns
    key list     master keys by their ids; they wrap the data keys, which each file holds

A file with wrapped keys names the id of a master key beside each of them, as the key tools of
parquet-mr and Arrow write it. Arrow asks a client of a key management service to wrap and unwrap
them: `MasterKeys` has the master keys itself.

Tests: unit/columnar/test_encryption.py, unit/formats/parquet/test_parquet_encryption.py
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, Self

from pyarrow.parquet.encryption import (
    CryptoFactory,
    KmsClient,
    KmsConnectionConfig,
    create_decryption_properties,
)

from extentflow.errors import Misconfigured

FOOTER_KEY = "parquet.encryption.footer.key"
KEY_LIST = "parquet.encryption.key.list"
# Of AES, in bytes.
_KEY_BYTES = frozenset({16, 24, 32})
_NONCE_BYTES = 12
# The only value of parquet-mr's LocalWrapKmsClient.
_NO_VERSION = "NO_VERSION"


class KeyService(Protocol):
    """Wraps data keys with master keys, and unwraps them; hashable, as there is one per process.

    Arrow calls it in the thread that writes or reads a file, and passes on what it raises.
    """

    def __hash__(self) -> int:
        """Return the hash that distinguishes services."""

    def wrap(self, key: bytes, master: str) -> str:
        """Return a data key, wrapped with the master key of that id."""

    def unwrap(self, wrapped: str, master: str) -> bytes:
        """Return a data key. Raises KeyUnavailableError, or an ExtentflowError."""


class KeyUnavailableError(Exception):
    """A data key of a file cannot be unwrapped; names the id of the master key, never a key."""


@dataclass(frozen=True, slots=True)
class FileKeys:
    """What files are decrypted with: one data key, or master keys by their ids."""

    footer: bytes | None = field(default=None, repr=False)
    masters: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, footer_key: str | None, key_list: str | None) -> Self | None:
        """Return the keys that resolved secrets hold. Raises Misconfigured, without the secrets."""
        if key_list is not None:
            return cls(masters=MasterKeys.of(key_list, KEY_LIST).masters)
        if footer_key is None:
            return None
        if (key := _aes_key(footer_key)) is None:
            raise Misconfigured(
                [f"{FOOTER_KEY}: the secret is not the base64 of 16, 24 or 32 bytes"]
            )
        return cls(footer=key)

    @property
    def setting(self) -> str:
        """The key of the connector that they are from."""
        return KEY_LIST if self.footer is None else FOOTER_KEY

    def properties(self) -> Any:  # noqa: ANN401 - pyarrow has no public name for it
        """Return Arrow's properties, which are for one file; files without encryption pass."""
        if self.footer is not None:
            return create_decryption_properties(self.footer, allow_plaintext_files=True)
        return decryption_properties(MasterKeys(self.masters))


def decryption_properties(service: KeyService) -> Any:  # noqa: ANN401 - as `FileKeys.properties`
    """Return Arrow's properties to read one file whose keys a service unwraps, or a plain file."""
    return crypto_factory(service).file_decryption_properties(KmsConnectionConfig())


# Arrow never frees a client, so that a process has one for each set of keys.
@lru_cache(maxsize=64)
def crypto_factory(service: KeyService) -> CryptoFactory:
    """Return Arrow's factory of keys; it caches what the service unwraps for ten minutes."""
    client = _Client(service)
    return CryptoFactory(lambda _: client)


class _Client(KmsClient):  # type: ignore[misc] # pyarrow has no types
    """Passes Arrow's calls on to a service."""

    def __init__(self, service: KeyService) -> None:
        super().__init__()
        self._service = service

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return self._service.wrap(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return self._service.unwrap(wrapped_key, master_key_identifier)


def _aes_key(text: str) -> bytes | None:
    with suppress(ValueError):
        found = base64.b64decode(text.strip(), validate=True)
        if len(found) in _KEY_BYTES:
            return found
    return None


def _listed_keys(text: str, setting: str) -> Iterator[tuple[str, bytes]]:
    """Yield the ids and keys of `id:base64, id:base64`."""
    seen: set[str] = set()
    for at, entry in enumerate(text.split(","), 1):
        name, _, encoded = (part.strip() for part in entry.partition(":"))
        key = _aes_key(encoded)
        if not name or key is None or name in seen:
            # Not even the id: without a colon, it is the key.
            form = "id:key with an id of its own and the base64 of 16, 24 or 32 bytes"
            raise Misconfigured([f"{setting}: entry {at} of the secret is not {form}"])
        seen.add(name)
        yield name, key


@dataclass(frozen=True, slots=True)
class MasterKeys:
    """Master keys by their ids; a `KeyService`, in the format of the key tools of parquet-mr."""

    masters: tuple[tuple[str, bytes], ...] = field(repr=False)

    @classmethod
    def of(cls, text: str, setting: str) -> Self:
        """Return the keys of `id:base64, id:base64`, the secret that `setting` refers to.

        Raises Misconfigured, without the secret.
        """
        return cls(tuple(_listed_keys(text, setting)))

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys."""
        return tuple(name for name, _ in self.masters)

    def wrap(self, key: bytes, master: str) -> str:
        """Return a data key, wrapped with AES GCM. Raises KeyUnavailableError."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        own = dict(self.masters).get(master)
        if own is None:
            raise KeyUnavailableError(f"it has no master key {master[:100]!r}")
        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(nonce + AESGCM(own).encrypt(nonce, key, master.encode())).decode()

    def unwrap(self, wrapped: str, master: str) -> bytes:
        """Return a data key. Raises KeyUnavailableError."""
        # Imported where it is needed: it takes as long as reading a footer.
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        named = f"master key {master[:100]!r}"
        key = dict(self.masters).get(master)
        if key is None:
            raise KeyUnavailableError(f"it has no {named}")
        data = _encrypted_key(wrapped)
        # The id is authenticated with the key, as the key tools do.
        aad = master.encode()
        try:
            found = AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], aad)
        except (InvalidTag, ValueError):
            raise KeyUnavailableError(
                f"{named} does not unwrap a key of the file, which another key of this id wrapped,"
                " or a key management service"
            ) from None
        if len(found) not in _KEY_BYTES:
            raise KeyUnavailableError(f"{named} wraps {len(found)} bytes, which are no key")
        return found


def _encrypted_key(wrapped: str) -> bytes:
    """Return nonce, ciphertext and tag of a wrapped key."""
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        if wrapped.lstrip().startswith("{"):
            # As parquet-mr's LocalWrapKmsClient writes it.
            members = json.loads(wrapped)
            if members.get("masterKeyVersion") != _NO_VERSION:
                raise KeyUnavailableError("a wrapped key has a version, which is not read")
            wrapped = members["encryptedKey"]
        return base64.b64decode(re.sub(r"\s", "", wrapped), validate=True)
    raise KeyUnavailableError("a wrapped key of the file is not base64")
