"""Changes that damaged and hostile inputs show: of bytes, of JSON documents and of texts."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

INTERESTING = (
    *(0, 1, -1, 2, 7, 8, 127, 128, 255, 256, 32_767, 65_535, 65_536),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30),
)
TEXTS = (
    *("", " ", "\t", "\n", "\0", "null", "true", "NaN", "1e999", "-0", "0x1F", "a" * 300, "🙂"),
    *(
        "٣",
        "²",
        "\ud800",
        "\ufeff",
        "\u202e",
        "%",
        "%2",
        "%00",
        "%C3%28",
        "+",
        "../..",
        "//",
        "*?[",
    ),
    *(
        "${env:X}",
        "${",
        "{key}",
        "{",
        "}",
        "'",
        '"',
        "\\",
        "\\u00",
        "a,b",
        "k=v",
        "k:v",
        "-x",
        "--",
    ),
    *("s3://b/k", "http://u:p@h/", "2026-13-45T99:99:99Z", "2026-01-01T00:00:00+99:99", "\r\n"),
    *("9" * 40, "9" * 5_000, "[" * 200, '{"a":' * 200, "aa" * 3_000, "=" * 2_000, "é" * 700),
)
SNIPPETS = (
    *(b"", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x99\x82", b"\xef\xbb\xbf", b"\r\n"),
    *(
        b"\n",
        b"\r",
        b'"',
        b'""',
        b"\\",
        b",",
        b";",
        b"\t",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b"&",
        b"=",
    ),
    *(
        b"NaN",
        b"1e999",
        b"-0",
        b"PAR1",
        b"\x1f\x8b\x08\0",
        b"\x28\xb5\x2f\xfd",
        b"\x50\x2a\x4d\x18",
    ),
    *(b"[" * 1_500, b'{"a":' * 1_500, b"9" * 5_000, b"a" * 4_000, b" " * 2_000, b"\xd9\xa3"),
)
MOST_BYTES = 64 << 10
_LARGE = 400  # how rarely a value is longer than anything that is expected
_LARGE_BYTES = 40_000


@dataclass(frozen=True, slots=True)
class Raw:
    """A piece of JSON as it is written, valid or not."""

    text: str


@dataclass(frozen=True, slots=True)
class Doubled:
    """An object with a member twice."""

    members: dict[str, Any]
    name: str


# -- bytes -----------------------------------------------------------------------------------------


def change_bytes(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Return `data` with one to four changes; `others` are spliced in."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        random.choice(_BYTE_CHANGES)(random, changed)
    if others and random.random() < 0.1:
        changed = _spliced(random, changed, random.choice(others))
    return bytes(changed[:MOST_BYTES])


def _place(random: Random, data: bytearray) -> int:
    return random.randrange(len(data) + 1)


def _flip(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 0xFF, 0x7F, 0x80, 10, 34, 92))


def _number(random: Random, data: bytearray) -> None:
    width = random.choice((1, 2, 4, 8))
    value = random.choice(INTERESTING) % (1 << 8 * width)
    at = _place(random, data)
    data[at : at + width] = value.to_bytes(width, random.choice(("little", "big")))


def _truncate(random: Random, data: bytearray) -> None:
    del data[_place(random, data) :]


def _behead(random: Random, data: bytearray) -> None:
    del data[: _place(random, data)]


def _cut_out(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    del data[at : at + random.choice((1, 1, 2, 8, 64))]


def _insert(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    data[at:at] = random.choice(SNIPPETS)


def _repeat(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    piece = data[at : at + random.choice((1, 4, 16, 256))]
    data[at:at] = piece * random.choice((1, 2, 30))


def _shuffle(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    piece = list(data[at : at + 16])
    random.shuffle(piece)
    data[at : at + 16] = bytes(piece)


def _spliced(random: Random, data: bytearray, other: bytes) -> bytearray:
    head = data[: _place(random, data)]
    return head + bytearray(other[random.randrange(len(other) + 1) :])


_BYTE_CHANGES: tuple[Callable[[Random, bytearray], None], ...] = (
    *(_flip, _flip, _flip, _overwrite, _number, _truncate, _behead, _cut_out),
    *(_insert, _insert, _repeat, _shuffle),
)


# -- documents -------------------------------------------------------------------------------------


def change_document(random: Random, document: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON document with one to three nodes changed, as `write_json` takes it."""
    for _ in range(random.choice((1, 1, 2, 3))):
        document = _changed(random, document)
    return document


