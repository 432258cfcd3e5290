"""Reads .properties, JSON (plain, or Connect's {"name", "config"}) and YAML files as flat maps.

Values stay text exactly as written: YAML's `yes` stays `yes` and `010` stays `010`. The type of the
key decides what they mean.
"""

import grp
import json
import os
import pwd
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from extentflow.errors import Misconfigured
from extentflow.wording import plain

_SEPARATOR = re.compile(r"(?<!\\)(?:\\\\)*([\s=:])")
_OWN_SETTINGS = (
    "settings are used only if you and root alone may write them; read it, then"
    " `chown $USER` and `chmod go-w`, or remove it"
)
_TOO_DEEP = "nested too deep; write key: value lines, without maps or lists in them"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    value: Any
    place: str


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it stands in the text, duplicates included."""


STANDARD_INPUT = "-"


def load(path: Path) -> dict[str, str]:
    """Read a file as a flat map; raises Misconfigured with every problem at once.

    `-` is the standard input: JSON where it begins with a brace, else .properties.
    """
    if str(path) == STANDARD_INPUT:
        text = read_standard_input()
        kind = ".json" if text.lstrip().startswith("{") else ".properties"
        return parse_text(text, f"<stdin>{kind}")
    found = read_if_present(str(path))
    if found is None:
        raise Misconfigured(f"{path}: no such file; correct the path")
    return parse_text(found, str(path))


def read_standard_input() -> str:
    """Return the text of the standard input; Misconfigured if it is no UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise Misconfigured("<stdin>: not UTF-8 text; write it as UTF-8") from None


def read_if_present(path: str) -> str | None:
    """Return a file's text, None where there is none; Misconfigured if it cannot be read."""
    return _read(path, None)


def read_owned(path: str, rule: str = _OWN_SETTINGS) -> str | None:
    """Return a file's text as `read_if_present`, if only the user or root can have written it.

    Raises Misconfigured, with `rule`, for a file or link of another owner, or one that others may
    write.
    """
    return _read(path, rule)


def refuse_foreign(path: Path, rule: str) -> None:
    """Return if there is nothing, or a file or folder that only the user or root may write.

    Raises as `read_owned`.
    """
    with suppress(FileNotFoundError):
        _refuse(path, path.stat(), rule)


def _read(path: str, rule: str | None) -> str | None:
    try:
        with Path(path).open(encoding="utf-8") as file:
            if rule is not None:
                # That of what is read: the path may lead elsewhere a moment later.
                _refuse(Path(path), os.fstat(file.fileno()), rule)
            return file.read()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise Misconfigured(f"{path}: not UTF-8 text; save it as UTF-8") from None
    except OSError as exc:
        raise Misconfigured(f"{path}: cannot be read ({exc.strerror}); check the path") from exc


def _refuse(path: Path, found: os.stat_result, rule: str) -> None:
    link = path.lstat()
    # A link of another user leads to a file of this one's choice. Links themselves have no modes.
    elsewhere = _owner(link, "its link") if stat.S_ISLNK(link.st_mode) else None
    if whose := elsewhere or _foreign(found):
        raise Misconfigured(f"{path.absolute()}: {whose}, and {rule}")


def _owner(found: os.stat_result, what: str) -> str | None:
    own = found.st_uid in (os.geteuid(), 0)
    return None if own else f"user {found.st_uid} owns {what}"


def _foreign(found: os.stat_result) -> str | None:
    """Return why others than the user and root may have written a file, in words; None: none may.

    A group that has only the user is the user: several distributions make one for each.
    """
    if whose := _owner(found, "it"):
        return whose
    if found.st_mode & stat.S_IWOTH:
        return "everybody may write it"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, found.st_uid):
        return f"group {found.st_gid} may write it"
    return None


def _is_private(group: int, user: int) -> bool:
    """Whether only this user is in the group."""
    if group == 0:
        return True
    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:  # no such entry on this machine, as in containers
        return False
    alone = set(found.gr_mem) <= {owner.pw_name}
    return alone and owner.pw_gid == group and found.gr_name == owner.pw_name


def parse_text(text: str, path: str) -> dict[str, str]:
    """Return the flat map in `text`; the suffix of `path` decides the syntax. Raises as `load`."""
    match Path(path).suffix.lower():
        case ".properties":
            return properties(text, path)
        case ".json":
            entries = _json_entries(text, path)
        case ".yaml" | ".yml":
            entries = _yaml_entries(text, path)
        case _:
            kinds = ".properties, .json, .yaml, .yml"
            raise Misconfigured(f"{path}: unknown kind of file; name it {kinds}")
    return _flat(_without_envelope(entries, path))


