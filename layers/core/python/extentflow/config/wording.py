"""Quotes names and values in messages: on one line, shortened, with the nearest known name."""

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN_CHARACTERS = 80


def nearest(
    name: str, names: Iterable[str], otherwise: str = "docs/configuration.md lists the keys"
) -> str:
    """Return `did you mean NAME?`, or where to look when nothing is near."""
    found = get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean {found[0]}?" if found else otherwise


def either(words: Iterable[str]) -> str:
    """Return words as a choice: `a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def quoted(text: str) -> str:
    """Return a value for a one-line message."""
    return repr(_shortened(text))


def plain(name: str) -> str:
    """Return a name for a one-line message: as it is, where that can be printed."""
    return _shortened(name) if name.isprintable() and name.strip() else quoted(name)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
