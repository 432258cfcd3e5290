"""Recognise formats, compressions, archives and character sets by their first bytes.

A signature that text can start with (`PAR1`, `ORC`) counts only if the last bytes match too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from extentflow.errors import UnsupportedFormat
from extentflow.formats import FORMATS
from extentflow.model import ObjectVersion

# Enough for the signature of tar, the farthest from the start.
HEAD_BYTES = 264
TAIL_BYTES = 4
_TAR_AT = 257
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # pi for a block, its square root for the end
# The low four bits of a skippable frame's magic number are free (RFC 8878, section 3.1.2).
_ZSTD_SKIPPABLE = range(0x50, 0x60)


class Kind(enum.StrEnum):
    """The kind of content that a signature identifies."""

    COMPRESSION = "compression"
    FORMAT = "format"
    CHARACTER_SET = "character set"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Signature:
    """A recognised kind of content; `name` is the value of the matching configuration key."""

    kind: Kind
    name: str

    @property
    def advice(self) -> str:
        """The action to take."""
        match self.kind:
            case Kind.COMPRESSION if self.name in ("gzip", "zstd"):
                return f"set file.compression.type={self.name}"
            case Kind.COMPRESSION:
                return "file.compression.type supports none, gzip and zstd: recompress the object"
            case Kind.FORMAT if self.name in FORMATS.names():
                return f"set input.format={self.name}"
            case Kind.FORMAT:
                supported = ", ".join(FORMATS.names())
                return (
                    f"this version does not support {self.name}: convert the object to {supported}"
                )
            case Kind.CHARACTER_SET:
                return (
                    f"the character set {self.name} is not supported: convert the object to UTF-8"
                )
            case Kind.ARCHIVE:
                return "archives are not supported: unpack it and upload its files"


# Ordered: UTF-32LE starts like UTF-16LE.
_PREFIXES: tuple[tuple[bytes, Signature], ...] = (
    (b"\x1f\x8b", Signature(Kind.COMPRESSION, "gzip")),
    (b"\x28\xb5\x2f\xfd", Signature(Kind.COMPRESSION, "zstd")),
    (b"\xfd7zXZ\x00", Signature(Kind.COMPRESSION, "xz")),
    (b"\x04\x22\x4d\x18", Signature(Kind.COMPRESSION, "lz4")),
    (b"\x02\x21\x4c\x18", Signature(Kind.COMPRESSION, "lz4")),
    (b"\xff\x06\x00\x00sNaPpY", Signature(Kind.COMPRESSION, "snappy")),
    (b"PK\x03\x04", Signature(Kind.ARCHIVE, "zip")),
    (b"PK\x05\x06", Signature(Kind.ARCHIVE, "zip")),
    (b"Obj\x01", Signature(Kind.FORMAT, "avro")),
    (b"\xff\xfe\x00\x00", Signature(Kind.CHARACTER_SET, "UTF-32LE")),
    (b"\x00\x00\xfe\xff", Signature(Kind.CHARACTER_SET, "UTF-32BE")),
    (b"\xff\xfe", Signature(Kind.CHARACTER_SET, "UTF-16LE")),
    (b"\xfe\xff", Signature(Kind.CHARACTER_SET, "UTF-16BE")),
)


def needs_tail(head: bytes) -> bool:
    """Return whether `recognise` needs the last bytes of the object, too."""
    return head.startswith((b"PAR1", b"PARE", b"ORC"))


def recognise(head: bytes, tail: bytes = b"") -> Signature | None:
    """Return the signature for the first HEAD_BYTES and last TAIL_BYTES of an object, if any."""
    for prefix, signature in _PREFIXES:
        if head.startswith(prefix):
            return signature
    bzip2 = head[:3] == b"BZh" and head[3:4].isdigit() and head[4:10] in _BZIP2_BLOCKS
    zstd = head[1:4] == b"\x2a\x4d\x18" and head[0] in _ZSTD_SKIPPABLE
    parquet = head[:4] in (b"PAR1", b"PARE") and tail[-4:] == head[:4]
    # The last byte of an ORC file is the length of its postscript, which ends in ORC.
    orc = head[:3] == b"ORC" and tail[-4:-1] == b"ORC"
    tar = head[_TAR_AT:].startswith(b"ustar")
    others = (
        (bzip2, Signature(Kind.COMPRESSION, "bzip2")),
        (zstd, Signature(Kind.COMPRESSION, "zstd")),
        (parquet, Signature(Kind.FORMAT, "parquet")),
        (orc, Signature(Kind.FORMAT, "orc")),
        (tar, Signature(Kind.ARCHIVE, "tar")),
    )
    return next((signature for seen, signature in others if seen), None)


def require_signature(
    version: ObjectVersion,
    head: bytes,
    tail: bytes = b"",
    *,
    expected: str,
    compression: str = "none",
) -> None:
    """Raise if the bytes of an object show another format or compression than configured.

    `expected` is the configured `input.format`. Bytes without a known signature can be any text and
    are refused only if a compression is configured.

    Raises:
        UnsupportedFormat: names the recognised content and the key to set.
    """
    # Text has no signature, compressed content always has one.
    seen = recognise(head, tail)
    wanted = expected if compression == "none" else compression
    if seen is None and compression != "none":
        raise UnsupportedFormat(
            f"{version.uri} does not start like a {compression} file, but"
            f" file.compression.type={compression}; set file.compression.type=none"
        )
    if seen is not None and seen.name != wanted:
        raise UnsupportedFormat(
            f"{version.uri} begins as {seen.name} ({seen.kind}), but input.format={expected} and"
            f" file.compression.type={compression}; {seen.advice}"
        )


def require_content_signature(
    version: ObjectVersion, head: bytes, *, expected: str, compression: str
) -> None:
    """Raise if decompressed content shows another format than `expected`.

    Raises:
        UnsupportedFormat: names the recognised content and the action to take.
    """
    seen = recognise(head)
    if seen is not None and seen.name != expected:
        advice = "compress the object only once" if seen.kind is Kind.COMPRESSION else seen.advice
        raise UnsupportedFormat(
            f"{version.uri} holds {seen.name} ({seen.kind}) within {compression}, but"
            f" input.format={expected}; {advice}"
        )