def properties(text: str, path: str) -> dict[str, str]:
    """Return the map in Java's .properties syntax (java.util.Properties.load), UTF-8."""
    entries = []
    for number, line in _logical_lines(text):
        match = _SEPARATOR.search(line)
        name = line[: match.start(1)] if match else line
        rest = line[match.start(1) :].lstrip(" \t\f") if match else ""
        value = rest[1:].lstrip(" \t\f") if rest[:1] in {"=", ":"} else rest
        place = f"{path}:{number}"
        entries.append(_Entry(_unescaped(name, place), _unescaped(value, place), place))
    return _flat(entries)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    start, pending = 0, ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = ""
    if pending:
        yield start, pending


def _unescaped(text: str, place: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise Misconfigured(f"{place}: \\u without four hex digits; write a backslash as \\\\")
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(escape, escape)

    return _ESCAPE.sub(character, text)


def _json_entries(text: str, path: str) -> list[_Entry]:
    try:
        document = json.loads(
            text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str
        )
    except json.JSONDecodeError as exc:
        raise Misconfigured(f"{path}:{exc.lineno}: not JSON ({exc.msg}); correct it") from None
    except RecursionError:
        raise Misconfigured(f"{path}: {_TOO_DEEP}") from None
    if not isinstance(document, _Pairs):
        raise Misconfigured(f'{path}: the document is no object; write {{"key": "value"}}')
    return [_Entry(name, value, path) for name, value in document]


def _yaml_entries(text: str, path: str) -> list[_Entry]:
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 1 if exc.problem_mark else 1
        raise Misconfigured(f"{path}:{line}: not YAML ({exc.problem}); correct it") from None
    except yaml.YAMLError as exc:
        raise Misconfigured(f"{path}: not YAML ({str(exc).splitlines()[0]}); correct it") from None
    except RecursionError:
        raise Misconfigured(f"{path}: {_TOO_DEEP}") from None
    if document is None:
        return []
    if not isinstance(document, yaml.MappingNode):
        raise Misconfigured(f"{path}: the document is no mapping; write key: value lines")
    return _yaml_pairs(document, path)


def _yaml_pairs(node: yaml.MappingNode, path: str) -> list[_Entry]:
    return [
        _Entry(str(name.value), _yaml_value(value, path), f"{path}:{name.start_mark.line + 1}")
        for name, value in node.value
    ]


def _yaml_value(node: yaml.Node, path: str) -> Any:  # noqa: ANN401 - text, or what is refused
    if isinstance(node, yaml.MappingNode):
        return _Pairs((entry.name, entry.value) for entry in _yaml_pairs(node, path))
    if isinstance(node, yaml.SequenceNode):
        return []
    return None if node.tag == "tag:yaml.org,2002:null" else node.value


def _without_envelope(entries: list[_Entry], path: str) -> list[_Entry]:
    config = next((e.value for e in entries if e.name == "config"), None)
    if not isinstance(config, _Pairs):
        return entries
    strangers = [entry for entry in entries if entry.name not in {"name", "config"}]
    if strangers:
        names = ", ".join(plain(entry.name) for entry in strangers)
        raise Misconfigured(f"{path}: beside `config` only `name` may stand; remove {names}")
    outer = [entry for entry in entries if entry.name == "name"]
    inner = [_Entry(name, value, path) for name, value in config]
    same = [e for e in inner if e.name == "name" and len(outer) == 1 and e.value == outer[0].value]
    return outer + [entry for entry in inner if entry not in same[:1]]


def _flat(entries: Iterable[_Entry]) -> dict[str, str]:
    seen: dict[str, _Entry] = {}
    problems: list[str] = []
    for entry in entries:
        first = seen.setdefault(entry.name, entry)
        problem = _unfit(entry)
        if first is not entry:
            where = "" if first.place == entry.place else f" (first in {first.place})"
            problem = f"appears twice{where}; keep one"
        if problem:
            problems.append(f"{entry.place}: {plain(entry.name)}: {problem}")
    if problems:
        raise Misconfigured(problems)
    # The booleans are JSON's true and false.
    values = {name: entry.value for name, entry in seen.items()}
    return {n: str(v).lower() if isinstance(v, bool) else v for n, v in values.items()}


def _unfit(entry: _Entry) -> str | None:
    match entry.value:
        case _Pairs() as pairs:
            example = plain(f"{entry.name}.{pairs[0][0]}" if pairs else f"{entry.name}.…")
            return f"a nested map; write its keys in full, as in `{example}`"
        case list():
            return "a list; write one text, with commas where the key takes several"
        case None:
            return 'no value; write one (in quotes, if it is "null" or ""), or remove the key'
    return None
