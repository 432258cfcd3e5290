"""From a connector's keys to JSON with its schema in every record."""

import pyarrow as pa
from tests.support.chains import chain, convert
from tests.support.connect_json import read_envelope

TABLE = pa.table({"id": [1, 2], "name": ["a", None]})
VALUES = {"value.converter": "json", "value.converter.schemas.enable": "true"}
KEYS = {"key.converter": "json", "key.converter.schemas.enable": "true"}


def values(payloads: list[bytes | None]) -> list[object]:
    return [read_envelope(one or b"")[1] for one in payloads]


def test_values_and_keys_have_schemas_of_their_own() -> None:
    made = convert(TABLE, {**VALUES, "message.key": "column:id", **KEYS})

    assert values(made.payloads) == TABLE.to_pylist()
    assert values(made.keys) == [{"id": 1}, {"id": 2}]


def test_keys_may_have_a_schema_alone() -> None:
    made = convert(TABLE, {"message.key": "column:id,name", **KEYS})

    assert made.payloads == [b'{"id":1,"name":"a"}', b'{"id":2,"name":null}']
    assert values(made.keys) == TABLE.to_pylist()


def test_transforms_decide_the_schema() -> None:
    steps = chain(
        key={"type": "ValueToKey", "fields": "id"},
        drop={"type": "ReplaceField", "exclude": "id"},
    )

    made = convert(TABLE, {**VALUES, **KEYS, **steps})

    assert values(made.payloads) == [{"name": "a"}, {"name": None}]
    assert values(made.keys) == [{"id": 1}, {"id": 2}]


def test_lines_that_transforms_give_columns_have_a_schema() -> None:
    steps = chain(where={"type": "InsertField", "offset.field": "at"})

    made = convert(b"one\n", {**VALUES, **steps}, "text")

    assert values(made.payloads) == [{"value": "one", "at": 0}]


def test_lines_never_pass_for_envelopes() -> None:
    steps = chain(drop={"type": "Filter", "predicate": "one"}) | {
        "predicates": "one",
        "predicates.one.type": "Condition",
        "predicates.one.condition": "value LIKE '%1%'",
    }

    made = convert(b"line 1\nline 2\n", {**VALUES, **steps}, "text")

    assert values(made.payloads) == [{"value": "line 2"}]
