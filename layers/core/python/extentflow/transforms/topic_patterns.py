"""Regular expressions for names of topics, in RE2's syntax: their time grows with the name only.

    TopicPattern("orders-(.*)").replaced("orders-eu", "eu.$1")     "eu.eu"

Python's `re` tries all ways in which an expression may match. `(a+)+b` takes hours for forty
letters, and all connectors of a process wait. RE2 has neither lookaround nor backreferences.
"""

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_GROUP = re.compile(r"\$([0-9])")
_LARGE = re.compile(r"\{[0-9]*,?[0-9]{4}")  # RE2 takes some of these for letters


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """An expression for a whole name. Construction raises ValueError where RE2 does not take it."""

    text: str

    def __post_init__(self) -> None:
        """Compile the expression, for its errors."""
        if _LARGE.search(self.text):
            raise ValueError("no regular expression of RE2: it repeats more than 999 times")
        try:
            self.matches("")
        except pa.ArrowInvalid as exc:
            raise ValueError(f"no regular expression of RE2: {exc}") from exc

    def matches(self, topic: str) -> bool:
        """Whether the whole name matches."""
        (found,) = pc.match_substring_regex(pa.array([topic]), self._whole).to_pylist()
        return bool(found)

    def replaced(self, topic: str, replacement: str) -> str:
        """Return the replacement, with `$1` for the first group; without a match the name.

        Raises ValueError for a group that the expression does not have.
        """
        written = _GROUP.sub(r"\\\1", replacement.replace("\\", r"\\"))
        try:
            (made,) = pc.replace_substring_regex(
                pa.array([topic]), self._whole, written, max_replacements=1
            ).to_pylist()
        except pa.ArrowInvalid as exc:
            raise ValueError(f"regex has no such group: {exc}") from exc
        return str(made)

    @property
    def _whole(self) -> str:
        return rf"\A(?:{self.text})\z"
