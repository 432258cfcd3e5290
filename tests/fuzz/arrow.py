"""Target `arrow`: files and streams of every type, damaged byte by byte and in their messages."""

import io
import struct
from functools import cache
from random import Random

import pyarrow as pa
from tests.fuzz.converters import NAMES, column
from tests.fuzz.mutations import INTERESTING, change_bytes, pack, unpack
from tests.fuzz.objects import outcome_of, require_laws, sizes
from tests.fuzz.targets import Target
from tests.laws import arrow_cases

from extentflow.formats import Format, FormatOptions
from extentflow.formats.arrow.arrow_format import ArrowIpc

_SEEDS = 300
_COMPRESSIONS = (None, None, None, "lz4", "zstd")


def _written(random: Random) -> bytes:
    length = random.choice((1, 2, 5, 9))
    columns = [column(random, length) for _ in range(random.choice((1, 1, 2)))]
    schema = pa.schema([pa.field(NAMES[at], one.type) for at, one in enumerate(columns)])
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    sink = io.BytesIO()
    make = pa.ipc.new_stream if random.random() < 0.4 else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=random.choice(_COMPRESSIONS))
    with make(sink, schema, options=options) as writer:
        for _ in range(random.choice((1, 2, 3))):
            writer.write_batch(batch)
    return sink.getvalue()


@cache
def seeds() -> tuple[bytes, ...]:
    """Return small objects of every type, and of dictionaries that grow."""
    random = Random("arrow")
    found: list[bytes] = []
    while len(found) < _SEEDS:
        try:
            found.append(_written(random))
        except pa.ArrowException:  # a type that Arrow does not write
            continue
    for stream in (False, True):
        table = arrow_cases.growing()
        found += [arrow_cases.written(table, 10, stream=stream, emit_dictionary_deltas=True)] * 9
    return tuple(found)


def _with_other_words(random: Random, data: bytes) -> bytes:
    """Change aligned words: offsets, lengths and counts of flatbuffers, and of arrays."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(changed)) & ~3
        (value,) = struct.unpack_from("<i", changed.ljust(at + 4, b"\0"), at)
        near = value + random.choice((-1, 1, 4, 8, 256))
        other = random.choice((near, near, random.choice(INTERESTING))) & 0xFFFFFFFF
        changed[at : at + 4] = other.to_bytes(4, "little")
    return bytes(changed)


def _object(random: Random) -> bytes:
    data = random.choice(seeds())
    drawn = random.random()
    if drawn < 0.5:
        data = _with_other_words(random, data)
    elif drawn < 0.97:
        data = change_bytes(random, data, seeds()[:9])
    converter = random.choice(("json", "json", "string"))
    return pack({"converter": converter, **sizes(random, data)}, data)


def _run_object(data: bytes) -> str:
    given, body = unpack(data)

    def opened(window: int, batch: int) -> Format:
        return ArrowIpc(FormatOptions(window_bytes=window, batch_rows=batch))

    return outcome_of(require_laws(opened, body, given))


ARROW = Target("arrow", 6, _object, _run_object)
