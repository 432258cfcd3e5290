"""Every way to name a key with every converter: the key that is made, or why there is none."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.support.chains import BASE, chain, convert
from tests.support.connect_json import read_envelope
from tests.support.golden import Golden
from tests.support.protobuf import decode, message_class
from tests.support.registry import RegistryDouble, registry_double

from extentflow.config.parsing import parse
from extentflow.errors import Misconfigured, UnsupportedType

TABLE = pa.table({"id": [7], "name": ["a"], "data": [b"\xff"], "s": [{"a": {"b": "x"}}]})
LINE = b'{"id":7,"s":{"a":{"b":"x"}}}\n'
Read = Callable[[bytes], Any]


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with registry_double() as double:
        yield double


def of(converter: str, registry: RegistryDouble) -> tuple[dict[str, str], Read]:
    """Return the keys of a key converter, and how its payloads are read."""
    part = "key.converter"
    url = {f"{part}.schema.registry.url": registry.url}
    match converter:
        case "avro" | "protobuf":
            scrub = {f"{part}.scrub.invalid.names": "true"}
            read = registry.decode if converter == "avro" else partial(message, registry)
            return {part: converter, **url, **scrub}, read
        case "json-schema":
            return {part: converter, **url}, lambda data: json.loads(data[5:])
        case "envelope":
            enable = {f"{part}.schemas.enable": "true"}
            return {part: "json", **enable}, lambda data: read_envelope(data)[1]
    return {part: converter}, json.loads if converter == "json" else bytes


def message(registry: RegistryDouble, data: bytes) -> Any:  # noqa: ANN401 - any value
    kind = message_class(registry.schema(int.from_bytes(data[1:5], "big")))
    assert data[5] == 0
    return decode(kind, data[6:])


RECORDS = ("json", "envelope", "avro", "json-schema", "protobuf")
# Those whose names of fields may have no dot.
STRICT = {"avro", "protobuf"}


@pytest.mark.parametrize("converter", RECORDS)
@pytest.mark.parametrize(
    ("message_key", "record"),
    [
        ("column:id", {"id": 7}),
        ("column:id,name", {"id": 7, "name": "a"}),
        ("path:$.s.a.b", {"s.a.b": "x"}),
        ("column:id,s.a.b", {"id": 7, "s.a.b": "x"}),
    ],
)
def test_keys_of_columns_are_records_with_these_columns(
    registry: RegistryDouble, converter: str, message_key: str, record: dict[str, Any]
) -> None:
    keys, read = of(converter, registry)

    (made,) = convert(TABLE, {"message.key": message_key, **keys}).keys

    names = {"s.a.b": "s_a_b"} if converter in STRICT else {}
    assert read(made or b"") == {names.get(name, name): one for name, one in record.items()}


@pytest.mark.parametrize("converter", RECORDS)
def test_keys_of_lines_are_records_with_the_members_texts(
    registry: RegistryDouble, converter: str
) -> None:
    keys, read = of(converter, registry)

    (made,) = convert(LINE, {"message.key": "path:$.s.a.b", **keys}, "jsonl").keys

    assert read(made or b"") == {"s_a_b" if converter in STRICT else "s.a.b": "x"}


@pytest.mark.parametrize(
    ("message_key", "converter", "made"),
    [
        ("object", "string", b"folder/key"),
        ("template:${key}-{id}", "string", b"folder/key-7"),
        ("column:id", "string", b"7"),
        ("path:$.s.a.b", "string", b"x"),
        ("path:$.s.a.b", "bytes", b"x"),
        ("column:data", "bytes", b"\xff"),
    ],
)
def test_keys_of_one_value_may_be_that_value(message_key: str, converter: str, made: bytes) -> None:
    assert convert(TABLE, {"message.key": message_key, "key.converter": converter}).keys == [made]


FILTERED = chain(drop={"type": "ReplaceField", "exclude": "name"})


@pytest.mark.parametrize("steps", [{}, FILTERED], ids=["", "transforms"])
@pytest.mark.parametrize("converter", ["bytes", *RECORDS])
@pytest.mark.parametrize("message_key", ["object", "template:${key}-{id}"])
def test_trap_t23_a_text_takes_no_converter_of_columns(
    registry: RegistryDouble,
    message_key: str,
    converter: str,
    steps: Mapping[str, str],
    golden: Golden,
) -> None:
    keys, _ = of(converter, registry)

    with golden.raises(Misconfigured, match=r"key\.converter='.*'.*message\.key"):
        parse({**BASE, "message.key": message_key, **keys, **steps})


@pytest.mark.parametrize("converter", ["string", "bytes"])
def test_several_columns_are_no_single_value(converter: str, golden: Golden) -> None:
    config = {"message.key": "column:id,name", "key.converter": converter}

    with pytest.raises(Misconfigured, match="write json, avro"):
        parse({**BASE, **config})
    with golden.raises(UnsupportedType):
        convert(TABLE, {**config, **FILTERED})


@pytest.mark.parametrize(
    ("message_key", "converter", "reason"),
    [
        ("column:id", "bytes", "column 'id' has type int64, which is neither binary nor text"),
        ("column:data", "string", "column 'data' has type binary, which has no text form"),
        ("column:s", "string", "column 's' has type struct"),
        ("column:none", "json", "there is no column 'none'; name one of 'id'"),
        ("path:$.s.x", "json", r"there is no column 's\.x'"),
    ],
)
def test_columns_that_a_converter_cannot_write_are_refused_before_the_first_record(
    message_key: str, converter: str, reason: str, golden: Golden
) -> None:
    with golden.raises(UnsupportedType, match=rf"message\.key.*key\.converter.*{reason}"):
        convert(TABLE, {"message.key": message_key, "key.converter": converter})
