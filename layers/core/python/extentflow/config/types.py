"""Types of configuration values: each reads a value from text and writes it back.

A reader raises ValueError with the remedy ("write ..."); the caller puts key and value before it.

Topic names follow Kafka's rules. In what fills a template's placeholders slashes become dots,
because object keys are full of them; any other character that Kafka does not accept is an error:

    {bucket}     the bucket
    {prefix}     aws.s3.prefix, without slashes at its ends
    {key}        the object's whole key, likewise
    {extension}  the key's extension, lower case, without the one of a compression
    {topic}      what file.name.template finds in the key

Tests: unit/config/test_files.py
"""

import codecs
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_letters, digits
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from extentflow.config.secrets import FORMS, Reference
from extentflow.wording import either, nearest, plain

T = TypeVar("T")


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


_UNITS: dict[str, int] = {
    "b": 1,
    **{f"{prefix}b": 1000 ** (power + 1) for power, prefix in enumerate("kmgt")},
    **{f"{prefix}ib": 1024 ** (power + 1) for power, prefix in enumerate("kmgt")},
}
_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?i?b)?", re.IGNORECASE)
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_HOST = re.compile(r"[A-Za-z0-9._-]+")
_NO_CREDENTIALS = "an address must not contain credentials; write them to their own keys"
PLACEHOLDERS = ("bucket", "prefix", "key", "extension", "topic")
MAX_TOPIC_CHARACTERS = 249

MAX_DELIMITER_CHARACTERS = 16
# Codecs of texts that are no character sets, or exist on Windows only.
_NO_CHARSETS = frozenset(
    {"idna", "punycode", "undefined", "unicode-escape", "unicode_escape", "mbcs", "oem"}
    | {"raw-unicode-escape", "raw_unicode_escape"}
)

