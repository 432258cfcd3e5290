"""Target `json`: JSON of any layout: pretty-printed, concatenated, elements of arrays."""

import json
from random import Random
from typing import Any

from tests.fuzz.mutations import any_value, change_document, pack, write_json
from tests.fuzz.objects import Cases, outcome_of, sizes
from tests.fuzz.targets import Target
from tests.laws import json_cases
from tests.laws.json_cases import PAGE

_CASES = Cases.of(json_cases.CASES)
_DOCUMENT = {"id": 1, "a": [1.10, {"b": None}], "c": {"d": 'x "y" \\'}, "e": True}


def _object(random: Random) -> bytes:
    if random.random() < 0.6:
        return _CASES.draw(random, converter="bytes")
    count = random.randrange(5)
    documents = [write_json(change_document(random, _DOCUMENT)) for _ in range(count)]
    documents = [
        one if random.random() < 0.8 else write_json(any_value(random)) for one in documents
    ]
    join = random.choice(("", "\n", " \r\n\t", ",", "\n,\n"))
    text = join.join(documents)
    text = f"[{text}]" if random.random() < 0.4 else text
    name = random.choice(("json", "json", "json-whole-arrays", "json-nested", "json-around"))
    if name in ("json-nested", "json-around"):
        pages = (PAGE % ",".join(documents[at:]) for at in range(len(documents) + 1))
        text = "\n".join((*pages, text)) if random.random() < 0.8 else text
    body = text.encode("utf-8", "surrogatepass")
    return pack({"case": name, "converter": "bytes", **sizes(random, body)}, body)


def _run_object(data: bytes) -> str:
    _, _, found = _CASES.run(data)
    for _, value in found.values:
        assert value is not None
        try:
            json.loads(value, parse_constant=_no_constant, parse_int=str)
        except RecursionError:  # a document of more levels than Python's reader follows
            continue
    return outcome_of(found)


def _no_constant(name: str) -> Any:  # noqa: ANN401
    raise AssertionError(f"{name} is no JSON")


JSON = Target("json", 4, _object, _run_object)
