"""Records of `avro`, as Apicurio's deserialiser for Java reads them from its registry."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaGateway

from extentflow.config.registry import AvroOptions
from extentflow.converters import Destination, open_converter
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.stack import Stack
from extentflow_local.stack.toolbox import toolbox

# Ids as Confluent's wire format has them.
CONFLUENT = {
    "apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
    "apicurio.registry.use-id": "contentId",
    "apicurio.registry.headers.enabled": "false",
}


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    tools = toolbox(LocalSettings.from_environment())
    gateway = JavaGateway.launch_gateway(
        jarpath=str(tools.spark_jar("py4j")),
        classpath=os.fspath(tools.library("apicurio-serdes") / "*"),
        javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1"],
        java_path=str(tools.java()),
        die_on_exit=True,
    )
    yield gateway.jvm
    gateway.shutdown()


@pytest.mark.long
def test_java_reads_what_the_columns_hold(registry: Stack, jvm: Any, unique: str) -> None:  # noqa: ANN401 - Java
    rows = [
        {"id": 1, "name": 'naïve "😀"', "data": "A", "tags": ["a", None], "s": {"x": 0.5}},
        {"id": -(2**63), "name": None, "data": None, "tags": [], "s": None},
    ]
    kinds = {
        "id": pa.int64(),
        "name": pa.string(),
        "data": pa.string(),
        "tags": pa.list_(pa.string()),
        "s": pa.struct([("x", pa.float64())]),
    }
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(kinds))
    endpoint, topic = registry.endpoint("registry"), f"orders-{unique}"
    options = AvroOptions(urls=(endpoint,))
    payloads = open_converter(
        "avro", batch.schema, options=options, destination=Destination(topic)
    )(batch)
    settings = jvm.java.util.HashMap()
    for name, text in CONFLUENT.items():
        settings.put(name, text)
    settings.put("apicurio.registry.url", endpoint.replace("ccompat/v7", "registry/v2"))
    reader = jvm.io.apicurio.registry.serde.avro.AvroKafkaDeserializer()
    reader.configure(settings, False)  # noqa: FBT003 - Java

    found = [reader.deserialize(topic, payload).toString() for payload in payloads.to_pylist()]
    reader.close()

    assert [json.loads(text) for text in found] == rows
