"""A writer's side of encrypted Parquet: master keys, and data keys that they wrap."""

import base64
import os
from collections.abc import Mapping

import pyarrow.parquet.encryption as pe
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def text_of(masters: Mapping[str, bytes]) -> str:
    """Return keys as `parquet.encryption.key.list` has them."""
    return ", ".join(f"{name}: {base64.b64encode(key).decode()}" for name, key in masters.items())


class Wrapping(pe.KmsClient):  # type: ignore[misc] # pyarrow has no types
    """Wraps data keys with master keys, as the key tools of parquet-mr and Arrow do."""

    def __init__(self, masters: Mapping[str, bytes]) -> None:
        super().__init__()
        self._masters = masters

    def wrap_key(self, key_bytes: bytes, name: str) -> bytes:
        """Return a data key, sealed by the master key of that name."""
        nonce = os.urandom(12)
        sealed = AESGCM(self._masters[name]).encrypt(nonce, key_bytes, name.encode())
        return base64.b64encode(nonce + sealed)
