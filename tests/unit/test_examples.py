"""The example plug-in decodes lines, good and bad ones."""

from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest
from tests.laws.laws import Decoded, decoded
from tests.support.plugin import EXAMPLE

from extentflow.formats import FormatOptions
from extentflow.testing.stores import MemorySource


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
