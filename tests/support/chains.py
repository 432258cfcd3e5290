"""A connector applied to one object in memory, as workers apply it: parse, decode, convert."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from extentflow.aws.secrets_manager import SecretsManager
from extentflow.config.parsing import parse, to_map
from extentflow.delivery.converted import ConvertedChunk
from extentflow.formats import open_format
from extentflow.kafka.record_headers import by_name
from extentflow.model import Extent, ObjectVersion
from extentflow.testing.stores import MemorySource
from extentflow.wiring import options
from extentflow.wiring.extents import pipeline

SECRETS = options.SecretResolver(SecretsManager())
BASE = {"name": "c", "topic": "source", "aws.s3.bucket.name": "bucket"}
VERSION = ObjectVersion("bucket", "folder/key", "v1", "etag", 0)


@dataclass(frozen=True)
class Converted:
    """What came of an object, over all chunks."""

    chunks: list[ConvertedChunk]

    @property
    def topics(self) -> set[str]:
        return {chunk.records.topic for chunk in self.chunks}

    @property
    def payloads(self) -> list[bytes | None]:
        return [each for chunk in self.chunks for each in chunk.records.values.to_pylist()]

    @property
    def values(self) -> list[Any]:
        return [each and orjson.loads(each) for each in self.payloads]

    @property
    def keys(self) -> list[bytes | None]:
        found = (chunk.records.keys for chunk in self.chunks)
        return [each for keys in found if keys is not None for each in keys.to_pylist()]

    @property
    def headers(self) -> list[dict[str, bytes]]:
        return [by_name(each) for chunk in self.chunks for each in chunk.records.headers or ()]

    @property
    def timestamps(self) -> list[int]:
        found = (chunk.records.timestamps for chunk in self.chunks)
        return [each for times in found if times is not None for each in times.to_pylist()]

    @property
    def partitions(self) -> list[int]:
        found = (chunk.records.partitions for chunk in self.chunks)
        return [each for places in found if places is not None for each in places.to_pylist()]

    @property
    def bad(self) -> list[tuple[int, str]]:
        return [(bad.location, bad.reason) for chunk in self.chunks for bad in chunk.bad]

    @property
    def filtered(self) -> int:
        return sum(chunk.filtered for chunk in self.chunks)

    @property
    def locations(self) -> list[int]:
        return [int(each) for chunk in self.chunks for each in chunk.locations]


def convert(
    data: pa.Table | bytes,
    config: Mapping[str, str],
    fmt: str = "parquet",
    key: str = VERSION.key,
    store: object = None,
) -> Converted:
    """Return the records that a connector makes of an object."""
    whole = parse({**BASE, "input.format": fmt, **config})
    assert parse(to_map(whole)) == whole
    body = data
    if isinstance(data, pa.Table):
        file = io.BytesIO()
        pq.write_table(data, file)
        body = file.getvalue()
    extent = Extent("job", 0, "c", replace(VERSION, key=key), 0, len(body), fmt)
    opened = open_format(fmt, options.format_options(whole, fmt, "none"), whole.options_of(fmt))
    made = pipeline(
        whole,
        extent,
        MemorySource(body),
        opened,
        partitions=lambda _: 4,
        look_up=SECRETS,
        store=store,
    )
    return Converted(list(made.convert(extent, 0)))


def chain(**types: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of transforms by alias, in that order; predicates are called `p...`."""
    found: dict[str, str] = {}
    for word, mine in (("transforms", False), ("predicates", True)):
        names = [alias for alias in types if alias.startswith("p_") is mine]
        if names:
            found[word] = ",".join(names)
        for alias in names:
            found |= {f"{word}.{alias}.{key}": text for key, text in types[alias].items()}
    return found
