"""Every message of docs/troubleshooting.md is one that the library writes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "layers/core/python/extentflow"
PAGE = ROOT / "docs/troubleshooting.md"
GAP = "…"


def texts() -> tuple[str, ...]:
    """The texts of the library, with a gap for each value that is filled in."""
    return tuple(text for file in SOURCE.rglob("*.py") for text in _texts(file))


def _texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else GAP
                for one in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def messages() -> list[str]:
    rows = PAGE.read_text().partition("## After a failure")[0]
    return re.findall(r"^\| `([^`]+)`", rows, re.MULTILINE)


def test_the_page_has_messages() -> None:
    assert len(messages()) > 15


def test_each_message_is_one_of_the_library() -> None:
    found = texts()
    patterns = {
        message: re.compile(".*?".join(re.escape(part) for part in message.split(GAP)))
        for message in messages()
    }

    assert not [
        message
        for message, pattern in patterns.items()
        if not any(pattern.search(text) for text in found)
    ]
