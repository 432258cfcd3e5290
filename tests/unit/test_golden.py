"""The texts in `tests/golden`, and how they are compared."""

import pytest
from tests.support import golden as texts
from tests.support.golden import FOLDER, Golden, entries, to_entries, to_text


def compared(text: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> Golden:
    kept = {} if expected is None else {("unit/test_a.py::test_a", 1): expected}
    monkeypatch.setattr(texts, "entries", lambda _: kept)
    made = Golden("unit/test_a.py::test_a", "a", is_write=False, folders={"/tmp/x": "tmp"})  # noqa: S108
    made(text, job="j-1")
    return made


def test_every_entry_belongs_to_a_test_that_uses_it(request: pytest.FixtureRequest) -> None:
    heads = [test for path in FOLDER.glob("*.txt") for test, _ in entries(path.stem)]

    assert [test for test in heads if texts.is_stale(test, request.config)] == []


def test_a_golden_file_is_as_it_would_be_written() -> None:
    for path in FOLDER.glob("*.txt"):
        assert to_text(to_entries(path.read_text(encoding="utf-8"))) == path.read_text("utf-8")


def test_a_text_of_several_lines_is_an_entry() -> None:
    made = {("a::b[c #1]", 10): "one\n\n  two #3", ("a::b[c #1]", 9): "\nthree"}

    assert to_entries(to_text(made)) == made
    assert to_text(made).startswith("a::b[c #1] #9\n\n    three\n\na::b[c #1] #10\n")


def test_values_that_vary_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compared(
        "j-1: /tmp/x/a at localhost:43210, not localhost:9092\x00\n",
        "<job>: <tmp>/a at localhost:<port>, not localhost:9092\\x00",
        monkeypatch,
    )

    assert len(made.texts) == 1


@pytest.mark.parametrize(
    ("expected", "said"),
    [("other", "- other"), (None, "there is no entry #1"), ("texts", "- texts")],
)
def test_another_text_fails_with_the_difference(
    expected: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(pytest.fail.Exception, match=said) as failed:
        compared("text", expected, monkeypatch)

    assert "make golden" in str(failed.value)
