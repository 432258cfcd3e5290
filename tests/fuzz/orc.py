"""Target `orc`: tails, stripe footers and streams, damaged byte by byte and by their structure."""

import signal
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pyorc
from tests.fuzz.child import in_child
from tests.fuzz.mutations import INTERESTING, change_bytes, pack, unpack
from tests.fuzz.objects import outcome_of, require_laws, sizes
from tests.fuzz.targets import Target
from tests.laws.orc_cases import by_pyarrow, by_pyorc

from extentflow.formats import FormatOptions
from extentflow.formats.orc.orc_format import Orc, Tail, read_tail
from extentflow.formats.orc.orc_metadata import (
    Fields,
    number_of,
    parse_fields,
    unpack_message,
    write_fields,
)
from extentflow.testing.stores import MemorySource

_ROWS = 30
_LARGE_BYTES = 4_000
_WHEN = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
_COLUMNS: dict[str, list[Any]] = {
    "boolean": [True, None, False],
    "tinyint": [1, None, -128],
    "smallint": [1, None, -(2**15)],
    "int": [1, None, 2**31 - 1],
    "bigint": [1, None, -(2**63)],
    "float": [1.5, None, -0.0],
    "double": [0.1, None, 1e300],
    "string": ["a", None, "ü" * 40],
    "varchar(5)": ["abc", None, ""],
    "char(3)": ["abc", None, "x"],
    "binary": [b"\xff", None, b"b" * 50],
    "date": [date(2026, 1, 2), None, date(1, 1, 1)],
    "timestamp": [_WHEN.replace(tzinfo=None), None, datetime(1969, 12, 31)],  # noqa: DTZ001
    "timestamp with local time zone": [_WHEN, None],
    "decimal(9,2)": [Decimal("1.50"), None, Decimal("-9.99")],
    "decimal(38,3)": [Decimal(10**30), None],
    "array<int>": [[1, None], [], None],
    "map<string,int>": [{"a": 1, "b": None}, {}, None],
    "struct<a:int,b:string>": [{"a": 1, "b": "x"}, None, {"a": None, "b": None}],
    "array<array<string>>": [[["a"], []], None],
}
_COLUMNS_ALONE = 4 * len(_COLUMNS)
_KINDS = (
    *(pyorc.CompressionKind.NONE, pyorc.CompressionKind.NONE, pyorc.CompressionKind.ZLIB),
    *(pyorc.CompressionKind.SNAPPY, pyorc.CompressionKind.LZ4, pyorc.CompressionKind.ZSTD),
)


@cache
def seeds() -> tuple[bytes, ...]:
    """Return small objects of every type, encoding and compression."""
    found = []
    for number, (kind, values) in enumerate(_COLUMNS.items()):
        rows = [{"c": values[row % len(values)]} for row in range(_ROWS)]
        for threshold in (0.0, 1.0):
            for compression in (pyorc.CompressionKind.NONE, _KINDS[number % len(_KINDS)]):
                options = {"compression": compression, "dict_key_size_threshold": threshold}
                found.append(by_pyorc(f"struct<c:{kind}>", rows, **options))
    schema = ",".join(f"c{number}:{kind}" for number, kind in enumerate(_COLUMNS))
    rows = [
        {f"c{number}": each[row % len(each)] for number, each in enumerate(_COLUMNS.values())}
        for row in range(2_100)
    ]
    found += [
        by_pyorc(f"struct<{schema}>", rows, compression=kind) for kind in dict.fromkeys(_KINDS)
    ]
    table = pa.table({"n": range(9), "s": ["a", None, "ccc"] * 3, "l": [[1], None, []] * 3})
    found += [by_pyarrow(table, file_version=version) for version in ("0.11", "0.12")]
    found.append(by_pyarrow(table, compression="zlib", dictionary_key_size_threshold=1.0))
    return tuple(found)


# -- structure -------------------------------------------------------------------------------------


def _changed(random: Random, data: bytes, depth: int = 0) -> bytes:
    """Return a protocol buffer with one field changed, at any depth."""
    fields = parse_fields(data)
    if not fields:
        return write_fields([(random.randrange(1, 12), random.choice(INTERESTING) % 2**64)])
    at = random.randrange(len(fields))
    number, value = fields[at]
    drawn = random.random()
    if drawn < 0.08:
        return write_fields(fields[:at] + fields[at + 1 :])
    if drawn < 0.16:
        return write_fields([*fields[: at + 1], *fields[at:]])
    if drawn < 0.2:
        return write_fields([*fields[:at], (random.randrange(1, 12), value), *fields[at + 1 :]])
    other: int | bytes
    if isinstance(value, int):
        near = value + random.choice((-1, 1, 2, 8))
        other = random.choice((near, near, random.choice(INTERESTING))) % 2**64
    else:
        other = _changed_inside(random, value, depth)
    return write_fields([*fields[:at], (number, other), *fields[at + 1 :]])


