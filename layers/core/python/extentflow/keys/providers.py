"""Secrets by reference, as Connect's configuration providers write them.

Owns: the syntax `${env:NAME}` and `${file:path:key}`, and looking references up. Refuses to know:
which keys hold secrets. What was looked up is returned, never kept: references travel and are
stored, values do not.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from extentflow.errors import Misconfigured
from extentflow.keys import files

_REFERENCE = re.compile(r"\$\{([^:{}]*):([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a value is kept: an environment variable, or a key of a .properties file."""

    provider: str
    path: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the reference that `text` is; None where it holds no `${`.

        Raises:
            ValueError: with the remedy, where `text` only resembles a reference.
        """
        if "${" not in text:
            return None
        match = _REFERENCE.fullmatch(text.strip())
        if match is None:
            raise ValueError("a reference is the whole value: ${env:NAME} or ${file:/path:key}")
        provider, rest = match[1], match[2]
        if provider == "env" and _NAME.fullmatch(rest):
            return cls(provider, "", rest)
        path, _, key = rest.rpartition(":")
        if provider == "file" and path and key:
            return cls(provider, path, key)
        raise ValueError("write ${env:NAME} or ${file:/path:key}; there are no other providers")


def resolve(
    values: Mapping[str, str], *, environ: Mapping[str, str], read_text: Callable[[str], str]
) -> dict[str, str]:
    """Return `values` with every reference replaced by what it refers to.

    Called by workers, where the values are used. `read_text` returns a file's text and may raise
    OSError or UnicodeError. Messages name key and reference, never a value.

    Raises:
        Misconfigured: every reference that leads nowhere.
    """
    resolved: dict[str, str] = {}
    problems: list[str] = []
    for name, text in values.items():
        try:
            reference = Reference.parse(text)
            resolved[name] = _look_up(reference, environ, read_text) if reference else text
        except (LookupError, OSError, ValueError) as exc:
            problems.append(f"{name}={text}: {_reason(exc)}")
    if problems:
        raise Misconfigured(problems)
    return resolved


def _look_up(
    reference: Reference, environ: Mapping[str, str], read_text: Callable[[str], str]
) -> str:
    if reference.provider == "env":
        if not environ.get(reference.key):
            raise LookupError("the environment variable is not set on this worker")
        return environ[reference.key]
    try:
        entries = files.properties(read_text(reference.path), reference.path)
    except Misconfigured:
        # Its message may quote lines, and the lines hold secrets.
        raise LookupError("the file is no valid .properties file") from None
    if not entries.get(reference.key):
        raise LookupError("the file has no such key; it holds key=value lines")
    return entries[reference.key]


def _reason(exc: Exception) -> str:
    match exc:
        case UnicodeError():
            return "the file is not UTF-8 text"
        case OSError():
            return f"the file cannot be read on this worker ({exc.strerror or 'unknown reason'})"
        case _:
            return str(exc.args[0])
