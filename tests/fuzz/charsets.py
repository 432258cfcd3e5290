"""Target `charsets`: lines in every character set, also broken ones, against Python's codecs."""

import re
from random import Random

from tests.fuzz.objects import Cases, Delivered, outcome_of
from tests.fuzz.targets import Target
from tests.laws import charset_cases
from tests.laws.laws import FormatCase

from extentflow.formats.text.charsets import Charset

_CASES = Cases.of([case for case in charset_cases.CASES if case.options.compression == "none"])
# Formats with a delimiter or with lines to skip are compared among themselves only.
_PLAIN = frozenset(
    case.name
    for case in (*charset_cases.wide(), *charset_cases.narrow(), *charset_cases.stateful())
    if case.options.charset is not None
)

_WITH_MARK = ("utf-16", "utf-32")


def _object(random: Random) -> bytes:
    return _CASES.draw(random, converter="bytes")


def _run_object(data: bytes) -> str:
    case, body, found = _CASES.run(data)
    if case.name in _PLAIN and found.error is None:
        _require_text(case, body, found)
    return outcome_of(found)


def _require_text(case: FormatCase, body: bytes, found: Delivered) -> None:
    """Require the lines that Python's codec finds, where all of the object is text."""
    codec = Charset.named(str(case.options.charset)).codec
    try:
        text = body.decode(codec)
        text.encode()  # UTF-7 can write halves of surrogate pairs, which are no text
    except UnicodeError:
        return
    # Python has removed the mark that says the byte order.
    content = text if codec in _WITH_MARK else text.removeprefix("\ufeff")
    lines = re.split("\r?\n", content)
    lines = lines if lines[-1] else lines[:-1]
    assert [value for _, value in found.values] == [line.encode() for line in lines]
    assert not found.bad, "text is no bad record"


CHARSETS = Target("charsets", 4, _object, _run_object)
