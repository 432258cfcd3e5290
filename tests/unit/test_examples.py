"""The example plug-in decodes lines, good and bad ones; example connectors deliver samples."""

import gzip
import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.laws.laws import Decoded, decoded
from tests.support.local_engine import CallingThreadEngine, until_final
from tests.support.memory_runtime import MemoryRuntime
from tests.support.plugin import EXAMPLE

from extentflow.config.files import load
from extentflow.config.parsing import parse
from extentflow.engines import Engine
from extentflow.formats import FormatOptions
from extentflow.jobs.run import RunReport
from extentflow.kafka.topic_admin import NewTopics
from extentflow.services.composition import open_runs
from extentflow.services.run_control import EngineChoice
from extentflow.testing.stores import MemorySource
from extentflow.wiring.extents import delivery_context

CONNECTORS = EXAMPLE.parent / "connectors"
SAMPLES = CONNECTORS / "samples"


@pytest.fixture(scope="module")
def acme() -> ModuleType:
    path = EXAMPLE / "src" / "extentflow_acme" / "__init__.py"
    spec = spec_from_file_location("extentflow_acme", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def read(acme: ModuleType, body: bytes) -> Decoded:
    fmt = acme.open_acme(FormatOptions(), acme.AcmeOptions(separator=":"))
    return decoded(fmt, MemorySource(body), (0, len(body)))


def test_pairs_become_rows(acme: ModuleType) -> None:
    result = read(acme, b"a:1\nb:2:3\n")

    assert result.rows == [{"name": "a", "value": "1"}, {"name": "b", "value": "2:3"}]
    assert result.bad == []


def test_a_line_without_a_separator_is_a_bad_record(acme: ModuleType) -> None:
    result = read(acme, b"a:1\nnone\nb:2\n")

    assert result.rows == [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    assert result.bad == [(4, b"none", "no separator")]


def deliver(connector: Path, body: bytes, name: str) -> tuple[RunReport, list[dict[str, str]]]:
    """Deliver one object by an example connector; return the keys and values in its topic."""
    runtime, keys = MemoryRuntime(), load(connector)
    config = parse(keys)
    runtime.memory.connectors.put(config.name, keys)
    assert config.s3_bucket is not None
    runtime.memory_store.put(config.s3_bucket, f"{config.prefix}{name}", body)

    def opened(*_args: object, **_words: object) -> Engine:
        return CallingThreadEngine(until_final(delivery_context(runtime, runtime.slots("here"))))

    runs = open_runs(runtime, open_engine=opened)
    report = runs.run(
        runtime.order(connector=config.name), engine=EngineChoice("inline"), topics=NewTopics(1)
    )
    found = runtime.cluster.read_committed(config.topic)
    return report, [
        {"key": (one.key or b"").decode(), "value": (one.value or b"").decode()} for one in found
    ]


@pytest.mark.parametrize(
    ("name", "path", "identity"),
    [
        ("cloudtrail", ["Records"], "eventID"),
        ("geojson", ["features"], "id"),
        ("pages", ["data", "items"], "id"),
    ],
)
def test_example_connectors_deliver_the_records_of_their_samples(
    name: str, path: list[str], identity: str
) -> None:
    body = (SAMPLES / f"{name}.json").read_bytes()
    expected: list[dict[str, Any]] = []
    for text in body.decode().splitlines() if name == "pages" else [body.decode()]:
        document = json.loads(text)
        added = {"page": document["page"]} if name == "pages" else {}
        for member in path:
            document = document[member]
        expected += [{**added, **record} for record in document or []]

    report, found = deliver(CONNECTORS / f"{name}.yaml", gzip.compress(body), "sample.json.gz")

    assert report.ok
    assert [one["key"] for one in found] == [str(record[identity]) for record in expected]
    assert len(expected) > 1
    if name != "geojson":
        assert [json.loads(one["value"]) for one in found] == expected
        return
    # Columns of the type `json` are texts.
    features = [json.loads(one["value"]) for one in found]
    assert [json.loads(one["geometry"]) for one in features] == [
        record["geometry"] for record in expected
    ]


def test_an_object_without_the_array_says_so() -> None:
    report, found = deliver(CONNECTORS / "pages.yaml", b'{"error": "throttled"}', "a.json")

    assert not report.ok
    assert found == []
    (said,) = report.errors
    assert "a.json" in said
    assert "offset 0: json.records.path=data.items: the document has no such member" in said
    assert "correct json.records.path" in said