# Our own topics (progress, jobs): a key must never lead to them, nor may anybody write there.
RESERVED_PREFIX = "extentflow."

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How text becomes a value and back: `read(write(value)) == value`.

    Messages do not show what was written for a `secret` kind.
    """

    read: Callable[[str], T]
    write: Callable[[T], str] = str
    secret: bool = False


def matching(pattern: str, remedy: str) -> Kind[str]:
    """Return the kind of texts that match `pattern` in full."""
    compiled = re.compile(pattern)

    def read(text: str) -> str:
        if not compiled.fullmatch(text.strip()):
            raise ValueError(remedy)
        return text.strip()

    return Kind(read)


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise ValueError("write true or false") from None


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    factor = _UNITS.get((match[2] or "b").lower()) if match else None
    if match is None or factor is None or int(match[1]) == 0:
        raise ValueError("write a number of bytes, 1 or more, or a size such as 64MiB")
    return int(match[1]) * factor


def _size_text(value: int) -> str:
    units = ("TiB", "GiB", "MiB", "KiB", "")
    unit = next(unit for unit in units if value % _UNITS[unit.lower() or "b"] == 0)
    return f"{value // _UNITS[unit.lower() or 'b']}{unit}"


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False


def _url(text: str) -> str:
    remedy = "write http://host:port or https://host:port"
    parts = urlsplit(text.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(remedy)
    if "@" in parts.netloc:
        raise ValueError(_NO_CREDENTIALS)
    # Clients decode and translate other characters, so that they connect to another host.
    if not _HOST.fullmatch(parts.hostname) and not _is_address(parts.hostname):
        raise ValueError(f"{remedy}; the host is a name of ASCII letters, or an IP address")
    if parts.query or parts.fragment:
        raise ValueError(f"{remedy}, without a query: a signature in it would be stored")
    try:
        parts.port  # noqa: B018 - reading it checks it
    except ValueError:
        raise ValueError(remedy) from None
    return text.strip()


def _servers(text: str) -> str:
    servers = [server.strip() for server in text.split(",")]
    for server in servers:
        match = _SERVER.fullmatch(server)
        if match is None or int(match[2]) not in range(1, 65_536):
            raise ValueError("write host:port, several separated by commas")
    return ",".join(servers)


def _prefix(text: str) -> str:
    prefix = text.strip()
    # A backslash alone stands for itself.
    prefix = prefix if len(prefix) == 1 else _unescaped(prefix)
    if not re.fullmatch(r"[!-~]{1,16}", prefix):
        raise ValueError("write 1 to 16 ASCII characters, without spaces")
    return prefix


_ESCAPE = re.compile(
    r"\\(?:([nrt\\]|0(?!\d))|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|([0-3][0-7]{2})|(.?))", re.DOTALL
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[5] is not None:
            raise ValueError(r"write one of the escapes \n \r \t \0 \\ \x1e \u2028 \036")
        if match[1]:
            return _ESCAPES[match[1]]
        return chr(int(match[4], 8) if match[4] else int(match[2] or match[3], 16))

    return _ESCAPE.sub(character, text)


def _character(text: str) -> str:
    # A backslash alone stands for itself.
    character = text if len(text) == 1 else _unescaped(text)
    if len(character) != 1 or not character.isascii() or character in "\r\n":
        raise ValueError(r"write one ASCII character (also \t, \0, \x01, \001), no line break")
    return character


def _delimiter(text: str) -> str:
    delimiter = _unescaped(text)
    if not 1 <= len(delimiter) <= MAX_DELIMITER_CHARACTERS:
        raise ValueError(f"write 1 to {MAX_DELIMITER_CHARACTERS} characters")
    if any(delimiter.startswith(delimiter[at:]) for at in range(1, len(delimiter))):
        raise ValueError(
            "write one that does not end as it begins: in several of them in a row, a cut would be"
            " ambiguous"
        )
    return delimiter


def _delimiter_text(delimiter: str) -> str:
    written = delimiter.replace("\\", r"\\")
    return re.sub(r"[^!-~]", lambda one: f"\\u{ord(one[0]):04x}", written)


def _charset(text: str) -> str:
    name = text.strip()
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        codec = None
    if codec is None or codec.name in _NO_CHARSETS or not codec._is_text_encoding:  # noqa: SLF001
        raise ValueError(
            "write a character set of Python's codecs, such as UTF-8, UTF-16, ISO-8859-1, cp1252,"
            " Shift_JIS or GB18030"
        )
    return codec.name


def _secret(text: str) -> str:
    if Reference.parse(text) is None:
        raise ValueError(f"a secret is not written down; name where it is kept: {FORMS}")
    return text.strip()


def _referable(text: str) -> str:
    if "${" in text:
        Reference.parse(text)
    if re.search(r"://[^\s/?#]*@", text):
        raise ValueError(_NO_CREDENTIALS)
    return TEXT.read(text)


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """A template of object names as Aiven's connectors write them, and what it finds in a key."""

    text: str

    def find(self, key: str) -> dict[str, str] | None:
        """Return the `topic` and `partition` that a key names; None where it does not fit.

        Folders before the name, then each part, take as much as leaves a fit for the rest, as in a
        regular expression. The time is linear in the key's length: keys may be hostile.
        """
        tokens = _name_tokens(self.text)
        # From the last token to the first: where it ends, by where it begins; -1: it does not fit.
        tables = [[-1] * len(key) + [len(key)]]
        for token in reversed(tokens):
            tables.append(token.ends(key, tables[-1]))
        newline = key.find("\n")
        folders = key if newline < 0 else key[:newline]
        starts = [at + 1 for at, one in enumerate(folders) if one == "/"]
        fits = [start for start in (0, *starts) if tables[-1][start] >= 0]
        if not fits:
            return None
        found, at = {}, fits[-1]
        for token, ends in zip(tokens, reversed(tables), strict=False):
            if token.name in ("topic", "partition"):
                found[token.name] = key[at : ends[at]]
            at = ends[at]
        return found


@dataclass(frozen=True, slots=True)
class _NameToken:
    """A text in a template of names, or a part: one or more of its characters."""

    text: str = ""
    name: str = ""

    def ends(self, key: str, following: list[int]) -> list[int]:
        """Return where the token ends, by where it begins, so that the `following` one fits."""
        if not self.name:
            size = len(self.text)
            found = (key.startswith(self.text, at) for at in range(len(key) + 1))
            return [
                at + size if fits and following[at + size] >= 0 else -1
                for at, fits in enumerate(found)
            ]
        allowed, may_be_empty = _NAME_PARTS[self.name], self.name == "key"
        ends = [-1] * (len(key) + 1)
        if may_be_empty and following[-1] >= 0:
            ends[-1] = len(key)
        for at in range(len(key) - 1, -1, -1):
            if key[at] in allowed if allowed else key[at] != "\n":
                ends[at] = ends[at + 1]
                if ends[at] < 0 and following[at + 1] >= 0:
                    ends[at] = at + 1
            if may_be_empty and ends[at] < 0 and following[at] >= 0:
                ends[at] = at
        return ends


