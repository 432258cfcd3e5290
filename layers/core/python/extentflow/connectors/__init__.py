"""Reads and checks connectors: which objects, in which format, go to which topic, and how.

Connectors are stored by `ledger`; `wiring` passes in the registered formats, converters and stores.

    load(path) -> flat map -> parse(map, ...) -> ConnectorConfig -> to_map -> flat map
"""

from collections.abc import Collection, Mapping
from typing import Any

from extentflow.config import Table, broken, load
from extentflow.connectors.columns import MessageKey, Schema, arrow_type
from extentflow.connectors.config import ConnectorConfig
from extentflow.connectors.rules import RULES
from extentflow.connectors.table import (
    CONVERTERS,
    ENDPOINT_TYPES,
    FORMATS,
    connector_table,
    rename,
)
from extentflow.errors import Misconfigured

__all__ = [
    "ConnectorConfig",
    "MessageKey",
    "Schema",
    "arrow_type",
    "connector_table",
    "load",
    "parse",
    "to_map",
]


def parse(
    config: Mapping[str, str],
    *,
    formats: Collection[str] = FORMATS,
    converters: Collection[str] = CONVERTERS,
    endpoint_types: Collection[str] = ENDPOINT_TYPES,
) -> ConnectorConfig:
    """Return the connector that a flat map describes.

    `formats`, `converters` and `endpoint_types` are the registered names.

    Raises:
        Misconfigured: every problem at once, one line each: key, value, remedy.
    """
    table = connector_table(formats=formats, converters=converters, endpoint_types=endpoint_types)
    reading = table.read(config, rename=rename(config))
    draft = _draft(table, reading.values)
    found = [*reading.problems, *broken(RULES, draft, reading)]
    if found:
        raise Misconfigured(found)
    return draft


def to_map(config: ConnectorConfig) -> dict[str, str]:
    """Return the flat map, in canonical names and without defaults; `parse` reads it back."""
    return connector_table().write(lambda name: getattr(config, name))


def _draft(table: Table, values: Mapping[str, Any]) -> ConnectorConfig:
    missing = {key.field: "" for key in table if values[key.field] is None and key.required}
    return ConnectorConfig(**{**values, **missing})
