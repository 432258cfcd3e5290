"""Envelopes of the converter `json`, as Kafka Connect's own JsonConverter reads them.

The converter runs in a JVM of its own; each schema and value that it returns is compared with the
column, and the envelope that it writes itself with the one that it read.
"""

import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from py4j.java_gateway import JavaGateway
from tests.support.connect_json import Milliseconds, Unfit, connect_value, read_envelope
from tests.unit.converters.arrow_cases import any_case

from extentflow.converters.json_converter import envelope_converter
from extentflow_local.stack.settings import LocalSettings
from extentflow_local.stack.toolbox import toolbox

TOPIC = "orders"
LOGICAL = "org.apache.kafka.connect.data."


class Connect:
    """JsonConverter in a JVM."""

    def __init__(self, gateway: Any) -> None:  # noqa: ANN401 - Java
        self._jvm = gateway.jvm
        self._converters = {decimals: self._new(decimals) for decimals in ("BASE64", "NUMERIC")}

    def _new(self, decimals: str) -> Any:  # noqa: ANN401 - Java
        options = self._jvm.java.util.HashMap()
        options.put("schemas.enable", "true")
        options.put("decimal.format", decimals)
        made = self._jvm.org.apache.kafka.connect.json.JsonConverter()
        made.configure(options, False)  # noqa: FBT003 - Java
        return made

    def read(self, data: bytes, decimals: str = "BASE64") -> tuple[Any, bytes]:
        """Return the value of an envelope, and what JsonConverter writes for it."""
        convert = self._converters[decimals]
        found = convert.toConnectData(TOPIC, data)
        again = convert.fromConnectData(TOPIC, found.schema(), found.value())
        return _value(found.schema(), found.value()), bytes(again)


def _items(found: Any) -> list[Any]:  # noqa: ANN401 - Java
    """Return the items of a Java collection.

    By index: Python's iteration ends with an exception of Java, which PySpark, once imported by a
    test before these, takes for one of Spark.
    """
    array = found.toArray()
    return [array[place] for place in range(len(array))]


def _value(schema: Any, value: Any) -> Any:  # noqa: ANN401, PLR0911 - Java; a case per type
    """Return a value of Connect as `tests.support.connect_json` has it."""
    if value is None:
        assert schema.isOptional()
        return None
    kind, name = schema.type().getName(), schema.name()
    if name == f"{LOGICAL}Decimal":
        assert isinstance(value, Decimal)
        assert -int(value.as_tuple().exponent) == int(schema.parameters().get("scale"))
        return value
    if name is not None:
        return Milliseconds(value.getTime())
    match kind:
        case "struct":
            return {f.name(): _value(f.schema(), value.get(f)) for f in _items(schema.fields())}
        case "array":
            return [_value(schema.valueSchema(), item) for item in _items(value)]
        case "map":
            entries = [(entry.getKey(), entry.getValue()) for entry in _items(value.entrySet())]
            keys, values = schema.keySchema(), schema.valueSchema()
            return {str(_value(keys, key)): _value(values, item) for key, item in entries}
        case "float32":
            return np.float32(value)
        case "float64":
            return np.float64(value)
    return value


@pytest.fixture(scope="module")
def connect() -> Iterator[Connect]:
    tools = toolbox(LocalSettings.from_environment())
    folders = [tools.library(name) for name in ("connect-json", "kafka")]
    gateway = JavaGateway.launch_gateway(
        jarpath=str(tools.spark_jar("py4j")),
        classpath=os.pathsep.join(f"{folder}/*" for folder in folders),
        javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Xshare:auto"],
        java_path=str(tools.java()),
        die_on_exit=True,
    )
    yield Connect(gateway)
    gateway.shutdown()


def test_an_envelope_is_what_connect_writes(connect: Connect) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "at": 5, "s": {"é": '"'}},
        {"id": 2, "at": None, "s": None},
    ]
    kinds = {"at": pa.timestamp("ms", "UTC"), "s": pa.struct([("é", pa.string())])}
    fields = [pa.field("id", pa.int64(), nullable=False), *map(pa.field, kinds, kinds.values())]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(fields))
    first, second = envelope_converter(batch.schema)(batch).to_pylist()

    assert connect.read(first) == ({**rows[0], "at": Milliseconds(5)}, first)
    assert connect.read(second) == (rows[1], second)


@pytest.mark.parametrize("decimals", ["BASE64", "NUMERIC"])
@pytest.mark.long
def test_connect_reads_every_value_of_every_type(connect: Connect, decimals: str) -> None:
    @given(data=st.data())
    @settings(max_examples=40, deadline=None, database=None)
    def explore(data: st.DataObject) -> None:
        case = data.draw(any_case())
        rows, expected = [], []
        for value in data.draw(st.lists(st.none() | case.values, min_size=1, max_size=8)):
            try:
                expected.append({"v": connect_value(case.type, value)})
            except Unfit:
                continue
            rows.append(value)
        batch = pa.record_batch({"v": pa.array(rows, case.type)})

        payloads = envelope_converter(batch.schema, decimals=decimals)(batch).to_pylist()

        found = [connect.read(each, decimals) for each in payloads]
        assert [value for value, _ in found] == expected
        # The order of a map's entries and the digits of a number may be others.
        assert [read_envelope(again) for _, again in found] == list(map(read_envelope, payloads))

    explore()


def test_connect_itself_would_lose_what_is_null_here(connect: Connect) -> None:
    batch = pa.record_batch({"v": [float("nan")]})
    (ours,) = envelope_converter(batch.schema)(batch).to_pylist()

    assert connect.read(ours) == ({"v": None}, ours)
    # JsonConverter writes a NaN in quotes, and reads a text where a number should be as 0.
    assert connect.read(ours.replace(b'"v":null', b'"v":"NaN"'))[0] == {"v": 0.0}
