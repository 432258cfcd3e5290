"""Parquet with modular encryption: keys from configuration, and what changed bytes cannot do."""

import base64
import itertools
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.laws.laws import chunks
from tests.laws.parquet_cases import written
from tests.support.golden import Golden
from tests.support.parquet_keys import Wrapping, text_of

from extentflow.errors import (
    CorruptObject,
    ExtentflowError,
    Misconfigured,
    UnsupportedFormat,
    UnsupportedType,
)
from extentflow.formats import FormatOptions
from extentflow.formats.parquet.column_keys import FileKeys
from extentflow.formats.parquet.footer import Footers, column_ranges, read_footer
from extentflow.formats.parquet.parquet_format import Parquet, ParquetOptions
from extentflow.testing.stores import MemorySource

FOOTER_KEY = b"0123456789abcdef"
SECRET = base64.b64encode(FOOTER_KEY).decode()
ENCRYPTED = pa.table({"n": range(3_000), "s": [f"text {n}" for n in range(3_000)]})
# Of 128, 192 and 256 bits.
MASTERS = {"footer": b"footer-key-16-by", "people": b"p" * 24, "money": b"m" * 32}
ROW_GROUP = 700
FLAT: dict[str, Any] = {"compression": "none", "use_dictionary": False, "data_page_size": 1_000}
# So that its page's size is looked at often enough.
FLAT["write_batch_size"] = 50


def wrapped(table: pa.Table = ENCRYPTED, client: Any = None, **configured: Any) -> bytes:  # noqa: ANN401
    """Return a file whose data keys are wrapped by master keys."""
    factory = pe.CryptoFactory(lambda _: client or Wrapping(MASTERS))
    keys = factory.file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(footer_key="footer", **configured),
    )
    return written(table, encryption_properties=keys, row_group_size=ROW_GROUP, **FLAT)


def encrypted(table: pa.Table = ENCRYPTED, **options: Any) -> bytes:  # noqa: ANN401
    """Return a file with one key, which it does not hold."""
    keys = pe.create_encryption_properties(FOOTER_KEY, **options)
    return written(table, encryption_properties=keys, row_group_size=ROW_GROUP, **FLAT)


def own_options(secret: str | None = SECRET, key_list: str | None = None) -> ParquetOptions:
    return ParquetOptions(encryption_footer_key=secret, encryption_key_list=key_list)


def of_list(keys: dict[str, bytes]) -> ParquetOptions:
    return own_options(None, text_of(keys))


def read(body: bytes, own: ParquetOptions, footers: Footers | None = None) -> Iterator[Any]:
    """Yield the chunks of a body, by ranges."""
    fmt = Parquet(FormatOptions(window_bytes=2_000), footers or Footers(), 2, own)
    source = MemorySource(body)
    for cut in fmt.plan(source, 5_000):
        yield from chunks(fmt, source, *cut)


def decrypted(body: bytes, own: ParquetOptions, footers: Footers | None = None) -> pa.Table:
    found = list(read(body, own, footers))
    assert not [bad for chunk in found for bad in chunk.bad]
    return pa.Table.from_batches([chunk.batch for chunk in found])


# -- one key ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("footer", ["encrypted", "plain"])
def test_a_file_with_one_key_is_decrypted_by_ranges(algorithm: str, footer: str) -> None:
    body = encrypted(encryption_algorithm=algorithm, plaintext_footer=footer == "plain")

    assert decrypted(body, own_options()) == ENCRYPTED


@pytest.mark.parametrize("own", [own_options(), of_list(MASTERS)], ids=["footer", "list"])
def test_a_plain_file_is_read_although_keys_are_set(own: ParquetOptions) -> None:
    assert decrypted(written(ENCRYPTED, row_group_size=700), own) == ENCRYPTED


@pytest.mark.parametrize("footer", ["encrypted", "plain"])
def test_another_key_is_refused(footer: str, golden: Golden) -> None:
    body = encrypted(plaintext_footer=footer == "plain")
    other = base64.b64encode(b"another key 16 b").decode()

    with golden.raises(UnsupportedFormat):
        decrypted(body, own_options(other))


def test_a_footer_that_was_decrypted_is_not_used_without_its_key() -> None:
    footers, body = Footers(), encrypted()
    decrypted(body, own_options(), footers)

    with pytest.raises(UnsupportedFormat, match="encrypted Parquet file"):
        decrypted(body, own_options(None), footers)


