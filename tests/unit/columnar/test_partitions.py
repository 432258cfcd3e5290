"""The partition of each row is the one that Java's default partitioner gives its key."""

import random

import numpy as np
import pyarrow as pa
import pytest

from extentflow.columnar.partitions import ANY, by_keys
from extentflow.testing.broker import java_partition

KINDS = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]
VIEWS = [pa.binary_view(), pa.string_view()]


def random_keys(seed: int, count: int = 500) -> list[bytes | None]:
    """Return keys of 0 to 40 bytes of ASCII, which are texts, too, and some nulls."""
    rng = random.Random(seed)
    keys = [bytes(rng.choices(range(128), k=rng.randrange(41))) for _ in range(count)]
    return [None if rng.random() < 0.1 else key for key in keys]


def expected(keys: list[bytes | None], partitions: int) -> list[int]:
    return [ANY if key is None else java_partition(key, partitions) for key in keys]


def array(keys: list[bytes | None], kind: pa.DataType) -> pa.Array:
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    values = [None if key is None else key.decode() for key in keys] if texts else keys
    return pa.array(values, kind)


@pytest.mark.parametrize("partitions", [1, 2, 7, 64, 1000, 2**31 - 1])
def test_random_keys_of_every_length_have_the_partitions_of_java(partitions: int) -> None:
    rng = random.Random(partitions)
    keys: list[bytes | None] = [rng.randbytes(length) for length in range(41) for _ in range(20)]
    rng.shuffle(keys)

    found = by_keys(pa.array(keys, pa.binary()), partitions)

    assert found.dtype == np.int32
    assert found.tolist() == expected(keys, partitions)


def test_bytes_with_the_highest_bit_set_are_unsigned() -> None:
    keys: list[bytes | None] = [b"\xff" * length for length in range(12)]

    assert by_keys(pa.array(keys, pa.binary()), 97).tolist() == expected(keys, 97)


@pytest.mark.parametrize("kind", [*KINDS, *VIEWS], ids=str)
def test_binary_and_text_keys_are_hashed_as_bytes(kind: pa.DataType) -> None:
    keys = random_keys(1)

    assert by_keys(array(keys, kind), 13).tolist() == expected(keys, 13)


def test_text_is_hashed_as_utf8() -> None:
    texts = ["ä", "€uro", "😀"]

    found = by_keys(pa.array(texts), 11)

    assert found.tolist() == [java_partition(text.encode(), 11) for text in texts]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("start", "end"), [(0, 3), (3, 400), (250, 251), (499, 500), (70, 70)])
def test_slices_of_keys_have_the_partitions_of_their_rows(
    kind: pa.DataType, start: int, end: int
) -> None:
    keys = random_keys(2)

    found = by_keys(array(keys, kind)[start:end], 13)

    assert found.tolist() == expected(keys[start:end], 13)


def test_a_slice_of_a_slice_has_the_partitions_of_its_rows() -> None:
    keys = random_keys(3)

    found = by_keys(pa.array(keys, pa.binary())[11:300][7:200], 13)

    assert found.tolist() == expected(keys[18:211], 13)


def test_a_null_has_any_partition_and_an_empty_key_has_one() -> None:
    keys = pa.array([None, b"", None], pa.binary())

    assert by_keys(keys, 5).tolist() == [ANY, java_partition(b"", 5), ANY]


@pytest.mark.parametrize("keys", [pa.nulls(3), pa.nulls(3, pa.binary()), pa.nulls(3, pa.string())])
def test_rows_without_keys_have_any_partition(keys: pa.Array) -> None:
    assert by_keys(keys, 5).tolist() == [ANY] * 3


def test_bytes_below_a_null_count_for_nothing() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 6, 9], np.int32))
    validity = pa.py_buffer(b"\x05")
    data = pa.py_buffer(b"abc???def")
    keys = pa.Array.from_buffers(pa.binary(), 3, [validity, offsets, data])

    assert by_keys(keys, 5).tolist() == [java_partition(b"abc", 5), ANY, java_partition(b"def", 5)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_rows_have_no_partitions(kind: pa.DataType) -> None:
    assert by_keys(pa.array([], kind), 5).tolist() == []
