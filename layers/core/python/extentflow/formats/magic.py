"""What an object's first bytes say it is.

Owns: the signatures of compressions, formats, archives and character sets; the refusal that names
what was seen and what to set. Refuses to know: how any of them is decoded.

A signature that text could begin with (`PAR1`, `ORC`) counts only when the last bytes agree.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from extentflow.errors import UnsupportedFormat
from extentflow.model import ObjectVersion

__all__ = [
    "HEAD_BYTES",
    "TAIL_BYTES",
    "Kind",
    "Signature",
    "needs_tail",
    "recognise",
    "refuse",
    "refuse_content",
]

HEAD_BYTES = 264
TAIL_BYTES = 4
_TAR_AT = 257
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")  # pi for a block, its square root for the end
_ZSTD_SKIPPABLE = range(0x50, 0x60)


class Kind(enum.StrEnum):
    """What a signature is a signature of."""

    COMPRESSION = "compression"
    FORMAT = "format"
    CHARACTER_SET = "character set"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Signature:
    """What was recognised. `name` is the value of the configuration key that fits its kind."""

    kind: Kind
    name: str

    @property
    def remedy(self) -> str:
        """What a person can do about it."""
        match self.kind:
            case Kind.COMPRESSION if self.name in ("gzip", "zstd"):
                return f"set file.compression.type={self.name}"
            case Kind.COMPRESSION:
                return "file.compression.type knows none, gzip and zstd: recompress the object"
            case Kind.FORMAT:
                return f"set input.format={self.name}"
            case Kind.CHARACTER_SET:
                return f"character.set={self.name} is not supported yet: convert it to UTF-8"
            case Kind.ARCHIVE:
                return "input.format knows no archives: unpack it and upload what it holds"


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
    """Return whether `recognise` wants to see the object's last bytes as well."""
    return head.startswith((b"PAR1", b"PARE", b"ORC"))


def recognise(head: bytes, tail: bytes = b"") -> Signature | None:
    """Return what an object is whose first HEAD_BYTES and last TAIL_BYTES are given, if known."""
    for prefix, signature in _PREFIXES:
        if head.startswith(prefix):
            return signature
    bzip2 = head[:3] == b"BZh" and head[3:4].isdigit() and head[4:10] in _BZIP2_BLOCKS
    zstd = head[1:4] == b"\x2a\x4d\x18" and head[0] in _ZSTD_SKIPPABLE
    parquet = head[:4] in (b"PAR1", b"PARE") and tail[-4:] == head[:4]
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


def refuse(
    version: ObjectVersion,
    head: bytes,
    tail: bytes = b"",
    *,
    expected: str,
    compression: str = "none",
) -> None:
    """Raise where the object's bytes show something else than `expected` and `compression`.

    `expected` is the configured `input.format`. Bytes without a known signature may be any text,
    so they are refused only where a compression is configured.

    Raises:
        UnsupportedFormat: names what was seen and which key to set.
    """
    seen = recognise(head, tail)
    wanted = expected if compression == "none" else compression
    if seen is None and compression != "none":
        raise UnsupportedFormat(
            f"{version.uri} does not begin as {compression} does, but"
            f" file.compression.type={compression}; set file.compression.type=none"
        )
    if seen is not None and seen.name != wanted:
        raise UnsupportedFormat(
            f"{version.uri} begins as {seen.name} ({seen.kind}), but input.format={expected} and"
            f" file.compression.type={compression}; {seen.remedy}"
        )


def refuse_content(version: ObjectVersion, head: bytes, *, expected: str, compression: str) -> None:
    """Raise where what `compression` unpacked shows something else than `expected`.

    Raises:
        UnsupportedFormat: names what was seen and what to do.
    """
    seen = recognise(head)
    if seen is not None and seen.name != expected:
        remedy = "compress it once only" if seen.kind is Kind.COMPRESSION else seen.remedy
        raise UnsupportedFormat(
            f"{version.uri} holds {seen.name} ({seen.kind}) within {compression}, but"
            f" input.format={expected}; {remedy}"
        )
