"""Target `bytes`: objects as one record, and in chunks of any size."""

from functools import partial
from random import Random

from tests.fuzz.mutations import SNIPPETS, change_bytes, pack, unpack
from tests.fuzz.objects import outcome_of, require_laws, sizes
from tests.fuzz.targets import Target

from extentflow.formats import Format, FormatOptions
from extentflow.formats.bytes_format import BytesOptions, RawBytes

_BODIES = (b"x", b"a,b\n1,2\n\xff", bytes(23), bytes(range(256)))


def _object(random: Random) -> bytes:
    body = change_bytes(random, random.choice(_BODIES), SNIPPETS)
    around = (1, 2, 7, len(body) - 1, len(body), len(body) + 1, random.randint(1, 300))
    size = max(random.choice(around), len(body) // 300, 1)
    given = {"chunk": random.choice((None, size, size)), "record": random.choice((40, 64 << 20))}
    return pack({**given, "converter": "bytes", **sizes(random, body)}, body)


def _opened(record: int, own: BytesOptions, window: int, batch: int) -> Format:
    options = FormatOptions(window_bytes=window, batch_rows=batch, max_record_bytes=record)
    return RawBytes(options, own)


def _run_object(data: bytes) -> str:
    given, body = unpack(data)
    own = BytesOptions(chunk_bytes=given["chunk"])
    found = require_laws(partial(_opened, given["record"], own), body, given)
    if found.error is None:
        assert b"".join(value for _, value in found.values) == body, "every byte once"
        lengths = {len(value) for _, value in found.values[:-1]}
        assert lengths <= {given["chunk"]}, "only the last chunk is shorter"
    return outcome_of(found)


BYTES = Target("bytes", 2, _object, _run_object)
