"""A request to deliver everything below some addresses with one Spark run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

MESSAGE_VERSION = 1
MOST_ADDRESSES = 100
"""What a run's command line is sure to hold; a prefix or a glob says more with less."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """`id` identifies the request; without `addresses` it covers all objects of the connector."""

    MESSAGE_SOURCE: ClassVar[str] = "backfill"

    id: str
    connector: str
    addresses: tuple[str, ...] = ()

    def to_message(self) -> dict[str, Any]:
        """Return JSON-ready values; as JSON, a body for the arrivals queue."""
        return {
            "v": MESSAGE_VERSION,
            "source": self.MESSAGE_SOURCE,
            "id": self.id,
            "connector": self.connector,
            "addresses": list(self.addresses),
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Rebuild a backfill from `to_message`.

        Raises:
            ValueError: another schema version, no id or connector, or invalid addresses.
        """
        if message.get("v") != MESSAGE_VERSION:
            raise ValueError(f"backfill of schema version {message.get('v')!r}, expected 1")
        found, connector = _text(message, "id"), _text(message, "connector")
        addresses = message.get("addresses")
        if found is None or connector is None:
            raise ValueError("backfill without id or connector")
        if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
            raise ValueError("backfill whose addresses are no list of texts")
        if len(addresses) > MOST_ADDRESSES or any(one.startswith("-") for one in addresses):
            raise ValueError(f"backfill of more than {MOST_ADDRESSES} addresses, or of options")
        return cls(found, connector, tuple(addresses))


def _text(message: Mapping[str, Any], field: str) -> str | None:
    value = message.get(field)
    return value if isinstance(value, str) and value else None