@pytest.mark.parametrize("secret", ["not base64!", base64.b64encode(b"too short").decode(), ""])
def test_a_secret_that_is_no_key_is_reported_without_it(secret: str, golden: Golden) -> None:
    with golden.raises(Misconfigured, match="base64") as caught:
        decrypted(encrypted(), own_options(secret))

    assert not secret or secret not in str(caught.value)


def test_a_damaged_page_of_an_encrypted_file_is_lost_rows() -> None:
    body = bytearray(encrypted())
    body[len(body) // 2] ^= 1

    found = list(read(bytes(body), own_options()))

    rows = sum(chunk.batch.num_rows for chunk in found)
    ((bad,),) = [chunk.bad for chunk in found if chunk.bad]
    assert 0 < rows < len(ENCRYPTED)
    assert "are lost" in bad.reason


# -- keys that master keys wrap --------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "uniform": {"uniform_encryption": True},
    "columns": {"column_keys": {"people": ["s"], "money": ["n"]}},
    "one-column-plain": {"column_keys": {"people": ["s"]}},
}


@pytest.mark.parametrize("footer", ["encrypted", "plain"])
@pytest.mark.parametrize("wrapping", ["double", "single"])
@pytest.mark.parametrize("kind", KINDS)
def test_files_with_keys_of_columns_are_decrypted_by_ranges(
    kind: str, wrapping: str, footer: str
) -> None:
    body = wrapped(
        **KINDS[kind], double_wrapping=wrapping == "double", plaintext_footer=footer == "plain"
    )

    assert decrypted(body, of_list(MASTERS)) == ENCRYPTED


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("bits", [128, 192, 256])
def test_data_keys_of_any_length_and_both_algorithms_are_decrypted(
    bits: int, algorithm: str
) -> None:
    configured = {"data_key_length_bits": bits, "encryption_algorithm": algorithm}

    assert decrypted(wrapped(**KINDS["columns"], **configured), of_list(MASTERS)) == ENCRYPTED


FILES = Path(__file__).parent / "files"


@pytest.mark.parametrize("path", sorted(FILES.glob("encrypted-*.parquet")), ids=lambda it: it.stem)
def test_files_of_parquet_mr_are_decrypted(path: Path) -> None:
    """They were written by Spark 4.0.1 (parquet-mr 1.15.2), with the key list of its handbook."""
    masters = {
        "footer": bytes(range(16)),
        "people": bytes(range(3)) * 8,
        "money": bytes(range(1, 33)),
    }

    found = decrypted(path.read_bytes(), of_list(masters))

    assert found.to_pylist() == [
        {"id": at, "name": f"name {at}", "amount": at * 1.5} for at in range(40)
    ]


LACKING = {
    "footer": {name: key for name, key in MASTERS.items() if name != "footer"},
    "people": {name: key for name, key in MASTERS.items() if name != "people"},
    "another": MASTERS | {"people": b"q" * 24},
    "swapped": MASTERS | {"people": MASTERS["money"], "money": MASTERS["people"]},
}


def test_a_file_with_a_key_that_is_not_listed_is_refused_and_names_it(
    tmp_path: Path, golden: Golden
) -> None:
    """Trap: the metadata of a column without its key ends the process, so another one tries."""
    variants = list(itertools.product(LACKING, [True, False], [True, False]))
    attempts: list[tuple[Path, FileKeys]] = []
    for at, (lack, doubly, plain) in enumerate(variants):
        path = tmp_path / f"{at}.parquet"
        path.write_bytes(
            wrapped(**KINDS["columns"], double_wrapping=doubly, plaintext_footer=plain)
        )
        attempts.append((path, FileKeys(masters=tuple(LACKING[lack].items()))))

    found = refusals(attempts)

    for (lack, _, _), message in zip(variants, found, strict=True):
        golden(message)
        assert "parquet.encryption.key.list" in message
        assert ("it has no master key" in message) == (lack in ("footer", "people"))
        assert any(f"master key '{name}'" in message for name in MASTERS)


def test_columns_with_keys_of_their_own_are_refused_with_the_key_of_the_footer(
    tmp_path: Path,
) -> None:
    attempts: list[tuple[Path, FileKeys]] = []
    for kind, plain in itertools.product(["columns", "one-column-plain"], [True, False]):
        client = _Recording(MASTERS)
        configured = {**KINDS[kind], "double_wrapping": False, "plaintext_footer": plain}
        path = tmp_path / f"{len(attempts)}.parquet"
        path.write_bytes(wrapped(client=client, **configured))
        attempts.append((path, FileKeys(footer=client.wrapped["footer"])))

    found = refusals(attempts)

    assert ["all its columns must have the key of the footer" in message for message in found] == [
        True
    ] * 4


