"""Objects with connectors that use what formats, converters and headers have, and their records.

Each case is one object under one connector. Its truth is computed from Python values, and read back
by other libraries than the product's: Google's, fastavro, PyArrow's own encryption.
"""

import base64
import bz2
import datetime as dt
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zlib import decompress

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyzstd import SeekableZstdFile
from tests.support.backups import BACKUPS
from tests.support.connect_json import read_envelope
from tests.support.parquet_keys import Wrapping, text_of
from tests.support.protobuf import decode, message_class
from tests.support.protobuf_values import member, seen
from tests.support.registry import RegistryDouble, decoded

from extentflow.kafka.reading import ConsumedRecord

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

Record = tuple[Any, ...]
DIGESTS = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(4_000)]
FOOTER_KEY = b"of the footer.16"
MASTERS = {"footer": b"f" * 16, "people": b"p" * 32}


@dataclass(frozen=True)
class Services:
    """What connectors refer to: two schema registries, and a secret with the keys of files."""

    confluent: RegistryDouble
    glue: "GlueClient"
    glue_registry: str
    secret: str
    versions: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def secrets(self) -> dict[str, str]:
        """What the secret holds."""
        return {"footer": _base64(FOOTER_KEY), "masters": text_of(MASTERS)}

    def _version(self, number: str) -> tuple[str, str]:
        """Return data format and text of a version in Glue."""
        if number not in self.versions:
            found = self.glue.get_schema_version(SchemaVersionId=number)
            self.versions[number] = found["DataFormat"], found["SchemaDefinition"]
        return self.versions[number]

    def read_glue(self, payload: bytes) -> Any:  # noqa: ANN401 - any value
        """Return the value of a payload in the wire format of AWS's serialisers."""
        assert payload[:2] in {b"\3\0", b"\3\5"}
        kind, text = self._version(str(UUID(bytes=payload[2:18])))
        body = decompress(payload[18:]) if payload[1] else payload[18:]
        if kind == "AVRO":
            return decoded(body, json.loads(text))
        assert (kind, body[0]) == ("PROTOBUF", 0)
        return seen(decode(_class_of(text), body[1:]))

    def read_protobuf(self, payload: bytes) -> Any:  # noqa: ANN401 - any value
        """Return the message of a payload in Confluent's wire format."""
        assert (payload[0], payload[5]) == (0, 0)
        text = self.confluent.schema(int.from_bytes(payload[1:5], "big"))
        return seen(decode(_class_of(text), payload[6:]))


_class_of = lru_cache(message_class)


