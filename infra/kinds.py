"""What the text of a setting names, and between which limits a number is.

    topic: Annotated[str | None, ArnOf("sns", home=True)]
    minutes: Annotated[int, Between(5, 60)]

Some of these rules need the region of the stage.

Tests: infra/test_config.py
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from ipaddress import ip_network
from typing import Any, Protocol, get_type_hints

from aws_cdk.region_info import Fact

from .typed_settings import TypedSettings, items

_ACCOUNT = r"[0-9]{12}"
_ARN = re.compile(rf"arn:[a-z0-9-]+:([a-z0-9-]+):([a-z0-9-]+):{_ACCOUNT}:([^*?$\s]+)")


class Kind(Protocol):
    """A rule for texts, or for whole numbers."""

    def problem(self, value: Any, region: str) -> str | None:  # noqa: ANN401 - text or number
        """Return what to write instead in a stage of this region; None of a value that fits."""
        ...


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `least` to `most`; `why` says where these limits come from."""

    least: int
    most: int | None = None
    why: str = ""

    def problem(self, value: int, region: str) -> str | None:
        """Return what to write instead."""
        _ = region
        if self.least <= value and (self.most is None or value <= self.most):
            return None
        limits = f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"
        return f"{self.why}write {limits}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these texts or numbers, which `by` offers."""

    by: str
    offered: tuple[str | int, ...]

    def problem(self, value: str | int, region: str) -> str | None:
        """Return what to write instead."""
        _ = region
        if value in self.offered:
            return None
        return f"{self.by} has {', '.join(map(str, self.offered))}"


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


@dataclass(frozen=True, slots=True)
class Zone:
    """The name of an availability zone of the stage's region."""

    def problem(self, text: str, region: str) -> str | None:
        """Return what to write instead."""
        if region not in _regions() or re.fullmatch(f"{region}([a-z]|-[a-z0-9-]+)", text):
            return None
        return f"write a zone of {region}, the stage's region, such as {region}a"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of addresses of at most this size, which is the length of the prefix."""

    least: int
    versions: tuple[int, ...] = (4,)

    def problem(self, text: str, region: str) -> str | None:
        """Return what to write instead."""
        _ = region
        instead = "write a block such as 10.0.0.0/16"
        try:
            block = ip_network(text)
        except ValueError as exc:
            return f"{exc}; {instead}" if "host bits" in f"{exc}" else instead
        if block.version not in self.versions or not text.endswith(f"/{block.prefixlen}"):
            return instead
        if block.prefixlen < self.least:
            why = "it is too large" if block.prefixlen else "it admits every address"
            return f"{why}; write blocks of /{self.least} or smaller"
        return None


def _id(begin: str, what: str) -> Named:
    """Return the form of ids of EC2, which have 8 or 17 digits."""
    return Named(rf"{begin}-([0-9a-f]{{8}}|[0-9a-f]{{17}})", f"write the {what}'s id, {begin}-...")


ACCOUNT = Named(_ACCOUNT, "write twelve digits")
REGION = Region()
TABLE = Named(r"[A-Za-z0-9_.-]{3,255}", "write the table's name")
# Older buckets have other names than those that AWS now accepts.
BUCKET = Named(r"[A-Za-z0-9._-]+", "write a bucket's name")
GROUP = _id("sg", "group")
VPC = _id("vpc", "VPC")
SUBNET = _id("subnet", "subnet")
ROUTE_TABLE = _id("rtb", "route table")
ZONE = Zone()
ZONE_ID = Named(r"[a-z]+[0-9](-[a-z]+[0-9]+)?-az[0-9]", "write the zone's id, such as use1-az4")
SERVICE = Named(r"(?!com\.amazonaws\.)[a-z][a-z0-9.-]*", "write the service's name, such as sqs")
HOST = Named(
    r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f]*:[0-9a-f]*:[0-9a-f.:]*",
    "write a host's name in lower case, without scheme and port",
)
EMAIL = Named(r"[^\s@,;<>]+@[^\s@,;<>]+\.[^\s@,;<>.]+", "write one address, such as a@b.example")
FOLDER = Named(r"[^\0-\x1f\x7f]+", "write the path of a folder")
QUALIFIER = Named(r"[A-Za-z0-9_-]{1,10}", "write 1 to 10 letters, digits, _ and -")
KEY = ArnOf("kms", "key/")  # policies name no alias
SECRET = ArnOf("secretsmanager", "secret:", "-[A-Za-z0-9]{6}")


@cache
def _regions() -> tuple[str, ...]:
    return tuple(Fact.regions)


def unlike(settings: TypedSettings, region: str, place: str = "") -> Iterator[str]:
    """Yield what is not of the kind that its setting states, or there twice, with the setting."""
    hints = get_type_hints(type(settings), include_extras=True)
    for one in fields(settings):
        value = getattr(settings, one.name)
        if value == one.default:
            continue
        kinds: tuple[Kind, ...] = getattr(hints[one.name], "__metadata__", ())
        for name, each in items(one.name, value):
            if isinstance(each, TypedSettings):
                yield from unlike(each, region, f"{place}{name}.")
            elif each is not None:
                found = (kind.problem(each, region) for kind in kinds)
                yield from (f"{place}{name}={_shown(each)}: {text}" for text in found if text)
        if isinstance(value, tuple):
            yield from (
                f"{place}{one.name}: {twice} is listed more than once; remove the duplicate"
                for twice in _repeated(value)
            )


def _repeated(listed: tuple[object, ...]) -> list[str]:
    """Return what is listed more than once: texts, or settings by their names or ids."""
    names = [str(getattr(one, "name", getattr(one, "id", one))) for one in listed]
    return sorted({_shown(name) for name in names if names.count(name) > 1})


def _shown(value: object) -> str:
    text = f"{value}"
    return text if text.isprintable() else repr(text)
