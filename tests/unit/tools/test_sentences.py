"""Sentences of pages, docstrings and messages are found, counted and located."""

from pathlib import Path

import pytest
from tools.sentences import MOST_WORDS, find_long_sentences, main, split_docstring, split_markdown

SHORT = "A worker claims an extent."
LONG = " ".join(["word"] * (MOST_WORDS + 1))


def check(tmp_path: Path, name: str, text: str) -> int:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return main([str(path)])


def test_a_sentence_of_thirty_words_is_short_enough() -> None:
    assert find_long_sentences(" ".join(["word"] * MOST_WORDS) + ".") == []
    assert find_long_sentences(LONG) == [(MOST_WORDS + 1, LONG)]


@pytest.mark.parametrize(
    "end",
    [". And", ". and", ". `run` and", "? And", ".) And", ".** And", ". 30 and"],
)
def test_a_sentence_ends_at_its_mark(end: str) -> None:
    half = " ".join(["word"] * 20)

    assert find_long_sentences(f"{half}{end} {half}") == []


@pytest.mark.parametrize("within", ["e.g. ", "i.e. ", "vs. ", "1.5 ", "... ", "a.b ", "; "])
def test_a_mark_within_a_sentence_ends_none(within: str) -> None:
    half = " ".join(["word"] * 20)

    assert len(find_long_sentences(f"{half} {within}{half}")) == 1


def test_code_is_one_word_and_a_link_is_its_text() -> None:
    text = f"See `{LONG}` in [the page](https://example.com/{LONG.replace(' ', '%20')})."

    assert find_long_sentences(text) == []


def test_a_list_of_code_is_one_word() -> None:
    keys = ", ".join(["`a.b`"] * 40)

    assert find_long_sentences(f"Refused are {keys} and `c`.") == []
    assert len(find_long_sentences("`a` and " * 20)) == 1


def test_paragraphs_and_items_of_a_page_have_their_first_line() -> None:
    page = "# Title\n\nOne\ntwo.\n\n- item\n  goes on\n- next\n\n1. first\n"

    assert list(split_markdown(page)) == [
        (3, "One two."),
        (6, "item   goes on"),
        (8, "next"),
        (10, "first"),
    ]


@pytest.mark.parametrize(
    "shown",
    [
        f"```\n{LONG}\n```",
        f"| {LONG} |",
        f"> {LONG}",
        f"## {LONG}",
        f"    {LONG}",
        f"<!-- {LONG} -->",
    ],
)
def test_what_a_page_shows_or_quotes_is_left_out(shown: str) -> None:
    assert list(split_markdown(f"Text.\n\n{shown}\n")) == [(1, "Text.")]


def test_drawings_and_tables_of_a_docstring_are_left_out() -> None:
    text = "Text.\n\na   │ b\nc goes on\n\none      two\n  three\n\nbytes -> Arrow\nmore"

    assert list(split_docstring(text, 4)) == [(4, "Text."), (13, "more")]


def test_code_within_a_docstring_draws_nothing() -> None:
    text = "Takes `int | None` and\n`get` of `a  b` too."

    assert list(split_docstring(text, 1)) == [(1, text.replace("\n", " "))]


def test_entries_of_a_section_are_texts_of_their_own() -> None:
    text = "Raises:\n    ObjectGone: one\n        goes on.\n    Fenced: two."

    assert list(split_docstring(text, 1)) == [
        (1, "Raises:"),
        (2, "ObjectGone: one         goes on."),
        (4, "Fenced: two."),
    ]


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (f'"""{LONG}"""\n', 1),
        (f'class A:\n    """{LONG}"""\n', 2),
        (f'def f():\n    """{SHORT}\n\n    {LONG}\n    """\n', 4),
        (f'\nraise ValueError(f"{LONG} {{1}}")\n', 2),
        (f'show("{SHORT} "\n     "{LONG}")\n', 1),
    ],
    ids=["module", "class", "function", "f-string", "concatenated"],
)
def test_long_sentences_of_a_program_are_located(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, line: int
) -> None:
    assert check(tmp_path, "a.py", program) == 1

    assert capsys.readouterr().out.startswith(f"{tmp_path}/a.py:{line}: ")


def test_values_and_lines_of_a_message_are_counted_apart(tmp_path: Path) -> None:
    half = " ".join(["word"] * 20)

    assert check(tmp_path, "a.py", f'say(f"{{{"a + " * 30}1}} {half}")\n') == 0
    assert check(tmp_path, "b.py", f'say("{half}\\n{half}")\n') == 0


def test_files_without_long_sentences_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, "a.md", SHORT) == 0

    assert capsys.readouterr().out == "sentences: 1 files, none above 30 words\n"