@dataclass(frozen=True)
class Case:
    """An object and its connector; `read` makes of a record what `truth` has, in any order."""

    label: str
    body: bytes
    config: Mapping[str, str]
    truth: Sequence[Record]
    read: Callable[[ConsumedRecord], Record]
    # What of the object cannot be delivered.
    bad: Sequence[bytes] = ()
    is_cut: bool = True


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _parquet(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401 - the writer's own
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=-(-table.num_rows // 4), **options)
    return file.getvalue()


def in_frames(body: bytes) -> bytes:
    """Return frames of zstd with a seek table."""
    packed = io.BytesIO()
    with SeekableZstdFile(packed, "w", max_frame_content_size=20_000) as file:
        file.write(body)
    return packed.getvalue()


def in_streams(body: bytes) -> bytes:
    """Return streams of bzip2, as parallel writers make them, with several blocks each."""
    parts = (body[at : at + 150_000] for at in range(0, len(body), 150_000))
    return b"".join(bz2.compress(part, 1) for part in parts)


def _text(record: ConsumedRecord) -> Record:
    return record.key, record.value, list(record.headers)


# -- compressed objects that are cut ---------------------------------------------------------------


def csv_in_seekable_zstd(_: Services) -> Case:
    """Quoted line breaks in frames of zstd; the place of each record is in its content."""
    body, truth = b"id,text\n", list[Record]()
    for number, text in enumerate(DIGESTS):
        value = json.dumps({"id": number, "text": f"{text},\n"}, separators=(",", ":")).encode()
        truth.append((str(number).encode(), value, [("row", str(len(body)).encode())]))
        body += f'{number},"{text},\n"\n'.encode()
    config = {
        "csv.schema": "id:int64,text:string",
        "message.key": "column:id",
        "headers": "row=location",
        "extent.bytes": "32KiB",
    }
    return Case("rows.csv.zst", in_frames(body), config, truth, _text)


def lines_in_bzip2(_: Services) -> Case:
    """Lines in blocks of bzip2, in several streams."""
    body = "".join(f"{text}\n" for text in DIGESTS).encode()
    config = {"headers": "kind=text:a", "extent.bytes": "32KiB"}
    truth = [(None, text.encode(), [("kind", b"a")]) for text in DIGESTS]
    return Case("lines.txt.bz2", in_streams(body), config, truth, _text)


# -- typed JSON and registries ---------------------------------------------------------------------

TYPES = {
    "id": ("int64", pa.int64()),
    "total": ("decimal(20,3)", pa.decimal128(20, 3)),
    "at": (
        "struct<place:string,seen:timestamp(us,UTC)>",
        pa.struct([("place", pa.string()), ("seen", pa.timestamp("us", "UTC"))]),
    ),
    "tags": ("list<string>", pa.list_(pa.string())),
    "more": ("map<string,json>", pa.map_(pa.string(), pa.string())),
    "data": ("binary", pa.binary()),
    "day": ("date", pa.date32()),
}
DECLARED = ",".join(f"{name}:{text}" for name, (text, _) in TYPES.items())


def _typed(number: int) -> dict[str, Any]:
    """Return the values of a document, as PyArrow takes them; each is null in some."""
    seen_at = dt.datetime(2026, 1, 31, 23, 59, 59, number, dt.UTC)
    values = {
        "total": Decimal(10**16 + number).scaleb(-3),
        "at": {"place": f"näme {DIGESTS[number]}", "seen": seen_at},
        "tags": [f"t{number}", None][: number % 3],
        "more": {"a": f"[{number},1.50]", "b": '{"c":null}'},
        "data": bytes([number % 256, 0, 255]),
        "day": dt.date(2026, 1, 1) + dt.timedelta(days=number % 500),
    }
    nulls = {name: None for place, name in enumerate(values) if (number + place) % 11 == 0}
    return {"id": number, **values, **nulls}


def _document(values: Mapping[str, Any]) -> bytes:
    """Write a document; the values of `more` are JSON already."""

    def written(value: Any) -> Any:  # noqa: ANN401 - any value
        match value:
            case bytes():
                return _base64(value)
            case dt.date() | dt.datetime():
                return value.isoformat()
            case Decimal():
                return str(value)
        raise TypeError(value)

    more = values["more"]
    plain = {name: value for name, value in values.items() if name != "more"}
    inner = more and "{" + ",".join(f'"{name}": {text}' for name, text in more.items()) + "}"
    text = json.dumps(plain, default=written, ensure_ascii=False)
    return f'{text[:-1]}, "more": {inner or "null"}}}'.encode()


def typed_json_lines_as_protobuf(services: Services) -> Case:
    """Columns of documents in frames of zstd, with keys, dead letters and headers of columns."""
    rows = [_typed(number) for number in range(3_000)]
    lines = [_document(row) for row in rows]
    bad = [b'{"id": 1.5}', b'{"id": 1, "unknown": 1}', b"[1]"]
    for place, line in zip((700, 1_500, 2_900), bad, strict=True):
        lines.insert(place, line)
    registry = {"schema.registry.url": services.confluent.url}
    config = {
        "input.format": "jsonl",
        "jsonl.schema": DECLARED,
        "errors.tolerance": "all",
        "message.key": "column:id",
        "headers": "day=column:day",
        **_converter("value", "protobuf", **registry),
        **_converter("key", "protobuf", **registry),
        "extent.bytes": "32KiB",
    }
    truth = []
    for row in rows:
        value = {name: member(kind, row[name], nullable=True) for name, (_, kind) in TYPES.items()}
        # A null gives no header.
        days = [] if row["day"] is None else [("day", row["day"].isoformat().encode())]
        truth.append(({"id": row["id"]}, value, days))

    def read(record: ConsumedRecord) -> Record:
        key = services.read_protobuf(record.key or b"")
        return key, services.read_protobuf(record.value or b""), list(record.headers)

    body = in_frames(b"".join(line + b"\n" for line in lines))
    return Case("rows.jsonl.zst", body, config, truth, read, bad)


def inferred_json_with_schemas(_: Services) -> Case:
    """An array of documents, with inferred types, as Connect's JSON with schemas."""
    rows: list[dict[str, Any]] = [
        {"id": n, "at": {"x": n / 4, "s": [f"é{n}"]}, "big": 10**25 + n} for n in range(50)
    ]
    config = {
        "input.format": "json",
        "json.schema": "infer",
        "message.key": "column:id",
        **_converter("value", "json", **{"schemas.enable": "true"}),
        **_converter("key", "json", **{"schemas.enable": "true"}),
    }

    def read(record: ConsumedRecord) -> Record:
        return tuple(read_envelope(part or b"")[1] for part in (record.key, record.value))

    truth = [({"id": row["id"]}, {**row, "big": Decimal(row["big"])}) for row in rows]
    return Case("rows.json", json.dumps(rows, indent=1).encode(), config, truth, read, is_cut=False)


def schemas_in_glue(services: Services) -> Case:
    """Protocol Buffers, and keys of Avro that are compressed, with their schemas in AWS Glue."""
    amounts = pa.decimal128(9, 2)
    rows = [{"id": n, "name": f"é{n}", "amount": Decimal(n - 99).scaleb(-2)} for n in range(400)]
    fields = {"id": pa.int64(), "name": pa.string(), "amount": amounts}
    table = pa.Table.from_pylist(rows, pa.schema(list(fields.items())))
    glue = {"schema.registry.type": "glue", "registry.name": services.glue_registry}
    config = {
        "message.key": "column:id,name",
        **_converter("value", "protobuf", **glue),
        **_converter("key", "avro", compression="ZLIB", **glue),
        "extent.bytes": "1KiB",
    }

    def read(record: ConsumedRecord) -> Record:
        return services.read_glue(record.key or b""), services.read_glue(record.value or b"")

    truth = [
        (
            {"id": row["id"], "name": row["name"]},
            {name: member(kind, row[name], nullable=True) for name, kind in fields.items()},
        )
        for row in rows
    ]
    return Case("rows.parquet", _parquet(table), config, truth, read)


def _converter(part: str, name: str, **keys: str) -> dict[str, str]:
    """Return the keys of a connector for a converter."""
    whole = f"{part}.converter"
    return {whole: name, **{f"{whole}.{key}": text for key, text in keys.items()}}


# -- headers ---------------------------------------------------------------------------------------


def headers_by_transforms(_: Services) -> Case:
    """Headers that transforms make, add and drop, where another header is there or is not."""
    table = pa.table({
        "id": range(400),
        "kind": [None if n % 5 == 0 else f"k{n}" for n in range(400)],
        "data": pa.array([bytes([n % 256, 255]) for n in range(400)], pa.binary()),
    })  # fmt: skip
    steps = {
        "copied": {"type": "HeaderFrom$Value", "fields": "kind", "headers": "kind",
                   "operation": "copy"},
        "moved": {"type": "HeaderFrom", "fields": "data", "headers": "raw", "operation": "move"},
        "literal": {"type": "InsertHeader", "header": "v", "value.literal": "01"},
        "dropped": {"type": "DropHeaders", "headers": "gone,never"},
        "seen": {"type": "InsertHeader", "header": "after", "value.literal": "x",
                 "predicate": "has_raw"},
        "unseen": {"type": "InsertHeader", "header": "not", "value.literal": "x",
                   "predicate": "has_gone"},
    }  # fmt: skip
    config = {
        "headers": "gone=text:1,row=location",
        "transforms": ",".join(steps),
        "predicates": "has_raw,has_gone",
        **{f"transforms.{alias}.{name}": text for alias, step in steps.items()
           for name, text in step.items()},
        "predicates.has_raw.type": "HasHeaderKey",
        "predicates.has_raw.name": "raw",
        "predicates.has_gone.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        "predicates.has_gone.name": "gone",
        "extent.bytes": "1KiB",
    }  # fmt: skip
    truth: list[Record] = []
    for row in table.to_pylist():
        kind = row["kind"] and row["kind"].encode()
        made = [("kind", kind), ("raw", row["data"]), ("v", b"01"), ("after", b"x")]
        value = json.dumps({"id": row["id"], "kind": row["kind"]}, separators=(",", ":"))
        row_at = ("row", str(row["id"]).encode())
        truth.append((None, value.encode(), [row_at, *made]))
    return Case("rows.parquet", _parquet(table), config, truth, _text)


# -- backups ---------------------------------------------------------------------------------------


def backup(name: str) -> Callable[[Services], Case]:
    """Return the case of one layout of backups: key, value, headers, time and partition."""
    layout = BACKUPS[name]
    with_partition = "message.partition" in layout.config

    def made(_: Services) -> Case:
        truth = [
            (
                one.key,
                one.value,
                list(one.headers),
                one.timestamp,
                one.partition if with_partition else None,
            )
            for one in layout.originals
        ]
        config = {"input.format": layout.format, **layout.config}
        return Case(name, layout.write(), config, truth, read, is_cut=False)

    def read(record: ConsumedRecord) -> Record:
        place = record.partition if with_partition else None
        return (*_text(record), record.timestamp, place)

    return made


# -- encrypted Parquet -----------------------------------------------------------------------------


def _people() -> tuple[pa.Table, list[Record]]:
    rows = [{"id": number, "name": f"person {number}"} for number in range(400)]
    values = (json.dumps(row, separators=(",", ":")).encode() for row in rows)
    return pa.Table.from_pylist(rows), [(None, value, []) for value in values]


def parquet_with_wrapped_keys(services: Services) -> Case:
    """Keys of columns, wrapped by master keys in Secrets Manager."""
    table, truth = _people()
    configured = pe.EncryptionConfiguration(footer_key="footer", column_keys={"people": ["name"]})
    factory = pe.CryptoFactory(lambda _: Wrapping(MASTERS))
    keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), configured)
    reference = f"${{secretsmanager:{services.secret}:masters}}"
    config = {"parquet.encryption.key.list": reference, "extent.bytes": "1KiB"}
    return Case("x.parquet", _parquet(table, encryption_properties=keys), config, truth, _text)


def parquet_with_a_footer_key(services: Services) -> Case:
    """One key of all columns, in Secrets Manager."""
    table, truth = _people()
    keys = pe.create_encryption_properties(FOOTER_KEY)
    reference = f"${{secretsmanager:{services.secret}:footer}}"
    config = {"parquet.encryption.footer.key": reference, "extent.bytes": "1KiB"}
    return Case("x.parquet", _parquet(table, encryption_properties=keys), config, truth, _text)


CASES: Mapping[str, Callable[[Services], Case]] = {
    **{
        made.__name__: made
        for made in (
            csv_in_seekable_zstd,
            lines_in_bzip2,
            typed_json_lines_as_protobuf,
            inferred_json_with_schemas,
            schemas_in_glue,
            headers_by_transforms,
            parquet_with_wrapped_keys,
            parquet_with_a_footer_key,
        )
    },
    **{f"backup-{name}": backup(name) for name in BACKUPS},
}
