"""How messages name things: numbers, sizes, choices, names and values without credentials."""

import os
import re
import shlex
import sys
from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN_CHARACTERS = 80
# Credentials are looked for in so many: the time grows with the square of a text's length.
_READ_CHARACTERS = 4_096
# `scheme://user:password@`, or `user:password@` where the scheme is left out, or in a query. A
# password may hold what ends a host, and an `@`.
_USER_INFORMATION = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/?#@:]*:\S*|[^\s/?#]*)@"
    r"|(?<![^\s,])[^\s/:@,]+:(?!//)[^\s,]+@"
    r"|(?<=[?&#=])[^\s/:@?&#=]+:(?!//)[^\s&]+@"
)
_SECRET_PARAMETER = re.compile(r"([?&][^=&\s]*(?:pass|pwd|secret)[^=&\s]*=)[^&\s]*", re.IGNORECASE)
_HTTP_QUERY = re.compile(r"(https?://[^\s?#]*)([?#]).*", re.IGNORECASE | re.DOTALL)
_IN_FULL = re.compile(r"; deliver the object in full with `extentflow run [^`]+ --again`\Z")
_AFTER_OUTAGE = re.compile(r"; replay the job when the (\w+) is available\Z")
# Ends the cause of a job that ended at a bad record.
TOLERATE = (
    "errors.tolerance=all and errors.deadletterqueue.topic.name=TOPIC send bad records to that"
    " topic, and deliver the others"
)

# How alike a name must be that messages suggest: a wrong suggestion is worse than none.
SHORT_NAME, SHORT_CUTOFF, LONG_CUTOFF = 8, 0.6, 0.75


def nearest(
    name: str, names: Iterable[str], otherwise: str = "docs/configuration.md lists the keys"
) -> str:
    """Return `did you mean NAME?`, or where to look when nothing is near."""
    # In a short name, two letters in the wrong order are a third of it.
    cutoff = SHORT_CUTOFF if len(name) < SHORT_NAME else LONG_CUTOFF
    found = get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"did you mean {found[0]}?" if found else otherwise


def counted(number: int, what: str) -> str:
    """Return a number of things, such as `1 job` or `2 jobs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def format_bytes(count: float) -> str:
    """Return bytes with a binary unit: 12 B, 3.4 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004 - binary units
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def after_outage(service: str) -> str:
    """Return what to do with a job that an unavailable service, such as `store`, let fail."""
    return f"replay the job when the {service} is available"


def unavailable_service(cause: str) -> str:
    """Return the service of `after_outage` that a cause names, "" where it names none."""
    found = _AFTER_OUTAGE.search(cause)
    return found[1] if found else ""


def in_full(address: str, connector: str) -> str:
    """Return what to do with a job whose committed records are gone from their topic."""
    return f"; deliver the object in full with {again_command(address, connector)}"


def is_lost(cause: str) -> bool:
    """Return whether a cause says `in_full`."""
    return _IN_FULL.search(cause) is not None


def again_command(address: str = "ADDRESS", connector: str = "NAME") -> str:
    """Return the command that delivers an object once more in full; names are left open."""
    return f"`{shlex.join(('extentflow', 'run', address, '-c', connector, '--again'))}`"


def is_bad_record(cause: str) -> bool:
    """Return whether a job ended at a record that its connector does not tolerate."""
    return cause.endswith(TOLERATE)


def either(words: Iterable[str]) -> str:
    """Return words as a choice: `a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def quoted(text: str) -> str:
    """Return a value for a one-line message, without the credentials of a URL in it."""
    return repr(_shortened(without_credentials(text[:_READ_CHARACTERS])))


def without_credentials(text: str) -> str:
    """Return `text` without user information, and without query and fragment of an HTTP URL.

    A presigned URL has its signature in the query. Of other URLs, parameters with secrets go.
    """
    without_user = _USER_INFORMATION.sub(lambda found: f"{found[1] or ''}(not shown)@", text)
    without_secrets = _SECRET_PARAMETER.sub(r"\1(not shown)", without_user)
    return _HTTP_QUERY.sub(r"\1\2(not shown)", without_secrets)


def shown_bytes(raw: bytes) -> str:
    """Return a few bytes for a message: as text where it is printable ASCII, else hexadecimal."""
    text = raw.decode("ascii", "replace")
    return repr(text) if raw.isascii() and text.isprintable() else f"0x{raw.hex()}"


def plain(name: str) -> str:
    """Return a name for a one-line message: as it is, where that can be printed."""
    return _shortened(name) if name.isprintable() and name.strip() else quoted(name)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def is_undecoded(name: str) -> bool:
    """Return whether a name of a file has bytes that its encoding lacks: half surrogate pairs."""
    return any("\udc80" <= one <= "\udcff" for one in name)


def name_problem(name: str) -> str:
    """Return why the name of a file is no text in this process, with the way out; "" if it is.

    Python reads names in the encoding of the locale. Bytes that this encoding lacks become half
    surrogate pairs. With UTF-8 these are bytes that no text has, and stay as they are.
    """
    encoding = sys.getfilesystemencoding()
    if encoding == "utf-8" or not is_undecoded(name):
        return ""
    shown = os.fsencode(name).decode("utf-8", "backslashreplace")
    return (
        f"{shown}: this process reads names of files as {encoding}; set PYTHONUTF8=1, or a locale"
        " such as LC_ALL=C.UTF-8"
    )
