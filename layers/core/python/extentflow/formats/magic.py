"""Recognise formats, compressions, archives and character sets by their first bytes.

A signature that text can start with (`PAR1`, `ORC`) counts only if the last bytes match too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from extentflow.errors import CorruptObject, UnsupportedFormat
from extentflow.formats import FORMATS
from extentflow.model import ObjectVersion

# Enough for the signature of tar, the farthest from the start.
HEAD_BYTES = 264
# Enough to recognise the layout of JSON.
SAMPLE_BYTES = 64 << 10
TAIL_BYTES = 4

Kind: TypeAlias = Literal[
    "compression",
    "format",
    "character set",
    "archive",
    "workbook",
    "document",
    "markup",
    "encrypted",
    "pointer",
]
_ADVICE: dict[Kind, str] = {
    "compression": "recompress the object with one of gzip, zstd, bzip2, lz4, snappy, bgzf",
    "format": "this version does not support {name}: convert the object to {formats}",
    "character set": "set character.set={name}",
    "document": "this version reads no documents: extract its text, or use input.format=bytes",
    "workbook": "this version reads no workbooks: save its sheets as CSV",
    "markup": (
        "where it is the error page of a server, upload what was asked for; input.format=text"
        " delivers its lines"
    ),
    "encrypted": "decrypt the object first; input.format=text delivers its lines",
    "pointer": (
        "upload the file that it stands for (git lfs pull); input.format=text delivers its lines"
    ),
    "archive": "archives are not supported: unpack it and upload its files",
}


@dataclass(frozen=True, slots=True)
class Signature:
    """A recognised kind of content; `name` is the value of the matching configuration key."""

    kind: Kind
    name: str

    @property
    def advice(self) -> str:
        """The action to take."""
        formats = FORMATS.names()
        if self.name in ("gzip", "zstd", "bzip2", "lz4", "snappy"):
            return (
                f"set file.compression.type={self.name}, or content if objects of the connector"
                " differ"
            )
        if self.kind == "format" and self.name in formats:
            return f"set input.format={self.name}, or correct the extension"
        return _ADVICE[self.kind].format(name=self.name, formats=", ".join(formats))


# Patterns of the first bytes, a bar, and four last bytes. Ordered: UTF-32LE starts like UTF-16LE.
_PATTERNS: tuple[tuple[Kind, str, bytes], ...] = (
    ("compression", "gzip", rb"\x1f\x8b"),
    # The low four bits of a skippable frame's magic number are free (RFC 8878, section 3.1.2).
    ("compression", "zstd", rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    # Digits of pi begin a block, those of its square root the end.
    ("compression", "bzip2", rb"BZh\d(1AY&SY|\x17rE8P\x90)"),
    ("compression", "xz", rb"\xfd7zXZ\x00"),
    ("compression", "lz4", rb"\x04\x22\x4d\x18"),
    ("compression", "legacy lz4", rb"\x02\x21\x4c\x18"),
    ("compression", "snappy", rb"\xff\x06\x00\x00sNaPpY"),
    # Zip, whose first member is one of Excel's.
    ("workbook", "xlsx", rb"PK\x03\x04.{26}(\[Content_Types\]|_rels/|docProps/|xl/)"),
    ("archive", "zip", rb"PK(\x03\x04|\x05\x06)"),
    # The container of Excel up to 2003.
    ("workbook", "xls", rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    ("archive", "7z", rb"7z\xbc\xaf\x27\x1c"),
    ("archive", "rar", rb"Rar!\x1a\x07"),
    ("document", "pdf", rb"%PDF-\d"),
    ("document", "rtf", rb"\{\\rtf1"),
    ("archive", "tar", rb".{257}ustar"),
    ("format", "arrow", rb"ARROW1\x00\x00"),
    ("format", "avro", rb"Obj\x01"),
    ("format", "parquet", rb"(PAR[1E]).*\|\1\Z"),
    # The last byte of an ORC file is the length of its postscript, which ends in ORC.
    ("format", "orc", rb"ORC.*\|ORC.\Z"),
    # A header of CSV may begin with names such as <TICKER>, behind which no element follows.
    ("markup", "xml", rb"(\xef\xbb\xbf)?\s*+<\?xml\s"),
    (
        "markup",
        "html",
        rb"(?i:(\xef\xbb\xbf)?\s*+<(!--|(!doctype|html|head|body|table|meta|script|style)[\s>/]))",
    ),
    # Without a declaration, as most answers of errors: an attribute, an element within the first
    # one, or its end.
    (
        "markup",
        "xml or html",
        (
            rb"(\xef\xbb\xbf)?\s*+<([A-Za-z_][\w:.-]*+)"
            rb"(\s+[\w:.-]+\s*=\s*[\"']|\s*/>|[^<>]*>(\s*</|([\r\n]\s*)?<[A-Za-z!?]|[^<>]*</\2\s*>))"
        ),
    ),
    ("encrypted", "PGP", rb"(\xef\xbb\xbf)?-----BEGIN PGP MESSAGE-----"),
    ("encrypted", "age", rb"(\xef\xbb\xbf)?(age-encryption\.org/|-----BEGIN AGE )"),
    ("pointer", "Git LFS", rb"(\xef\xbb\xbf)?version https://git-lfs\.github\.com/"),
    ("character set", "UTF-32LE", rb"\xff\xfe\x00\x00"),
    ("character set", "UTF-32BE", rb"\x00\x00\xfe\xff"),
    ("character set", "UTF-16LE", rb"\xff\xfe"),
    ("character set", "UTF-16BE", rb"\xfe\xff"),
)
_SIGNATURES = [
    (re.compile(pattern, re.DOTALL), Signature(kind, name)) for kind, name, pattern in _PATTERNS
]


def require_bytes(version: ObjectVersion, kind: str) -> None:
    """Raise CorruptObject for an object of 0 bytes: every object of this kind has a signature."""
    if not version.size:
        raise CorruptObject(
            f"{version.uri} has 0 bytes, which no {kind} object has: its writer did not finish, or"
            " it is a marker; upload it again, or remove it"
        )


def needs_tail(head: bytes) -> bool:
    """Return whether `recognise` needs the last bytes of the object, too."""
    return head.startswith((b"PAR1", b"PARE", b"ORC"))


def recognise(head: bytes, tail: bytes = b"") -> Signature | None:
    """Return the signature for the first HEAD_BYTES and last TAIL_BYTES of an object, if any."""
    ends = head + b"|" + tail[-TAIL_BYTES:].rjust(TAIL_BYTES)
    return next((seen for pattern, seen in _SIGNATURES if pattern.match(ends)), None)


def require_signature(
    version: ObjectVersion,
    head: bytes,
    tail: bytes = b"",
    *,
    expected: str,
    compression: str = "none",
) -> None:
    """Raise UnsupportedFormat, with the key to set, if the object's bytes contradict its connector.

    `expected` is the configured `input.format`. Bytes without a known signature can be any text and
    are refused only if a compression is configured.
    """
    seen = recognise(head, tail)
    wanted = {"none": expected, "bgzf": "gzip"}.get(compression, compression)
    if seen is None and compression != "none":
        raise UnsupportedFormat(
            f"{version.uri} does not begin as {compression}, which file.compression.type or its"
            " extension says; set file.compression.type=none, or content if objects of the"
            " connector differ"
        )
    if seen is not None and seen.name != wanted and not _is_text(seen, expected, compression):
        raise UnsupportedFormat(
            f"{version.uri} begins as {seen.name} ({seen.kind}), but input.format or its extension"
            f" says {_described(expected, compression)}; {seen.advice}"
        )


def require_content_signature(
    version: ObjectVersion, head: bytes, *, expected: str, compression: str
) -> None:
    """Raise UnsupportedFormat if decompressed content shows another format than `expected`."""
    seen = recognise(head)
    if seen is not None and seen.name != expected and not _is_text(seen, expected):
        advice = "compress the object only once" if seen.kind == "compression" else seen.advice
        raise UnsupportedFormat(
            f"{version.uri} holds {seen.name} ({seen.kind}) within {compression}, but input.format"
            f" or its extension says {expected}; {advice}"
        )


def _described(name: str, compression: str) -> str:
    return name if compression == "none" else f"{name} within {compression}"


def _is_text(seen: Signature, expected: str, compression: str = "none") -> bool:
    """Whether a format of text reads what was seen.

    `charsets` compares a byte order mark. Markup, and what else is written as text, is read only
    where records have no columns.
    """
    known = FORMATS.get(expected) if expected in FORMATS.names() else None
    if seen.kind in ("markup", "encrypted", "pointer"):
        return compression == "none" and (known is None or not known.has_columns)
    text = known is None or known.compressible
    return seen.kind == "character set" and compression == "none" and text