# The characters of each part; of `key` all, and also none.
_NAME_PARTS = {
    "topic": frozenset(f"{ascii_letters}{digits}._-"),
    "partition": frozenset(digits),
    "start_offset": frozenset(digits),
    "timestamp": frozenset(digits),
    "key": frozenset[str](),
}
_NAME_PART = re.compile(r"\{\{([^{}]*)\}\}")


@lru_cache(maxsize=256)
def _name_tokens(text: str) -> tuple[_NameToken, ...]:
    """Return the texts and parts of a template. Raises ValueError with the mistake."""
    tokens, at, known = list[_NameToken](), 0, set[str]()
    for match in _NAME_PART.finditer(text):
        # Options such as `padding=true` change what is written, not what is read.
        name = match[1].partition(":")[0].strip()
        # A part that stood twice could have two values.
        if name not in _NAME_PARTS or name in known:
            parts = ", ".join(f"{{{{{one}}}}}" for one in _NAME_PARTS)
            raise ValueError(f"{match[0]!r} is unknown or stands twice; there are {parts}")
        known.add(name)
        tokens += (_NameToken(text[at : match.start()]), _NameToken(name=name))
        at = match.end()
    return (*tokens, _NameToken(text[at:]))


def _name_template(text: str) -> NameTemplate:
    _name_tokens(text.strip())
    if not _NAME_PART.search(text):
        raise ValueError("write placeholders, as in {{topic}}-{{partition}}-{{start_offset}}.gz")
    return NameTemplate(text.strip())


def illegal_topic(topic: str) -> str | None:
    """Return why `topic` cannot be a name, for Kafka or for us; None where it can."""
    if match := _ILLEGAL.search(topic):
        return f"{match[0]!r} is no character of a topic name; use letters, digits, . _ -"
    if topic in {"", ".", ".."}:
        return "no topic name; write one with letters or digits"
    if topic.startswith(RESERVED_PREFIX):
        return f"names that begin with {RESERVED_PREFIX} are extentflow's own; choose another"
    if len(topic) > MAX_TOPIC_CHARACTERS:
        return f"{len(topic)} characters; a topic name has {MAX_TOPIC_CHARACTERS} at most"
    return None


def fill_topic(template: str, values: dict[str, str]) -> str:
    """Return `template` with the placeholders in `values` filled in, the others left alone."""

    def value(match: re.Match[str]) -> str:
        filled = values.get(match[1])
        return match[0] if filled is None else filled.strip("/").replace("/", ".")

    return _PLACEHOLDER.sub(value, template)


def _template(text: str) -> str:
    text = text.strip()
    for name in _PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            hint = nearest(name, PLACEHOLDERS).partition(";")[0]
            hint = f" {hint}" if hint.startswith("did") else ""
            raise ValueError(f"no placeholder {{{plain(name)}}};{hint} there are {known}")
    if problem := illegal_topic(_PLACEHOLDER.sub("x", text)):
        raise ValueError(problem)
    return text


def depends_on_object(text: str) -> bool:
    """Whether the topic is known only once an object's key is."""
    return bool({"key", "extension", "topic"} & set(_PLACEHOLDER.findall(text)))


def _directory(text: str) -> str:
    if not text.strip().startswith("/"):
        raise ValueError("write an absolute path; workers run in other directories")
    return text.strip().rstrip("/") or "/"