def any_value(random: Random) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value of any JSON type, or what JSON does not allow."""
    if random.randrange(_LARGE) == 0:
        return random.choice(("x", "a:", "é", "=", "[")) * _LARGE_BYTES
    match random.randrange(10):
        case 0:
            return None
        case 1:
            return random.random() < 0.5
        case 2 | 3:
            return random.choice(INTERESTING)
        case 4:
            return random.choice((0.5, -0.0, 1e-320, 1e308, 1.10))
        case 5 | 6 | 7:
            return random.choice(TEXTS)
        case 8:
            return random.choice(([], {}, [[]], [None], {"": None}, [{}], {"a": {"b": []}}))
        case _:
            raw = ("NaN", "-Infinity", "1e999", "01", "9" * 400, "-", "[" * 1_200, "'x'", "tru")
            return Raw(random.choice(raw))


def _changed(random: Random, node: Any) -> Any:  # noqa: ANN401
    # Descends most of the time, so that deep nodes are changed, too.
    if isinstance(node, dict) and node and random.random() < 0.85:
        return _changed_object(random, node)
    if isinstance(node, list) and node and random.random() < 0.85:
        return _changed_list(random, node)
    if isinstance(node, str) and node and random.random() < 0.6:
        return _changed_text(random, node)
    if type(node) is int and random.random() < 0.5:
        return node + random.choice((-1, 1, 256)) if random.random() < 0.5 else str(node)
    return any_value(random)


def _changed_object(random: Random, node: dict[str, Any]) -> Any:  # noqa: ANN401
    name = random.choice(list(node))
    match random.randrange(12):
        case 0:
            return {key: value for key, value in node.items() if key != name}
        case 1:
            return {**node, random.choice(TEXTS): any_value(random)}
        case 2:
            return {key.swapcase() if key == name else key: node[key] for key in node}
        case 3:
            return Doubled(node, name)
        case 4:
            return {**node, name: node[random.choice(list(node))]}
        case _:
            return {**node, name: _changed(random, node[name])}


def _changed_list(random: Random, node: list[Any]) -> Any:  # noqa: ANN401
    at = random.randrange(len(node))
    match random.randrange(8):
        case 0:
            return node[:at] + node[at + 1 :]
        case 1:
            return node * random.choice((2, 3, 20))
        case 2:
            return [*node, any_value(random)]
        case _:
            return [*node[:at], _changed(random, node[at]), *node[at + 1 :]]


def _changed_text(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    match random.randrange(5):
        case 0:
            return text[:at]
        case 1:
            return text + text
        case 2:
            return text[:at] + text[at + 1 :]
        case _:
            return text[:at] + random.choice(TEXTS) + text[at:]


def write_json(node: Any) -> str:  # noqa: ANN401
    """Return a document as JSON, with what `Raw` and `Doubled` say."""
    match node:
        case Raw():
            return node.text
        case Doubled():
            again = f"{json.dumps(node.name)}:{write_json(node.members[node.name])}"
            return f"{write_json(node.members)[:-1]},{again}}}"
        case dict():
            members = (f"{json.dumps(name)}:{write_json(value)}" for name, value in node.items())
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(map(write_json, node))}]"
        case _:
            return json.dumps(node)


def plain_json(node: Any) -> Any:  # noqa: ANN401
    """Return a changed document without `Raw` and `Doubled`, as a parser would return it."""
    match node:
        case Raw():
            return node.text
        case Doubled():
            return plain_json(node.members)
        case dict():
            return {name: plain_json(value) for name, value in node.items()}
        case list():
            return [plain_json(value) for value in node]
        case _:
            return node


# -- inputs with parameters ------------------------------------------------------------------------


def pack(parameters: dict[str, Any], body: bytes) -> bytes:
    """Return an input: a line of JSON, then the body."""
    return json.dumps(parameters).encode() + b"\n" + body


def unpack(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the parameters and the body of an input."""
    line, _, body = data.partition(b"\n")
    parameters: dict[str, Any] = json.loads(line)
    return parameters, body
