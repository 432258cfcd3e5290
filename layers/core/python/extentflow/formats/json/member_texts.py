"""Find members in texts of JSON, as they are written.

Tests: unit/formats/json/test_jsonl_format.py
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

_WORD = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def member_path(members: Any, name: str) -> list[str]:  # noqa: ANN401
    """Return the names from the document to a member: `a.b` is `b` in `a`, unless it is a name."""
    if name in members:
        return [name]
    path = name.split(".")
    for part in path:
        if not isinstance(members, dict) or part not in members:
            return []
        members = members[part]
    return path


def follow(members: Any, path: Sequence[str]) -> Any:  # noqa: ANN401
    """Return the value of a member."""
    for part in path:
        members = members[part]
    return members


def source_text(document: str, path: Sequence[str]) -> str:
    """Return the text of a member of a valid document, without whitespace."""
    for name in path:
        document = _member_text(document, name)
    return document


def _member_text(document: str, name: str) -> str:
    """Return the text of a member of a valid JSON object; the last one if repeated."""
    found = ""
    depth = 0
    words: list[str] = []
    # A comma at depth 1, or the end of the object, ends a member: its name, a colon, its value.
    for word in _WORD.findall(document):
        depth += (word in ("{", "[")) - (word in ("}", "]"))
        if depth == 0 or (depth == 1 and word == ","):
            if words and orjson.loads(words[0]) == name:
                found = "".join(words[2:])
            words = []
        elif depth > 1 or word != "{":
            words.append(word)
    return found
