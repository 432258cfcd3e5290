"""What the text of a setting names: the ARN of a resource, an account, a region, a name.

    topic: Annotated[str | None, ArnOf("sns", home=True)]

Types are checked where settings are written; these rules need the region of the stage.

Tests: infra/test_config.py
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from typing import Protocol, get_type_hints

from aws_cdk.region_info import Fact

from .typed_settings import TypedSettings

_ACCOUNT = r"[0-9]{12}"
_ARN = re.compile(rf"arn:[a-z0-9-]+:([a-z0-9-]+):([a-z0-9-]+):{_ACCOUNT}:([^*?$]+)")


class Kind(Protocol):
    """A rule for texts."""

    def problem(self, text: str, region: str) -> str | None:
        """Return what to write instead in a stage of this region; None of a text that fits."""
        ...


@dataclass(frozen=True, slots=True)
class Named:
    """A text of this form."""

    form: str
    instead: str

    def problem(self, text: str, region: str) -> str | None:
        """Return what to write instead."""
        _ = region
        return None if re.fullmatch(self.form, text) else self.instead


@dataclass(frozen=True, slots=True)
class ArnOf:
    """The ARN of a resource, which begins and ends so; with `home`, of the stage's region.

    With `or_name`, a text that is no ARN is the resource's name.
    """

    service: str
    begin: str = ""
    end: str = ""
    home: bool = False
    or_name: bool = False

    def problem(self, text: str, region: str) -> str | None:
        """Return what to write instead."""
        if self.or_name and re.fullmatch(r"[\w./-]+", text):
            return None
        wanted = f"arn:aws:{self.service}:{region}:ACCOUNT:{self.begin}..."
        found = _ARN.fullmatch(text)
        if found is None:
            return f"write a complete ARN, {wanted}"
        service, place, resource = found.groups()
        if service != self.service or not resource.startswith(self.begin):
            return f"this is another resource; write {wanted}"
        if not re.search(f"{self.end}$", resource):
            return "the ARN is cut off; write all of it"
        if self.home and place != region and region in _regions():
            return f"it is in {place}; write one in {region}, the stage's region"
        return None


@dataclass(frozen=True, slots=True)
class Region:
    """A region of AWS."""

    def problem(self, text: str, region: str) -> str | None:
        """Return what to write instead."""
        _ = region
        known = _regions()
        if text in known:
            return None
        near = get_close_matches(text, known, n=1)
        return f"AWS has no such region; write {near[0] if near else 'one, such as eu-central-1'}"


ACCOUNT = Named(_ACCOUNT, "write twelve digits")
REGION = Region()
TABLE = Named(r"[A-Za-z0-9_.-]{3,255}", "write the table's name")
# Older buckets have other names than those that AWS now accepts.
BUCKET = Named(r"[A-Za-z0-9._-]*", "write a bucket's name")
GROUP = Named(r"sg-[0-9a-z]+", "write the group's id, sg-...")
QUALIFIER = Named(r"[A-Za-z0-9_-]{1,10}", "write 1 to 10 letters, digits, _ and -")
KEY = ArnOf("kms", "key/")  # policies name no alias
SECRET = ArnOf("secretsmanager", "secret:", "-[A-Za-z0-9]{6}")


@cache
def _regions() -> tuple[str, ...]:
    return tuple(Fact.regions)


def unlike(settings: TypedSettings, region: str, place: str = "") -> Iterator[str]:
    """Yield the texts that are not of the kind that their settings state, with the settings."""
    hints = get_type_hints(type(settings), include_extras=True)
    for one in fields(settings):
        value = getattr(settings, one.name)
        if value == one.default:
            continue
        kinds: tuple[Kind, ...] = getattr(hints[one.name], "__metadata__", ())
        for name, each in _each(one.name, value):
            if isinstance(each, TypedSettings):
                yield from unlike(each, region, f"{place}{name}.")
            elif isinstance(each, str):
                found = (kind.problem(each, region) for kind in kinds)
                yield from (f"{place}{name}={each}: {text}" for text in found if text)


def _each(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield a value with its setting's name, or the items of a tuple with theirs."""
    if not isinstance(value, tuple):
        yield name, value
        return
    for number, each in enumerate(value):
        yield f"{name}[{getattr(each, 'name', number)}]", each
