"""Texts in one buffer: slices, places and bytes that are no UTF-8."""

import numpy as np
import pyarrow as pa

from extentflow.arrays.spans import Spans, slices

TEXTS = [b"one", b"", b"\xc3\xa4", b"\xff", b""]


def test_texts_are_one_buffer_whose_slices_they_are() -> None:
    spans = Spans.of(TEXTS)

    assert [spans.raw(row) for row in range(len(spans))] == TEXTS
    assert slices(spans.data, spans.starts, spans.ends).to_pylist() == TEXTS
    assert len(Spans.of([])) == 0


def test_texts_of_another_type_are_slices_with_gaps() -> None:
    found = slices(b"a-bb-c", np.array([0, 2]), np.array([1, 4]), pa.string())

    assert found.equals(pa.array(["a", "bb"]))
    assert slices(b"", np.zeros(0, int), np.zeros(0, int), pa.string()).type == pa.string()


def test_texts_that_are_no_utf_8_are_found_between_bytes_that_belong_to_none() -> None:
    data = np.frombuffer(b"\xffab\xff\xc3\xa4\x80\xc3", np.uint8)

    assert Spans.of(TEXTS).not_utf8() == [3]
    assert Spans(data, np.array([1, 4, 6]), np.array([3, 6, 8])).not_utf8() == [2]