class _Recording(Wrapping):
    """Keeps the keys that it wraps."""

    def __init__(self, masters: dict[str, bytes]) -> None:
        super().__init__(masters)
        self.wrapped: dict[str, bytes] = {}

    def wrap_key(self, key_bytes: bytes, name: str) -> bytes:
        self.wrapped[name] = bytes(key_bytes)
        return super().wrap_key(key_bytes, name)


def refusals(attempts: list[tuple[Path, FileKeys]]) -> list[str]:
    """Return what a process of its own says when it reads the files."""
    given = [(str(path), keys.footer, keys.masters) for path, keys in attempts]
    found = subprocess.run(
        [sys.executable, "-c", REFUSE, repr(given)],
        env={"PYTHONPATH": str(Path("layers/core/python").resolve())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout.splitlines()


REFUSE = """
import ast, sys
from pathlib import Path
from extentflow.errors import UnsupportedFormat
from extentflow.formats.parquet.footer import read_footer
from extentflow.formats.parquet.column_keys import FileKeys
from extentflow.testing.stores import MemorySource

for path, footer, masters in ast.literal_eval(sys.argv[1]):
    try:
        read_footer(MemorySource(Path(path).read_bytes()), FileKeys(footer, masters))
    except UnsupportedFormat as exc:
        print(exc)
"""


class _Fixed(pe.KmsClient):  # type: ignore[misc]
    """Writes what it was made with in place of each wrapped key."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self._text = text

    def wrap_key(self, _key: bytes, _name: str) -> bytes:
        return self._text


SEALED = base64.b64encode(b"n" * 12 + AESGCM(MASTERS["footer"]).encrypt(b"n" * 12, b"", b"footer"))


@pytest.mark.parametrize(
    ("written_key", "what"),
    [
        (b"", "does not unwrap a key"),
        (b"AAAA", "does not unwrap a key"),
        (b"vault:v1:AAAA", "is not base64"),
        (b"{}", "has a version"),
        (b"{", "is not base64"),
        (b'{"masterKeyVersion":"NO_VERSION"}', "is not base64"),
        (b'{"masterKeyVersion":"7","encryptedKey":"AAAA"}', "has a version"),
        (b"[" * 100_000, "is not base64"),
        (b'{"a":' * 100_000, "is not base64"),
        (SEALED, "wraps 0 bytes"),
    ],
)
def test_a_wrapped_key_that_cannot_be_one_is_refused(written_key: bytes, what: str) -> None:
    body = wrapped(client=_Fixed(written_key), uniform_encryption=True, double_wrapping=False)

    with pytest.raises(UnsupportedFormat, match=what) as caught:
        decrypted(body, of_list(MASTERS))

    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    "material",
    [
        b"footer",
        b"[]",
        b"{}",
        b'{"keyMaterialType":"PKMT1"}',
        b'{"keyMaterialType":"PKMT1","internalStorage":5}',
        b'{"keyMaterialType":"PKMT1","internalStorage":false,"keyReference":"footerKey"}',
        b"[" * 1_000_000,
        b"\xff\xfe",
    ],
    ids=lambda text: text[:24].decode("latin-1"),
)
def test_key_material_that_cannot_be_read_is_refused(material: bytes) -> None:
    """What a file of another writer, or a hostile one, has in front of its encrypted footer."""
    body = wrapped(uniform_encryption=True)
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    first = body.index(b'{"keyMaterialType', start)
    last = body.index(b"}", first) + 1
    held = varint(last - first)
    footer = body[start : first - len(held)] + varint(len(material)) + material + body[last:-8]
    changed = body[:start] + footer + len(footer).to_bytes(4, "little") + b"PARE"

    with pytest.raises(UnsupportedFormat, match=r"cannot be decrypted with .*key\.list") as caught:
        decrypted(changed, of_list(MASTERS))

    assert len(str(caught.value)) < 1_000


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def test_no_service_is_asked_at_an_address_that_a_file_names() -> None:
    """Trap: a file chose the server that got the token for the keys."""
    body = wrapped(uniform_encryption=True).replace(
        b'"kmsInstanceURL":"DEFAULT"', b'"kmsInstanceURL":"file:/x"'
    )
    assert b"file:/x" in body

    assert decrypted(body, of_list(MASTERS)) == ENCRYPTED


@pytest.mark.parametrize(
    ("key_list", "at"),
    [
        ("", 1),
        ("footer", 1),
        (SECRET, 1),
        (f"footer:{SECRET}, footer:{SECRET}", 2),
        (f"footer:{SECRET},", 2),
        (f":{SECRET}", 1),
        (f"a:{SECRET}, b:c:{SECRET}", 2),
        ("footer:AAAA", 1),
        ("footer:?", 1),
    ],
)
def test_a_secret_that_is_no_list_of_keys_is_reported_without_it(
    key_list: str, at: int, golden: Golden
) -> None:
    with golden.raises(Misconfigured, match=rf"key\.list.*entry {at}") as caught:
        decrypted(wrapped(uniform_encryption=True), own_options(None, key_list))

    assert SECRET not in str(caught.value)


# -- what is never shown ---------------------------------------------------------------------------


def test_keys_are_in_no_representation() -> None:
    own = own_options(SECRET, text_of(MASTERS))
    keys = FileKeys(FOOTER_KEY, tuple(MASTERS.items()))

    seen = repr((Parquet(FormatOptions(), own=own), keys, Footers(), keys.properties()))

    assert SECRET not in seen
    assert FOOTER_KEY.decode() not in seen
    assert not [key for key in MASTERS.values() if key.decode() in seen]


def failure(act: Callable[[], object]) -> ExtentflowError:
    with pytest.raises(ExtentflowError) as caught:
        act()
    return caught.value


@pytest.mark.parametrize("kind", ["footer", "list", "column"])
def test_no_key_is_in_an_error_or_in_what_caused_it(kind: str) -> None:
    client = _Recording(MASTERS)
    bodies = {
        "footer": (encrypted(), own_options(base64.b64encode(b"k" * 16).decode())),
        "list": (
            wrapped(client=client, **KINDS["columns"]),
            of_list({"footer": b"l" * 16, "people": b"k" * 24}),
        ),
        "column": (
            wrapped(client=client, **KINDS["columns"], double_wrapping=False),
            of_list(MASTERS | {"people": b"k" * 24}),
        ),
    }
    body, own = bodies[kind]

    error = failure(lambda: decrypted(body, own))

    seen = "".join(traceback.format_exception(error)) + repr(error)
    chain: BaseException | None = error
    while chain is not None:
        seen += repr(chain) + repr(chain.__dict__)
        chain = chain.__cause__ or chain.__context__
    planted = [FOOTER_KEY, *MASTERS.values(), *client.wrapped.values(), b"k" * 16, b"k" * 24]
    for key in planted:
        for form in (key.decode("latin-1"), base64.b64encode(key).decode(), key.hex(), repr(key)):
            assert form not in seen


# -- what changed bytes cannot do ------------------------------------------------------------------
# Every module of a file is encrypted with its place: the file, the row group, the column, the page.

# Tables of one shape, without compression, so that their parts fit in place of each other.


def shaped(first: int) -> pa.Table:
    rows = range(first, first + 2_100)
    texts = pa.array([f"text {n:06}" for n in rows])
    return pa.table({"n": rows, "m": [n + 1 for n in rows], "s": texts})


HERE, ELSEWHERE = shaped(0), shaped(10_000)
COLUMNS = {"column_keys": {"people": ["s"], "money": ["n", "m"]}}


def one_key(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401
    return encrypted(table, **options)


def many_keys(table: pa.Table, **options: Any) -> bytes:  # noqa: ANN401
    return wrapped(table, **COLUMNS, **options)


WRITERS = {"one-key": (one_key, own_options()), "many-keys": (many_keys, of_list(MASTERS))}


def chunk_ranges(body: bytes, own: ParquetOptions) -> list[list[tuple[int, int]]]:
    """Return the ranges of column chunks by row group."""
    keys = FileKeys.of(own.encryption_footer_key, own.encryption_key_list)
    metadata = read_footer(MemorySource(body), keys).metadata
    return [column_ranges(metadata.row_group(at)) for at in range(metadata.num_row_groups)]


def page_ranges(body: bytes, chunk: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the ranges of pages with their headers: two modules, each behind its length."""
    found, at = [], chunk[0]
    while at < chunk[1]:
        start = at
        for _ in range(2):
            at += 4 + int.from_bytes(body[at : at + 4], "little")
        found.append((start, at))
    return found


def in_place_of(body: bytes, at: tuple[int, int], part: bytes) -> bytes:
    assert len(part) == at[1] - at[0], "the part fits"
    return body[: at[0]] + part + body[at[1] :]


def lost_rows(body: bytes, own: ParquetOptions) -> int:
    """Read a changed body; return how many rows are lost. The others are those of `HERE`."""
    right, rows, bad = HERE.to_pylist(), 0, 0
    for chunk in read(body, own):
        assert chunk.batch.to_pylist() == [right[at] for at in chunk.locations]
        rows += chunk.batch.num_rows
        bad += len(chunk.bad)
    assert (rows < len(right)) == (bad > 0)
    return len(right) - rows


@pytest.mark.parametrize("footer", ["encrypted", "plain"])
@pytest.mark.parametrize("kind", WRITERS)
def test_parts_in_the_place_of_others_are_lost_rows(kind: str, footer: str) -> None:
    write, own = WRITERS[kind]
    body, other = (write(each, plaintext_footer=footer == "plain") for each in (HERE, ELSEWHERE))
    here, there = (chunk_ranges(each, own) for each in (body, other))
    pages = page_ranges(body, here[1][0])
    assert here == there
    assert len(pages) > 3

    changed = {
        "a chunk of another file": (here[0][0], other[slice(*there[0][0])]),
        "a chunk of another group": (here[1][0], body[slice(*here[0][0])]),
        "a chunk of another column": (here[1][0], body[slice(*here[1][1])]),
        "another page": (pages[1], body[slice(*pages[2])]),
        "the page of another file": (pages[1], other[slice(*pages[1])]),
    }

    lost = {what: lost_rows(in_place_of(body, *how), own) for what, how in changed.items()}
    assert all(0 < count <= ROW_GROUP for count in lost.values()), lost


@pytest.mark.parametrize("footer", ["encrypted", "plain"])
@pytest.mark.parametrize("kind", WRITERS)
def test_the_footer_of_another_file_yields_no_row(kind: str, footer: str) -> None:
    write, own = WRITERS[kind]
    body, other = (write(each, plaintext_footer=footer == "plain") for each in (HERE, ELSEWHERE))
    start = chunk_ranges(body, own)[-1][-1][1]

    found = list(read(other[:start] + body[start:], own))

    assert not sum(chunk.batch.num_rows for chunk in found)
    assert [len(chunk.bad) for chunk in found if chunk.bad] == [1] * 3


@pytest.mark.parametrize(
    ("kind", "footer"),
    [
        ("one-key", "plain"),
        pytest.param("one-key", "encrypted", marks=pytest.mark.variant),
        pytest.param("many-keys", "plain", marks=pytest.mark.variant),
        ("many-keys", "encrypted"),
    ],
)
def test_no_changed_byte_changes_a_row(kind: str, footer: str) -> None:
    write, own = WRITERS[kind]
    body = write(HERE.slice(0, 60), plaintext_footer=footer == "plain")
    start, right = chunk_ranges(body, own)[-1][-1][1], HERE.to_pylist()

    outcomes = set()
    for at in range(0, len(body), 31):
        changed = bytearray(body)
        changed[at] ^= 1 << at % 8
        try:
            found = list(read(bytes(changed), own))
        except (UnsupportedFormat, UnsupportedType, CorruptObject):
            outcomes.add("refused")
            continue
        rows = [row for chunk in found for row in chunk.batch.to_pylist()]
        assert rows == right[: len(rows)]
        lost = any(chunk.bad for chunk in found)
        assert lost or len(rows) == 60
        # Whatever the footer says: it is authenticated, apart from the id of its key.
        assert lost or at < 4 or at >= start
        outcomes.add("lost" if lost else "whole")
    assert outcomes >= {"refused", "lost"}


def test_a_file_without_encryption_in_the_place_of_another_is_not_detected() -> None:
    """As the specification says: files themselves are not signed, their parts are."""
    assert decrypted(written(HERE), own_options()) == HERE


def test_pages_that_only_ctr_encrypts_are_not_authenticated() -> None:
    """As the specification says; a page's header and the footer are."""
    body = encrypted(HERE, encryption_algorithm="AES_GCM_CTR_V1")
    first, second = page_ranges(body, chunk_ranges(body, own_options())[0][0])[:2]

    with_header = in_place_of(body, first, body[slice(*second)])

    assert lost_rows(with_header, own_options()) == ROW_GROUP