def _bucket(text: str) -> str:
    if "," in text:
        raise ValueError("one bucket per connector; make a connector for each of them")
    remedy = "write the bare name, without s3://, slashes or spaces, 2 to 255 characters"
    return matching(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", remedy).read(text)


def _tag(text: str) -> str:
    name, equals, value = text.strip().partition("=")
    legal = r"[\w +\-.:/@]"
    if (
        not equals
        or not re.fullmatch(legal + "{1,128}", name)
        or not re.fullmatch(legal + "{0,256}", value)
    ):
        raise ValueError(
            "write name=value: letters, digits, spaces and + - . _ : / @, as S3 allows"
        )
    if name.lower().startswith("aws:"):
        raise ValueError("S3 keeps names of tags that begin with aws: for itself; choose another")
    return text.strip()


def _topic_name(text: str) -> str:
    if problem := illegal_topic(text.strip()):
        raise ValueError(problem)
    return text.strip()


NAME_TEMPLATE: Kind[NameTemplate] = Kind(_name_template, lambda template: template.text)
TEXT = matching("(?s).+", "write a value, or remove the key")
NAME = matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
    "write letters, digits, . _ - (100 at most), a letter or digit first",
)
EXACT: Kind[str] = Kind(str)
BOOLEAN: Kind[bool] = Kind(_boolean, lambda value: str(value).lower())
SIZE: Kind[int] = Kind(_size, _size_text)
URL: Kind[str] = Kind(_url)
SERVERS: Kind[str] = Kind(_servers)
# No database holds a zero in a text.
CHARACTER: Kind[str] = Kind(_character, lambda character: character.replace("\0", r"\0"))
PREFIX: Kind[str] = Kind(_prefix)
DELIMITER: Kind[str] = Kind(_delimiter, _delimiter_text)
CHARSET: Kind[str] = Kind(_charset)
SECRET: Kind[str] = Kind(_secret, secret=True)
REFERABLE: Kind[str] = Kind(_referable)
TOPIC_TEMPLATE: Kind[str] = Kind(_template)
TOPIC: Kind[str] = Kind(_topic_name)
BUCKET: Kind[str] = Kind(_bucket)
DIRECTORY: Kind[str] = Kind(_directory)
TAG: Kind[str] = Kind(_tag)


def is_this_machine(host: str) -> bool:
    """Whether what is sent to the host stays here: the loopback interface, or a socket's path."""
    if host.startswith(("/", "%2F", "%2f")) or host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def whole(least: int, most: int = 10**18) -> Kind[int]:
    """Return the kind of whole numbers in `[least, most]`."""
    bounds = f"{least} or more" if most == 10**18 else f"{least} to {most}"

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or not least <= int(text) <= most:
            raise ValueError(f"write a whole number, {bounds}")
        return int(text)

    return Kind(read)


def seconds(least: float) -> Kind[float]:
    """Return the kind of durations of at least `least` seconds, fractions allowed."""

    def read(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text.strip()) or float(text) < least:
            raise ValueError(f"write a number of seconds, {least:g} or more")
        return float(text)

    return Kind(read, lambda value: f"{value:.9f}".rstrip("0").rstrip("."))


def choice(
    names: Collection[str] | Callable[[], Collection[str]],
    also: Mapping[str, str] | None = None,
    *,
    hint: str = "",
) -> Kind[str]:
    """Return the kind of one of `names`, in any case; `also` maps further spellings to them.

    `hint` follows the list of names where a value is none of them.
    """

    def read(text: str) -> str:
        known = names() if callable(names) else names
        spellings = {name.lower(): name for name in known}
        spellings |= {name.lower(): meant for name, meant in (also or {}).items() if meant in known}
        try:
            return spellings[text.strip().lower()]
        except KeyError:
            raise ValueError(f"write {either(sorted(known))}{hint}") from None

    return Kind(read)


def or_word(word: str, kind: Kind[T]) -> Kind[T | None]:
    """Return `kind`, where `word` stands for None."""

    def read(text: str) -> T | None:
        if text.strip().lower() == word:
            return None
        try:
            return kind.read(text)
        except ValueError as exc:
            reason, wanted = str(exc), str(exc).removeprefix("write ")
            if wanted == reason:
                raise ValueError(f"{reason}; or write {word}") from None
            joint = "," if " or " in wanted else " or"
            raise ValueError(f"write {word}{joint} {wanted}") from None

    return Kind(read, lambda value: word if value is None else kind.write(value))
