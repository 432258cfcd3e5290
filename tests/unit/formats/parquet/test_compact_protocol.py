"""A walk through Thrift's compact protocol takes no longer than its bytes are many."""

import pytest

from extentflow.formats.parquet.compact_protocol import (
    BYTE,
    DEEPEST,
    DOUBLE,
    LIST,
    SET,
    STRUCT,
    CompactWalk,
)

# 2^62 as a varint, which follows the head of a list.
MOST = bytes([0x80] * 8 + [0x40])


class CountedWalk(CompactWalk):
    """Fails instead of taking as many steps as are stated."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.steps = 0

    def behind(self, kind: int, at: int, depth: int = DEEPEST) -> int:
        self.steps += 1
        assert self.steps <= len(self.data) + 1
        return super().behind(kind, at, depth)


@pytest.mark.parametrize("kind", [0, 1, 2, BYTE, 5, DOUBLE, 8, LIST, SET, STRUCT])
@pytest.mark.parametrize("outer", [LIST, SET])
def test_elements_that_are_stated_and_not_there_take_no_steps(outer: int, kind: int) -> None:
    """Trap: bytes and doubles have a fixed size, which needs no byte of the data to step over."""
    walk = CountedWalk(bytes([0xF0 | kind]) + MOST + bytes(300))

    with pytest.raises(IndexError):
        walk.behind(outer, 0)

    assert walk.steps == 1


def test_lists_in_lists_have_all_their_elements_in_the_bytes() -> None:
    inner = bytes([0x30 | DOUBLE]) + bytes(24)
    nested = bytes([0x20 | LIST]) + inner + inner

    assert CountedWalk(nested).behind(LIST, 0) == len(nested)
    for length in range(len(nested)):
        with pytest.raises(IndexError):
            CountedWalk(nested[:length]).behind(LIST, 0)


@pytest.mark.parametrize(("kind", "size"), [(BYTE, 1), (DOUBLE, 8)])
def test_a_value_of_a_fixed_size_ends_within_the_bytes(kind: int, size: int) -> None:
    assert CompactWalk(bytes(9)).behind(kind, 9 - size) == 9
    with pytest.raises(IndexError):
        CompactWalk(bytes(9)).behind(kind, 10 - size)


def test_structures_and_lists_are_nested_up_to_a_depth() -> None:
    lists = bytes([0x10 | LIST]) * (DEEPEST - 1) + bytes([0])
    structs = bytes([0x10 | STRUCT]) * (DEEPEST - 1) + bytes(DEEPEST)

    assert CompactWalk(lists).behind(LIST, 0) == len(lists)
    assert CompactWalk(structs).behind(STRUCT, 0) == len(structs)
    for kind in (LIST, STRUCT):
        with pytest.raises(ValueError, match="too deep"):
            CompactWalk(bytes([0x10 | kind]) * 1_000).behind(kind, 0)


def test_a_list_of_structures_is_refused_before_its_first_element() -> None:
    walk = CompactWalk(bytes([0xF0 | STRUCT]) + MOST + bytes(300))
    seen: list[int] = []

    def inner(at: int, ordinal: int) -> int:
        assert ordinal < len(walk.data)
        seen.append(ordinal)
        return at + 1

    with pytest.raises(IndexError):
        walk.each(0, inner)

    assert seen == []
