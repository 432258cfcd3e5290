"""The law suite covers what is registered: formats, compressions, kinds of character sets."""

from collections.abc import Iterable

import pytest
from tests.laws.cases import CASES
from tests.laws.laws import FormatCase
from tests.laws.toy_cases import FiveBytes
from tests.unit.formats.text.test_charsets import CHARSETS

from extentflow.formats import FORMATS, FormatOptions, FormatSpec, open_format
from extentflow.formats.compressed.compression import CODECS
from extentflow.formats.text.charsets import UTF_8, Charset

BUILT_IN = [name for name in FORMATS.names() if FORMATS.is_built_in(name)]


def identity(fmt: object) -> tuple[type, str]:
    """Return what tells an opened format from others: the formats of lines share a class."""
    return type(fmt), getattr(fmt, "name", "")


def without_laws(names: Iterable[str], cases: Iterable[FormatCase]) -> list[str]:
    """Return the registered formats of which no case has a small and no case a large object."""
    cases = list(cases)
    small = {identity(case.format()) for case in cases if case.small}
    large = {identity(case.format()) for case in cases if case.large}
    return [
        name for name in names if identity(open_format(name, FormatOptions())) not in small & large
    ]


def kind(charset: Charset) -> tuple[object, ...]:
    """Return what decides how lines in a character set are found and decoded."""
    utf_8 = charset == UTF_8
    return utf_8, charset.unit, charset.ascii, charset.stateful, charset.is_ambiguous(b"|")


def test_the_law_suite_runs_on_every_registered_format() -> None:
    assert len(BUILT_IN) >= 9
    assert without_laws(BUILT_IN, CASES) == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_format_without_its_cases_is_named(name: str) -> None:
    own = identity(open_format(name, FormatOptions()))
    others = [case for case in CASES if identity(case.format()) != own]

    assert without_laws(BUILT_IN, others) == [name]


def test_a_new_format_without_cases_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = FormatSpec(open=lambda options, _own: FiveBytes(options))
    monkeypatch.setitem(FORMATS._loaded, "new", spec)
    cases = [case for case in CASES if case.name != "five-bytes"]

    assert without_laws([*BUILT_IN, "new"], cases) == ["new"]


def test_the_law_suite_runs_on_every_compression() -> None:
    assert {*CODECS, "none", "bgzf"} == {case.options.compression for case in CASES}


def test_the_law_suite_runs_on_every_kind_of_character_set() -> None:
    tried = {kind(Charset.named(case.options.charset or "utf-8")) for case in CASES}

    assert {kind(Charset.named(name)) for name in CHARSETS} - tried == set()
