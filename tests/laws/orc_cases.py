"""ORC files by pyorc's and pyarrow's writers, against the rows that were written."""

import io
from typing import Any

import pyarrow as pa
import pyorc
from pyarrow import orc
from tests.laws.laws import FormatCase, Sample
from tests.laws.parquet_cases import wide_table

from extentflow.formats.orc.orc_format import Orc, read_tail
from extentflow.formats.orc.orc_metadata import parse_fields, write_fields
from extentflow.testing.stores import MemorySource


def by_pyarrow(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401 - the writer's own
    """Return the table as an ORC file."""
    sink = io.BytesIO()
    orc.write_table(table, sink, **options)
    return sink.getvalue()


def by_pyorc(schema: str, rows: list[Any], **options: Any) -> bytes:  # noqa: ANN401
    """Return rows as an ORC file; a stripe ends at 1,024 rows or later."""
    sink = io.BytesIO()
    small = {"struct_repr": pyorc.StructRepr.DICT, "stripe_size": 1}
    with pyorc.Writer(sink, schema, **(small | options)) as writer:
        writer.writerows(rows)
    return sink.getvalue()


def _nested(count: int) -> Sample:
    schema = "struct<n:bigint,s:string,l:array<int>,r:struct<a:int,b:struct<c:string>>>"
    rows = [
        {
            "n": n,
            "s": None if n % 7 == 0 else f"text {n}",
            "l": None if n % 5 == 0 else [n] * (n % 4),
            "r": {"a": n, "b": None if n % 3 else {"c": str(n)}},
        }
        for n in range(count)
    ]
    body = by_pyorc(schema, rows, compression=pyorc.CompressionKind.ZSTD)
    return Sample("nested", body, rows, range(count))


def joined(bodies: list[bytes]) -> bytes:
    """Return a file with the stripe of each file, which are not compressed and of one schema."""
    stripes, messages, rows = b"", [], 0
    for body in bodies:
        tail = read_tail(MemorySource(body))
        (stripe,) = tail.stripes
        fields = dict(parse_fields(stripe.message)) | {1: 3 + len(stripes)}
        messages.append((3, write_fields(sorted(fields.items()))))
        stripes += body[stripe.start : stripe.end]
        rows += stripe.rows
    kept = [(key, value) for key, value in tail.footer if key not in (2, 3, 6, 7)]
    footer = write_fields([(2, len(stripes)), *messages, (6, rows), *kept])
    lengths = [(1, len(footer)), (5, 0)]
    postscript = write_fields(
        [*lengths, *((key, value) for key, value in tail.postscript if key not in (1, 5, 7))]
    )
    return b"ORC" + stripes + footer + postscript + bytes([len(postscript)])


def _pairs() -> Sample:
    rows = [{"a": 7}, {"a": None}, {"a": 9}]
    plain = pyorc.CompressionKind.NONE
    files = [by_pyorc("struct<a:int>", part, compression=plain) for part in (rows[:2], rows[2:])]
    body = joined(files)
    assert list(pyorc.Reader(io.BytesIO(body), struct_repr=pyorc.StructRepr.DICT)) == rows
    return Sample("two-stripes", body, rows, range(3))


# pyarrow's writer loses text within structs that have nulls.
FLAT = wide_table(4000).drop_columns(["struct"])
LARGE = [
    _nested(3000),
    Sample(
        "flat", by_pyarrow(FLAT, stripe_size=1024, batch_size=256), FLAT.to_pylist(), range(4000)
    ),
]

CASES = [FormatCase("orc", Orc, [_pairs()], LARGE)]
