"""Check that no sentence of pages, docstrings and messages has more than 30 words.

    python -m tools.sentences            every Markdown and Python file of the tree
    python -m tools.sentences FILE...    only these

A word stands between blanks and has a letter or a digit. Code between backquotes, a list of such
code, and a value within an f-string count as one word each. Left out are code blocks, drawings,
tables, quotations and headings. Each sentence that is too long is printed as
`file:line: words: sentence`; then the exit code is 1.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_WORDS = 30
# Text that is kept as it was written, and code whose texts only developers read.
LEFT_OUT = ("docs/history.md", "tests/", "bench/")
# A sentence ends at its mark, whatever begins the next one; "..." ends none.
_END = re.compile(r"(?<=[^\s.][.!?])[)\"'*_]*\s+")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.")
_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_LIST_OF_CODE = re.compile(r"`code`(?:, `code`){2,}(?:,? (?:and|or) `code`)?")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+(?=\S)")
# A line of a docstring's section, such as `    ObjectGone: the version does not exist.`
_ENTRY = re.compile(r" {4}(?=\w+: )")
# Lines and columns; what follows up to a blank line belongs to the same drawing or table.
_DRAWN = re.compile(r"[─│└┘┐┌├┤┬┴┼▼▲►]|\S {2,}\S")
_ARROW = re.compile(r"->|=>|──|\|")


def main(names: list[str]) -> int:
    """Print the sentences that are too long, and return the exit code."""
    files = [Path(name) for name in names] or _list_files()
    found = [
        f"{path}:{line}: {words} words: {sentence}"
        for path in files
        for line, text in _read_texts(path)
        for words, sentence in find_long_sentences(text)
    ]
    print("\n".join(found) or f"sentences: {len(files)} files, none above {MOST_WORDS} words")
    return 1 if found else 0


def find_long_sentences(text: str) -> list[tuple[int, str]]:
    """Return the sentences above the limit, each with its number of words."""
    plain = _LIST_OF_CODE.sub("`code`", _CODE.sub("`code`", " ".join(text.split())))
    sentences = _END.split(_ABBREVIATION.sub(r"\1", _LINK.sub(r"\1", plain)))
    counted = [(_count_words(sentence), sentence) for sentence in sentences]
    return [one for one in counted if one[0] > MOST_WORDS]


def split_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each paragraph and list item of a page."""
    fenced, lines = False, _Paragraph()
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.lstrip().startswith("```")
        fenced = fenced != fence
        indented = line.startswith("    ") and not lines.texts
        marked = line.lstrip().startswith(("|", ">", "#", "<!--"))
        yield from lines.add(number, line, left_out=fence or fenced or indented or marked)
    yield from lines.end()


def split_docstring(text: str, first: int) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each paragraph, list item and section's entry."""
    drawing, lines = False, _Paragraph()
    for number, line in enumerate(text.splitlines(), first):
        shown = _CODE.sub("code", line)
        drawing = bool(shown.strip()) and (drawing or bool(_DRAWN.search(shown)))
        indented = line.startswith("    ") and not lines.texts
        left_out = drawing or indented or bool(_ARROW.search(shown))
        yield from lines.add(number, line, left_out=left_out)
    yield from lines.end()


class _Paragraph:
    """The lines of a paragraph, up to the line that ends it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._first = 0

    def add(self, number: int, line: str, *, left_out: bool) -> Iterator[tuple[int, str]]:
        """Add a line; yield the paragraph that ends before it."""
        item = _ITEM.match(line) or _ENTRY.match(line)
        if left_out or item or not line.strip():
            yield from self.end()
        if not left_out and line.strip():
            self._first = self._first if self.texts else number
            self.texts.append(line[item.end() :] if item else line)

    def end(self) -> Iterator[tuple[int, str]]:
        """Yield the paragraph, if there is one, and begin the next."""
        if self.texts:
            yield self._first, " ".join(self.texts)
        self.texts = []


def _count_words(sentence: str) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in sentence.split())


def _list_files() -> list[Path]:
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*.py"]
    listed = subprocess.check_output(words, text=True).splitlines()
    kept = (Path(name) for name in sorted(set(listed)) if not name.startswith(LEFT_OUT))
    return [path for path in kept if path.exists()]


def _read_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of every part of a file that readers get as sentences."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return split_markdown(source)
    return _read_program(ast.parse(source))


def _read_program(tree: ast.Module) -> Iterator[tuple[int, str]]:
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            first = node.body[0] if node.body else None
            if text is not None and isinstance(first, ast.Expr):
                docstrings.add(id(first.value))
                yield from split_docstring(text, first.lineno)
    for string in _find_strings(tree):
        if id(string) not in docstrings:
            for part in _render(string).split("\n"):
                yield string.lineno, part


def _find_strings(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield the texts of a program; an f-string is one text."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr):
            yield node
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node
        else:
            yield from _find_strings(node)


def _render(node: ast.Constant | ast.JoinedStr) -> str:
    """Return a message as readers get it, with a word in place of each value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "value" for part in node.values
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