def _changed_inside(random: Random, value: bytes, depth: int) -> bytes:
    if random.random() < 0.9 and depth < 5:
        try:
            return _changed(random, value, depth + 1)
        except ValueError:
            pass
    return change_bytes(random, value)


def _chunked(compressed: bool, data: bytes) -> bytes:  # noqa: FBT001
    """Return a message as it is stored: in a chunk that is not compressed."""
    return ((len(data) << 1 | 1).to_bytes(3, "little") + data) if compressed else data


def _framed(body: bytes, compressed: bool, footer: bytes, postscript: Fields) -> bytes:  # noqa: FBT001
    stored = _chunked(compressed, footer)
    kept = [(key, value) for key, value in postscript if key not in (1, 5)]
    end = write_fields([(1, len(stored)), (5, 0), *kept])
    return body + stored + end + bytes([len(end) & 0xFF])


def _tail(data: bytes) -> tuple[Tail, bool]:
    tail = read_tail(MemorySource(data))
    return tail, bool(number_of(tail.postscript, 2))


def _with_other_tail(random: Random, data: bytes) -> bytes:
    tail, compressed = _tail(data)
    footer, postscript = write_fields(tail.footer), write_fields(tail.postscript)
    changes = random.choice((1, 1, 2, 4))
    if random.random() < 0.25:
        for _ in range(changes):
            postscript = _changed(random, postscript)
    else:
        for _ in range(changes):
            footer = _changed(random, footer)
    end = max((stripe.end for stripe in tail.stripes), default=3)
    if random.random() < 0.2:
        stored = _chunked(compressed, footer)
        return data[:end] + stored + postscript + bytes([len(postscript) & 0xFF])
    return _framed(data[:end], compressed, footer, parse_fields(postscript))


def _with_other_stripe_footer(random: Random, data: bytes) -> bytes:
    tail, compressed = _tail(data)
    chosen = random.choice(tail.stripes)
    stripe = dict(parse_fields(chosen.message))
    at = chosen.end - int(stripe[4])
    compression, block_bytes = (number_of(tail.postscript, number) for number in (2, 3))
    message = unpack_message(data[at : chosen.end], compression, block_bytes)
    for _ in range(random.choice((1, 1, 2, 4))):
        message = _changed(random, message)
    stored = _chunked(compressed, message)
    shift = len(stored) - int(stripe[4])
    footer: Fields = []
    for key, value in tail.footer:
        if key == 3 and isinstance(value, bytes):
            own = dict(parse_fields(value))
            if own[1] == stripe[1]:
                own[4] = len(stored)
            elif int(own[1]) > chosen.start:
                own[1] = int(own[1]) + shift
            footer.append((key, write_fields(sorted(own.items()))))
        else:
            footer.append((key, value))
    end = max(each.end for each in tail.stripes)
    body = data[:at] + stored + data[chosen.end : end]
    return _framed(body, compressed, write_fields(footer), tail.postscript)


def _with_other_streams(random: Random, data: bytes) -> bytes:
    """Change bytes of stripes only; the length stays."""
    tail, _ = _tail(data)
    stripe = random.choice(tail.stripes)
    body = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        value = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        body[random.randrange(stripe.start, stripe.end)] = value
    return bytes(body)


def _object(random: Random) -> bytes:
    data = random.choice(seeds())
    if len(data) > _LARGE_BYTES and random.random() < 0.9:
        data = random.choice(seeds()[:_COLUMNS_ALONE])
    changes = (
        *(_with_other_tail, _with_other_tail, _with_other_stripe_footer),
        *(_with_other_stripe_footer, _with_other_streams, _with_other_streams),
    )
    drawn = random.randrange(8)
    data = changes[drawn](random, data) if drawn < len(changes) else change_bytes(random, data, [])
    # What damage loses depends on the batches, so that all ways have the same.
    of_all = {"window": random.choice((64, 1 << 20)), "batch": random.choice((5, 65_536, 65_536))}
    return pack({"converter": "json", **sizes(random, data), **of_all}, data)


_DOCUMENTED = dict.fromkeys((signal.SIGSEGV, signal.SIGXCPU), "known limit: the content of streams")


def _run_object(data: bytes) -> str:
    given, body = unpack(data)
    # What is wrong in the metadata never ends a process; docs/formats.md states what can.
    list(Orc(FormatOptions()).plan(MemorySource(body), 1))
    opened = Orc(FormatOptions(window_bytes=given["window"], batch_rows=given["batch"]))
    return in_child(lambda: outcome_of(require_laws(lambda *_: opened, body, given)), _DOCUMENTED)


ORC = Target("orc", 5, _object, _run_object)
