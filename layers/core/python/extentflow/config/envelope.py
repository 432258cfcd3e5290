"""The keys of the converter `json`, by Kafka Connect's names.

Tests: unit/config/test_connector.py, unit/converters/test_json_converter.py
"""

from collections.abc import Iterator
from dataclasses import dataclass

from extentflow.config import types
from extentflow.config.specs import ConverterCheck
from extentflow.config.table import key

BASE64, NUMERIC = "BASE64", "NUMERIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions:
    """Whether JSON has its schema beside it, and how decimals are written then."""

    schemas: bool = key(
        types.BOOLEAN,
        "Write records in the envelope of Connect's JsonConverter, with their schema"
        " ([json.md](json.md#with-the-schema-in-every-record)).",
        default=False,
        name="schemas.enable",
    )
    decimals: str | None = key(
        types.choice((BASE64, NUMERIC)),
        "Decimals beside their schema: `BASE64` of the unscaled value's bytes, or `NUMERIC`, a"
        " number.",
        name="decimal.format",
        shown=BASE64,
    )


def json_problems(check: ConverterCheck) -> Iterator[str]:
    """Yield what is wrong between the keys of `json`."""
    options, prefix = check.options, check.prefix
    if options.decimals and not options.schemas and check.sound("schemas.enable", "decimal.format"):
        yield (
            f"{prefix}decimal.format: applies only where {prefix}schemas.enable is true; without"
            f" a schema, decimals are numbers: remove {prefix}decimal.format"
        )
