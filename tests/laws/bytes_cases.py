"""Bytes of objects, whole and in chunks."""

from functools import partial

from tests.laws.laws import FormatCase, Sample

from extentflow.formats.bytes_format import BytesOptions, RawBytes

BODIES = {"one": b"x", "text": b"a,b\n1,2\n\xff", "zeros": bytes(23)}
LARGE = bytes(range(256)) * 300


def chunked(name: str, body: bytes, size: int) -> Sample:
    """Return the chunks of a body."""
    starts = range(0, len(body), size)
    return Sample(name, body, [{"value": body[at : at + size]} for at in starts], starts)


CASES = [
    FormatCase(
        "bytes-chunks",
        partial(RawBytes, own=BytesOptions(chunk_bytes=4)),
        [chunked(name, body, 4) for name, body in BODIES.items()],
        [chunked("large", LARGE, 4)],
    ),
    FormatCase(
        "bytes-large-chunks",
        partial(RawBytes, own=BytesOptions(chunk_bytes=1000)),
        [],
        [chunked("large", LARGE, 1000)],
    ),
]
