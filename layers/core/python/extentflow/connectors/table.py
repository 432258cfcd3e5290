"""The table of all connector keys; registered formats, converters and stores are passed in."""

from collections.abc import Collection, Mapping

from extentflow.config import Family, Table
from extentflow.config.kafka import (
    PRODUCER_PROPERTIES,
    REFUSED_PRODUCER_PROPERTIES,
    SECRET_PROPERTIES,
)
from extentflow.connectors.records import decoding, delivery, records
from extentflow.connectors.sources import LOCAL_FILE, identity, store

ENDPOINT_TYPES = frozenset({"awss3", "ontaps3", "storagegrids3", LOCAL_FILE})
FORMATS = frozenset({"text", "csv", "jsonl", "parquet"})
CONVERTERS = frozenset({"string", "bytes", "json"})

_FOREIGN = {
    "connector.class": "Connect's plug-in class means nothing here; remove the key",
    "topics": "a sink's key; a connector here writes one topic: write topic",
    "key.converter.schemas.enable": "JSON never carries a schema envelope here; remove the key",
    "value.converter.schemas.enable": "JSON never carries a schema envelope here; remove the key",
    "errors.deadletterqueue.topic.replication.factor": (
        "topics are not created here; create the topic and remove the key"
    ),
}


_PRODUCER = Family(
    prefix="producer.",
    field="producer",
    names=PRODUCER_PROPERTIES,
    refused=REFUSED_PRODUCER_PROPERTIES,
    secrets=SECRET_PROPERTIES,
    doc="Passed to this connector's Kafka producers, over the worker's `kafka.*`.",
)


def connector_table(
    *,
    formats: Collection[str] = FORMATS,
    converters: Collection[str] = CONVERTERS,
    endpoint_types: Collection[str] = ENDPOINT_TYPES,
) -> Table:
    """Return the table for what is registered; the defaults are what extentflow ships."""
    groups = (
        identity(formats),
        store(endpoint_types),
        decoding(),
        records(converters),
        delivery(),
    )
    return Table(groups=groups, families=(_PRODUCER,), foreign=_FOREIGN)


def rename(config: Mapping[str, str]) -> dict[str, str]:
    """Return NetApp's second meaning of `directory`: a prefix, wherever the store is S3."""
    local = config.get("endpoint.type", "").strip().lower() == LOCAL_FILE
    return {} if local else {"directory": "aws.s3.prefix"}
