"""The built-in adapters by the names that connectors use: one line each.

Owns: these lines. Refuses to know: anything else. Extensions call the same `register` functions.
"""

from collections.abc import Mapping

from extentflow import connectors, converters, formats, storage
from extentflow.connectors import ConnectorConfig
from extentflow.converters import json, raw
from extentflow.formats import csv, jsonl, parquet, text
from extentflow.storage.local import LocalStore
from extentflow.storage.s3 import S3Store

for _name in ("awss3", "ontaps3", "storagegrids3"):
    storage.register(_name, S3Store)
storage.register("localfile", LocalStore)
formats.register("text", text.open_text)
formats.register("jsonl", jsonl.open_jsonl)
formats.register("csv", csv.open_csv)
formats.register("parquet", parquet.Parquet)
converters.register("json", json.json_converter)
converters.register("string", raw.string_converter)
converters.register("bytes", raw.bytes_converter)


def parse_connector(config: Mapping[str, str]) -> ConnectorConfig:
    """Return a checked connector, against everything that is registered.

    Raises:
        Misconfigured: all problems at once.
    """
    return connectors.parse(
        config,
        formats=formats.names(),
        converters=converters.names(),
        endpoint_types=storage.names(),
    )
