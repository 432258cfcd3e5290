"""Resolves references to secrets, as Kafka Connect's configuration providers do.

References are `${env:NAME}`, `${file:path:key}` and `${secretsmanager:name:key}`. Resolved values
are returned and never stored: only references are written to the ledger.

Tests: unit/config/test_files.py
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Self

from extentflow.config import files
from extentflow.errors import Misconfigured

FORMS = "${env:NAME}, ${file:/path:key} or ${secretsmanager:name:key}"

_REFERENCE = re.compile(r"\$\{([^:{}]*):([^{}]*)\}")
# A secret's name, or its ARN with six colons of its own; then perhaps a key.
_SECRET = re.compile(
    r"(arn:[a-z0-9-]+:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+"
    r"|(?!arn:)[A-Za-z0-9/_+=.@-]+)(?::(.+))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a value is kept: an environment variable, a key of a .properties file, a secret.

    `path` is a file's, or a secret's name or ARN; without `key` the whole secret is the value.
    """

    provider: str
    path: str
    key: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the reference that `text` is; None where it holds no `${`.

        Raises ValueError, with the remedy, where `text` only resembles a reference.
        """
        if "${" not in text:
            return None
        match = _REFERENCE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"a reference is the whole value: {FORMS}")
        provider, rest = match[1], match[2]
        if provider == "env" and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", rest):
            return cls(provider, "", rest)
        path, _, key = rest.rpartition(":")
        if provider == "file" and path and key:
            return cls(provider, path, key)
        if provider == "secretsmanager" and (secret := _SECRET.fullmatch(rest)):
            return cls(provider, secret[1], secret[2] or "")
        raise ValueError(f"write {FORMS}; there are no other providers")


def referring(values: Mapping[str, str]) -> dict[str, str]:
    """Return which of `values` are references."""
    found: dict[str, str] = {}
    for name, text in values.items():
        with suppress(ValueError):  # only resembles a reference, and is reported elsewhere
            if Reference.parse(text) is not None:
                found[name] = text
    return found


def environments(values: Mapping[str, str]) -> list[str]:
    """Return which of `values` refer to variables of an environment, as `name=${env:VARIABLE}`."""
    found = referring(values).items()
    return [f"{name}={text}" for name, text in found if text.strip().startswith("${env:")]


def absent_variables(values: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Return which of `values` refer to variables that `environ` lacks, as `environments`."""
    return [
        f"{name}={text}"
        for name, text in referring(values).items()
        if (found := Reference.parse(text)) and found.provider == "env"
        if not environ.get(found.key)
    ]


def resolve(
    values: Mapping[str, str],
    *,
    environ: Mapping[str, str],
    read_text: Callable[[str], str],
    read_secret: Callable[[str], str],
) -> dict[str, str]:
    """Return `values` with every reference replaced by what it refers to.

    Called by workers, where the values are used. `read_text` returns a file's text and may raise
    OSError or UnicodeError. `read_secret` returns a secret's text, by name or ARN, and is called
    once per secret, so that a name and a password belong together. Messages name key and reference,
    never a value.

    Raises Misconfigured with every reference that leads nowhere, and what `read_secret` raises.
    """
    read_once = cache(read_secret)
    resolved: dict[str, str] = {}
    problems: list[str] = []
    for name, text in values.items():
        try:
            found = Reference.parse(text)
            resolved[name] = _look_up(found, environ, read_text, read_once) if found else text
        except Misconfigured as exc:
            problems.extend(f"{name}={text}: {problem}" for problem in exc.problems)
        except (LookupError, ValueError) as exc:
            problems.append(f"{name}={text}: {exc}")
    if problems:
        raise Misconfigured(problems)
    return resolved


def _look_up(
    reference: Reference,
    environ: Mapping[str, str],
    read_text: Callable[[str], str],
    read_secret: Callable[[str], str],
) -> str:
    if reference.provider == "secretsmanager":
        return _secret_entry(reference, read_secret(reference.path))
    if reference.provider == "env":
        if not environ.get(reference.key):
            raise LookupError("the environment variable is not set on this worker")
        return environ[reference.key]
    try:
        entries = files.properties(read_text(reference.path), reference.path)
    except UnicodeError:
        raise LookupError("the file is not UTF-8 text") from None
    except OSError as exc:
        why = exc.strerror or "unknown reason"
        raise LookupError(
            f"the file cannot be read on this worker ({why}); correct its path"
        ) from exc
    except Misconfigured:
        # Its message may quote lines, and the lines hold secrets.
        raise LookupError("the file is no valid .properties file") from None
    if not entries.get(reference.key):
        raise LookupError("the file has no such key; it holds key=value lines")
    return entries[reference.key]


def _secret_entry(reference: Reference, text: str) -> str:
    """Return a secret's text, or one entry of the JSON object that it is."""
    if not reference.key:
        return text
    with suppress(ValueError, RecursionError):  # messages may quote what the secret holds
        entries = json.loads(text)
        value = entries.get(reference.key) if isinstance(entries, dict) else None
        if isinstance(value, str) and value:
            return value
    raise LookupError("the secret is no JSON object with a text for that key; correct one of them")
